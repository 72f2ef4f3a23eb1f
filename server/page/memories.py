"""Memories and conversations: search as you type, browse them, and look at one; a memory can be changed.

The page that follows a change has a form that undoes it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import groupby
from typing import Any, Final, get_args

from msgspec import json
from starlette.responses import Response

from memory.lifecycle.importing import bring_back, delete_with_records
from memory.memories.agent_memories import AgentMemories
from retrieval.ranking.retrievers import WEIGHTS
from reverie.clock import new_id
from reverie.errors import Forbidden, NotFound, Rejected, Transient
from reverie.memories.calls import (
    Forget,
    GetFactHistory,
    GetMemory,
    GetMemoryStats,
    ImportMemories,
    ListMemories,
    Remember,
    SetFact,
    UpdateMemory,
)
from reverie.memories.types import Fact, Lifetime, Memory, MemoryKind, Tier
from reverie.recall.calls import ListRecallEvents, Recall, SearchSessions
from reverie.recall.types import RecallEvent, RecallResult
from reverie.sessions.calls import (
    GetScratchpad,
    GetSession,
    GetSummary,
    ListMessages,
    ListScratchpadKeys,
    ListSessions,
    ListWorkspaces,
    Status,
)
from reverie.sessions.types import Message, WorkspaceSummary
from reverie.trust.exports import ExportedMemory
from reverie.upkeep import CurationEntry, GetCurationEntry, GetReview, ListCuration
from server.caller import Caller
from server.page.deletions import deleted_page, deleted_records, restoring
from server.page.rendering import day_heading
from server.page.site import PAGE_SIZE, Form, Pages, Visit, agents_in
from server.services import Services
from storage.memories.records import decay
from storage.pipeline.work import STAGES

_RESULTS: Final = 25
# Results with a lower relevance are not shown: no result is more useful than results that do not fit.
_MIN_RELEVANCE: Final = 0.03
# Filters in the address of the list, besides the query, with their names on the page.
_FILTERS: Final[Mapping[str, str]] = {
    "kind": "Kind",
    "tier": "Tier",
    "lifetime": "Lifetime",
    "source": "Source",
    "tag": "Tag",
    "session": "Conversation",
    "channel": "Channel",
    "since": "From",
    "until": "To",
}
# The filters that are days.
_DAYS: Final = ("since", "until")
# The filters that also apply to a search.
_SEARCH_FILTERS: Final = ("tag", "session", "channel")
# The options of the filters that are chosen from a list.
_CHOICES: Final = {"kind": get_args(MemoryKind), "tier": get_args(Tier), "lifetime": get_args(Lifetime)}
_RESULT_KINDS: Final[Mapping[str, str]] = {
    "": "Everything",
    "memory": "Memories",
    "message": "Messages",
    "file": "Files",
}

pages = Pages()


@pages.get("/")
async def _memories(visit: Visit) -> Response:
    query = visit.query("q")
    filters = {name: visit.query(name) for name in _FILTERS if visit.query(name)}
    view = await (_search_view(visit, query, filters) if query else _list_view(visit, filters))
    view |= {
        "query": query,
        "filters": filters,
        "filter_names": _FILTERS,
        "search_filters": _SEARCH_FILTERS,
        "days_named": _DAYS,
    }
    if visit.is_partial:
        part = visit.page("parts/results.html", **view)
        # Without the fields of the form that are empty.
        part.headers["HX-Replace-Url"] = visit.link("/", q=query, **filters)
        return part
    return visit.page("memories.html", **view, choices=_CHOICES, can_write=visit.allows(Remember))


async def _search_view(visit: Visit, query: str, filters: Mapping[str, str]) -> dict[str, Any]:
    only = visit.query("only") if visit.query("only") in _RESULT_KINDS else ""
    session = filters.get("session")
    call = Recall(
        query=query,
        limit=_RESULTS,
        min_score=_MIN_RELEVANCE,
        kinds=[only] if only else [],  # type: ignore[list-item]  # one of the keys above
        tags=_words(filters.get("tag")),
        session=session,
        channel=filters.get("channel") if session is None else None,
        as_of=visit.query("as_of") or None,
        explain=True,
    )
    found = await visit.send(call)
    results: list[tuple[RecallResult, list[Share]]] = [(result, shares_of(result)) for result in found]
    kinds = [(name, text, visit.link("/", q=query, **filters, only=name)) for name, text in _RESULT_KINDS.items()]
    return {
        "results": results,
        "is_full": len(results) == _RESULTS,
        "titles": await visit.titles(result.session for result in found),
        "degraded": found.degraded,
        "only": only,
        "result_kinds": kinds,
        "days": [],
        "users": await users_to_offer(visit, found=bool(results)),
    }


async def _list_view(visit: Visit, filters: Mapping[str, str]) -> dict[str, Any]:
    offset, replaced = visit.number("offset"), bool(visit.query("replaced"))
    given = {name: value for name, value in filters.items() if name not in ("tag", *_DAYS)}
    since, until = (day_of(filters[name], visit.zone) if name in filters else None for name in _DAYS)
    call = ListMemories(
        since=since,
        until=None if until is None else until + timedelta(days=1),
        **given,  # type: ignore[arg-type]  # checked by the call
        tags=_words(filters.get("tag")),
        superseded=replaced,
        limit=PAGE_SIZE + 1,
        offset=offset,
    )
    found = (await visit.send(call)).memories
    page = found[:PAGE_SIZE]
    return {
        "results": None,
        "days": _by_day(visit, page),
        "offset": offset,
        **visit.beside("/", is_last=len(found) <= PAGE_SIZE, **filters, replaced=replaced),
        "degraded": "",
        "users": await users_to_offer(visit, found=bool(found or filters)),
    }


def _by_day(visit: Visit, memories: Iterable[Memory]) -> list[tuple[str, list[Memory]]]:
    """Return memories, which are the newest first, under the headings of their days."""
    days = groupby(memories, key=lambda memory: day_heading(memory.created_at, now=visit.now, zone=visit.zone))
    return [(day, list(ones)) for day, ones in days]


@pages.get("/memory-counts")
async def _memory_counts(visit: Visit) -> Response:
    """How many memories there are, and their sources: the list does not wait until all memories are counted."""
    template = "parts/memory_counts.html" if visit.is_partial else "memory_counts.html"
    stats, waiting = await visit.send(GetMemoryStats()), await visit.services.threads.run(lambda: _waiting(visit))
    return visit.page(template, stats=stats, waiting=waiting)


def _waiting(visit: Visit) -> int:
    """Return how many rows of the workspace no search finds yet."""
    assert visit.place is not None
    store = visit.services.existing_store(visit.place.workspace)
    if store is None:
        return 0
    with store.reading() as tx:
        return sum(tx.work.backlog(stage).waiting for stage in STAGES)


def day_of(text: str, zone: tzinfo = UTC) -> datetime:
    """Return the beginning of a day. Raises `Rejected`."""
    try:
        return datetime.combine(date.fromisoformat(text), time.min, zone)
    except ValueError:
        raise Rejected(f"{text[:40]!r} is not a day: write it as in 2026-05-12", field="since") from None


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


_MESSAGES_AROUND: Final = 3
_EVENTS: Final = 50
_ENTRIES: Final = 20
_MAX_MERGES: Final = 5
_NOTICES: Final = {
    "created": "Remembered. Searches find it in about a second.",
    "pinned": "Pinned: no job changes or removes it.",
    "unpinned": "No longer pinned.",
    "restored": "Restored.",
}


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
    entries, origin = await _entries(visit, memory), memory.provenance
    shown: dict[str, Any] = {
        "memory": memory,
        "messages": await _messages_of(visit, memory),
        "title": (await visit.titles([origin.session])).get(origin.session or "", "") if origin else "",
        "events": _by_query(events),
        "entries": entries,
        "merged": await _merged(visit, memory, entries),
        "history": await _fact_history(visit, memory),
        "curve": curve_of(memory, events, now=visit.now, rates=visit.decay_rates),
        "can_change": visit.allows(UpdateMemory) and memory.superseded_by is None,
        "can_delete": visit.allows(Forget),
        "can_review": visit.allows(GetReview),
        "notice": "",
        "done": "",
        "earlier": None,
    }
    return visit.page("memory.html", **{**shown, **view})


async def _messages_of(visit: Visit, memory: Memory) -> list[Message]:
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
    """Return the memories that were merged into this one, from the rows that the log has kept."""
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


WIDTH: Final = 640
HEIGHT: Final = 96
_STEPS: Final = 80
_MICROSECOND: Final = timedelta(microseconds=1)
_SECONDS_PER_HOUR: Final = 3_600
# The ages on the axis, in hours, and how far to the right the last one may be, so that it does not run into "now".
_AGES: Final = ((1, "1 hour"), (24, "1 day"), (7 * 24, "1 week"), (30 * 24, "1 month"), (365 * 24, "1 year"))
_LAST_AGE: Final = WIDTH * 0.88


@dataclass(frozen=True, slots=True)
class Curve:
    """The relevance of a memory over time. `points` are for an SVG of `WIDTH` by `HEIGHT`, `recalls` the x of each.

    Time is logarithmic, since most of it is lost in the first days; `ages` are the x of an age, with its name.
    """

    points: str
    recalls: list[float]
    ages: list[tuple[float, str]]
    now: float
    highest: float
    since: datetime


def curve_of(memory: Memory, events: Sequence[RecallEvent], *, now: datetime, rates: Mapping[Tier, float]) -> Curve:
    """Return the curve of a memory, by the recalls that are known: they are kept for some months."""
    start = memory.created_at
    recalls = sorted(event.at for event in events if start < event.at <= now)
    width = math.log1p(max(_hours(now - start), 1e-3))
    moments = [start + timedelta(hours=math.expm1(width * step / _STEPS)) for step in range(_STEPS)] + [now]
    moments = sorted([*moments, *recalls, *(at - _MICROSECOND for at in recalls)])
    values = [_relevance(memory, recalls, at, rates) for at in moments]
    highest = max(values) or 1.0

    def x_of(at: datetime) -> float:
        return round(WIDTH * math.log1p(_hours(at - start)) / width, 1)

    ages = [(x_of(start + timedelta(hours=hours)), name) for hours, name in _AGES]
    ages = [(x, name) for x, name in ages if x < _LAST_AGE]
    points = [f"{x_of(at)},{HEIGHT * (1 - value / highest):.1f}" for at, value in zip(moments, values, strict=True)]
    return Curve(" ".join(points), [x_of(at) for at in recalls], ages, values[-1], highest, start)


def _hours(span: timedelta) -> float:
    return span.total_seconds() / _SECONDS_PER_HOUR


def _relevance(memory: Memory, recalls: Sequence[datetime], at: datetime, rates: Mapping[Tier, float]) -> float:
    before = [recall for recall in recalls if recall <= at]
    # Recalls older than the known ones count from the beginning.
    count = max(0, memory.access_count - len(recalls)) + len(before)
    last = before[-1] if before else memory.created_at
    return decay(memory.tier, importance=memory.importance, access_count=count, hours=_hours(at - last), rates=rates)


_NAMES: Final[Mapping[str, str]] = {
    "keyword": "Its words",
    "vector": "Its meaning",
    "keyword_around": "The words around it",
    "vector_around": "The meaning around it",
    "speaker": "Who said it",
    "date": "When it was said",
}


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one retriever in the score of a result, from 0 to 1, and the rank that it gave the result."""

    name: str
    share: float
    rank: int


