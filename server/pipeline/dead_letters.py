"""/v1/dead-letters: list, read, replay and drop dead letters."""

from __future__ import annotations

import msgspec

from memory.pipeline.dead_letters import await_replay, drop, replay
from reverie.clock import from_micros
from reverie.errors import NotFound
from reverie.pipeline import calls
from reverie.pipeline.types import DeadLetter, DeadLetterList
from reverie.types import Deleted
from server.authorisation import require_reach
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.pipeline import records
from storage.stores import Store

endpoints = Endpoints("dead letters")


@endpoints.serves(calls.ListDeadLetters)
def _list_dead_letters(services: Services, caller: Caller, call: calls.ListDeadLetters) -> DeadLetterList:
    if call.all_agents:
        require_reach(caller.principal, "workspace")
    store = services.existing_store(caller.workspace)
    if store is None:
        return DeadLetterList(dead_letters=[])
    with store.reading() as tx:
        listed = tx.dead_letters if call.all_agents else tx.for_agent(caller.agent).dead_letters
        letters = listed.list(limit=call.limit, offset=call.offset)
    return DeadLetterList(dead_letters=[to_dead_letter(record, with_payload=False) for record in letters])


@endpoints.serves(calls.GetDeadLetter)
def _get_dead_letter(services: Services, caller: Caller, call: calls.GetDeadLetter) -> DeadLetter:
    with _store(services, caller, call.letter_id).reading() as tx:
        return to_dead_letter(tx.for_agent(caller.agent).dead_letters.get(call.letter_id), with_payload=True)


@endpoints.serves(calls.ReplayDeadLetter, waits=lambda call: call.timeout_seconds > 0)
def _replay(services: Services, caller: Caller, call: calls.ReplayDeadLetter) -> DeadLetter:
    runtime, store = services.runtime, _store(services, caller, call.letter_id)
    record = replay(store, runtime.inbox, call.letter_id, agent=caller.agent)
    runtime.notify_stage(record.stage, caller.workspace, trace=caller.trace)
    state, letter = await_replay(store, record, timeout_seconds=call.timeout_seconds)
    return msgspec.structs.replace(to_dead_letter(letter, with_payload=False), replay=state)


@endpoints.serves(calls.DropDeadLetter)
def _drop(services: Services, caller: Caller, call: calls.DropDeadLetter) -> Deleted:
    try:
        drop(_store(services, caller, call.letter_id), call.letter_id, agent=caller.agent)
    except NotFound:
        return Deleted(deleted=False)
    return Deleted(deleted=True)


def to_dead_letter(record: records.DeadLetter, *, with_payload: bool) -> DeadLetter:
    """Convert a stored dead letter to that of the API."""
    payload = record.payload.decode("utf-8", "replace") if with_payload and record.payload is not None else None
    return DeadLetter(
        id=record.id,
        agent=record.agent,
        stage=record.stage,
        item_id=record.item_id,
        error_type=record.error_type,
        error=record.error,
        attempts=record.attempts,
        created_at=from_micros(record.created_at),
        session=record.session,
        trace=record.trace,
        payload=payload,
    )


def _store(services: Services, caller: Caller, letter_id: int) -> Store:
    store = services.existing_store(caller.workspace)
    if store is None:
        raise NotFound(f"there is no dead letter {letter_id}", field="id")
    return store
