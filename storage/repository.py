"""The base of every repository: SQL in the caller's transaction, with parameters by name and rows as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, TypeVar

from storage.engines import Connection, CursorResult, Row, StoreDatabase
from storage.rows import execute, execute_many, read_row, read_rows, records_of, stream
from storage.viewer import Viewer

Record = TypeVar("Record")


class Repository:
    """Statements within one transaction. A value that is a collection is bound as JSON, for `json_each`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bound: dict[str, Any] = {}

    def _execute(self, sql: str, /, **values: Any) -> CursorResult[*tuple[Any, ...]]:
        """Run a statement once."""
        return execute(self._connection, sql, **{**self._bound, **values})

    def _stream(self, sql: str, /, **values: Any) -> CursorResult[*tuple[Any, ...]]:
        """Run a query whose rows are fetched as they are read, not all at once."""
        return stream(self._connection, sql, **{**self._bound, **values})

    def _pages(self, sql: str, rows: int, /, **values: Any) -> Iterator[Sequence[Row[*tuple[Any, ...]]]]:
        """Yield the rows of a streamed query in pages of `rows`; it ends when the reader stops."""
        with closing(self._stream(sql, **values)) as found:
            remaining = iter(found)
            while page := list(islice(remaining, rows)):
                yield page

    def _execute_many(self, sql: str, rows: Sequence[dict[str, Any]]) -> None:
        """Run a statement once for each row of values, which are bound as they are; nothing without rows."""
        execute_many(self._connection, sql, rows)

    def _records(self, record: type[Record], sql: str, /, **values: Any) -> list[Record]:
        """Return all rows of a query as records, without damaged ones.

        In a page (`limit` rows from `offset`), later rows replace damaged ones, so that only the last page is short.
        """
        found: list[Record] = []
        while True:
            result = self._execute(sql, **values)
            columns, rows = tuple(result.keys()), result.all()
            found += records_of(rows, record, columns)
            if "offset" not in values or len(found) >= values["limit"] or len(rows) < values["limit"]:
                return found[: values["limit"]] if "offset" in values else found
            values["offset"] += len(rows)

    def _record(self, record: type[Record], sql: str, /, **values: Any) -> Record | None:
        """Return the only row of a query as a record, or None when there is none."""
        return read_row(self._execute(sql, **values), record)

    def _values(self, sql: str, /, **values: Any) -> list[Any]:
        """Return the first column of every row."""
        return list(self._execute(sql, **values).scalars())

    def _value(self, sql: str, /, **values: Any) -> Any:
        """Return the first column of the first row, or None when there is none."""
        return self._execute(sql, **values).scalar()

    def _integer(self, sql: str, /, **values: Any) -> int | None:
        """Return the first column of the first row as a number; None if there is no row or the value is damaged."""
        found = self._value(sql, **values)
        return found if isinstance(found, int) else None

    def _keep_out(self, key: str, at: int, **agent: str) -> None:
        """Note that what an agent's key stands for was forgotten: its items accepted up to `at` are not stored."""
        self._execute(
            "INSERT INTO forgotten_sessions (agent_id, session_id, forgotten_at) VALUES (:agent, :key, :at)"
            " ON CONFLICT (agent_id, session_id) DO UPDATE"
            " SET forgotten_at = max(forgotten_at, excluded.forgotten_at)",
            key=key,
            at=at,
            **agent,
        )


class AgentRepository(Repository):
    """Statements about one agent within one transaction; every statement can use the parameter `:agent`."""

    def __init__(self, connection: Connection, agent: str) -> None:
        super().__init__(connection)
        self._agent = agent
        self._viewer: Viewer | None = None
        self._bound = {"agent": agent}

    def restrict_to(self, viewer: Viewer) -> None:
        """Limit the statements that include the viewer's conditions to rows that this viewer may see."""
        self._viewer = viewer
        self._bound = {**self._bound, **viewer.parameters()}


class AccountRepository:
    """Rows of the account's database. Each method is a transaction of its own."""

    def __init__(self, account: StoreDatabase) -> None:
        self._account = account

    def _execute(self, sql: str, /, **values: Any) -> int:
        """Run a statement that writes; return how many rows it changed."""
        with self._account.atomic() as connection:
            return execute(connection, sql, **values).rowcount

    def _records(self, record: type[Record], sql: str, /, **values: Any) -> list[Record]:
        """Return all rows of a query as records, without damaged ones."""
        with self._account.reading() as connection:
            return read_rows(execute(connection, sql, **values), record)

    def _record(self, record: type[Record], sql: str, /, **values: Any) -> Record | None:
        """Return the only row of a query as a record, or None when there is none."""
        with self._account.reading() as connection:
            return read_row(execute(connection, sql, **values), record)

    def _value(self, sql: str, /, **values: Any) -> Any:
        """Return the first column of the first row, or None when there is none."""
        with self._account.reading() as connection:
            return execute(connection, sql, **values).scalar()