def shares_of(result: RecallResult) -> list[Share]:
    """Return the shares of all retrievers that found a result, the largest first."""
    explanation = result.explanation
    if explanation is None:
        return []
    scored = {name: score for name in _NAMES if (score := getattr(explanation, name)) is not None}
    weighted = {name: WEIGHTS[name] * score.normalised for name, score in scored.items()}  # type: ignore[index]
    total = sum(weighted.values())
    if total <= 0:
        return []
    shares = [Share(_NAMES[name], weight / total, scored[name].rank) for name, weight in weighted.items() if weight > 0]
    return sorted(shares, key=lambda share: share.share, reverse=True)


_KINDS: Final = get_args(MemoryKind)
# The source of memories that a person wrote: no job ever rewrites them.
_BY_A_PERSON: Final = "user"


@pages.get("/memory/new")
async def _new(visit: Visit) -> Response:
    return visit.page("memory_new.html", id=new_id(), kinds=_KINDS)


@pages.post("/memory/new")
async def _create(visit: Visit) -> Response:
    form = visit.form
    remembered = await visit.send(
        Remember(
            id=form.word("id") or new_id(),  # the form has one, so that sending it twice stores one memory
            content=form.text("content"),
            kind=form.text("kind"),  # type: ignore[arg-type]  # checked by the call
            tags=form.tags(),
            source=_BY_A_PERSON,
            pinned=form.is_checked("pinned"),
            owner_user_id=form.word("user"),
        )
    )
    return visit.see_other("/memory", id=remembered.id, done="created")


