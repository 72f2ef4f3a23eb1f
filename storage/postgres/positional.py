"""Runs statements with positional parameters, as SQLite's driver does, for counts that no repository reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, CursorResult

from storage.rows import execute

_MARK: Final = re.compile(r"\?")


class PositionalConnection:
    """A connection with the `execute` of SQLite's driver."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] = ()) -> _Rows:
        """Run a statement with parameters by name or by place."""
        if isinstance(parameters, Mapping):
            return _Rows(execute(self._connection, sql, **parameters))
        names = iter(range(len(parameters)))
        named = _MARK.sub(lambda _mark: f":value_{next(names)}", sql)
        values = {f"value_{place}": value for place, value in enumerate(parameters)}
        return _Rows(execute(self._connection, named, **values))


class _Rows:
    """The rows of a result, as SQLite's driver gives them."""

    def __init__(self, result: CursorResult[Any]) -> None:
        self._result = result

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (tuple(row) for row in self._result)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""
        row = self._result.fetchone()
        return None if row is None else tuple(row)
