"""The interface of an engine to stores and repositories: transactions, and statements in SQLite's SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

# What repositories call connections, results and rows. A process that only reads counts by SQLite's driver, such as
# `reverie status`, does not import SQLAlchemy, which takes 0.2 s.
if TYPE_CHECKING:
    from sqlalchemy import Connection as Connection
    from sqlalchemy import CursorResult as CursorResult
    from sqlalchemy import Row as Row
    from sqlalchemy import RowMapping as RowMapping
else:
    Connection = CursorResult = Row = RowMapping = Any

# The execution option of connections whose engine is not SQLite.
OPTION: Final = "reverie_dialect"
# The execution option of read-only transactions.
READ_ONLY: Final = "reverie_read_only"


class _DriverConnection:
    """A connection of SQLite's driver in a read-only transaction, as far as `execute` needs a `Connection`."""

    def __init__(self, raw: Any) -> None:
        self.connection = self
        self.driver_connection = raw

    def get_execution_options(self) -> Mapping[str, Any]:
        return {READ_ONLY: True}


def driver_connection(raw: Any) -> Connection:
    """Return a connection of SQLite's driver, in a read-only transaction, for repositories to read by."""
    return cast("Connection", _DriverConnection(raw))


class Dialect(Protocol):
    """Runs the statements of repositories on the connections of one engine."""

    def execute(
        self, connection: Connection, sql: str, values: Mapping[str, Any], *, streamed: bool = False
    ) -> CursorResult[Any]:
        """Run a statement with values by name. Collections are read with `json_each(:name)`.

        With `streamed`, rows are fetched as they are read, not all at once.
        """
        ...

    def execute_many(self, connection: Connection, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each row of values."""
        ...

    def tables(self, connection: Connection) -> Mapping[str, frozenset[str]]:
        """Return the tables of a transaction's store with their columns, except the search indexes."""
        ...

    def defer_references(self, connection: Connection) -> None:
        """Check foreign keys at the end of the transaction only."""
        ...


class StoreDatabase(Protocol):
    """One store in the database of an engine."""

    # The store's file, or the path under which this host keeps files of the store.
    path: Path

    @property
    def connections(self) -> int:
        """Return how many connections this process has to this store alone."""
        ...

    def atomic(
        self, *, lock_wait_seconds: float | None = None, keeps_schedules: bool = False
    ) -> AbstractContextManager[Connection]:
        """Open a transaction in which nobody else writes the store, and which commits whole or not at all.

        `keeps_schedules` as for `Store.writing`.

        Raises `StoreUnavailable` when another transaction writes it for longer than `lock_wait_seconds` (default 30).
        """
        ...

    def reading(self) -> AbstractContextManager[Connection]:
        """Open a read-only transaction, which sees a snapshot for as long as it is open."""
        ...

    def free_pages(self, limit: int) -> int:
        """Give up to about `limit` unused pages back to the file system; return how many, 0 if there was none."""
        ...

    def overwrite_unused(self) -> None:
        """Overwrite copies of rows in unused bytes of the file. Raises `StoreUnavailable` if it is always in use."""
        ...

    def refresh_statistics(self) -> None:
        """Refresh the planner's statistics of tables that have changed much."""
        ...

    def truncate_log(self) -> tuple[bool, int, int]:
        """Empty the write-ahead log; return whether it was busy, its pages, and the pages copied into the file."""
        ...

    def problems(self, connection: Connection, *, quick: bool) -> list[str]:
        """Return the problems of pages and references; `quick` skips reading every page."""
        ...

    def close(self) -> None:
        """Close the connections to this store."""
        ...
