"""Memories that other programs keep: those of mem0, of the reference MCP memory server, and of LangGraph's SqliteStore.

Each becomes a memory of one text, with an id that is the same every time.

mem0's memories are read from the saved JSON of its SDK's `get_all`, or from its database `history.db`. Relations of its
graph become memories, too. OpenMemory's backup has the texts in `content`, and points that Qdrant exported have all
fields in a `payload`. The database has every change of every memory, but not the memories' users: those are in the
vector store, which holds pickled Python objects and is not read. From a database, the newest text of each memory that
was not deleted is imported.

The file of the MCP memory server is a knowledge graph as JSON Lines, with entities and relations. An observation of an
entity becomes a memory, and so does a relation. The server writes neither times nor ids: a memory is as old as the
file, and its id is made of its text. Servers made from it write times, observations that are objects, `_type` for
`type`, or one JSON document with the lists `entities` and `relations`.

LangGraph's table `store` has a namespace, a key and a JSON value for each item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from adapters.histories.conversations import stable_id, stored_text
from adapters.histories.reading import (
    Element,
    Format,
    Reading,
    columns_of,
    converted,
    decoded_lines,
    elements_of,
    is_database,
    lines_of,
    moment,
    opened,
    require_columns,
    values_at,
)
from reverie.checks import check_json
from reverie.contract import MAX_METADATA_BYTES, MAX_TAG_CHARACTERS, MAX_TAGS
from reverie.errors import Rejected
from reverie.memories.types import IMPORT
from reverie.trust.exports import ExportedMemory

_MAX_ID: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMemory:
    """A memory as another program kept it."""

    id: str
    text: str
    created_at: datetime
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    user: str | None = None
    tags: Iterable[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


def memory(reading: Reading, source: str, kept: KeptMemory) -> ExportedMemory:
    """Return a memory of this agent in the workspace.

    It is long-term: whoever kept it elsewhere decided that it lasts.
    """
    updated = max(kept.created_at, kept.updated_at or kept.created_at)
    return ExportedMemory(
        workspace=reading.workspace,
        agent=reading.agent,
        id=f"{source}:{kept.id if len(kept.id) <= _MAX_ID else stable_id(kept.id)}",
        content=stored_text(kept.text).strip(),
        tier="workspace",
        lifetime="long_term",
        kind="fact",
        source="agent",
        importance=0.5,
        created_at=kept.created_at,
        updated_at=updated,
        accessed_at=updated,
        expires_at=kept.expires_at,
        owner_user_id=kept.user,
        tags=_tags([source, *kept.tags]),
        metadata=_fitting({"source": source, **kept.metadata}, reading, kept.id),
        made_by=IMPORT,
    )


def related(reading: Reading, source: str, relation: tuple[str, str, str], at: datetime) -> ExportedMemory:
    """Return a memory of a relation: who, what and to whom."""
    start, kind, end = relation
    text = f"{start} {kind.replace('_', ' ')} {end}"
    metadata = {"from": start, "relation": kind, "to": end}
    id = stable_id("relation", *relation)
    return memory(reading, source, KeptMemory(id=id, text=text, created_at=at, tags=("relation",), metadata=metadata))


def _tags(tags: Iterable[str]) -> list[str]:
    """Return tags in the form in which they are stored; empty ones and those above the limit are dropped."""
    cleaned = (stored_text(str(tag)).strip().lower()[:MAX_TAG_CHARACTERS].strip() for tag in tags)
    return list(dict.fromkeys(filter(None, cleaned)))[:MAX_TAGS]


def _fitting(metadata: dict[str, Any], reading: Reading, id: str) -> dict[str, Any]:
    """Return metadata without empty fields; only the source if the metadata is too large or not JSON."""
    kept = {name: value for name, value in metadata.items() if value not in (None, "", [], {})}
    try:
        check_json("metadata", kept, MAX_METADATA_BYTES)
    except Rejected as error:
        reading.leave("metadata of memories, which is too large or no JSON", f"{id}: {error}")
        return {"source": metadata["source"]}
    return kept


_MEMBERS: Final = "*.json"
_LISTS: Final = ("results", "memories")
# The last change of each memory. Rows of the same second follow their order in the table. A deletion is always last:
# older versions gave it no time.
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


_ANYTHING: Final = msgspec.json.Decoder(Any)


def read_mem0(file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    """Yield the memories of a database, of a JSON document, or of JSON Lines."""
    if is_database(file):
        yield from _of_database(file, reading)
        return
    if file.suffix == ".jsonl":
        for line, value in decoded_lines(file, reading, _ANYTHING):
            yield from _of_item(value, line.where, file, reading)
        return
    # OpenMemory's backup names users by ids of its own.
    users = [element.value for element in values_at(file, reading, "user", member=_MEMBERS)]
    names = {
        str(user.get("id")): str(user["user_id"]) for user in users if isinstance(user, dict) and "user_id" in user
    }
    for element in elements_of(file, reading, member=_MEMBERS, lists=_LISTS):
        yield from _of_item(element.value, element.where, file, reading, names)
    for element in values_at(file, reading, "relations.item", member=_MEMBERS):
        yield from _of_relation(element.value, element.where, file, reading)


def _of_relation(value: Any, where: str, file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    relation = value if isinstance(value, dict) else {}
    start, end = relation.get("source"), relation.get("target") or relation.get("destination")
    kind = relation.get("relationship") or relation.get("relation") or ""
    if isinstance(start, str) and isinstance(end, str) and isinstance(kind, str):
        at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        yield related(reading, "mem0", (start, kind, end), at)
    else:
        reading.leave("relations of an unknown shape", where)


def _of_item(
    value: Any, where: str, file: Path, reading: Reading, names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ExportedMemory]:
    if isinstance(value, dict) and isinstance(value.get("payload"), dict):
        payload = value["payload"]
        others = {name: inner for name, inner in payload.items() if name not in (*_Item.__struct_fields__, "hash")}
        value = {"metadata": others, **payload, "id": value.get("id")}
    item = converted(value, _Item, where, reading, reason="entries of an unknown shape")
    if item is None:
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
    found = KeptMemory(
        id=str(item.id),
        text=text,
        created_at=moment(item.created_at) or datetime.fromtimestamp(file.stat().st_mtime, UTC),
        updated_at=moment(item.updated_at),
        expires_at=moment(item.expiration_date),
        user=user,
        tags=item.categories or (),
        metadata={**kept, "metadata": item.metadata},
    )
    yield memory(reading, "mem0", found)


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
            kept = KeptMemory(
                id=str(row["memory_id"]),
                text=str(row["new_memory"]),
                created_at=created_at or datetime.fromtimestamp(file.stat().st_mtime, UTC),
                updated_at=moment(row["updated_at"]),
                metadata={"actor_id": row["actor_id"], "role": row["role"]},
            )
            yield memory(reading, "mem0", kept)
    reading.note("mem0's database does not say whose memories are: `--as-user NAME` gives them to a user")


MEM0: Final = Format(
    name="mem0",
    description="memories of mem0: what get_all returned, saved as JSON, or history.db",
    read=read_mem0,
    names=(("history.db",), ("*.json", "*.jsonl")),
)


# Matches the beginning of a file that is one JSON document, and not of a file of JSON Lines.
_DOCUMENT: Final = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*(?:\[|\{\s*$|\{\s*"(?:entities|relations)"\s*:)')
_TIMES: Final = ("timestamp", "createdAt", "created_at", "_savedAt")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def read_mcp_memory(file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    """Yield the observations and relations."""
    at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    for where, entry in _entries(file, reading):
        kind = entry.get("type") or entry.get("_type")
        name, ends = entry.get("name"), (entry.get("from"), entry.get("to"))
        if kind in ("entity", None) and isinstance(name, str) and name and "observations" in entry:
            yield from _observed(reading, entry, name, where, at)
        elif kind in ("relation", None) and all(isinstance(end, str) and end for end in ends):
            relation = str(entry.get("relationType") or entry.get("relation_type") or "")
            yield related(reading, "mcp-memory", (str(ends[0]), relation, str(ends[1])), _time_of(entry) or at)
        else:
            reading.leave("entries that are neither an entity nor a relation", where)


def _entries(file: Path, reading: Reading) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the file holds and where: each line, or each element of the lists of one document."""
    first = next(lines_of(file, Reading(reading.workspace, reading.agent)), None)
    if first is None or not _DOCUMENT.match(first.text):
        yield from ((line.where, entry) for line, entry in decoded_lines(file, reading, _OBJECT))
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
            metadata = {"entity": name, "entity_type": kind}
            kept = KeptMemory(id=id, text=text, created_at=created_at, tags=(kind,), metadata=metadata)
            yield memory(reading, "mcp-memory", kept)


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


