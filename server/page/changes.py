"""/memory/...: create, edit, pin and delete memories. The page that follows a change has what undoes it in a form.

So the server keeps nothing for an undo, and it works after a restart and in each of several tabs.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
from fastapi import Response
from msgspec.structs import replace

from reverie.clock import new_id
from reverie.errors import Conflict, Rejected
from reverie.memories.calls import Forget, GetMemory, ImportMemories, Remember, SetFact, UpdateMemory
from reverie.memories.types import Memory, MemoryKind
from server.page.forms import Form
from server.page.memory import memory_page
from server.page.pages import Pages
from server.page.visits import Visit

_KINDS: Final = get_args(MemoryKind)
# Whom a person's own words come from: no job ever rewrites them.
_BY_A_PERSON: Final = "user"

pages = Pages()


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
        # Saved in another tab, or by somebody else: neither text is lost.
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
    await visit.send(Forget(id=memory.id))
    # A deleted id never comes back, not even from a backup: what is restored gets a new one.
    restorable = replace(memory, provenance=None, superseded_by=None, valid_from=None, valid_to=None)
    document = msgspec.json.encode(restorable).decode()
    return visit.page("memory_deleted.html", memory=memory, document=document)


@pages.post("/memory/restore")
async def _restore(visit: Visit) -> Response:
    try:
        memory = msgspec.json.decode(visit.form.text("memory").encode(), type=Memory)
    except msgspec.DecodeError as error:
        raise Rejected(f"the form does not hold a memory ({error}): nothing was restored", field="memory") from None
    fresh = replace(memory, id=new_id(), note_id=new_id() if memory.note_id else None)
    if fresh.note_id:
        fresh = replace(fresh, id=fresh.note_id)  # the id of a note is that of its memory
    restored = await visit.send(ImportMemories(memories=[fresh]))
    if not restored.added:
        raise Conflict("the fact has a new value by now: it was not replaced", field="memory")
    return visit.see_other("/memory", id=fresh.id, done="restored")


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
