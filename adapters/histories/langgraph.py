"""LangGraph's SqliteStore: the table `store` with a namespace, a key and a JSON value for each item."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.conversations import stable_id
from adapters.histories.lines import moment
from adapters.histories.reading import Reading, one_file
from adapters.histories.statements import memory
from adapters.histories.tables import columns_of, opened, require_columns
from reverie.trust.export_types import ExportedMemory

NAME: Final = "langgraph"

# The newest migration of the store that this module has been written for.
_KNOWN_MIGRATION: Final = 4
# Where agents keep the text of a memory.
_TEXTS: Final = ("content", "text", "memory", "data", "fact", "value")


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the database, or those in a folder."""
    del reading
    return one_file(path, "*.db", "*.sqlite", "*.sqlite3")


def read(file: Path, reading: Reading) -> Iterator[ExportedMemory]:
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
    metadata = {"namespace": namespace, "key": str(row["key"]), "value": rest}
    return memory(
        reading,
        NAME,
        stable_id(str(row["prefix"]), str(row["key"])),
        text,
        created_at=created_at,
        updated_at=moment(row.get("updated_at")),
        expires_at=expires_at,
        details=(None, namespace[:1], metadata),
    )


def _text_in(value: Any) -> tuple[str, Any]:
    """Return the text of a value, and the fields beside it; of a value without one that value as JSON."""
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
