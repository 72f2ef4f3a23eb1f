"""/v1/facts: set, list, read and delete facts, and read their history."""

from __future__ import annotations

from memory.memories.facts import fact_history, forget_fact, list_facts, read_fact, set_fact, to_fact
from reverie.memories import calls
from reverie.memories.types import Fact, FactList
from reverie.moments import micros_until
from reverie.types import Deleted
from server.caller import Caller
from server.endpoints import Endpoints
from server.memories.memories import memories_of, notify_pipeline
from server.services import Services

endpoints = Endpoints("facts")


@endpoints.serves(calls.ListFacts)
def _list_facts(services: Services, caller: Caller, call: calls.ListFacts) -> FactList:
    memories, held_at = memories_of(services, caller, call), micros_until(call.as_of, now=services.runtime.now())
    facts = list_facts(memories, category=call.category, limit=call.limit, offset=call.offset, held_at=held_at)
    return FactList(facts=facts)


@endpoints.serves(calls.GetFact)
def _get_fact(services: Services, caller: Caller, call: calls.GetFact) -> Fact:
    held_at = micros_until(call.as_of, now=services.runtime.now())
    return read_fact(memories_of(services, caller, call), call.category, call.key, held_at=held_at)


@endpoints.serves(calls.GetFactHistory)
def _get_history(services: Services, caller: Caller, call: calls.GetFactHistory) -> FactList:
    return FactList(facts=fact_history(memories_of(services, caller, call), call.category, call.key))


@endpoints.serves(calls.SetFact)
def _set_fact(services: Services, caller: Caller, call: calls.SetFact) -> Fact:
    stored = set_fact(
        memories_of(services, caller, call),
        call,
        now=services.runtime.now(),
        trace=caller.trace,
        needs_approval=caller.user is not None,
    )
    return to_fact(notify_pipeline(services, stored).record)


@endpoints.serves(calls.ForgetFact)
def _forget_fact(services: Services, caller: Caller, call: calls.ForgetFact) -> Deleted:
    return Deleted(deleted=forget_fact(memories_of(services, caller, call), call.category, call.key))
