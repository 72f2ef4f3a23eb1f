"""/: search as you type, and browse memories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Any, Final, get_args

from fastapi import Response

from reverie.errors import Rejected
from reverie.memories.calls import GetMemoryStats, ListMemories, Remember
from reverie.memories.types import Lifetime, Memory, MemoryKind, Tier
from reverie.recall.calls import Recall
from reverie.recall.types import RecallResult
from server.page.moments import day_heading
from server.page.pages import Pages
from server.page.shares import Share, shares_of
from server.page.visits import Visit

PAGE_SIZE: Final = 50
_RESULTS: Final = 25
# Results with a lower relevance are not shown: nothing found says more than something that does not fit.
_MIN_RELEVANCE: Final = 0.03
# What the address of the list may have besides a query, with its name on the page.
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
# Of these, those that are days.
_DAYS: Final = ("since", "until")
# And what limits a search, too.
_SEARCH_FILTERS: Final = ("tag", "session", "channel")
# What those of the filters offer that are chosen from a list.
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
    view = await (_found(visit, query, filters) if query else _listed(visit, filters))
    view |= {
        "query": query,
        "filters": filters,
        "filter_names": _FILTERS,
        "search_filters": _SEARCH_FILTERS,
        "days_named": _DAYS,
    }
    if visit.is_partial:
        return visit.page("parts/results.html", **view)
    return visit.page("memories.html", **view, choices=_CHOICES, can_write=visit.allows(Remember))


async def _found(visit: Visit, query: str, filters: Mapping[str, str]) -> dict[str, Any]:
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
    return {"results": results, "degraded": found.degraded, "only": only, "result_kinds": kinds, "days": []}


async def _listed(visit: Visit, filters: Mapping[str, str]) -> dict[str, Any]:
    offset, replaced = visit.number("offset"), bool(visit.query("replaced"))
    given = {name: value for name, value in filters.items() if name not in ("tag", *_DAYS)}
    since, until = (day_of(filters[name]) if name in filters else None for name in _DAYS)
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
    more = {**filters, "replaced": replaced}
    return {
        "results": None,
        "days": _by_day(visit, page),
        "offset": offset,
        "newer": visit.link("/", **more, offset=max(0, offset - PAGE_SIZE)) if offset else "",
        "older": visit.link("/", **more, offset=offset + PAGE_SIZE) if len(found) > PAGE_SIZE else "",
        "degraded": "",
    }


def _by_day(visit: Visit, memories: Iterable[Memory]) -> list[tuple[str, list[Memory]]]:
    """Return memories, which are the newest first, under the headings of their days."""
    days = groupby(memories, key=lambda memory: day_heading(memory.created_at, now=visit.now))
    return [(day, list(ones)) for day, ones in days]


@pages.get("/memory-counts")
async def _memory_counts(visit: Visit) -> Response:
    """How many memories there are, and their sources: the list does not wait until all memories are counted."""
    template = "parts/memory_counts.html" if visit.is_partial else "memory_counts.html"
    return visit.page(template, stats=await visit.send(GetMemoryStats()))


def day_of(text: str) -> datetime:
    """Return the beginning of a day in UTC. Raises `Rejected`."""
    try:
        return datetime.combine(date.fromisoformat(text), time.min, UTC)
    except ValueError:
        raise Rejected(f"{text[:40]!r} is not a day: write it as in 2026-05-12", field="since") from None


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]
