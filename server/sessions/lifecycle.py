"""/v1/sessions/{session}/start, /idle and /archive, and /v1/sessions/by-ref/{ref_code}."""

from __future__ import annotations

from memory.sessions.lifecycle import archive_session, idle_session, session_by_ref, start_session
from reverie.errors import NotFound
from reverie.sessions import calls
from reverie.sessions.types import Session
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.stores import Store
from storage.viewer import Viewer
from worker.composition import session_end_hooks

endpoints = Endpoints("sessions")


@endpoints.serves(calls.StartSession)
def start(services: Services, caller: Caller, call: calls.StartSession) -> Session:
    """Create a session, or reopen an idle one."""
    runtime = services.runtime
    return start_session(_store_to_start_in(services, caller), call, agent=caller.agent, now=runtime.now())


@endpoints.serves(calls.CloseSession, waits=lambda _: True)
def _close(services: Services, caller: Caller, call: calls.CloseSession) -> Session:
    runtime, store = services.runtime, services.store_of_session(caller, call)
    return idle_session(store, session_end_hooks(runtime), agent=caller.agent, session=call.session, now=runtime.now())


@endpoints.serves(calls.ArchiveSession, waits=lambda _: True)
def _archive(services: Services, caller: Caller, call: calls.ArchiveSession) -> Session:
    runtime, store = services.runtime, services.store_of_session(caller, call)
    return archive_session(
        store, session_end_hooks(runtime), agent=caller.agent, session=call.session, now=runtime.now(), force=call.force
    )


@endpoints.serves(calls.GetSessionByRef)
def _get_by_ref(services: Services, caller: Caller, call: calls.GetSessionByRef) -> Session:
    store = services.seen_store(caller, call)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no session with reference code {call.ref_code!r}", field="ref_code")
    return session_by_ref(store, agent=caller.agent, ref_code=call.ref_code)


def _store_to_start_in(services: Services, caller: Caller) -> Store:
    """Return the caller's store; a caller who acts for one user reopens no session of others."""
    store = services.runtime.store(caller.workspace)
    return store if caller.user is None else store.seen_by(Viewer(caller.user))
