"""/v1/sessions/{session}/summary and /compact: read a rolling summary, and condense a session's oldest turns now."""

from __future__ import annotations

from memory.sessions.summary_jobs import compact_session, read_summary
from reverie.sessions import calls
from reverie.sessions.types import Compacted, SessionSummary
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from worker.composition import build_condenser, summary_rules

endpoints = Endpoints("sessions")


@endpoints.serves(calls.GetSummary)
def _get_summary(services: Services, caller: Caller, call: calls.GetSummary) -> SessionSummary:
    store = services.store_of_session(caller, call)
    return read_summary(store, services.runtime.tokens, agent=caller.agent, session=call.session)


@endpoints.serves(calls.CompactSession)
def _compact(services: Services, caller: Caller, call: calls.CompactSession) -> Compacted:
    runtime = services.runtime
    return compact_session(
        services.store_of_session(caller, call),
        build_condenser(runtime),
        summary_rules(runtime.settings),
        agent=caller.agent,
        session=call.session,
        token_budget=call.token_budget,
        now=runtime.now(),
    )
