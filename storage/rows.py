"""Maps records (dataclasses and named tuples) to columns by name, in both directions.

A query names its columns like the fields of the record it is read into, so columns may come in any order and a new
field is declared in the record alone. Fields of a collection type are stored as JSON, booleans as 0 and 1.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, CursorResult

from reverie.errors import StoreUnusable
from storage.engines import OPTION, Dialect, parsed

Record = TypeVar("Record")

# Fields that are stored under another name; every other column is named like its field.
_COLUMN_NAMES: Final[Mapping[str, str]] = {
    "agent": "agent_id",
    "channel": "channel_id",
    "policy": "notification_policy",
    "run": "run_id",
    "schedule": "schedule_id",
    "session": "session_id",
    "trace": "trace_id",
    "trigger": "trigger_kind",
    "user": "user_id",
}
# FTS5 and sqlite-vec keep what they have in tables whose names begin like that of the index.
_TABLES: Final = """
    SELECT t.name, json_group_array(c.name) FROM sqlite_schema AS t CROSS JOIN pragma_table_info(t.name) AS c
    WHERE t.type = 'table' AND t.sql NOT LIKE 'CREATE VIRTUAL%' AND t.name NOT LIKE 'sqlite!_%' ESCAPE '!'
      AND t.name NOT LIKE 'alembic!_%' ESCAPE '!' AND t.name <> 'memory_version'
      AND NOT EXISTS (SELECT 1 FROM sqlite_schema AS v WHERE v.sql LIKE 'CREATE VIRTUAL%'
                      AND substr(t.name, 1, length(v.name) + 1) = v.name || '_')
    GROUP BY t.name
"""
_decode_json = msgspec.json.Decoder().decode


def execute(connection: Connection, sql: str, /, **values: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run one statement with named parameters.

    Collections are bound as JSON: read them in SQL with `json_each(:name)`.
    """
    dialect: Dialect | None = connection.get_execution_options().get(OPTION)
    if dialect is not None:
        return dialect.execute(connection, sql, values)
    bound = {name: value if isinstance(value, _SCALARS) else to_json(value) for name, value in values.items()}
    return connection.execute(parsed(sql), bound)