MCP_MEMORY: Final = Format(
    name="mcp-memory",
    description="the file of the reference MCP memory server",
    read=read_mcp_memory,
    names=(("memory.jsonl", "memory.json"),),
)


# The newest schema migration of LangGraph's store that this module knows.
_KNOWN_MIGRATION: Final = 4
# The fields in which agents keep the text of a memory.
_TEXTS: Final = ("content", "text", "memory", "data", "fact", "value")


def read_langgraph(file: Path, reading: Reading) -> Iterator[ExportedMemory]:
    """Yield the items that have not expired. Raises `Rejected` for another database."""
    with opened(file) as connection:
        columns = require_columns(connection, "store", "prefix", "key", "value")
        if columns_of(connection, "store_migrations"):
            (newest,) = connection.execute("SELECT max(v) FROM store_migrations").fetchone()
            if (newest or 0) > _KNOWN_MIGRATION:
                reading.note(f"the store is of a newer version ({newest}) than this was written for: check the result")
        wanted = [name for name in ("created_at", "updated_at", "expires_at") if name in columns]
        names = ", ".join(["prefix", "key", "value", *wanted])
        for row in connection.execute(f"SELECT {names} FROM store ORDER BY prefix, key"):  # noqa: S608 - names of ours
            item = _item(dict(zip(row.keys(), row, strict=True)), file, reading)
            if item is not None:
                yield item


