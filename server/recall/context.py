"""POST /v1/context and POST /v1/sessions/{session}/restore: what an agent reads before it answers."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request, Response

from adapters.language_models import LanguageModel
from memory.sessions.restoring import restore_session
from memory.sessions.sessions import to_message
from retrieval.budget import room_of
from retrieval.context import Built, build_context
from retrieval.selection import Asking
from reverie.checks import check_label, check_query, check_session
from reverie.errors import Rejected
from reverie.types import Context, Restored
from server.answers import answer
from server.bodies import ContextBody, RestoreBody
from server.caller import Caller, query_of, session_from
from server.openapi import operation
from server.services import Services


def routes(services: Services) -> APIRouter:
    """The routes of contexts."""
    router = APIRouter(tags=["context"])

    @router.post("/v1/context", openapi_extra=operation(Context, body=ContextBody))
    async def post_context(request: Request) -> Response:
        """What an agent should know for its next answer in a session, as Markdown for its system prompt."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, ContextBody)
        return answer(await services.threads.run(lambda: _context(services, caller, body)))

    @router.post("/v1/sessions/{session}/restore", openapi_extra=operation(Restored, body=RestoreBody))
    async def post_restore(request: Request, session: str) -> Response:
        """The newest messages of a session that fit into a number of tokens, oldest first, and its summary."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)
        body = await services.body(request, RestoreBody)
        return answer(await services.threads.run(lambda: _restore(services, caller, name, body)))

    return router


def _context(services: Services, caller: Caller, body: ContextBody) -> Context:
    runtime, settings = services.runtime, services.runtime.settings
    asking = Asking(
        agent=caller.agent,
        session=check_session(body.session),
        query=None if body.query is None else check_query(body.query),
        channel=check_label("channel", body.channel),
        recency_window=settings.recency_window,
        most_messages=_most_messages(body.max_messages, settings.max_context_messages),
        most_memories=settings.max_context_memories,
        rates=settings.decay_rates,
        now=runtime.now(),
    )
    budget = settings.context_token_budget if body.token_budget is None else body.token_budget
    room = room_of(budget, buffer=settings.system_prompt_buffer)
    refiner = _refiner(services) if body.refine else None
    store = services.store_of_session(caller, asking.session)
    search = partial(runtime.recaller.embedding_once().recall, caller.workspace)
    account = runtime.stores.account_store()
    built = build_context(store, search, runtime.tokens, asking, room=room, refiner=refiner, account=account)
    services.record_recall(caller, built.query, built.hits)
    return _answer(built)


def _answer(built: Built) -> Context:
    return Context(
        text=built.text,
        tokens=built.tokens,
        messages=[to_message(message) for message in built.messages],
        memories=built.memories,
        left_out=built.left_out,
        degraded=built.degraded,
    )


def _restore(services: Services, caller: Caller, session: str, body: RestoreBody) -> Restored:
    settings = services.runtime.settings
    budget = body.token_budget
    if budget is None:
        budget = settings.context_token_budget - settings.system_prompt_buffer
    store = services.store_of_session(caller, session)
    return restore_session(store, services.runtime.tokens, agent=caller.agent, session=session, token_budget=budget)


def _most_messages(wanted: int | None, default: int) -> int:
    if wanted is None:
        return default
    if wanted < 1:
        raise Rejected(f"max_messages is {wanted}; it must be a whole number above 0", field="max_messages")
    return wanted


def _refiner(services: Services) -> LanguageModel:
    """The language model, or `Rejected`: whoever asks for refinement is to know that there is none."""
    model = services.runtime.language_model
    if model is None:
        raise Rejected(
            "refine needs a language model and none is set: set language_model_base_url and language_model",
            field="refine",
        )
    return model
