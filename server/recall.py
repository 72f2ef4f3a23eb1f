"""Calls that recall: results, contexts, and the log of earlier recalls."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from msgspec.structs import asdict, replace

from adapters.broker.recall_log import QUERY_CHARACTERS, ContextNote, RecallNote
from adapters.language_models import LanguageModel
from memory.conversion import convert
from memory.recall import list_contexts, recent_recalls, show_context
from memory.sessions.restoring import restore_session
from retrieval.context.fit import room_of
from retrieval.context.select import ContextRequest
from retrieval.context.write import build_context
from retrieval.query import RecallRequest
from reverie.clock import new_id
from reverie.errors import NotFound, Rejected
from reverie.fields import micros_until
from reverie.recall import calls
from reverie.recall.types import (
    Context,
    FoundSessions,
    RecallEventList,
    RecallResponse,
    Restored,
    ServedContext,
)
from reverie.sessions.types import Message
from server.authorisation import seen_store
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.stores import Store
from storage.viewer import Viewer
from worker.scheduling.goal_context import CONTEXT_MIN_SCORE

# Defaults for the part of a context that is not from its session: the number of results, and the tokens of these and of
# standing instructions. It is empty if the best result is less relevant than `CONTEXT_MIN_SCORE`, as unrelated ones are
# (docs/recall-measurements.md).
MAX_CONTEXT_MEMORIES: Final = 100
MEMORY_TOKENS: Final = 1_000
INSTRUCTION_TOKENS: Final = 150

endpoints = Endpoints("recall")


@endpoints.serves(calls.Recall)
def _recall(services: Services, caller: Caller, call: calls.Recall) -> RecallResponse:
    return services.recall(caller, _request(caller, call))


@endpoints.serves(calls.SearchSessions)
def _search_sessions(services: Services, caller: Caller, call: calls.SearchSessions) -> FoundSessions:
    request = _request(caller, call)
    return services.runtime.recaller.search_sessions(caller.workspace, request)


def _request(caller: Caller, call: calls.Recall | calls.SearchSessions) -> RecallRequest:
    """Return the request of a call: for the user that the caller is limited to, else the one that the call names."""
    return RecallRequest(**{**asdict(call), "agent": caller.agent, "user": caller.user or call.user})


@endpoints.serves(calls.GetContext, tag="context")
def get_context(services: Services, caller: Caller, call: calls.GetContext) -> Context:
    """Return the context document of a session."""
    runtime, settings = services.runtime, services.runtime.settings
    started, now = time.perf_counter(), runtime.now()
    budget, reserved = call.token_budget, call.reserved_tokens
    if budget is None:
        budget = settings.context_token_budget
        reserved = settings.system_prompt_buffer if reserved is None else reserved
    room = room_of(budget, reserved=reserved or 0)
    request = ContextRequest(
        agent=caller.agent,
        user=caller.user or call.user,
        session=call.session,
        query=call.query,
        channel=call.channel,
        recency_window=settings.recency_window,
        max_messages=call.max_messages or settings.max_context_messages,
        max_memories=MAX_CONTEXT_MEMORIES,
        min_score=call.min_score or 0.0,
        min_best=CONTEXT_MIN_SCORE if call.min_score is None else 0.0,
        ranking=call.ranking,
        memory_tokens=_memory_tokens(call, room),
        instruction_tokens=INSTRUCTION_TOKENS if call.instruction_tokens is None else call.instruction_tokens,
        rates=settings.decay_rates,
        now=now,
        until=micros_until(call.as_of, now=now),
        trust=settings.trust,
    )
    refiner = _refiner(services) if call.refine else None
    viewer = services.viewer(caller, call)
    store, account = services.seen_store(caller, call, viewer), services.account_store(caller, call, viewer)
    if store is None and call.session is not None:
        raise NotFound(f"agent {caller.agent} has no session {call.session!r}", field="session")
    if store is None and call.channel is not None:
        raise NotFound(f"agent {caller.agent} has no channel {call.channel!r}", field="channel")
    store = store or account  # nothing has been stored in a new workspace, but the account holds for it, too
    search = partial(runtime.recaller.embedding_once().recall, caller.workspace, viewer=viewer)
    built = build_context(store, search, runtime.tokens, request, room=room, refiner=refiner, account=account)
    services.metrics.observe_context(time.perf_counter() - started, degraded=bool(built.degraded))
    context = convert(built, Context, messages=[convert(message, Message) for message in built.messages])
    if call.as_of is None:  # results of an earlier time are not recorded
        asked = "" if call.query is None else built.query[:QUERY_CHARACTERS]
        served = convert(built, ContextNote, session=call.session, token_budget=room, items=built.served, query=asked)
        asking = replace(call, user=request.user)
        captured = services.captured("context", asking, context, viewer=viewer)
        note = RecallNote(
            agent=caller.agent, recall=new_id(), query=built.query, at=now, hits=[], context=served, captured=captured
        )
        id = services.record_recall(caller, note, built.hits, viewer=viewer)
        context = replace(context, id=id)
    return context


def _memory_tokens(call: calls.GetContext, room: int) -> int:
    """Return the tokens for results from elsewhere; without a limit of its own, all that the whole budget leaves."""
    if call.memory_tokens is not None:
        return call.memory_tokens
    return MEMORY_TOKENS if call.token_budget is None else room


@endpoints.serves(calls.RestoreSession, tag="context")
def _restore(services: Services, caller: Caller, call: calls.RestoreSession) -> Restored:
    settings = services.runtime.settings
    budget = call.token_budget
    if budget is None:
        budget = settings.context_token_budget - settings.system_prompt_buffer
    store = services.store_of_session(caller, call)
    return restore_session(
        store, services.runtime.tokens, agent=caller.agent, session=call.session, token_budget=budget
    )


def _refiner(services: Services) -> LanguageModel:
    """Return the language model. Raises `Rejected` if there is none."""
    model = services.runtime.language_model
    if model is None:
        raise Rejected(
            "refine needs a language model, but none is configured: set language_model_base_url and language_model",
            field="refine",
        )
    return model


@endpoints.serves(calls.ListRecallEvents)
def _list_recall_events(services: Services, caller: Caller, call: calls.ListRecallEvents) -> RecallEventList:
    store, account = services.seen_store(caller, call), services.account_store(caller, call)
    events = recent_recalls(
        store or account,
        agent=caller.agent,
        limit=call.limit,
        offset=call.offset,
        explain=call.explain,
        memory=call.memory,
        account=account if store is not None else None,
    )
    return RecallEventList(recall_events=events)


endpoints.passes(calls.ListContexts, list_contexts, seen_store, tag="context")


@endpoints.serves(calls.ShowContext, tag="context")
def _show_context(services: Services, caller: Caller, call: calls.ShowContext) -> ServedContext:
    store = seen_store(services, caller, call)
    if store is None:
        raise NotFound(f"nothing has been stored in workspace {caller.workspace!r} yet", field="workspace")

    def account_of(user: str | None) -> Store:
        return services.account_store(caller, call, Viewer(user))

    return show_context(store, account_of, call.id, agent=caller.agent)
