"""Runs the statements of repositories on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection, CursorResult, TextClause, text

from reverie.contract import ACCOUNT_STORE
from storage.postgres.columns import OF_ENGINE, shared_tables, tables
from storage.postgres.translation import STORE, Translated, for_values, translate
from storage.rows import to_json

# The execution option that names the store to which a connection is limited.
STORE_OPTION: Final = "reverie_store"


class PostgresDialect:
    """The dialect of PostgreSQL: see `storage.engines.Dialect`."""

    def execute(
        self, connection: Connection, sql: str, values: Mapping[str, Any], *, streamed: bool = False
    ) -> CursorResult[Any]:
        """Run a translated statement."""
        translated = translate(sql)
        bound = _bound(translated, values, connection)
        options = {"stream_results": True} if streamed else None
        return connection.execute(_parsed(_text(sql, translated, (bound,))), bound, execution_options=options)

    def execute_many(self, connection: Connection, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a translated statement for each row of values."""
        translated = translate(sql)
        bound = [_bound(translated, values, connection) for values in rows]
        if not translated.untyped:
            connection.execute(_parsed(translated.sql), bound)
            return
        for values in bound:
            connection.execute(_parsed(_text(sql, translated, (values,))), values)

    def tables(self, connection: Connection) -> Mapping[str, frozenset[str]]:
        """Return the tables of the store: for the account all tables, for a workspace those that workspaces have."""
        sql = "SELECT name FROM stores WHERE id = %(store)s"
        store = connection.get_execution_options().get(STORE_OPTION)
        is_account = connection.exec_driver_sql(sql, {"store": store}).scalar() == ACCOUNT_STORE
        return {
            name: frozenset(table.columns) - {STORE}
            for name, table in tables().items()
            if name not in OF_ENGINE and (is_account or name in shared_tables())
        }

    def defer_references(self, connection: Connection) -> None:
        """Check foreign keys at the end of the transaction only."""
        connection.exec_driver_sql("SET CONSTRAINTS ALL DEFERRED")


def _text(sql: str, translated: Translated, rows: Iterable[Mapping[str, Any]]) -> str:
    if not translated.untyped:
        return translated.sql
    missing = frozenset(name for name in translated.untyped for values in rows if values.get(name) is None)
    return for_values(sql, missing)


def _bound(translated: Translated, values: Mapping[str, Any], connection: Connection) -> dict[str, Any]:
    bound = {name: _value(value, as_array=name in translated.arrays) for name, value in values.items()}
    bound[STORE] = connection.get_execution_options().get(STORE_OPTION)
    return bound


def _value(value: Any, *, as_array: bool) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        return _without_nul(value)
    if value is None or isinstance(value, (int, float, bytes)):
        return value
    if as_array:
        return [_without_nul(element) if isinstance(element, str) else element for element in value]
    return to_json(value)


def _without_nul(value: str) -> str:
    """Return a text without NUL, which PostgreSQL cannot store. Contents have none, but a recorded query may."""
    return value.replace("\0", "\ufffd") if "\0" in value else value


@lru_cache(maxsize=4096)
def _parsed(sql: str) -> TextClause:
    """Return the parsed form of a statement; parsing it at each execution costs more than looking it up."""
    return text(sql)
