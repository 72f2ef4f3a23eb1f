"""What a new session of an agent is told before anything was asked: read as the caller could read it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from memory.memories.memories import list_memories
from memory.sessions.sessions import list_sessions, newest_messages, read_messages
from retrieval.context.opening import EarlierSession, strongest, write_opening
from reverie.clock import from_micros
from reverie.memories.calls import ListMemories
from reverie.memories.types import Memory
from reverie.sessions.calls import ListSessions
from reverie.sessions.types import Message
from server.caller import Caller
from server.memories.memories import memories_of
from server.services import Services

# The newest memories, of which the strongest are told.
_MEMORIES_READ: Final = 500
# The sessions among which those of the same folder are looked for, and how many of them are told.
_SESSIONS_READ: Final = 100
_SESSIONS_TOLD: Final = 4
# The first prompt is among the first messages, after what the system says.
_FIRST_MESSAGES: Final = 5


def opening_of(
    services: Services, caller: Caller, *, session: str, folder: str, included_ids: Collection[str], room: int
) -> str:
    """Return what a new session is told of earlier ones and of what is remembered, at most `room` tokens.

    `folder` is where the session works: of earlier sessions only those in the same one are told. `included_ids`
    are the memories that it was told already.
    """
    runtime = services.runtime
    memories = [one for one in _memories(services, caller) if one.id not in included_ids]
    chosen = strongest(memories, now=from_micros(runtime.now()), rates=runtime.settings.decay_rates)
    earlier = list(_sessions(services, caller, session=session, folder=folder))
    return write_opening(chosen, earlier, runtime.tokens, room=room)


def _memories(services: Services, caller: Caller) -> list[Memory]:
    """Return the newest memories that hold everywhere; instructions have a section of their own in a context."""
    call = ListMemories(user=caller.user, limit=_MEMORIES_READ)
    found = list_memories(memories_of(services, caller, call), call, now=services.runtime.now())
    return [one for one in found if one.tier in ("account", "workspace") and one.kind != "instruction"]


def _sessions(services: Services, caller: Caller, *, session: str, folder: str) -> Iterator[EarlierSession]:
    call = ListSessions(user=caller.user, limit=_SESSIONS_READ)
    store = services.seen_store(caller, call)
    if store is None:
        return
    known = list_sessions(store, agent=caller.agent, limit=call.limit, offset=0, status=None)
    same = [one for one in known if one.metadata.get("cwd") == folder and one.messages and one.id != session]
    for one in same[:_SESSIONS_TOLD]:
        first = read_messages(store, agent=caller.agent, session=one.id, limit=_FIRST_MESSAGES, offset=0)
        last = newest_messages(store, services.runtime.working_memory, agent=caller.agent, session=one.id)
        yield EarlierSession(one.started_at, one.messages, _prompt(first), _prompt(reversed(last)))


def _prompt(messages: Iterable[Message]) -> str:
    """Return the first of these messages that is the user's."""
    return next((one.content for one in messages if one.role == "user"), "")
