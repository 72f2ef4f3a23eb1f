"""/dead-letters: work that failed for good; replay it after its cause is gone, or drop it."""

from __future__ import annotations

from typing import Final

from fastapi import Response

from reverie.pipeline.calls import DropDeadLetter, GetDeadLetter, ListDeadLetters, ReplayDeadLetter
from server.page.pages import Pages
from server.page.visits import Visit

_PAGE_SIZE: Final = 50
# A person who watches waits no longer.
_REPLAY_SECONDS: Final = 3.0
_NOTICES: Final = {
    "succeeded": "Replayed: the work is done.",
    "failed": "Replayed, and it failed again: it is the newest letter, with its new error.",
    "queued": "Replayed: it is on its way, and comes back here if it fails again.",
    "dropped": "Dropped.",
}

pages = Pages()


@pages.get("/dead-letters")
async def _dead_letters(visit: Visit) -> Response:
    offset = visit.number("offset")
    letters = (await visit.send(ListDeadLetters(limit=_PAGE_SIZE + 1, offset=offset))).dead_letters
    return visit.page(
        "dead_letters.html",
        letters=letters[:_PAGE_SIZE],
        newer=visit.link("/dead-letters", offset=max(0, offset - _PAGE_SIZE)) if offset else "",
        older=visit.link("/dead-letters", offset=offset + _PAGE_SIZE) if len(letters) > _PAGE_SIZE else "",
        notice=_NOTICES.get(visit.query("done"), ""),
    )


@pages.get("/dead-letter")
async def _dead_letter(visit: Visit) -> Response:
    return visit.page("dead_letter.html", letter=await visit.send(GetDeadLetter(visit.number("id"))))


@pages.post("/dead-letter/replay")
async def _replay(visit: Visit) -> Response:
    letter = await visit.send(ReplayDeadLetter(visit.number("id"), timeout_seconds=_REPLAY_SECONDS))
    return visit.see_other("/dead-letters", done=letter.replay)


@pages.post("/dead-letter/drop")
async def _drop(visit: Visit) -> Response:
    await visit.send(DropDeadLetter(visit.number("id")))
    return visit.see_other("/dead-letters", done="dropped")
