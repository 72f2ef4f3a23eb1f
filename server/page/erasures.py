"""/erasures: remove somebody or something with every trace, see first what that is, and read the receipt."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Response

from reverie.errors import Rejected
from reverie.trust.erasure_calls import Erase, GetErasure, ListErasures
from server.page.pages import Pages
from server.page.visits import Visit

_PAGE_SIZE: Final = 50
# What can be erased, with its name on the page. An agent or a workspace needs no id.
_KINDS: Final = {
    "user": "Everything of a user",
    "session": "A conversation",
    "message": "A message",
    "memory": "A memory",
    "agent": "This whole agent",
    "workspace": "This whole workspace",
}
_WHOLE: Final = ("agent", "workspace")

pages = Pages()


@pages.get("/erasures")
async def _erasures(visit: Visit) -> Response:
    offset = visit.number("offset")
    found = (await visit.send(ListErasures(limit=_PAGE_SIZE + 1, offset=offset))).erasures
    return visit.page(
        "erasures.html",
        erasures=found[:_PAGE_SIZE],
        kinds=_KINDS,
        kind=visit.query("kind"),
        target=visit.query("target"),
        newer=visit.link("/erasures", offset=max(0, offset - _PAGE_SIZE)) if offset else "",
        older=visit.link("/erasures", offset=offset + _PAGE_SIZE) if len(found) > _PAGE_SIZE else "",
    )


@pages.post("/erasure/plan")
async def _plan(visit: Visit) -> Response:
    """Show what would be erased: nothing is removed yet."""
    call = _call(visit, dry_run=True)
    planned = await visit.send(call)
    kind, target = visit.form.text("kind"), visit.form.text("target").strip()
    return visit.page("erasure_plan.html", plan=planned, kind=kind, target=target, kinds=_KINDS)


@pages.post("/erasure/start")
async def _start(visit: Visit) -> Response:
    if not visit.form.is_checked("sure"):
        raise Rejected("check the box first: what is erased cannot be brought back", field="sure")
    erasure = await visit.send(_call(visit, dry_run=False))
    return visit.see_other("/erasure", id=erasure.id)


@pages.get("/erasure")
async def _erasure(visit: Visit) -> Response:
    erasure = await visit.send(GetErasure(id=visit.query("id")))
    template = "parts/erasure_state.html" if visit.is_partial else "erasure.html"
    return visit.page(template, erasure=erasure, kinds=_KINDS)


def _call(visit: Visit, *, dry_run: bool) -> Erase:
    """Return the call for a form. Raises `Rejected` if it names nothing."""
    kind, target, place = visit.form.text("kind"), visit.form.text("target").strip(), visit.place
    assert place is not None
    if kind not in _KINDS:
        raise Rejected("choose what to erase", field="kind")
    if kind not in _WHOLE and not target:
        raise Rejected(f"say which {kind}: its id or name is missing", field="target")
    named: dict[str, Any] = {"agent": place.agent, "workspace": place.workspace}
    if kind == "workspace":
        del named["agent"]
    elif kind not in _WHOLE:
        named[kind] = target
    return Erase(**named, dry_run=dry_run)
