"""The file of the reference MCP memory server: a knowledge graph as JSON Lines, with entities and relations.

An observation of an entity becomes a memory, and so does a relation. The file has no times and no ids: a memory is as
old as the file, and its id is made of its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from adapters.histories.conversations import stable_id
from adapters.histories.lines import decoded_lines
from adapters.histories.reading import Reading, one_file
from adapters.histories.statements import memory
from reverie.trust.export_types import ExportedMemory

NAME: Final = "mcp-memory"


class _Entry(msgspec.Struct, kw_only=True):
    type: str = ""
    name: str = ""
    entityType: str = ""  # noqa: N815 - the field's name in the file
    observations: list[str] = []
    from_: str = msgspec.field(name="from", default="")
    to: str = ""
    relationType: str = ""  # noqa: N815


_DECODER: Final = msgspec.json.Decoder(_Entry)


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the file, or those of its usual names in a folder."""
    del reading
    return one_file(path, "memory.jsonl", "memory.json")


def read(file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    """Yield the observations and relations."""
    at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    for line, entry in decoded_lines(file, reading, _DECODER):
        if entry.type == "entity" and entry.name:
            for observation in entry.observations:
                if observation.strip():
                    yield _observed(reading, entry, observation, at)
            if not entry.observations:
                reading.leave("entities without observations", line.where)
        elif entry.type == "relation" and entry.from_ and entry.to:
            text = f"{entry.from_} {entry.relationType.replace('_', ' ')} {entry.to}"
            id = stable_id("relation", entry.from_, entry.relationType, entry.to)
            metadata = {"from": entry.from_, "relation": entry.relationType, "to": entry.to}
            yield memory(reading, NAME, id, text, created_at=at, details=(None, ("relation",), metadata))
        else:
            reading.leave("entries that are neither an entity nor a relation", line.where)


def _observed(reading: Reading, entry: _Entry, observation: str, at: datetime) -> ExportedMemory:
    """Return a memory of an observation, which often does not name what it is about."""
    name = entry.name.replace("_", " ")
    text = observation if name.lower() in observation.lower() else f"{name}: {observation}"
    id = stable_id("observation", entry.name, observation)
    metadata = {"entity": entry.name, "entity_type": entry.entityType}
    return memory(reading, NAME, id, text, created_at=at, details=(None, (entry.entityType,), metadata))
