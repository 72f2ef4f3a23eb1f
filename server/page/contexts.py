"""What contexts told the agent, and why: the answer to "why did it say that?"."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response

from reverie.recall.calls import ListContexts, ShowContext
from reverie.recall.types import ServedItem
from server.page.site import PAGE_SIZE, Pages, Visit

pages = Pages()

_HEADINGS = {
    "instruction": "Standing instructions",
    "memory": "Remembered",
    "important": "Flagged as important",
    "relevant": "Said before on this subject",
    "recent": "Recent turns",
}


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
