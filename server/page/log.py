"""/log: what jobs changed in memories, with the rows before and after, and undo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from fastapi import Response

from reverie.upkeep.calls import GetCurationEntry, ListCuration, Undo
from reverie.upkeep.curation_types import CurationChange
from server.page.pages import Pages
from server.page.visits import Visit

_PAGE_SIZE: Final = 50
# What a person understands of a row without its table; ids of rows and hashes say nothing.
_FIELDS: Final = (
    "content", "text", "value", "name", "tags", "kind", "tier", "lifetime", "importance", "access_count",
    "superseded_by", "expires_at", "pinned", "visibility",
)  # fmt: skip
_HIDDEN_TABLES: Final = ("chunks", "chunks_vec", "forward_index", "forward_changes", "message_chunks", "recall_events")

pages = Pages()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of a row before and after a change; None where there was no row."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that an entry added, removed or changed."""

    table: str
    kind: Literal["added", "removed", "changed"]
    fields: list[FieldChange]


@pages.get("/log")
async def _log(visit: Visit) -> Response:
    memory, action, offset = visit.query("memory"), visit.query("action"), visit.number("offset")
    call = ListCuration(memory=memory or None, action=action or None, limit=_PAGE_SIZE + 1, offset=offset)
    entries = (await visit.send(call)).entries
    filters = {"memory": memory, "action": action}
    return visit.page(
        "log.html",
        entries=entries[:_PAGE_SIZE],
        filters=filters,
        actions=sorted({*(entry.action for entry in entries), *([action] if action else [])}),
        newer=visit.link("/log", **filters, offset=offset - _PAGE_SIZE) if offset else "",
        older=visit.link("/log", **filters, offset=offset + _PAGE_SIZE) if len(entries) > _PAGE_SIZE else "",
        notice="Undone. Jobs do not repeat it." if visit.query("done") == "undone" else "",
    )


@pages.get("/log/entry")
async def _entry(visit: Visit) -> Response:
    entry = await visit.send(GetCurationEntry(visit.query("id")))
    return visit.page("log_entry.html", entry=entry, changes=_readable(entry.changes), hidden=_hidden(entry.changes))


@pages.post("/log/undo")
async def _undo(visit: Visit) -> Response:
    await visit.send(Undo(visit.query("id")))
    return visit.see_other("/log", done="undone")


def _readable(changes: list[CurationChange]) -> list[RowChange]:
    return [_row(change) for change in changes if change.table not in _HIDDEN_TABLES]


def _hidden(changes: list[CurationChange]) -> int:
    """Return how many rows of search indexes followed the change."""
    return sum(change.table in _HIDDEN_TABLES for change in changes)


def _row(change: CurationChange) -> RowChange:
    before, after = change.before or {}, change.after or {}
    kind: Literal["added", "removed", "changed"] = "changed"
    if change.before is None or change.after is None:
        kind = "added" if change.before is None else "removed"
    fields = [
        FieldChange(name.replace("_", " "), _text(before, name), _text(after, name))
        for name in _FIELDS
        if before.get(name) != after.get(name)
    ]
    return RowChange(change.table, kind, fields)


def _text(row: dict[str, Any], name: str) -> str | None:
    return None if row.get(name) is None else str(row[name])
