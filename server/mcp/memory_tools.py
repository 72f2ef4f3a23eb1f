"""The tools that store, change, list and forget memories."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from reverie.counts import counted
from reverie.errors import NotFound
from reverie.memories.calls import Forget, GetMemory, ListMemories, Remember, UpdateMemory
from server.mcp import arguments as takes
from server.mcp.binding import Current
from server.mcp.texts import listed, memory_line


class Stored(BaseModel):
    """The memory that was stored or changed."""

    id: str = Field(description="The id by which the memory is changed and forgotten.")


class Forgotten(BaseModel):
    """What was forgotten, or would be."""

    id: str
    deleted: bool = Field(description="Whether it is gone. False for a dry run.")
    content: str = Field(description="What the memory said.")


class MemoryTools:
    """The tools, for whom `current` says."""

    def __init__(self, current: Current) -> None:
        self._current = current

    async def remember(
        self,
        content: takes.Content,
        kind: takes.Kind = "fact",
        source: takes.Source = "agent",
        tags: takes.Tags = [],  # noqa: B006 - read only; pydantic copies it
        subject: takes.Subject = None,
        expires_at: takes.Expires = None,
    ) -> Annotated[CallToolResult, Stored]:
        """Store one memory."""
        given: dict[str, Any] = {"content": content, "kind": kind, "source": source, "tags": tags, "subject": subject}
        if expires_at is not None:
            given["expires_at"] = expires_at
        remembered = await self._current().send(Remember(**given))
        return _result(f"Remembered, id {remembered.id}.", Stored(id=remembered.id))

    async def update_memory(
        self,
        id: takes.MemoryId,
        content: takes.NewContent = None,
        kind: takes.OnlyKind = None,
        tags: takes.NewTags = None,
        pinned: takes.Pinned = None,
        expires_at: takes.Expires = None,
    ) -> Annotated[CallToolResult, Stored]:
        """Change one memory."""
        # What models leave out they send as null: nothing is removed by it.
        given = {"content": content, "kind": kind, "tags": tags, "pinned": pinned, "expires_at": expires_at}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        bound = self._current()
        memory = await bound.send(UpdateMemory(id=id, **changes))
        return _result(f"Changed:\n{memory_line(memory, user=bound.user)}", Stored(id=memory.id))

    async def forget(self, id: takes.MemoryId, dry_run: takes.DryRun = False) -> Annotated[CallToolResult, Forgotten]:
        """Delete one memory for good, or say what would be deleted."""
        bound = self._current()
        try:
            memory = await bound.send(GetMemory(id=id))
        except NotFound:
            # What a job has removed can still be restored from its log, until it is forgotten there as well.
            if dry_run or not (await bound.send(Forget(id=id))).deleted:
                raise
            return _result(f"Forgotten for good: memory {id}.", Forgotten(id=id, deleted=True, content=""))
        shown = memory_line(memory, user=bound.user)
        if dry_run:
            text = f"This would be deleted for good, with earlier versions that it replaced:\n{shown}"
            return _result(text, Forgotten(id=id, deleted=False, content=memory.content))
        if not (await bound.send(Forget(id=id))).deleted:
            raise NotFound(f"memory {id} was forgotten by somebody else a moment ago", field="id")
        return _result(f"Forgotten for good:\n{shown}", Forgotten(id=id, deleted=True, content=memory.content))

    async def list_memories(
        self,
        kind: takes.OnlyKind = None,
        tags: takes.OnlyTags = [],  # noqa: B006 - read only; pydantic copies it
        text: takes.Text = None,
        limit: takes.PageSize = 20,
        offset: takes.Offset = 0,
    ) -> str:
        """List memories, newest first."""
        bound = self._current()
        page = await bound.send(ListMemories(kind=kind, tags=tags, text=text, limit=limit, offset=offset))
        if not page.memories:
            return "No further memories." if offset else "There are no such memories."
        items = [memory_line(memory, user=bound.user) for memory in page.memories]
        more = "Ask for fewer with kind, tags or text, or with a larger offset."
        shown = listed(f"{counted(len(items), 'memory')}, newest first.", items, more=more)
        if len(items) == limit:
            shown += f"\n(There may be more: offset={offset + limit}.)"
        return shown


def _result(text: str, structured: BaseModel) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=structured.model_dump(mode="json")
    )
