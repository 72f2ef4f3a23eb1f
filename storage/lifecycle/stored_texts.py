"""Reads all that the rows of a store hold, and removes rows of records of work that quote what was erased."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Row

from storage.catalogue import TABLES
from storage.repository import Repository
from storage.rows import tables_of

_BLOCK_BYTES: Final = 1 << 20
# Rows in memory at a time; a file has up to 16 MiB.
_ROWS_AT_ONCE: Final = 200
_FILES_AT_ONCE: Final = 4


class StoredTexts(Repository):
    """The texts of all agents of a store within one transaction."""

    def blocks(self, *, everything: bool = False) -> Iterator[bytes]:
        """Yield all texts and vectors of stored rows, or of the rows of all tables, in blocks of about a megabyte."""
        block: list[bytes] = []
        size = 0
        present = tables_of(self._connection)
        for table in sorted(present) if everything else [name for name in present if TABLES[name].words]:
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
        for table in tables_of(self._connection):
            entry = TABLES[table]
            key = entry.quoted_by or entry.key[-1]
            for row in self._rows(table, f"{key}, {', '.join(entry.quotes)}") if entry.quotes else ():
                if quotes(b"\0".join(_bytes(value) for value in row[1:])):
                    found.setdefault(table, []).append(row[0])
        return found

    def remove_quoting(self, table: str, keys: Sequence[Any]) -> int:
        """Remove some of these records of work; a run keeps its outcome and loses its texts. Return how many."""
        entry = TABLES[table]
        change = entry.unquote or f"DELETE FROM {table} WHERE {entry.key[-1]}"
        return self._execute(f"{change} IN (SELECT value FROM json_each(:keys))", keys=keys).rowcount

    def _rows(self, table: str, columns: str) -> Iterator[Row[*tuple[Any, ...]]]:
        at_once = _FILES_AT_ONCE if table == "files" else _ROWS_AT_ONCE
        for page in self._pages(f"SELECT {columns} FROM {table}", at_once):
            yield from page


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return bytes(value) if isinstance(value, (bytes, memoryview)) else b""