@pages.get("/memory/edit")
async def _edit(visit: Visit) -> Response:
    return _edit_page(visit, await visit.send(GetMemory(id=visit.query("id"))))


@pages.post("/memory/edit")
async def _save(visit: Visit) -> Response:
    form, before = visit.form, await visit.send(GetMemory(id=visit.query("id")))
    if form.text("read_at") != before.updated_at.isoformat():
        # It was saved meanwhile in another tab, or by somebody else: show both texts, so that neither is lost.
        return _edit_page(visit, before, typed=form)
    if before.category is not None and before.key is not None:
        return await _save_fact(visit, before, before.category, before.key)
    changes = _changes(form, before)
    after = await visit.send(UpdateMemory(before.id, **changes)) if changes else before
    # The response of a change does not say where the memory comes from.
    after = await visit.send(GetMemory(id=after.id))
    notice = "Undone." if form.is_checked("undoes") else "Saved." if changes else "Nothing was changed."
    return await memory_page(visit, after, notice=notice, earlier=before if changes else None)


@pages.post("/memory/pin")
async def _pin(visit: Visit) -> Response:
    pinned = visit.form.is_checked("pinned")
    memory = await visit.send(UpdateMemory(visit.query("id"), pinned=pinned))
    return visit.see_other("/memory", id=memory.id, done="pinned" if pinned else "unpinned")


