"""Which memories are meant, as SQL over `memories AS m` and `sessions AS s`."""

from __future__ import annotations

import json
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
    "source_message": "m.source_message = :source_message",
}
_WHETHER: Final = {
    "active": "m.superseded_by IS NULL",
    "facts": "m.category IS NOT NULL",
    "notes": "m.note_id IS NOT NULL",
}


def conditions_of(wanted: MemoryFilter) -> tuple[str, dict[str, Any]]:
    """A condition, true where there is none, and its parameters."""
    clauses: list[str] = []
    parameters: dict[str, Any] = {}
    for name, column in _ONE_OF.items():
        if values := getattr(wanted, name):
            clauses.append(f"{column} IN (SELECT value FROM json_each(:{name}))")
            parameters[name] = json.dumps(values)
    for name, clause in _EQUAL.items():
        if (value := getattr(wanted, name)) is not None:
            clauses.append(clause)
            parameters[name] = value
    for name, clause in _WHETHER.items():
        if (asked := getattr(wanted, name)) is not None:
            clauses.append(clause if asked else f"NOT ({clause})")
    if wanted.tags:
        clauses.append(
            "(SELECT count(*) FROM json_each(m.tags) WHERE value IN (SELECT value FROM json_each(:tags))) = :tag_count"
        )
        parameters |= {"tags": json.dumps(wanted.tags), "tag_count": len(set(wanted.tags))}
    if wanted.text is not None:
        clauses.append("instr(lower(m.content), lower(:text)) > 0")
        parameters["text"] = wanted.text
    return " AND ".join(clauses) or "1", parameters
