"""Read SQLite databases of other programs, which may be in use: read-only, row by row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pysqlite3

from reverie.errors import Rejected

_HEADER: Final = b"SQLite format 3\x00"
_BUSY_SECONDS: Final = 5.0


def is_database(file: Path) -> bool:
    """Return whether a file begins as a SQLite database does. Raises `OSError`."""
    with file.open("rb") as opened:
        return opened.read(len(_HEADER)) == _HEADER


@contextlib.contextmanager
def opened(file: Path) -> Iterator[Any]:
    """Open a database for reading. Raises `Rejected` for what is none, or is damaged."""
    if not is_database(file):
        raise Rejected("it is no SQLite database", field="path")
    try:
        connection = pysqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
        connection.row_factory = pysqlite3.Row
        try:
            yield connection
        finally:
            connection.close()
    except pysqlite3.Error as error:
        raise Rejected(f"the database cannot be read: {error}", field="path") from error


def columns_of(connection: Any, table: str) -> set[str]:
    """Return the names of a table's columns; none if there is no such table."""
    return {row["name"] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def require_columns(connection: Any, table: str, *names: str) -> set[str]:
    """Return a table's columns. Raises `Rejected` unless it has all of these."""
    found = columns_of(connection, table)
    missing = [name for name in names if name not in found]
    if missing:
        what = "no table" if not found else f"no column {', '.join(missing)} in its table"
        raise Rejected(f"the database has {what} {table!r}: it is of another program or version", field="path")
    return found