@pages.post("/memory/delete")
async def _delete(visit: Visit) -> Response:
    memory = await visit.send(GetMemory(id=visit.query("id")))
    records = await visit.carry_out(Forget(id=memory.id), _delete_with_records)
    return deleted_page(visit, "memory", memory.content, records)


def _memories_of(services: Services, caller: Caller, call: Forget | ImportMemories) -> AgentMemories:
    return AgentMemories(services.runtime.stores, caller.workspace, caller.agent, services.viewer(caller, call))


def _delete_with_records(services: Services, caller: Caller, call: Forget) -> list[ExportedMemory]:
    return delete_with_records(_memories_of(services, caller, call), call.id)


@pages.post("/memory/restore")
async def _restore(visit: Visit) -> Response:
    at, records = deleted_records(visit, ExportedMemory)

    def restore(services: Services, caller: Caller, call: ImportMemories) -> None:
        with restoring(services, caller, records):
            memories, now = _memories_of(services, caller, call), services.runtime.now()
            for name in bring_back(memories, records, deleted_at=at, now=now):
                services.runtime.notify_stage("chunk", name)

    await visit.carry_out(ImportMemories(memories=[]), restore)
    return visit.see_other("/memory", id=records[0].id, done="restored")


def _edit_page(visit: Visit, memory: Memory, *, typed: Form | None = None) -> Response:
    return visit.page(
        "memory_edit.html", memory=memory, kinds=_KINDS, typed=typed, status=200 if typed is None else 409
    )


async def _save_fact(visit: Visit, before: Memory, category: str, key: str) -> Response:
    """Set the value of a fact, which is a new memory; the earlier value stays in its history."""
    call = SetFact(
        category=category,
        key=key,
        value=visit.form.text("value"),
        source="user",
        importance=visit.form.number("importance"),
        tags=visit.form.tags(),
    )
    fact = await visit.send(call)
    after = await visit.send(GetMemory(id=fact.id))
    notice = "Undone." if visit.form.is_checked("undoes") else "Saved."
    return await memory_page(visit, after, notice=notice, earlier=before if after.id != before.id else None)


def _changes(form: Form, before: Memory) -> dict[str, Any]:
    """Return the fields of a form that differ from a memory: what nobody touched stays as it is."""
    sent: dict[str, Any] = {
        "content": form.text("content"),
        "importance": form.number("importance"),
        "tags": form.tags(),
        "pinned": form.is_checked("pinned"),
    }
    if before.note_id is None:
        sent["kind"] = form.text("kind")
    now = {
        "content": as_typed(before.content),
        "importance": before.importance,
        "tags": before.tags,
        "pinned": before.pinned,
        "kind": before.kind,
    }
    return {name: value for name, value in sent.items() if value != now[name]}


