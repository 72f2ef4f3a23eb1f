"""Calls about sessions, their scratchpads and channels, workspaces, and sessions of coding agents."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from adapters.histories.hook_events import HookEvent, read_event
from memory.lifecycle.forgetting import forget_session, forget_workspace
from memory.memories.memories import list_memories
from memory.sessions import scratchpads
from memory.sessions.lifecycle import archive_session, idle_session, session_by_ref, start_session
from memory.sessions.sessions import (
    ONLY_DEFAULT,
    create_channel,
    delete_channel,
    describe_channel,
    export_session,
    is_hidden_session,
    list_agents,
    list_channels,
    list_sessions,
    list_workspaces,
    move_session,
    newest_messages,
    pop_message,
    read_channel,
    read_messages,
    read_newest,
    read_session,
)
from memory.sessions.summary_jobs import compact_session, read_summary
from retrieval.context.opening import EarlierSession, strongest, write_opening
from reverie.calls import Call
from reverie.clock import from_micros
from reverie.contract import DEFAULT_CHANNEL
from reverie.errors import Conflict, NotFound, Unavailable
from reverie.memories.calls import ListMemories
from reverie.memories.types import Memory
from reverie.pipeline.calls import IngestMessages
from reverie.recall.calls import GetContext
from reverie.sessions import calls, types
from reverie.types import Deleted
from server.authorisation import require_reach, require_scope, seen_store
from server.caller import Caller
from server.endpoints import Endpoints
from server.pipeline import ingest_messages
from server.recall import get_context
from server.services import Services
from storage.stores import Store
from storage.viewer import Viewer
from worker.composition import build_condenser, session_end_hooks, summary_rules

endpoints = Endpoints(
    "sessions",
    hooks=lambda services, _caller, _call: session_end_hooks(services.runtime),
    counter=lambda services, _caller, _call: services.runtime.tokens,
    condenser=lambda services, _caller, _call: build_condenser(services.runtime),
    rules=lambda services, _caller, _call: summary_rules(services.runtime.settings),
)


endpoints.passes(calls.ListSessions, list_sessions, seen_store)
endpoints.passes(calls.GetSession, read_session, Services.store_of_session)
endpoints.passes(calls.ExportSession, export_session, Services.store_of_session)
endpoints.passes(calls.ListMessages, read_messages, Services.store_of_session)
endpoints.passes(calls.ListNewestMessages, read_newest, Services.store_of_session)


@endpoints.serves(calls.ForgetNewestMessage)
def _forget_newest_message(services: Services, caller: Caller, call: calls.ForgetNewestMessage) -> types.PoppedMessage:
    runtime = services.runtime
    store = services.existing_store(caller.workspace)
    if store is None or is_hidden_session(
        store, services.viewer(caller, call), agent=caller.agent, session=call.session
    ):
        return types.PoppedMessage()
    popped = pop_message(
        runtime.stores, store, runtime.inbox, runtime.working_memory, agent=caller.agent, session=call.session
    )
    return types.PoppedMessage(message=popped)


@endpoints.serves(calls.GetWorkingMemory)
def _get_working_memory(services: Services, caller: Caller, call: calls.GetWorkingMemory) -> types.MessageList:
    working = services.runtime.working_memory
    with suppress(Unavailable):
        found = working.read(caller.workspace, caller.agent, call.session, user=call.user)
        if found is not None:  # without asking the store, which may be locked or away
            return types.MessageList(messages=found)
    store = services.store_of_session(caller, call)
    return types.MessageList(messages=newest_messages(store, working, agent=caller.agent, session=call.session))


@endpoints.serves(calls.ForgetSession)
def _forget_session(services: Services, caller: Caller, call: calls.ForgetSession) -> Deleted:
    runtime = services.runtime
    store = services.store_to_forget_in(caller.workspace)
    if store is None or is_hidden_session(
        store, services.viewer(caller, call), agent=caller.agent, session=call.session
    ):
        return Deleted(deleted=False)
    deleted = forget_session(
        runtime.stores, store, runtime.inbox, runtime.working_memory, agent=caller.agent, session=call.session
    )
    return Deleted(deleted=deleted)


@endpoints.serves(calls.DeleteWorkspace, subject="workspace")
def _delete_workspace(services: Services, caller: Caller, _: calls.DeleteWorkspace) -> Deleted:
    runtime = services.runtime
    runtime.indexes.forget_workspace(caller.workspace)
    with suppress(Unavailable):  # what was recalled is in the broker before all of the workspace is removed from it
        runtime.recall_buffer.flush()
    return Deleted(deleted=forget_workspace(runtime.erasure_services, caller.workspace))


@endpoints.serves(calls.StartSession)
def start(services: Services, caller: Caller, call: calls.StartSession) -> types.Session:
    """Create a session, or reopen an idle one."""
    runtime = services.runtime
    return start_session(_store_to_start_in(services, caller), call, agent=caller.agent, now=runtime.now())


endpoints.passes(calls.CloseSession, idle_session, Services.store_of_session, waits=lambda _: True)
endpoints.passes(calls.ArchiveSession, archive_session, Services.store_of_session, waits=lambda _: True)


@endpoints.serves(calls.GetSessionByRef)
def _get_by_ref(services: Services, caller: Caller, call: calls.GetSessionByRef) -> types.Session:
    store = services.seen_store(caller, call)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no session with reference code {call.ref_code!r}", field="ref_code")
    return session_by_ref(store, agent=caller.agent, ref_code=call.ref_code)


def _store_to_start_in(services: Services, caller: Caller) -> Store:
    """Return the caller's store; a caller who acts for one user reopens no session of others."""
    store = services.runtime.store(caller.workspace)
    return store if caller.user is None else store.seen_by(Viewer(caller.user))