def stream(connection: Connection, sql: str, /, **values: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run one query whose rows are fetched as they are read: there may be more of them than fit into memory."""
    dialect: Dialect | None = connection.get_execution_options().get(OPTION)
    if dialect is not None:
        return dialect.execute(connection, sql, values, streamed=True)
    return execute(connection, sql, **values)  # SQLite's driver does so with every query


def tables_of(connection: Connection) -> Mapping[str, frozenset[str]]:
    """Return the tables of the store that a transaction is on, with their columns; those of search indexes left out."""
    dialect: Dialect | None = connection.get_execution_options().get(OPTION)
    if dialect is not None:
        return dialect.tables(connection)
    found: dict[str, frozenset[str]] = {}
    for name, columns in connection.exec_driver_sql(_TABLES):
        found[name] = frozenset(json.loads(columns))
    return found


def execute_many(connection: Connection, sql: str, rows: Sequence[dict[str, Any]]) -> None:
    """Run a statement once for each row of values, which are bound as they are; nothing without rows."""
    dialect: Dialect | None = connection.get_execution_options().get(OPTION)
    if not rows:
        return
    if dialect is not None:
        dialect.execute_many(connection, sql, rows)
    else:
        connection.execute(parsed(sql), rows)


def defer_references(connection: Connection) -> None:
    """Check the references between rows at the end of the transaction only."""
    dialect: Dialect | None = connection.get_execution_options().get(OPTION)
    if dialect is not None:
        dialect.defer_references(connection)
    else:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")


def read_rows(result: CursorResult[*tuple[Any, ...]], record: type[Record]) -> list[Record]:
    """Return all rows of a result as records. Raises `TypeError` when the columns do not fit the fields."""
    read = _reader(record, tuple(result.keys()))
    return [read(row) for row in result]


def stream_rows(result: CursorResult[*tuple[Any, ...]], record: type[Record]) -> Iterator[Record]:
    """Yield the rows of a result as records, each read when it is asked for."""
    read = _reader(record, tuple(result.keys()))
    with closing(result):  # whoever reads only the first ones leaves no cursor open
        yield from (read(row) for row in result)


def read_row(result: CursorResult[*tuple[Any, ...]], record: type[Record]) -> Record | None:
    """Return the only row of a result as a record, or None when there is none."""
    row = result.one_or_none()
    return None if row is None else _reader(record, tuple(result.keys()))(row)


def field_names(record: type) -> tuple[str, ...]:
    """Return the names of a record's fields in their order."""
    names: tuple[str, ...] | None = getattr(record, "_fields", None)
    return names or tuple(record.__dataclass_fields__)  # type: ignore[attr-defined]


def column_name(field: str) -> str:
    """Return the column that stores a field."""
    return _COLUMN_NAMES.get(field, field)


def select_list(record: type, table: str = "", **expressions: str) -> str:
    """Return the columns of a SELECT (or RETURNING) that fills every field of a record.

    `table` is the alias of the table that the columns come from; `expressions` gives SQL for fields that do not come
    from a column of their own.
    """
    prefix = f"{table}." if table else ""
    return ", ".join(f"{expressions.get(name, prefix + column_name(name))} AS {name}" for name in field_names(record))


def insert_sql(table: str, record: type, *, exclude: Sequence[str] = (), **columns: str) -> str:
    """Return an INSERT that stores the fields of a record, each bound by its name (see `to_parameters`).

    `columns` gives SQL for columns that are not fields; `exclude` names fields that are not stored.
    """
    values = {column_name(name): f":{name}" for name in field_names(record) if name not in exclude} | columns
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def to_parameters(record: object) -> dict[str, Any]:
    """Return the fields of a record as values to bind, collections as JSON."""
    values = ((name, getattr(record, name)) for name in field_names(type(record)))
    return {name: value if isinstance(value, _SCALARS) else to_json(value) for name, value in values}


def to_json(value: Any) -> str:
    """Return a collection as compact JSON text: a mapping as an object, anything else as an array."""
    collection = value if isinstance(value, Mapping) else list(value)
    return json.dumps(collection, ensure_ascii=False, separators=(",", ":"))


def from_json(value: str) -> Any:
    """Return the value of JSON text. Raises `StoreUnusable` for anything else: the file is damaged."""
    try:
        return _decode_json(value)
    except msgspec.DecodeError:  # NaN and lone surrogates, which `json` writes
        pass
    try:
        return json.loads(value)
    except ValueError as error:
        raise damaged_row(type(error).__name__) from error


def damaged_row(reason: str) -> StoreUnusable:
    """Return the error of a row that nothing could have written: its file is damaged."""
    return StoreUnusable(f"a row of a database is damaged ({reason}): run `reverie db verify`, and restore a backup")


_SCALARS: Final = (str, int, float, bytes, types.NoneType)


_readers: dict[tuple[type, tuple[str, ...]], Callable[[Sequence[Any]], Any]] = {}


def _reader(record: type[Record], columns: tuple[str, ...]) -> Callable[[Sequence[Any]], Record]:
    """Return a function that makes a record of a row with these columns; made once for each record and query."""
    read = _readers.get((record, columns))
    if read is None:
        read = _readers[record, columns] = _make_reader(record, columns)
    return read


def _make_reader(record: type[Record], columns: tuple[str, ...]) -> Callable[[Sequence[Any]], Record]:
    names = field_names(record)
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise TypeError(f"{record.__name__} has no field for the columns {', '.join(unknown)}")
    hints = typing.get_type_hints(record)
    converters = {f"convert_{name}": convert for name in columns if (convert := _converter(hints[name]))}
    arguments = (
        f"{name}=convert_{name}({name})" if f"convert_{name}" in converters else f"{name}={name}" for name in columns
    )
    # A generated call: with the 34 fields of a memory, a dict of keyword arguments takes twice as long.
    source = f"lambda {', '.join(columns)}: record({', '.join(arguments)})"
    make: Callable[..., Any] = eval(source, {"record": record, **converters})  # noqa: S307 - field names of our own
    return lambda row: make(*row)


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """Return how a stored value becomes one of this type, or None where it already is."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kind = next((typing.get_origin(option) or option for option in options if option is not types.NoneType), None)
    optional = types.NoneType in options
    if kind is bool:
        return bool
    if kind is Any:
        return from_json
    if kind is tuple:
        return lambda value: tuple(from_json(value)) if value else ()
    if kind is list:
        return lambda value: from_json(value) if value else []
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return lambda value: from_json(value) if value else (None if optional else {})
    return None
