"""/v1/scratchpads: the working notes of a session, as a list of texts and as keys with values."""

from __future__ import annotations

from typing import Any

from memory.sessions import scratchpads
from reverie.calls import InSession
from reverie.sessions import calls
from reverie.sessions.scratchpad_types import Cleared, ScratchpadEntries, ScratchpadEntry, ScratchpadList
from reverie.types import Deleted
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("scratchpads")


@endpoints.serves(calls.GetScratchpad)
def _get_items(services: Services, caller: Caller, call: calls.GetScratchpad) -> ScratchpadList:
    store = services.seen_store(caller, call)
    if store is None:
        return ScratchpadList(items=[])
    return scratchpads.read_items(store, agent=caller.agent, session=call.session)


@endpoints.serves(calls.WriteScratchpad)
def _write_items(services: Services, caller: Caller, call: calls.WriteScratchpad) -> ScratchpadList:
    runtime = services.runtime
    return scratchpads.write_items(
        services.own_store(caller, call),
        agent=caller.agent,
        session=call.session,
        items=list(call.items),
        now=runtime.now(),
    )


@endpoints.serves(calls.ClearScratchpad)
def _clear_items(services: Services, caller: Caller, call: calls.ClearScratchpad) -> Cleared:
    store = services.seen_store(caller, call)
    if store is None:
        return Cleared(cleared=0)
    return Cleared(cleared=scratchpads.clear_items(store, agent=caller.agent, session=call.session))


@endpoints.serves(calls.ListScratchpadKeys)
def _list_keys(services: Services, caller: Caller, call: calls.ListScratchpadKeys) -> ScratchpadEntries:
    store = services.seen_store(caller, call)
    if store is None:
        return ScratchpadEntries(entries=[])
    return ScratchpadEntries(entries=scratchpads.list_keys(store, agent=caller.agent, session=call.session))


@endpoints.serves(calls.GetScratchpadKey)
def _get_key(services: Services, caller: Caller, call: calls.GetScratchpadKey) -> ScratchpadEntry:
    store = services.store_of_session(caller, call)
    return scratchpads.read_key(store, agent=caller.agent, session=call.session, key=call.key)


@endpoints.serves(calls.WriteScratchpadKey)
def _write_key(services: Services, caller: Caller, call: calls.WriteScratchpadKey) -> ScratchpadEntry:
    runtime = services.runtime
    return scratchpads.write_key(
        services.own_store(caller, call),
        agent=caller.agent,
        session=call.session,
        key=call.key,
        value=call.value,
        now=runtime.now(),
    )


@endpoints.serves(calls.DeleteScratchpadKey)
def _delete_key(services: Services, caller: Caller, call: calls.DeleteScratchpadKey) -> Deleted:
    return Deleted(deleted=_delete(services, caller, call, call.key) > 0)


@endpoints.serves(calls.ClearScratchpadKeys)
def _clear_keys(services: Services, caller: Caller, call: calls.ClearScratchpadKeys) -> Cleared:
    return Cleared(cleared=_delete(services, caller, call, None))


def _delete(services: Services, caller: Caller, call: InSession[Any], key: str | None) -> int:
    store = services.seen_store(caller, call)
    return 0 if store is None else scratchpads.delete_keys(store, agent=caller.agent, session=call.session, key=key)
