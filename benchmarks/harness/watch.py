"""Read-only access to a workspace's database while the stack works on it, cheap enough for frequent use."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pysqlite3

_POLL_SECONDS: Final = 0.02
# Each is answered from a partial index that contains only what waits.
_WAITING: Final = (
    "SELECT (SELECT count(*) FROM messages WHERE chunked_at IS NULL)"
    " + (SELECT count(*) FROM chunks WHERE embedded_at IS NULL)"
    " + (SELECT count(*) FROM chunks WHERE embedded_at IS NOT NULL AND indexed_at IS NULL)"
)
# A text that its session already contains is a chunk already: then the message is searchable once it is chunked.
_SEARCHABLE: Final = (
    "SELECT m.id, m.accepted_at, max(m.chunked_at, max(c.indexed_at)) FROM messages AS m"
    " JOIN message_chunks AS l ON l.message_row = m.row_id JOIN chunks AS c ON c.id = l.chunk_id"
    " GROUP BY m.row_id, m.id, m.accepted_at, m.chunked_at"
    " HAVING count(*) = count(c.indexed_at) AND m.chunked_at IS NOT NULL"
)


class Searchable(NamedTuple):
    """When a message was accepted and when it became searchable, in microseconds."""

    id: str
    accepted_at: int
    searchable_at: int


def watch_workspace(data: Path, database: str | None, workspace: str) -> Watch:
    """Return read access to a workspace of a data folder, or of the PostgreSQL database at the address `database`."""
    if database is None:
        return Watch(data / "workspaces" / workspace / "memory.db")
    from benchmarks.harness.postgres import PostgresWatch  # its packages are needed with PostgreSQL only

    return PostgresWatch(database, data, workspace)


class Watch:
    """A read-only connection to the database of one workspace; the file may not exist yet."""

    def __init__(self, database: Path) -> None:
        self._path = database
        self._connection: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def number(self, sql: str, parameters: Iterable[Any] = ()) -> int:
        """Return one number; 0 while there is no database or no schema."""
        rows = self.rows(sql, parameters)
        return int(rows[0][0]) if rows else 0

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[Any]:
        """Return the rows of a query; none while there is no database or no schema."""
        if self._connection is None:
            if not self._path.exists():
                return []
            self._connection = pysqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=10)
        try:
            found: list[Any] = self._connection.execute(sql, tuple(parameters)).fetchall()
        except pysqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
        return found

    def messages(self) -> int:
        """Return the number of stored messages."""
        return self.number("SELECT count(*) FROM messages")

    def waiting(self) -> int:
        """Return the number of waiting rows: about the number of messages stored and not yet searchable."""
        return self.number(_WAITING)

    def searchable(self) -> list[Searchable]:
        """Return every message that is searchable."""
        return [Searchable(*row) for row in self.rows(_SEARCHABLE)]

    def all_searchable(self, count: int) -> bool:
        """Return whether `count` messages are stored and nothing waits."""
        return self.messages() >= count and self.waiting() == 0

    def wait_searchable(self, count: int, timeout_seconds: float) -> float:
        """Return the monotonic time at which `count` messages were searchable.

        Raises TimeoutError: if it took too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self.all_searchable(count):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.messages()} of {count} messages stored, {self.waiting()} rows waiting after"
                    f" {timeout_seconds:g} s"
                )
            time.sleep(_POLL_SECONDS)
        return time.monotonic()
