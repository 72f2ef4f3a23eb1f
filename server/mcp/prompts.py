"""Prompts, which people start by name: what is known about them, and forgetting something."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import Field

from reverie.inert import inert_line
from reverie.memories.calls import ListMemories
from reverie.recall.calls import Recall
from server.mcp.binding import Current
from server.mcp.reading_tools import MIN_RELEVANCE, recalled_lines
from server.mcp.texts import listed, memory_line

_PAGE = 50
_RESULTS = 20

Topic = Annotated[str, Field(description="Only what concerns this; by default everything.")]
What = Annotated[str, Field(description="What is to be forgotten, in a few words.")]


def add_prompts(server: MCPServer, current: Current) -> None:
    """Add the prompts for whom `current` says."""

    @server.prompt(
        name="what_do_you_know_about_me",
        title="What do you know about me?",
        description="Show what is remembered, to check and correct it.",
    )
    async def what_do_you_know_about_me(topic: Topic = "") -> str:
        bound = current()
        if topic.strip():
            found = await bound.send(Recall(query=topic, limit=_RESULTS, min_score=MIN_RELEVANCE))
            items = await recalled_lines(bound, found)
            heading = f"What is remembered about {inert_line(topic)}:"
        else:
            page = await bound.send(ListMemories(limit=_PAGE))
            items = [memory_line(memory, user=bound.user) for memory in page.memories]
            heading = "What is remembered, the newest first:"
        known = listed(heading, items, more="Use list_memories and recall to see them.") if items else ""
        return (
            "What do you know about me? Answer from your memory below: group it by subject, in plain sentences, with"
            " dates, and say where it comes from and what looks outdated or contradictory. Ask me what is wrong, and"
            " correct it with update_memory, or with forget after I have agreed."
            f"\n\n{known or 'Nothing is remembered yet: say so.'}"
        )

    @server.prompt(
        name="forget_something",
        title="Forget something",
        description="Find what is remembered about something, and delete it after a confirmation.",
    )
    async def forget_something(what: What) -> str:
        return (
            f'I want you to forget this: {what}\n\nSearch for it with recall, with kinds=["memory"]. Show me each'
            " memory that you would delete (forget with dry_run=true), and ask me. Delete only what I confirm, and tell"
            " me if messages of earlier conversations say the same: those are deleted with `reverie forget` on the"
            " command line."
        )
