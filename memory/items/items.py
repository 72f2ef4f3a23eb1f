"""What calls do with items: put, get, search, list and delete, one by one or as a batch.

Nothing is embedded inside a transaction. The writes of a batch are one transaction, after all its reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from adapters.embedders.base import Embedder
from memory.conversion import convert
from memory.items.embedding import to_blob, vectors_at_once
from memory.items.namespaces import fixed_part, select_namespaces
from memory.items.searching import ItemSearch, query_vector, search_rows
from memory.items.texts import WHOLE
from reverie.errors import NotFound
from reverie.items.calls import (
    GetItem,
    GetOperation,
    ItemOperation,
    ListItemNamespaces,
    NamespacesOperation,
    PutItem,
    PutOperation,
    SearchItems,
    SearchOperation,
)
from reverie.items.types import FoundItem, FoundItems, Item, ItemOutcome
from storage.items.items import OWN_MODEL, ItemRow, Items, NewItem
from storage.stores import Store

# Items removed in one transaction: some milliseconds under the write lock.
_SWEPT_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class ItemsOf:
    """The items of one user of an agent, or of the agent itself, in a store; and the embedder of that store.

    `now` is in microseconds.
    """

    store: Store
    agent: str
    user: str | None
    embedder: Embedder | None
    now: int

    def put(self, puts: Sequence[PutItem | PutOperation]) -> tuple[list[ItemRow], bool]:
        """Store items in one transaction, and delete those whose value is None.

        Returns those stored, and whether some of them wait to be embedded. Of several puts of one item the last counts.
        """
        last = list({(tuple(put.namespace), put.key): put for put in puts}.values())
        new = self._new_items([put for put in last if put.value is not None])
        stored: list[ItemRow] = []
        with self.store.writing() as tx:
            items = tx.for_agent(self.agent).items.of(self.user)
            for put in last:
                if put.value is None:
                    items.delete(put.namespace, put.key)
            stored += [items.put(item, now=self.now) for item in new]
        return stored, any(item.embedding_model is None and item.index_fields for item in new)

    def get(self, gets: Sequence[GetItem | GetOperation]) -> list[ItemRow | None]:
        """Return items, None for each that does not exist or has expired."""
        with self.store.reading() as tx:
            items = tx.for_agent(self.agent).items.of(self.user)
            found = [items.get(get.namespace, get.key, alive_at=self._alive_at(get.expired)) for get in gets]
        return self._refreshed(found, [get.refresh_ttl for get in gets])

    def search(self, call: SearchItems | SearchOperation) -> FoundItems:
        """Return the items that a search finds. Raises `Rejected` for a vector of another length."""
        query = query_vector(self.embedder, call.query, call.query_vector, call.distance)
        search = ItemSearch(call.namespace, call.filter, call.limit, call.offset, self._alive_at(call.expired))
        with self.store.reading() as tx:
            found = search_rows(tx.for_agent(self.agent).items.of(self.user), search, query)
        rows = self._refreshed([row for row, _ in found], [call.refresh_ttl] * len(found))
        items = [convert(row, FoundItem, score=score) for row, (_, score) in zip(rows, found, strict=True) if row]
        degraded = query.degraded if query is not None else ""
        if query is not None and any(query.misses(row) for row, _ in found):
            degraded = degraded or "the last items have no vectors yet: they are compared later"
        return FoundItems(items=items, degraded=degraded)

    def namespaces(self, call: ListItemNamespaces | NamespacesOperation) -> list[list[str]]:
        """Return the namespaces that hold items and fit, in order."""
        with self.store.reading() as tx:
            items = tx.for_agent(self.agent).items.of(self.user)
            present = items.namespaces(fixed_part(call.prefix), alive_at=self._alive_at(call.expired))
        found = select_namespaces(present, prefix=call.prefix, suffix=call.suffix, max_depth=call.max_depth)
        return found[call.offset : call.offset + call.limit]

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Delete an item; False if there was none."""
        with self.store.writing() as tx:
            return tx.for_agent(self.agent).items.of(self.user).delete(namespace, key)

    def sweep(self) -> int:
        """Remove expired items in short transactions; returns how many."""
        removed = 0
        while True:
            with self.store.writing() as tx:
                found = tx.for_agent(self.agent).items.of(self.user).remove_expired(now=self.now, limit=_SWEPT_AT_ONCE)
            removed += found
            if found < _SWEPT_AT_ONCE:
                return removed

    def batch(self, operations: Sequence[ItemOperation]) -> tuple[list[ItemOutcome], bool]:
        """Carry out operations, the reads first; returns their outcomes, and whether items wait to be embedded."""
        gets = [operation for operation in operations if isinstance(operation, GetOperation)]
        got = iter(self.get(gets) if gets else ())
        outcomes = []
        for operation in operations:
            match operation:
                case GetOperation():
                    row = next(got)
                    outcomes.append(ItemOutcome(item=None if row is None else to_item(row)))
                case SearchOperation():
                    outcomes.append(ItemOutcome(found=self.search(operation)))
                case NamespacesOperation():
                    outcomes.append(ItemOutcome(namespaces=self.namespaces(operation)))
                case PutOperation():
                    outcomes.append(ItemOutcome())
        puts = [operation for operation in operations if isinstance(operation, PutOperation)]
        return outcomes, bool(puts) and self.put(puts)[1]

    def _new_items(self, puts: Sequence[PutItem | PutOperation]) -> list[NewItem]:
        """Return the items of puts with their vectors."""
        paths = [None if put.vectors is not None else (put.index if put.index is not None else [WHOLE]) for put in puts]
        indexed = [(put.value or {}, path) for put, path in zip(puts, paths, strict=True) if path]
        embedded = iter(vectors_at_once(self.embedder, indexed))
        found = []
        for put, path in zip(puts, paths, strict=True):
            computed = next(embedded) if path else None
            model, vectors = (
                (None, []) if computed is None or self.embedder is None else (self.embedder.model, computed)
            )
            if put.vectors is not None:
                model, vectors = OWN_MODEL, [to_blob(vector) for vector in put.vectors]
            fields = list(path) if path else None
            found.append(NewItem(put.namespace, put.key, put.value, put.ttl_seconds, fields, model, vectors))
        return found

    def _refreshed(self, rows: Sequence[ItemRow | None], wanted: Sequence[bool]) -> list[ItemRow | None]:
        """Begin the time to live of items anew where that is wanted, and return them as they are then."""
        due = [
            row.row_id
            for row, refresh in zip(rows, wanted, strict=True)
            if row is not None and refresh and row.ttl_seconds is not None
        ]
        if not due:
            return list(rows)
        with self.store.writing() as tx:
            items: Items = tx.for_agent(self.agent).items.of(self.user)
            items.refresh(due, now=self.now)
            changed = {row.row_id: row for row in items.rows(due)}
        return [row if row is None else changed.get(row.row_id, row) for row in rows]

    def _alive_at(self, expired: bool) -> int | None:
        return None if expired else self.now


def read_item(items: ItemsOf | None, call: GetItem) -> Item:
    """Return an item. Raises `NotFound`."""
    row = items.get([call])[0] if items is not None else None
    if row is None:
        raise NotFound(f"there is no item {call.key!r} in namespace {list(call.namespace)!r}", field="key")
    return to_item(row)


def to_item(row: ItemRow) -> Item:
    """Return an item as the client sees it."""
    return convert(row, Item)
