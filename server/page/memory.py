"""/memory: one memory, where it came from, what it was merged from, how its relevance moved, and what recalled it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fastapi import Response

from reverie.errors import NotFound
from reverie.memories.calls import Forget, GetFactHistory, GetMemory, UpdateMemory
from reverie.memories.types import Fact, Memory
from reverie.recall.calls import ListRecallEvents
from reverie.recall.types import RecallEvent
from reverie.sessions.calls import ListMessages
from reverie.sessions.types import Message
from reverie.upkeep.calls import GetCurationEntry, ListCuration
from reverie.upkeep.curation_types import CurationEntry
from server.page.curves import curve_of
from server.page.pages import Pages
from server.page.visits import Visit

_MESSAGES_AROUND: Final = 3
_EVENTS: Final = 50
_ENTRIES: Final = 20
_MAX_MERGES: Final = 5
_NOTICES: Final = {
    "created": "Remembered. It is found a second from now.",
    "pinned": "Pinned: no job changes or removes it.",
    "unpinned": "No longer pinned.",
    "restored": "Restored, under a new id.",
}

pages = Pages()


@dataclass(frozen=True, slots=True)
class MergedText:
    """A memory that was merged into another: what it said, when, and the entry of the log that can undo it."""

    content: str
    at: datetime
    entry: CurationEntry


@pages.get("/memory")
async def _memory(visit: Visit) -> Response:
    memory = await visit.send(GetMemory(id=visit.query("id")))
    return await memory_page(visit, memory, notice=_NOTICES.get(visit.query("done"), ""), done=visit.query("done"))


async def memory_page(visit: Visit, memory: Memory, **view: Any) -> Response:
    """Return the page of a memory; `view` may have a notice and the values before a change, which undo it."""
    events = (await visit.send(ListRecallEvents(memory=memory.id, limit=_EVENTS))).recall_events
    entries = await _entries(visit, memory)
    shown: dict[str, Any] = {
        "memory": memory,
        "messages": await _conversation(visit, memory),
        "events": _by_query(events),
        "entries": entries,
        "merged": await _merged(visit, memory, entries),
        "history": await _fact_history(visit, memory),
        "curve": curve_of(memory, events, now=visit.now, rates=visit.decay_rates),
        "can_change": visit.allows(UpdateMemory) and memory.superseded_by is None,
        "can_delete": visit.allows(Forget),
        "notice": "",
        "done": "",
        "earlier": None,
    }
    return visit.page("memory.html", **{**shown, **view})


async def _conversation(visit: Visit, memory: Memory) -> list[Message]:
    """Return the message that a memory comes from, between those around it; none if it cannot be read."""
    origin = memory.provenance
    session = origin.session if origin else None
    message = (origin.message if origin else None) or memory.source_message
    if session is None or message is None:
        return []
    try:
        call = ListMessages(session=session, around=message, limit=2 * _MESSAGES_AROUND + 1)
        return (await visit.send(call)).messages
    except NotFound:  # forgotten since, or of another user
        return []


async def _entries(visit: Visit, memory: Memory) -> list[CurationEntry]:
    if not visit.allows(ListCuration) or visit.principal.user is not None:
        return []
    return (await visit.send(ListCuration(memory=memory.id, limit=_ENTRIES))).entries


async def _merged(visit: Visit, memory: Memory, entries: list[CurationEntry]) -> list[MergedText]:
    """Return what was merged into a memory, by the rows that the log has kept."""
    found = []
    merges = [entry for entry in entries if entry.action == "merge" and entry.undone_at is None]
    for entry in merges[:_MAX_MERGES]:
        whole = await visit.send(GetCurationEntry(entry.id))
        before = [change.before for change in whole.changes if change.table == "memories" and change.before]
        found += [MergedText(str(row["content"]), entry.at, entry) for row in before if row.get("id") != memory.id]
    return found


async def _fact_history(visit: Visit, memory: Memory) -> list[Fact]:
    if memory.category is None or memory.key is None:
        return []
    values = (await visit.send(GetFactHistory(category=memory.category, key=memory.key))).facts
    return values if len(values) > 1 else []


def _by_query(events: list[RecallEvent]) -> list[tuple[str, int, datetime]]:
    """Return the queries that found a memory, each with how often and when last, the latest first."""
    found: dict[str, tuple[int, datetime]] = {}
    for event in events:
        times, last = found.get(event.query, (0, event.at))
        found[event.query] = (times + 1, max(last, event.at))
    return [(query, times, last) for query, (times, last) in found.items()]
