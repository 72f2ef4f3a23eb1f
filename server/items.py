"""/v1/items: JSON values under a namespace and a key."""

from __future__ import annotations

from typing import Any

from memory.conversion import convert
from memory.items.items import ItemsOf, read_item
from reverie import items as calls
from reverie.items import FoundItems, Item, ItemOutcome, ItemOutcomes
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.stores import Store

endpoints = Endpoints("items")


def _items_seen(services: Services, caller: Caller, call: Any) -> ItemsOf | None:
    store = services.existing_store(caller.workspace)
    return None if store is None else _items_of(services, caller, call.user, store)


@endpoints.serves(calls.PutItem)
def _put_item(services: Services, caller: Caller, call: calls.PutItem) -> Item:
    store = services.runtime.store(caller.workspace)
    rows, waiting = _items_of(services, caller, call.user, store).put([call])
    _notify_workers(services, caller, waiting=waiting)
    return convert(rows[0], Item)


@endpoints.serves(calls.GetItem)
def _get_item(services: Services, caller: Caller, call: calls.GetItem) -> Item:
    return read_item(_items_seen(services, caller, call), call)


endpoints.passes(calls.DeleteItem, ItemsOf.delete, _items_seen)


@endpoints.serves(calls.SearchItems)
def _search_items(services: Services, caller: Caller, call: calls.SearchItems) -> FoundItems:
    items = _items_seen(services, caller, call)
    if items is None:
        return FoundItems(items=[])
    found = items.search(call)
    _notify_workers(services, caller, waiting=bool(found.degraded))
    return found


endpoints.passes(calls.ListItemNamespaces, ItemsOf.namespaces, _items_seen)


@endpoints.serves(calls.BatchItems)
def _batch_items(services: Services, caller: Caller, call: calls.BatchItems) -> ItemOutcomes:
    has_puts = any(getattr(operation, "value", None) is not None for operation in call.operations)
    store = services.runtime.store(caller.workspace) if has_puts else services.existing_store(caller.workspace)
    if store is None:
        return ItemOutcomes(outcomes=[_nothing(operation) for operation in call.operations])
    outcomes, waiting = _items_of(services, caller, call.user, store).batch(call.operations)
    _notify_workers(services, caller, waiting=waiting)
    return ItemOutcomes(outcomes=outcomes)


endpoints.passes(calls.SweepItems, ItemsOf.sweep, _items_seen)


def _items_of(services: Services, caller: Caller, user: str | None, store: Store) -> ItemsOf:
    runtime = services.runtime
    embedder = runtime.embedder_for(store)
    prompt = None if embedder is None else embedder.for_recalls
    return ItemsOf(store, caller.agent, user, prompt, runtime.now())


def _notify_workers(services: Services, caller: Caller, *, waiting: bool) -> None:
    """Have workers embed the items that wait, if there is an embedder."""
    if waiting and services.runtime.settings.embedding_provider != "none":
        services.runtime.notify_stage("items", caller.workspace)


def _nothing(operation: calls.ItemOperation) -> ItemOutcome:
    """Return the outcome of an operation on a workspace in which nothing is stored."""
    match operation:
        case calls.SearchOperation():
            return ItemOutcome(found=FoundItems(items=[]))
        case calls.NamespacesOperation():
            return ItemOutcome(namespaces=[])
    return ItemOutcome()