endpoints.passes(calls.GetScratchpad, scratchpads.read_items, seen_store, tag="scratchpads")
endpoints.passes(calls.WriteScratchpad, scratchpads.write_items, Services.own_store, tag="scratchpads")
endpoints.passes(calls.ClearScratchpad, scratchpads.clear_items, seen_store, tag="scratchpads")
endpoints.passes(calls.ListScratchpadKeys, scratchpads.list_keys, seen_store, tag="scratchpads")
endpoints.passes(calls.GetScratchpadKey, scratchpads.read_key, Services.store_of_session, tag="scratchpads")
endpoints.passes(calls.WriteScratchpadKey, scratchpads.write_key, Services.own_store, tag="scratchpads")


@endpoints.serves(calls.DeleteScratchpadKey, tag="scratchpads")
def _delete_key(services: Services, caller: Caller, call: calls.DeleteScratchpadKey) -> Deleted:
    store, where = services.seen_store(caller, call), {"agent": caller.agent, "session": call.session}
    return Deleted(deleted=store is not None and scratchpads.delete_keys(store, **where, key=call.key) > 0)


endpoints.passes(calls.ClearScratchpadKeys, scratchpads.delete_keys, seen_store, tag="scratchpads")


@endpoints.serves(calls.ListChannels, tag="channels")
def _list_channels(services: Services, caller: Caller, _: calls.ListChannels) -> types.ChannelList:
    store = services.existing_store(caller.workspace)
    found = [ONLY_DEFAULT] if store is None else list_channels(store, agent=caller.agent)
    return types.ChannelList(channels=found)


@endpoints.serves(calls.GetChannel, tag="channels")
def _get_channel(services: Services, caller: Caller, call: calls.GetChannel) -> types.Channel:
    if services.existing_store(caller.workspace) is None and call.channel == DEFAULT_CHANNEL:
        return ONLY_DEFAULT
    return read_channel(_store(services, caller, call.channel), agent=caller.agent, channel=call.channel)


def _store_of_caller(services: Services, caller: Caller, _: Call[Any]) -> Store:
    return services.runtime.store(caller.workspace)


endpoints.passes(calls.CreateChannel, create_channel, _store_of_caller, tag="channels")
endpoints.passes(calls.DescribeChannel, describe_channel, _store_of_caller, tag="channels")


@endpoints.serves(calls.DeleteChannel, tag="channels")
def _delete_channel(services: Services, caller: Caller, call: calls.DeleteChannel) -> Deleted:
    try:
        delete_channel(_store(services, caller, call.channel), agent=caller.agent, channel=call.channel)
    except NotFound:
        return Deleted(deleted=False)
    return Deleted(deleted=True)


endpoints.passes(calls.MoveSession, move_session, Services.store_of_session, tag="channels")


def _store(services: Services, caller: Caller, channel: str) -> Store:
    store = services.existing_store(caller.workspace)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no channel {channel!r}: create it first", field="channel")
    return store


@endpoints.serves(calls.ListWorkspaces, tag="workspaces", subject="server", limits_itself=True)
def _list_workspaces(services: Services, caller: Caller, call: calls.ListWorkspaces) -> types.WorkspaceList:
    require_reach(caller.principal, "workspace")
    stores, now, only = services.runtime.stores, services.runtime.now(), caller.principal.workspace
    return types.WorkspaceList(
        workspaces=list_workspaces(stores, now=now, limit=call.limit, offset=call.offset, only=only)
    )


@endpoints.serves(calls.ListAgents, tag="workspaces", subject="workspace", limits_itself=True)
def _list_agents(services: Services, caller: Caller, call: calls.ListAgents) -> types.AgentList:
    found = list_agents(services.runtime.stores, caller.workspace, now=services.runtime.now())
    agents = [agent for agent in found if caller.principal.reaches_agent(agent.name)]
    return types.AgentList(agents=agents[call.offset : call.offset + call.limit])


