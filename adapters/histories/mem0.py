"""Memories of mem0: what its SDK returns for `get_all`, saved as JSON, or its database `history.db`.

Relations of its graph become memories, too. OpenMemory's backup has the texts in `content`, and points that Qdrant
exported have all fields in a `payload`.

The database has every change of every memory, but not whose they are: that is in the vector store, which holds pickled
Python objects and is not read. So of a database, the newest text of each memory that was not deleted is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from adapters.histories.arrays import elements_of, values_at
from adapters.histories.lines import decoded_lines, moment
from adapters.histories.reading import Reading, one_file
from adapters.histories.statements import memory, related
from adapters.histories.tables import is_database, opened, require_columns
from reverie.trust.export_types import ExportedMemory

NAME: Final = "mem0"

_MEMBERS: Final = "*.json"
_LISTS: Final = ("results", "memories")
# Of a memory's changes the one that came last; rows of the same second follow their order in the table. Nothing follows
# a deletion, to which older versions gave no time.
_NEWEST: Final = """
SELECT memory_id, new_memory, event, is_deleted, created_at, updated_at, actor_id, role FROM (
    SELECT *, row_number() OVER (
        PARTITION BY memory_id
        ORDER BY (event = 'DELETE' OR coalesce(is_deleted, 0)) DESC, coalesce(updated_at, created_at) DESC, rowid DESC
    ) AS place FROM {history}
) WHERE place = 1 ORDER BY memory_id
"""


class _Item(msgspec.Struct, kw_only=True):
    id: str | int
    memory: str | None = None
    data: str | None = None
    content: str | None = None
    text: str | None = None
    state: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    app_id: str | None = None
    run_id: str | None = None
    actor_id: str | None = None
    role: str | None = None
    metadata: dict[str, Any] | None = None
    categories: list[str] | None = None
    created_at: str | float | None = None
    updated_at: str | float | None = None
    expiration_date: str | None = None


_DECODER: Final = msgspec.json.Decoder(Any)


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the file, or in a folder its database, else the saved memories."""
    del reading
    return one_file(path, "history.db") or one_file(path, "*.json", "*.jsonl")


def read(file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    """Yield the memories of a database, of a JSON document, or of JSON Lines."""
    if is_database(file):
        yield from _of_database(file, reading)
        return
    if file.suffix == ".jsonl":
        for line, value in decoded_lines(file, reading, _DECODER):
            yield from _of_item(value, line.where, file, reading)
        return
    names = _names(file, reading)
    for element in elements_of(file, reading, member=_MEMBERS, lists=_LISTS):
        yield from _of_item(element.value, element.where, file, reading, names)
    for element in values_at(file, reading, "relations.item", member=_MEMBERS):
        yield from _of_relation(element.value, element.where, file, reading)


def _names(file: Path, reading: Reading) -> dict[str, str]:
    """Return the names of users by the ids that OpenMemory's backup has for them."""
    users = [element.value for element in values_at(file, reading, "user", member=_MEMBERS)]
    return {str(user.get("id")): str(user["user_id"]) for user in users if isinstance(user, dict) and "user_id" in user}


def _of_relation(value: Any, where: str, file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    relation = value if isinstance(value, dict) else {}
    start, end = relation.get("source"), relation.get("target") or relation.get("destination")
    kind = relation.get("relationship") or relation.get("relation") or ""
    if isinstance(start, str) and isinstance(end, str) and isinstance(kind, str):
        at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        yield related(reading, NAME, (start, kind, end), at)
    else:
        reading.leave("relations of an unknown shape", where)


def _of_item(
    value: Any, where: str, file: Path, reading: Reading, names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ExportedMemory]:
    if isinstance(value, dict) and isinstance(value.get("payload"), dict):
        payload = value["payload"]
        others = {name: inner for name, inner in payload.items() if name not in (*_Item.__struct_fields__, "hash")}
        value = {"metadata": others, **payload, "id": value.get("id")}
    try:
        item = msgspec.convert(value, _Item, strict=False)
    except msgspec.ValidationError as error:
        reading.leave("entries of an unknown shape", f"{where}: {error}")
        return
    if item.state not in (None, "active"):
        reading.leave(f"memories of the state {item.state[:40]!r}", where)
        return
    text = item.memory or item.data or item.content or item.text or ""
    if not text.strip():
        reading.leave("memories without a text", where)
        return
    user = names.get(item.user_id or "", item.user_id)
    kept = {
        name: getattr(item, name)
        for name in ("agent_id", "app_id", "run_id", "actor_id", "role")
        if getattr(item, name) is not None
    }
    yield memory(
        reading,
        NAME,
        str(item.id),
        text,
        created_at=moment(item.created_at) or datetime.fromtimestamp(file.stat().st_mtime, UTC),
        updated_at=moment(item.updated_at),
        expires_at=moment(item.expiration_date),
        details=(user, item.categories or (), {**kept, "metadata": item.metadata}),
    )


def _of_database(file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    with opened(file) as connection:
        found = require_columns(connection, "history", "memory_id", "new_memory", "event", "created_at")
        absent = [name for name in ("is_deleted", "updated_at", "actor_id", "role") if name not in found]
        nulls = "".join(f", NULL AS {name}" for name in absent)
        history = f"(SELECT rowid, *{nulls} FROM history)"  # noqa: S608 - names of ours
        for row in connection.execute(_NEWEST.format(history=history)):
            if row["event"] == "DELETE" or row["is_deleted"] or not str(row["new_memory"] or "").strip():
                reading.leave("memories that were deleted", str(row["memory_id"]))
                continue
            created_at = moment(row["created_at"]) or moment(row["updated_at"])
            yield memory(
                reading,
                NAME,
                str(row["memory_id"]),
                str(row["new_memory"]),
                created_at=created_at or datetime.fromtimestamp(file.stat().st_mtime, UTC),
                updated_at=moment(row["updated_at"]),
                details=(None, (), {"actor_id": row["actor_id"], "role": row["role"]}),
            )
    reading.note("mem0's database does not say whose memories are: `--as-user NAME` gives them to a user")
