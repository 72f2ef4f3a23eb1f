"""The tools that read: recall and context."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import anyio

from reverie.errors import NotFound, ReverieError
from reverie.inert import inert
from reverie.memories.calls import GetMemory, ListMemories
from reverie.memories.types import Memory
from reverie.recall.calls import GetContext, Recall
from reverie.recall.types import RecallResponse, RecallResult
from server.mcp import arguments as takes
from server.mcp.binding import Bound, Current
from server.mcp.texts import NOTE, cut, line, listed, memory_line, moment, tokens_of

# Results with a lower relevance are not shown: a model takes whatever it is shown for an answer.
MIN_RELEVANCE: Final = 0.03
_CONTEXT_RESULTS: Final = 12
_INSTRUCTIONS: Final = 20
# Of a context; the rest is for what is recalled.
_INSTRUCTIONS_SHARE: Final = 3
# The default of the server's setting `system_prompt_buffer`.
_SYSTEM_PROMPT_BUFFER: Final = 8_000
_NOTHING: Final = "Nothing that fits was said or remembered so far."


class ReadingTools:
    """The tools, for whom `current` says."""

    def __init__(self, current: Current) -> None:
        self._current = current

    async def recall(
        self,
        query: takes.Query,
        limit: takes.Limit = 6,
        kinds: takes.Kinds = [],  # noqa: B006 - read only; pydantic copies it
        tags: takes.OnlyTags = [],  # noqa: B006
        session: takes.SessionId = None,
        as_of: takes.AsOf = None,
    ) -> str:
        """Search everything, best first."""
        bound = self._current()
        call = Recall(
            query=query,
            limit=limit,
            kinds=kinds,
            tags=tags,
            session=session,
            as_of=as_of,
            min_score=MIN_RELEVANCE,
        )
        found = await bound.send(call)
        items = await recalled_lines(bound, found)
        if not items:
            return f"{_NOTHING}{degraded(found)}"
        heading = f"{len(items)} found, the best first.{degraded(found)}"
        return listed(heading, items, more="Ask with a smaller limit, or a narrower query.")

    async def context(
        self, about: takes.About, session: takes.ContextSession = None, token_budget: takes.Budget = 1_500
    ) -> str:
        """Return what to know before answering."""
        bound = self._current()
        if session is not None:
            # Of its budget, the server keeps some tokens free for the prompt around the document.
            call = GetContext(session=session, query=about, token_budget=token_budget + _SYSTEM_PROMPT_BUFFER)
            document = await bound.send(call)
            why = f"({inert(document.degraded)})\n" if document.degraded else ""
            return cut(why + document.text, token_budget)
        instructions = await _instructions(bound)
        found = await bound.send(Recall(query=about, limit=_CONTEXT_RESULTS, min_score=MIN_RELEVANCE))
        return await _document(bound, instructions, found, token_budget)


async def _instructions(bound: Bound) -> list[Memory]:
    """Return the standing instructions that hold everywhere, without those that wait for an approval."""
    page = await bound.send(ListMemories(kind="instruction", limit=_INSTRUCTIONS))
    return [one for one in page.memories if one.tier in ("workspace", "account") and one.visibility != "requested"]


async def _document(bound: Bound, instructions: list[Memory], found: RecallResponse, budget: int) -> str:
    """Return the instructions and what was recalled, in at most `budget` tokens."""
    parts, shown = [], {one.id for one in instructions}
    left = budget
    if instructions:
        heading = "What the user wants from now on, the newest first:"
        items = [memory_line(one, user=bound.user) for one in instructions]
        parts.append(listed(heading, items, tokens=budget // _INSTRUCTIONS_SHARE).replace(f"{NOTE}\n", ""))
        left -= tokens_of(parts[0])
    items = await recalled_lines(bound, found, without=shown)
    if items:
        parts.append(listed(f"What may matter now, the best first.{degraded(found)}", items, tokens=left))
    return "\n\n".join(parts) or f"{_NOTHING}{degraded(found)}"


async def recalled_lines(bound: Bound, found: RecallResponse, *, without: Collection[str] = ()) -> list[str]:
    """Return the lines of what was recalled. Of memories, those that are still there, with where they come from."""
    results = [one for one in found.results if one.id not in without]
    memories: dict[str, Memory] = {}
    failures: list[ReverieError] = []

    async def read(id: str) -> None:
        try:
            memories[id] = await bound.send(GetMemory(id=id))
        except NotFound:
            pass  # forgotten since: then it is not told either
        except ReverieError as error:  # the first is raised below; a group of errors would hide what it is
            failures.append(error)

    async with anyio.create_task_group() as group:
        for one in results:
            if one.kind == "memory":
                group.start_soon(read, one.id)
    if failures:
        raise failures[0]
    shown = [one for one in results if one.kind != "memory" or one.id in memories]
    return [
        memory_line(memories[one.id], user=bound.user) if one.kind == "memory" else _line(one, bound) for one in shown
    ]


def degraded(found: RecallResponse) -> str:
    """Return why a recall found fewer or worse than it might, as a sentence; empty if it did not."""
    return f" (Limited now: {inert(found.degraded)}.)" if found.degraded else ""


def _line(result: RecallResult, bound: Bound) -> str:
    speaker = f"{result.role}{f' {result.name}' if result.name and result.name != bound.user else ''}"
    label = (
        moment(result.created_at),
        f"said by {speaker}" if result.role else result.kind,
        f"session {result.session}" if result.session else None,
        f"file {result.id}" if result.kind == "file" else None,
    )
    return line(label, result.excerpt or result.text)