endpoints.passes(calls.GetSummary, read_summary, Services.store_of_session)
endpoints.passes(calls.CompactSession, compact_session, Services.store_of_session)


# How many of the newest memories are read; the strongest of them are told.
_MEMORIES_READ: Final = 500
# How many sessions are searched for those of the same folder, and how many of these are told.
_SESSIONS_READ: Final = 100
_SESSIONS_TOLD: Final = 4
# The first prompt is among the first messages, after what the system says.
_FIRST_MESSAGES: Final = 5


def opening_of(
    services: Services, caller: Caller, *, session: str, folder: str, included_ids: Collection[str], room: int
) -> str:
    """Return the opening of a new session: earlier sessions and memories, in at most `room` tokens.

    `folder` is where the session works: only earlier sessions in the same folder are included. Memories with
    `included_ids` are left out, because the session has them already.
    """
    runtime = services.runtime
    memories = [one for one in _memories(services, caller) if one.id not in included_ids]
    chosen = strongest(memories, now=from_micros(runtime.now()), rates=runtime.settings.decay_rates)
    earlier = list(_sessions(services, caller, session=session, folder=folder))
    return write_opening(chosen, earlier, runtime.tokens, room=room)


def _memories(services: Services, caller: Caller) -> list[Memory]:
    """Return the newest memories that hold everywhere; instructions have a section of their own in a context."""
    call = ListMemories(user=caller.user, limit=_MEMORIES_READ)
    found = list_memories(services.memories(caller, call), call, now=services.runtime.now())
    trust = services.runtime.settings.trust
    return [
        one
        for one in found
        if one.tier in ("account", "workspace")
        and one.kind != "instruction"
        and trust.tells_memory(one.provenance, confirmed=one.confirmed_at is not None)
    ]


def _sessions(services: Services, caller: Caller, *, session: str, folder: str) -> Iterator[EarlierSession]:
    call = calls.ListSessions(user=caller.user, limit=_SESSIONS_READ)
    store = services.seen_store(caller, call)
    if store is None:
        return
    known = list_sessions(store, agent=caller.agent, limit=call.limit, offset=0, status=None)
    same = [one for one in known if one.metadata.get("cwd") == folder and one.messages and one.id != session]
    for one in same[:_SESSIONS_TOLD]:
        first = read_messages(store, agent=caller.agent, session=one.id, limit=_FIRST_MESSAGES, offset=0)
        last = newest_messages(store, services.runtime.working_memory, agent=caller.agent, session=one.id)
        yield EarlierSession(one.started_at, one.messages, _prompt(first), _prompt(reversed(last)))


def _prompt(messages: Iterable[types.Message]) -> str:
    """Return the first of these messages that is the user's."""
    return next((one.content for one in messages if one.role == "user"), "")


# Codex stores what is longer in a file instead of showing it to the model.
_CONTEXT_TOKENS: Final = 2_000


@endpoints.serves(calls.RecordEvent, tag="coding agents")
def _record_event(services: Services, caller: Caller, call: calls.RecordEvent) -> types.HookOutput:
    event = read_event(call.tool, call.id, call.event, call.at)
    if event.messages:
        ingest_messages(services, caller, IngestMessages(messages=event.messages, session=event.session))
    if not event.starts:
        return types.HookOutput()
    require_scope(caller.principal, "read")
    with contextlib.suppress(Conflict):  # an archived one stays so
        metadata = {"source": call.tool, "cwd": event.cwd} if event.cwd else {"source": call.tool}
        start(services, caller, calls.StartSession(event.session, user=caller.user, metadata=metadata))
    text = _context(services, caller, event)
    if not text:
        return types.HookOutput()
    if call.tool == "cursor":
        return types.HookOutput(additional_context=text)
    return types.HookOutput(hook_specific_output=types.HookContext(hook_event_name=event.name, additional_context=text))


def _context(services: Services, caller: Caller, event: HookEvent) -> str:
    """Return the context for the project and its user; empty if nothing is remembered."""
    query = f"What should be known about the project {event.project}?" if event.project else "What should be known?"
    asked = GetContext(
        event.session,
        query=query,
        user=caller.user,
        token_budget=_CONTEXT_TOKENS,
    )
    try:
        found = get_context(services, caller, asked)
        if not found.memories:  # without a query, no note says that nothing fits
            found = get_context(services, caller, msgspec.structs.replace(asked, query=None))
    except NotFound:
        return ""
    included_ids = {one.id for one in (*found.memories, *found.instructions)}
    opening = opening_of(
        services,
        caller,
        session=event.session,
        folder=event.cwd,
        included_ids=included_ids,
        room=_CONTEXT_TOKENS - found.tokens,
    )
    if not (found.messages or included_ids or opening):
        return ""
    return "\n\n".join(part for part in (found.text.rstrip(), opening) if part)
