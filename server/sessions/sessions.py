"""/v1/sessions and /v1/workspace: list, read, export and forget sessions, and delete workspaces."""

from __future__ import annotations

from memory.sessions.forgetting import forget_session, forget_workspace
from memory.sessions.newest import pop_message, read_newest
from memory.sessions.sessions import (
    export_session,
    is_of_others,
    list_sessions,
    newest_messages,
    read_messages,
    read_session,
)
from reverie.sessions import calls
from reverie.sessions.types import MessageList, PoppedMessage, Session, SessionExport, SessionList
from reverie.types import Deleted
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from server.user_stores import seen_store

endpoints = Endpoints("sessions")


@endpoints.serves(calls.ListSessions)
def _list_sessions(services: Services, caller: Caller, call: calls.ListSessions) -> SessionList:
    store = seen_store(services, caller, call)
    if store is None:
        return SessionList(sessions=[])
    return SessionList(
        sessions=list_sessions(store, agent=caller.agent, limit=call.limit, offset=call.offset, status=call.status)
    )


@endpoints.serves(calls.GetSession)
def _get_session(services: Services, caller: Caller, call: calls.GetSession) -> Session:
    return read_session(services.store_of_session(caller, call), agent=caller.agent, session=call.session)


@endpoints.serves(calls.ExportSession)
def _export_session(services: Services, caller: Caller, call: calls.ExportSession) -> SessionExport:
    return export_session(services.store_of_session(caller, call), agent=caller.agent, session=call.session)


@endpoints.serves(calls.ListMessages)
def _list_messages(services: Services, caller: Caller, call: calls.ListMessages) -> MessageList:
    store = services.store_of_session(caller, call)
    return read_messages(
        store, agent=caller.agent, session=call.session, limit=call.limit, offset=call.offset, around=call.around
    )


@endpoints.serves(calls.ListNewestMessages)
def _list_newest_messages(services: Services, caller: Caller, call: calls.ListNewestMessages) -> MessageList:
    store = services.store_of_session(caller, call)
    found = read_newest(store, agent=caller.agent, session=call.session, limit=call.limit, before=call.before)
    return MessageList(messages=found)


@endpoints.serves(calls.ForgetNewestMessage)
def _forget_newest_message(services: Services, caller: Caller, call: calls.ForgetNewestMessage) -> PoppedMessage:
    runtime = services.runtime
    store = services.existing_store(caller.workspace)
    if store is None or is_of_others(store, services.viewer(caller, call), agent=caller.agent, session=call.session):
        return PoppedMessage()
    popped = pop_message(
        runtime.stores, store, runtime.inbox, runtime.working_memory, agent=caller.agent, session=call.session
    )
    return PoppedMessage(message=popped)


@endpoints.serves(calls.GetWorkingMemory)
def _get_working_memory(services: Services, caller: Caller, call: calls.GetWorkingMemory) -> MessageList:
    store, working = services.store_of_session(caller, call), services.runtime.working_memory
    return MessageList(messages=newest_messages(store, working, agent=caller.agent, session=call.session))


@endpoints.serves(calls.ForgetSession)
def _forget_session(services: Services, caller: Caller, call: calls.ForgetSession) -> Deleted:
    runtime = services.runtime
    store = services.store_to_forget_in(caller.workspace)
    if store is None or is_of_others(store, services.viewer(caller, call), agent=caller.agent, session=call.session):
        return Deleted(deleted=False)
    deleted = forget_session(
        runtime.stores, store, runtime.inbox, runtime.working_memory, agent=caller.agent, session=call.session
    )
    return Deleted(deleted=deleted)


@endpoints.serves(calls.DeleteWorkspace, subject="workspace")
def _delete_workspace(services: Services, caller: Caller, _: calls.DeleteWorkspace) -> Deleted:
    runtime = services.runtime
    runtime.indexes.forget_workspace(caller.workspace)
    deleted = forget_workspace(
        runtime.stores, runtime.inbox, runtime.working_memory, runtime.recall_log, workspace=caller.workspace
    )
    return Deleted(deleted=deleted)