def as_typed(text: str) -> str:
    """Return a text as a browser sends it back from a field that nobody touched."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


_MAX_WORKSPACES: Final = 1_000
_MAX_USERS: Final = 200


@pages.get("/agents")
async def _agents(visit: Visit) -> Response:
    assert visit.place is not None
    workspaces = await _workspaces(visit)
    agents = await agents_in(visit, visit.place.workspace)
    return visit.page("agents.html", agents=agents, workspaces=workspaces, users=await users_in(visit))


async def users_in(visit: Visit) -> list[tuple[str, int]]:
    """Return the agent's users and how many of its newest conversations each has; none if the visitor may not know."""
    if visit.principal.user is not None or not visit.principal.allows("operate"):
        return []
    everybody = visit.elsewhere(replace(visit.place, user=None)) if visit.place else visit
    sessions = (await everybody.send(ListSessions(limit=_MAX_WORKSPACES, all_users=True))).sessions
    return Counter(session.user for session in sessions if session.user).most_common(_MAX_USERS)


async def users_to_offer(visit: Visit, *, found: bool) -> list[tuple[str, int]]:
    """Return the users to choose from where nothing was `found` and none is chosen: all of it may belong to users."""
    is_of_nobody = visit.place is not None and visit.place.user is None
    return await users_in(visit) if is_of_nobody and not found else []


async def _workspaces(visit: Visit) -> list[WorkspaceSummary]:
    """Return the workspaces; none for a token that may not list them."""
    try:
        return (await visit.send(ListWorkspaces(limit=_MAX_WORKSPACES))).workspaces
    except Forbidden:
        return []


_MESSAGES: Final = 100


@pages.get("/conversations")
async def _conversations(visit: Visit) -> Response:
    query = visit.query("q")
    view = await (_found_sessions(visit, query) if query else _listed_sessions(visit))
    template = "parts/conversation_rows.html" if visit.is_partial else "conversations.html"
    return visit.page(template, query=query, **view)


@pages.get("/conversation")
async def _one_conversation(visit: Visit) -> Response:
    id, around = visit.query("id"), visit.query("around")
    session = await visit.send(GetSession(id))
    offset = visit.number("offset") if visit.query("offset") else max(0, session.messages - _MESSAGES)
    page = await visit.send(ListMessages(session=id, limit=_MESSAGES, offset=offset, around=around or None))
    end = page.offset + len(page.messages)
    earlier = visit.link("/conversation", id=id, offset=str(max(0, page.offset - _MESSAGES)))
    notes = await visit.send(GetScratchpad(id))
    entries = await visit.send(ListScratchpadKeys(id))
    return visit.page(
        "conversation.html",
        session=session,
        messages=page.messages,
        around=around,
        earlier=earlier if page.offset else "",
        later=visit.link("/conversation", id=id, offset=str(end)) if end < session.messages else "",
        first=page.offset + 1,
        last=end,
        notes=notes,
        entries=[(entry, json.format(json.encode(entry.value), indent=2).decode()) for entry in entries],
        summary=await _summary(visit, id),
    )


async def _listed_sessions(visit: Visit) -> dict[str, Any]:
    status = visit.query("status")
    call = ListSessions(limit=PAGE_SIZE + 1, offset=visit.number("offset"), status=status or None)  # type: ignore[arg-type]
    found = (await visit.send(call)).sessions
    return {
        "sessions": found[:PAGE_SIZE],
        "results": None,
        "degraded": "",
        "chosen_status": status,
        "statuses": get_args(Status),
        "users": await users_to_offer(visit, found=bool(found)),
        **visit.beside("/conversations", is_last=len(found) <= PAGE_SIZE, status=status),
    }


async def _found_sessions(visit: Visit, query: str) -> dict[str, Any]:
    found = await visit.send(SearchSessions(query=query, limit=_RESULTS, min_score=_MIN_RELEVANCE))
    return {
        "sessions": [],
        "results": found.results,
        "degraded": found.degraded,
        "chosen_status": "",
        "statuses": get_args(Status),
        "newer": "",
        "older": "",
    }


async def _summary(visit: Visit, session: str) -> str:
    try:
        return (await visit.send(GetSummary(session))).text
    except Transient:  # the conversation can be read without it
        return ""
