"""Memories and sessions as resources, which people and clients attach to a conversation."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import ResourceSecurity

from reverie.counts import counted
from reverie.inert import inert, inert_line
from reverie.memories.calls import GetMemory, ListMemories
from reverie.memories.provenance_text import long_text
from reverie.memories.types import Memory
from reverie.recall.calls import RestoreSession
from reverie.sessions.calls import ListSessions
from reverie.sessions.types import Message, Session
from server.mcp.binding import Current
from server.mcp.texts import NOTE, RESULT_TOKENS, listed, memory_line, moment

MEMORIES: Final = "reverie://memories"
SESSIONS: Final = "reverie://sessions"
_MIME_TYPE: Final = "text/markdown"
_PAGE: Final = 50
# Ids are names of rows, not paths: "../x" is a session like any other.
_ANY_ID: Final = ResourceSecurity(exempt_params={"id"})


def add_resources(server: MCPServer, current: Current) -> None:
    """Add the resources of whom `current` says."""

    @server.resource(
        MEMORIES, name="memories", title="Memories", mime_type=_MIME_TYPE, description="The newest memories."
    )
    async def memories() -> str:
        bound = current()
        page = await bound.send(ListMemories(limit=_PAGE))
        items = [memory_line(memory, user=bound.user) for memory in page.memories]
        return listed("# Memories, newest first", items) if items else "There are no memories."

    @server.resource(
        f"{MEMORIES}/{{id}}",
        name="memory",
        title="A memory",
        mime_type=_MIME_TYPE,
        description="One memory, whole, with where it comes from.",
        security=_ANY_ID,
    )
    async def memory(id: str) -> str:
        return _memory(await current().send(GetMemory(id=id)))

    @server.resource(
        SESSIONS,
        name="sessions",
        title="Conversations",
        mime_type=_MIME_TYPE,
        description="The conversations that are stored, most recently active first.",
    )
    async def sessions() -> str:
        page = await current().send(ListSessions(limit=_PAGE))
        items = [_session(one) for one in page.sessions]
        return listed("# Conversations, most recently active first", items) if items else "There are no conversations."

    @server.resource(
        f"{SESSIONS}/{{id}}",
        name="session",
        title="A conversation",
        mime_type=_MIME_TYPE,
        description="The newest messages of a conversation, and a summary of the earlier ones.",
        security=_ANY_ID,
    )
    async def session(id: str) -> str:
        restored = await current().send(RestoreSession(session=id, token_budget=RESULT_TOKENS))
        parts = [f"# Conversation {inert_line(id)}", NOTE]
        if restored.summary:
            parts += ["## Summary of what came before", inert(restored.summary)]
        if restored.left_out:
            parts.append(f"({counted(restored.left_out, 'earlier message')} not shown.)")
        return "\n\n".join([*parts, *map(_message, restored.messages)])


def _memory(memory: Memory) -> str:
    origin = "" if memory.provenance is None else f"\n\nOrigin: {long_text(memory.provenance, clean=inert_line)}"
    until = f"\n\nHeld until {moment(memory.valid_to)}." if memory.valid_to else ""
    tags = f"\n\nTags: {inert_line(', '.join(memory.tags))}" if memory.tags else ""
    heading = f"# Memory {memory.id} ({memory.kind}, {moment(memory.created_at)} UTC)"
    return f"{heading}\n\n{NOTE}\n\n{inert(memory.content)}{origin}{until}{tags}"


def _session(one: Session) -> str:
    label = inert_line(one.id)
    count = counted(one.messages, "message")
    return f"- {moment(one.updated_at)}: [{label}]({SESSIONS}/{quote(one.id, safe='')}), {count}, {one.status}"


def _message(one: Message) -> str:
    speaker = inert_line(f"{one.role} {one.name}" if one.name else one.role)
    return f"**{moment(one.created_at)} {speaker}**: {inert(one.content)}"
