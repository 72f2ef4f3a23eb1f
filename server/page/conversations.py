"""/conversations and /conversation: what was said, the summary of it, and the scratchpad as working notes."""

from __future__ import annotations

from typing import Any, Final, get_args

from fastapi import Response
from msgspec import json

from reverie.errors import Transient
from reverie.recall.calls import SearchSessions
from reverie.sessions.calls import (
    GetScratchpad,
    GetSession,
    GetSummary,
    ListMessages,
    ListScratchpadKeys,
    ListSessions,
    Status,
)
from server.page.pages import Pages
from server.page.visits import Visit

_PAGE_SIZE: Final = 50
_RESULTS: Final = 25
_MIN_RELEVANCE: Final = 0.03
_MESSAGES: Final = 100

pages = Pages()


@pages.get("/conversations")
async def _conversations(visit: Visit) -> Response:
    query = visit.query("q")
    view = await (_found(visit, query) if query else _listed(visit))
    template = "parts/conversation_rows.html" if visit.is_partial else "conversations.html"
    return visit.page(template, query=query, **view)


@pages.get("/conversation")
async def _conversation(visit: Visit) -> Response:
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


async def _listed(visit: Visit) -> dict[str, Any]:
    offset, status = visit.number("offset"), visit.query("status")
    call = ListSessions(limit=_PAGE_SIZE + 1, offset=offset, status=status or None)  # type: ignore[arg-type]
    found = (await visit.send(call)).sessions
    return {
        "sessions": found[:_PAGE_SIZE],
        "results": None,
        "degraded": "",
        "chosen_status": status,
        "statuses": get_args(Status),
        "newer": visit.link("/conversations", status=status, offset=offset - _PAGE_SIZE) if offset else "",
        "older": visit.link("/conversations", status=status, offset=offset + _PAGE_SIZE)
        if len(found) > _PAGE_SIZE
        else "",
    }


async def _found(visit: Visit, query: str) -> dict[str, Any]:
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
