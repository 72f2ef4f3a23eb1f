"""Translates a `MemoryFilter` to SQL over `memories AS m`, `sessions AS s` and the successors `memories AS b`."""

from __future__ import annotations

from typing import Any, Final

from storage.memories.records import MemoryFilter

_ONE_OF: Final = {"tiers": "m.tier", "lifetimes": "m.lifetime", "kinds": "m.kind", "sources": "m.source"}
_EQUAL: Final = {
    "channel": "m.channel_id = :channel",
    "session": "s.id = :session",
    "owner": "m.owner_user_id = :owner",
    "category": "m.category = :category",
    "key": "m.key = :key",
    "subject": "m.subject = :subject",
    "visibility": "m.visibility = :visibility",
    "source_message": "m.source_message = :source_message",
    "held_at": "(m.created_at <= :held_at AND (m.superseded_by IS NULL OR b.created_at > :held_at))",
    "since": "m.created_at >= :since",
    "until": "m.created_at < :until",
    "unexpired_at": "(m.expires_at IS NULL OR m.expires_at > :unexpired_at)",
}
_TRUE_OR_FALSE: Final = {
    "active": "m.superseded_by IS NULL",
    "facts": "m.category IS NOT NULL",
    "notes": "m.note_id IS NOT NULL",
}


def filter_sql(memory_filter: MemoryFilter) -> tuple[str, dict[str, Any]]:
    """Return a condition (`1` for an empty filter) and its parameters."""
    clauses: list[str] = []
    parameters: dict[str, Any] = {}
    for name, column in _ONE_OF.items():
        if values := getattr(memory_filter, name):
            clauses.append(f"{column} IN (SELECT value FROM json_each(:{name}))")
            parameters[name] = values
    for name, clause in _EQUAL.items():
        if (value := getattr(memory_filter, name)) is not None:
            clauses.append(clause)
            parameters[name] = value
    for name, clause in _TRUE_OR_FALSE.items():
        if (expected := getattr(memory_filter, name)) is not None:
            clauses.append(clause if expected else f"NOT ({clause})")
    if memory_filter.tags:
        clauses.append(
            "(SELECT count(*) FROM json_each(m.tags) WHERE value IN (SELECT value FROM json_each(:tags))) = :tag_count"
        )
        parameters |= {"tags": memory_filter.tags, "tag_count": len(set(memory_filter.tags))}
    if memory_filter.text is not None:
        clauses.append("instr(lower(m.content), lower(:text)) > 0")
        parameters["text"] = memory_filter.text
    return " AND ".join(clauses) or "1", parameters
