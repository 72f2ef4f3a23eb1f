"""The file of the reference MCP memory server: a knowledge graph as JSON Lines, with entities and relations.

An observation of an entity becomes a memory, and so does a relation. The server writes neither times nor ids: a memory
is as old as the file, and its id is made of its text. Servers made from it write times, observations that are objects,
`_type` for `type`, or one JSON document with the lists `entities` and `relations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.arrays import Element, elements_of, values_at
from adapters.histories.conversations import stable_id
from adapters.histories.lines import decoded_lines, lines_of, moment
from adapters.histories.reading import Reading, one_file
from adapters.histories.statements import memory, related
from reverie.trust.export_types import ExportedMemory

NAME: Final = "mcp-memory"

# How one document begins, and no line of JSON Lines does.
_DOCUMENT: Final = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*(?:\[|\{\s*$|\{\s*"(?:entities|relations)"\s*:)')
_MEMBERS: Final = "*.json"
_TIMES: Final = ("timestamp", "createdAt", "created_at", "_savedAt")
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the file, or those of its usual names in a folder."""
    del reading
    return one_file(path, "memory.jsonl", "memory.json")


def read(file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    """Yield the observations and relations."""
    at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    for where, entry in _entries(file, reading):
        kind = entry.get("type") or entry.get("_type")
        name, ends = entry.get("name"), (entry.get("from"), entry.get("to"))
        if kind in ("entity", None) and isinstance(name, str) and name and "observations" in entry:
            yield from _observed(reading, entry, name, where, at)
        elif kind in ("relation", None) and all(isinstance(end, str) and end for end in ends):
            relation = str(entry.get("relationType") or entry.get("relation_type") or "")
            yield related(reading, NAME, (str(ends[0]), relation, str(ends[1])), _time_of(entry) or at)
        else:
            reading.leave("entries that are neither an entity nor a relation", where)


def _entries(file: Path, reading: Reading) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the file holds and where: each line, or each element of the lists of one document."""
    first = next(lines_of(file, Reading(reading.workspace, reading.agent)), None)
    if first is None or not _DOCUMENT.match(first.text):
        yield from ((line.where, entry) for line, entry in decoded_lines(file, reading, _DECODER))
        return
    if b"{" in first.text:
        elements: Iterator[Element] = chain(
            values_at(file, reading, "entities.item", member=_MEMBERS),
            values_at(file, reading, "relations.item", member=_MEMBERS, counts_damage=True),
        )
    else:
        elements = elements_of(file, reading, member=_MEMBERS)
    for where, value in elements:
        if isinstance(value, dict):
            yield where, value
        else:
            reading.leave("entries that are neither an entity nor a relation", where)


def _observed(reading: Reading, entry: dict[str, Any], name: str, where: str, at: datetime) -> Iterator[ExportedMemory]:
    """Yield memories of the observations of an entity, which often do not name what they are about."""
    observations = entry["observations"]
    if isinstance(observations, str):
        observations = [observations]
    if not observations:
        reading.leave("entities without observations", where)
        return
    kind = str(entry.get("entityType") or "")
    subject = name.replace("_", " ")
    for observation in observations if isinstance(observations, list) else [observations]:
        found = _text_and_time(observation)
        if found is None:
            reading.leave("observations of an unknown shape", where)
        elif found[0].strip():
            text = found[0] if subject.lower() in found[0].lower() else f"{subject}: {found[0]}"
            id = stable_id("observation", name, found[0])
            created_at = found[1] or _time_of(entry) or at
            details = (None, (kind,), {"entity": name, "entity_type": kind})
            yield memory(reading, NAME, id, text, created_at=created_at, details=details)


def _text_and_time(observation: Any) -> tuple[str, datetime | None] | None:
    """Return the text and the time of an observation, None if it is of another shape."""
    if isinstance(observation, str):
        return observation, None
    if isinstance(observation, dict):
        for name in ("text", "content", "observation"):
            if isinstance(text := observation.get(name), str):
                return text, _time_of(observation)
    return None


def _time_of(entry: dict[str, Any]) -> datetime | None:
    return next((found for name in _TIMES if (found := moment(entry.get(name))) is not None), None)
