"""Reads all that the rows of a store hold, and removes rows of records of work that quote what was erased."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from sqlalchemy import Row

from storage.repository import Repository
from storage.rows import tables_of

# What users and agents stored, and what belongs to it: a text in one of these is there by right.
STORED: Final = (
    "sessions", "messages", "files", "memories", "chunks", "chunks_vec", "scratchpads", "scratchpad_lists", "channels",
    "items", "item_vectors",
    "schedules", "reminders", "dead_letters", "audit_log", "tokens",
)  # fmt: skip
# Records of work, which may quote a text that was erased: with their key, and the columns that hold texts.
QUOTING: Final = {
    "recall_events": ("id", ("query",)),
    "notifications": ("id", ("title", "body", "error")),
    "schedule_runs": ("id", ("summary", "output", "error")),
    "curation_log": ("id", ("why",)),
    "curation_changes": ("entry_id", ("before", "after")),
    "job_runs": ("id", ("error", "counts")),
    "memory_promotions": ("memory_id", ("memory_id",)),
}
_BLOCK_BYTES: Final = 1 << 20
_PAGE_ROWS: Final = 2_000
# Rows in memory at a time; a file has up to 16 MiB.
_ROWS_AT_ONCE: Final = 200
_FILES_AT_ONCE: Final = 4


class StoredTexts(Repository):
    """The texts of all agents of a store within one transaction."""

    def blocks(self) -> Iterator[bytes]:
        """Yield all texts and vectors of stored rows, in blocks of about a megabyte."""
        block: list[bytes] = []
        size = 0
        for table in self._existing(STORED):
            for row in self._rows(table, "*"):
                for value in row:
                    raw = _bytes(value)
                    if raw:
                        block.append(raw)
                        size += len(raw)
                if size >= _BLOCK_BYTES:
                    yield b"\0".join(block)
                    block, size = [], 0
        yield b"\0".join(block)

    def quoting(self, quotes: Callable[[bytes], bool]) -> dict[str, list[Any]]:
        """Return the keys of records of work that quote what was erased, by table."""
        found: dict[str, list[Any]] = {}
        for table in self._existing(QUOTING):
            key, columns = QUOTING[table]
            for row in self._rows(table, f"{key}, {', '.join(columns)}"):
                if quotes(b"\0".join(_bytes(value) for value in row[1:])):
                    found.setdefault(table, []).append(row[0])
        return found

    def remove_quoting(self, keys: dict[str, list[Any]]) -> Counter[str]:
        """Remove such records; a run keeps its outcome and loses its texts."""
        counts: Counter[str] = Counter()
        for table, found in keys.items():
            unique = list(dict.fromkeys(found))
            for first in range(0, len(unique), _PAGE_ROWS):
                part = {"keys": unique[first : first + _PAGE_ROWS]}
                match table:
                    case "curation_changes":
                        sql = "DELETE FROM curation_log WHERE id IN (SELECT value FROM json_each(:keys))"
                    case "schedule_runs":
                        sql = (
                            "UPDATE schedule_runs SET summary = '', output = '', error = ''"
                            " WHERE id IN (SELECT value FROM json_each(:keys))"
                        )
                    case "job_runs":
                        sql = (
                            "UPDATE job_runs SET error = iif(error IS NULL, NULL, '[erased]'), counts = '{}'"
                            " WHERE id IN (SELECT value FROM json_each(:keys))"
                        )
                    case _:
                        column = QUOTING[table][0]
                        sql = f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(:keys))"
                counts["curation_log" if table == "curation_changes" else table] += self._execute(sql, **part).rowcount
        return counts

    def _rows(self, table: str, columns: str) -> Iterator[Row[*tuple[Any, ...]]]:
        at_once = _FILES_AT_ONCE if table == "files" else _ROWS_AT_ONCE
        for page in self._pages(f"SELECT {columns} FROM {table}", at_once):
            yield from page

    def _existing(self, tables: Any) -> list[str]:
        present = tables_of(self._connection)
        return [table for table in tables if table in present]


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return bytes(value) if isinstance(value, (bytes, memoryview)) else b""
