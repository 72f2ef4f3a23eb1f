"""Make the records of memories that another program keeps: one text each, with an id that is the same every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from adapters.histories.conversations import stable_id, stored_text
from adapters.histories.reading import Reading
from reverie.checks import check_json
from reverie.contract import MAX_METADATA_BYTES, MAX_TAG_CHARACTERS, MAX_TAGS
from reverie.errors import Rejected
from reverie.memories.types import IMPORT
from reverie.trust.export_types import ExportedMemory

_MAX_ID: Final = 200


def memory(
    reading: Reading,
    source: str,
    id: str,
    content: str,
    *,
    created_at: datetime,
    updated_at: datetime | None = None,
    expires_at: datetime | None = None,
    details: tuple[str | None, Iterable[str], Mapping[str, Any]] = (None, (), {}),
) -> ExportedMemory:
    """Return a memory of this agent in the workspace. `details` are its user, its tags and its metadata.

    It is long-term: whoever kept it elsewhere decided that it lasts.
    """
    user, tags, metadata = details
    updated = max(created_at, updated_at or created_at)
    return ExportedMemory(
        workspace=reading.workspace,
        agent=reading.agent,
        id=f"{source}:{id if len(id) <= _MAX_ID else stable_id(id)}",
        content=stored_text(content).strip(),
        tier="workspace",
        lifetime="long_term",
        kind="fact",
        source="agent",
        importance=0.5,
        created_at=created_at,
        updated_at=updated,
        accessed_at=updated,
        expires_at=expires_at,
        owner_user_id=user,
        tags=_tags([source, *tags]),
        metadata=_fitting({"source": source, **metadata}, reading, id),
        made_by=IMPORT,
    )


def related(reading: Reading, source: str, relation: tuple[str, str, str], at: datetime) -> ExportedMemory:
    """Return a memory of a relation: who, what and to whom."""
    start, kind, end = relation
    text = f"{start} {kind.replace('_', ' ')} {end}"
    metadata = {"from": start, "relation": kind, "to": end}
    id = stable_id("relation", *relation)
    return memory(reading, source, id, text, created_at=at, details=(None, ("relation",), metadata))


def _tags(tags: Iterable[str]) -> list[str]:
    """Return tags as they are stored, without those that cannot be."""
    cleaned = (stored_text(str(tag)).strip().lower()[:MAX_TAG_CHARACTERS].strip() for tag in tags)
    return list(dict.fromkeys(filter(None, cleaned)))[:MAX_TAGS]


def _fitting(metadata: dict[str, Any], reading: Reading, id: str) -> dict[str, Any]:
    """Return metadata without empty fields, and without those that do not fit."""
    kept = {name: value for name, value in metadata.items() if value not in (None, "", [], {})}
    try:
        check_json("metadata", kept, MAX_METADATA_BYTES)
    except Rejected as error:
        reading.leave("metadata of memories, which is too large or no JSON", f"{id}: {error}")
        return {"source": metadata["source"]}
    return kept
