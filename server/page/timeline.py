"""What is known about a person or a thing, in order of time, and what contexts told the agent, and why.

The timeline shows memories, current and replaced ones, and messages that state the value of an attribute ("I live in
Porto"), with since and until when it holds, and where it was told. Contexts answer "why did it say that?".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.responses import Response

from reverie.memories.calls import ListMemories
from reverie.memories.types import Memory, changed_text
from reverie.recall.calls import ListContexts, Recall, ShowContext
from reverie.recall.types import RecallResult, ServedItem
from reverie.sessions.calls import ListSessions
from server.page.memories import users_to_offer
from server.page.rendering import people_of
from server.page.site import PAGE_SIZE, Pages, Visit
from storage.recall.claims import claims_of
from storage.recall.words import hash_of, words_of

# More memories about one name are not read, and the people of more conversations are not counted.
_MEMORIES: Final = 500
_MESSAGES: Final = 100
_CONVERSATIONS: Final = 500
_PEOPLE: Final = 24
_HEADINGS = {
    "instruction": "Standing instructions",
    "memory": "Remembered",
    "important": "Flagged as important",
    "relevant": "Said before on this subject",
    "recent": "Recent turns",
}

pages = Pages()


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that is known, with the address of its page. `said_by` and `session` are where it was told.

    `review` says why it may not hold, or waits.
    """

    text: str
    since: datetime
    until: datetime | None
    link: str
    said_by: str | None
    session: str | None
    review: str


@pages.get("/timeline")
async def _timeline(visit: Visit) -> Response:
    name = visit.query("q")
    view: dict[str, Any] = {"holds": [], "happened": [], "held": [], "titles": {}}
    if name:
        view = await _known(visit, name)
    sessions = (await visit.send(ListSessions(limit=_CONVERSATIONS))).sessions
    counts = Counter(sorted(one for session in sessions for one in people_of(session)))
    template = "parts/timeline.html" if visit.is_partial else "timeline.html"
    people, of_latest = counts.most_common(_PEOPLE), len(sessions) if len(sessions) == _CONVERSATIONS else 0
    users = await users_to_offer(visit, found=bool(people))
    return visit.page(template, name=name, people=people, of_latest=of_latest, users=users, **view)


async def _known(visit: Visit, name: str) -> dict[str, Any]:
    listed = await visit.send(ListMemories(text=name, superseded=True, limit=_MEMORIES))
    memories = [memory for memory in listed.memories if _names(name, memory.content)]
    sources = {memory.provenance.message for memory in memories if memory.provenance}
    messages = await visit.send(Recall(query=name, kinds=["message"], limit=_MESSAGES))
    statements = [one for one in messages if one.id not in sources and _gives_a_value(name, one)]
    lasting = [_remembered(visit, memory) for memory in memories if memory.kind != "event"]
    lasting += [_said(visit, result) for result in statements]
    happened = [_remembered(visit, memory) for memory in memories if memory.kind == "event"]
    return {
        "holds": _newest_first([one for one in lasting if one.until is None]),
        "happened": _newest_first(happened),
        "held": _newest_first([one for one in lasting if one.until is not None]),
        "titles": await visit.titles(one.session for one in lasting + happened),
    }


def _names(name: str, text: str) -> bool:
    """Return whether a text has all words of a name, and not only its letters."""
    return set(map(hash_of, words_of(name))) <= set(map(hash_of, words_of(text)))


def _gives_a_value(name: str, result: RecallResult) -> bool:
    """Return whether a message states the value of an attribute of `name`, as its speaker or as a thing it names."""
    is_speaker = result.name is not None and result.name.casefold() == name.casefold()
    claims = [claim for claim in claims_of(result.text) if claim.value and not claim.adds]
    return any(is_speaker if claim.is_own else _names(name, claim.attribute) for claim in claims)


def _remembered(visit: Visit, memory: Memory) -> Statement:
    origin, since = memory.provenance, memory.valid_from or memory.created_at
    said_by = (origin.name or origin.user) if origin else None
    link = visit.link("/memory", id=memory.id)
    session = origin.session if origin else None
    return Statement(memory.content, since, memory.valid_to, link, said_by, session, memory.review)


def _said(visit: Visit, result: RecallResult) -> Statement:
    link = visit.link("/conversation", id=result.session, around=result.id)
    review = changed_text(result.changed_since) if result.changed_since else ""
    return Statement(result.text, result.created_at, result.replaced_at, link, result.name, result.session, review)


def _newest_first(statements: list[Statement]) -> list[Statement]:
    return sorted(statements, key=lambda one: one.since, reverse=True)


@pages.get("/contexts")
async def _contexts(visit: Visit) -> Response:
    session = visit.query("session")
    call = ListContexts(
        session=session or None, limit=PAGE_SIZE + 1, offset=visit.number("offset"), all_users=visit.sees_all_users
    )
    found = (await visit.send(call)).contexts
    beside = visit.beside("/contexts", is_last=len(found) <= PAGE_SIZE, session=session)
    titles = await visit.titles(served.session for served in found)
    return visit.page("contexts.html", contexts=found[:PAGE_SIZE], session=session, titles=titles, **beside)


@pages.get("/context")
async def _context(visit: Visit) -> Response:
    served = await visit.send(ShowContext(visit.query("id"), all_users=visit.sees_all_users))
    titles = await visit.titles([served.session])
    title = titles.get(served.session or "", served.session)
    return visit.page("context.html", served=served, parts=parts_of(served.items), title=title)


def parts_of(items: Iterable[ServedItem]) -> list[tuple[str, list[ServedItem]]]:
    """Return the items below their headings, each of which is there once."""
    parts: dict[str, list[ServedItem]] = {}
    for item in items:
        heading = f"Left out: {item.left_out}" if item.left_out else _HEADINGS[item.section]
        parts.setdefault(heading, []).append(item)
    return [*parts.items()]
