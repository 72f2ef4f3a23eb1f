"""POST /v1/context and POST /v1/sessions/{session}/restore: the text and messages to put into a prompt."""

from __future__ import annotations

import time
from functools import partial

from adapters.language_models import LanguageModel
from memory.sessions.restoring import restore_session
from memory.sessions.sessions import to_message
from retrieval.context.budget import room_of
from retrieval.context.building import BuiltContext, build_context
from retrieval.context.selection import ContextRequest
from reverie.errors import Rejected
from reverie.moments import micros_until
from reverie.recall import calls
from reverie.recall.types import Context, Restored
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from worker.settings import Settings

endpoints = Endpoints("context")


@endpoints.serves(calls.GetContext)
def get_context(services: Services, caller: Caller, call: calls.GetContext) -> Context:
    """Return the context document of a session."""
    runtime, settings = services.runtime, services.runtime.settings
    started, now = time.perf_counter(), runtime.now()
    budget = settings.context_token_budget if call.token_budget is None else call.token_budget
    room = room_of(budget, buffer=settings.system_prompt_buffer)
    request = ContextRequest(
        agent=caller.agent,
        user=caller.user or call.user,
        session=call.session,
        query=call.query,
        channel=call.channel,
        recency_window=settings.recency_window,
        max_messages=call.max_messages or settings.max_context_messages,
        max_memories=settings.max_context_memories,
        min_score=call.min_score or 0.0,
        min_best=settings.context_min_score if call.min_score is None else 0.0,
        ranking=call.ranking,
        memory_tokens=_memory_tokens(settings, call, room),
        instruction_tokens=(
            settings.context_instruction_tokens if call.instruction_tokens is None else call.instruction_tokens
        ),
        rates=settings.decay_rates,
        now=now,
        until=micros_until(call.as_of, now=now),
    )
    refiner = _refiner(services) if call.refine else None
    viewer = services.viewer(caller, call)
    store = services.store_of_session(caller, call, viewer)
    search = partial(runtime.recaller.embedding_once().recall, caller.workspace, viewer=viewer)
    account = services.account_store(caller, call, viewer)
    built = build_context(store, search, runtime.tokens, request, room=room, refiner=refiner, account=account)
    services.metrics.observe_context(time.perf_counter() - started, degraded=bool(built.degraded))
    if call.as_of is None:  # what a look back finds is not what the agent goes by now
        services.record_recall(caller, built.query, built.hits, viewer=viewer)
    return _answer(built)


def _memory_tokens(settings: Settings, call: calls.GetContext, room: int) -> int:
    """Return the tokens for what comes from elsewhere; all that a budget given for the whole leaves."""
    if call.memory_tokens is not None:
        return call.memory_tokens
    return settings.context_memory_tokens if call.token_budget is None else room


def _answer(built: BuiltContext) -> Context:
    return Context(
        text=built.text,
        tokens=built.tokens,
        messages=[to_message(message) for message in built.messages],
        memories=built.memories,
        instructions=built.instructions,
        left_out=built.left_out,
        degraded=built.degraded,
    )


@endpoints.serves(calls.RestoreSession)
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
