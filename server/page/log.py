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
    "expires_at", "pinned", "visibility",
)  # fmt: skip
_NAMES: Final = {
    "memories": "Memory",
    "messages": "Message",
    "sessions": "Conversation",
    "session_summaries": "Summary",
}
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
    kind: Literal["added", "removed", "changed", "replaced by another one"]
    text: str
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
    changes, hidden = _readable(entry.changes), _hidden(entry.changes)
    return visit.page("log_entry.html", entry=entry, changes=changes, hidden=hidden, names=_NAMES)


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
    kind: Literal["added", "removed", "changed", "replaced by another one"] = "changed"
    if change.before is None or change.after is None:
        kind = "added" if change.before is None else "removed"
    elif after.get("superseded_by") is not None and before.get("superseded_by") is None:
        kind = "replaced by another one"
    fields = [
        FieldChange(name.replace("_", " "), _text(before, name), _text(after, name))
        for name in _FIELDS
        if before.get(name) != after.get(name)
    ]
    content = after.get("content") or before.get("content") or ""
    is_among_fields = any(field.name == "content" for field in fields)
    return RowChange(change.table, kind, "" if is_among_fields else str(content), fields)


def _text(row: dict[str, Any], name: str) -> str | None:
    return None if row.get(name) is None else str(row[name])