def _item(row: dict[str, Any], file: Path, reading: Reading) -> ExportedMemory | None:
    where = f"{row['prefix']}/{row['key']}"
    expires_at = moment(row.get("expires_at"))
    if expires_at is not None and expires_at <= datetime.now(UTC):
        reading.leave("items that have expired", where)
        return None
    try:
        value = msgspec.json.decode(row["value"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        reading.leave("items whose value is not JSON", f"{where}: {error}")
        return None
    text, rest = _text_in(value)
    if not text.strip():
        reading.leave("items without a text", where)
        return None
    namespace = str(row["prefix"]).split(".")
    created_at = moment(row.get("created_at")) or datetime.fromtimestamp(file.stat().st_mtime, UTC)
    kept = KeptMemory(
        id=stable_id(str(row["prefix"]), str(row["key"])),
        text=text,
        created_at=created_at,
        updated_at=moment(row.get("updated_at")),
        expires_at=expires_at,
        tags=namespace[:1],
        metadata={"namespace": namespace, "key": str(row["key"]), "value": rest},
    )
    return memory(reading, "langgraph", kept)


def _text_in(value: Any) -> tuple[str, Any]:
    """Return the text of a value, and its other fields. A value without a text is returned as JSON."""
    if isinstance(value, str):
        return value, None
    if isinstance(value, dict):
        for name in _TEXTS:
            rest = {key: inner for key, inner in value.items() if key != name}
            found = value.get(name)
            if isinstance(found, str) and found.strip():
                return found, rest
            # Deep Agents keep a file as its lines.
            if isinstance(found, list) and found and all(isinstance(line, str) for line in found):
                return "\n".join(found), rest
            # LangMem keeps the object of a schema beside the schema's name.
            if isinstance(found, dict) and "kind" in value:
                text, inner = _text_in(found)
                return text, {**rest, **(inner if isinstance(inner, dict) else {})}
    return ("" if value in (None, {}, []) else msgspec.json.encode(value).decode()), None


LANGGRAPH: Final = Format(
    name="langgraph",
    description="the database of LangGraph's SqliteStore",
    read=read_langgraph,
    names=(("*.db", "*.sqlite", "*.sqlite3"),),
)
