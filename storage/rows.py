"""Maps records (dataclasses, named tuples, and structs of the client) to columns by name, in both directions.

A query names its columns like the fields of the record it is read into, so columns may come in any order and a new
field is declared in the record alone. Fields of a collection type are stored as JSON, booleans as 0 and 1, times as
microseconds. Rows that a caller gets unchanged are read into the struct that the call returns.

Invariant: a row that only a damaged file can have makes no record. A query for many rows leaves it out, so that one
damaged row fails no page and stops no job; a query for one row raises `DamagedRow`. `reverie db verify` names each such
row (`storage/verify.py`). No error quotes the content of a row.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Literal, TypeVar, cast

import msgspec

from reverie.clock import from_micros
from reverie.errors import Permanent
from storage.engines import OPTION, Connection, CursorResult, Dialect

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
# FTS5 and sqlite-vec store their data in tables whose names begin with the name of the index.
_TABLES: Final = """
    SELECT t.name, json_group_array(c.name) FROM sqlite_schema AS t CROSS JOIN pragma_table_info(t.name) AS c
    WHERE t.type = 'table' AND t.sql NOT LIKE 'CREATE VIRTUAL%' AND t.name NOT LIKE 'sqlite!_%' ESCAPE '!'
      AND t.name <> 'schema_version'
      AND t.name NOT LIKE 'chunks!_index!_replaced!_%' ESCAPE '!'
      AND NOT EXISTS (SELECT 1 FROM sqlite_schema AS v WHERE v.sql LIKE 'CREATE VIRTUAL%'
                      AND substr(t.name, 1, length(v.name) + 1) = v.name || '_')
    GROUP BY t.name
"""
_IF_DAMAGED: Final = "if_damaged"
_decode_json = msgspec.json.Decoder().decode
# SQLite plans a statement anew at each execution if a parameter limits its rows, or is compared with a column of a
# table that has an index for one value only: the parameter's value might allow a better plan. Planning took up to 20
# times as long as running the statement. With a sign, which changes no value, SQLite does not look at the parameter.
_LOOKED_AT: Final = re.compile(r"(=|\bLIMIT|\bOFFSET) :(?=\w)")

# The times of the years 1 to 9999, in microseconds: no other times are stored.
FIRST_MICROS: Final = -62_135_596_800_000_000
LAST_MICROS: Final = 253_402_300_799_999_999
_TIMES: Final = frozenset({"at", "claim_until", "deadline", "valid_from", "valid_to"})


def is_time(name: str) -> bool:
    """Return whether a column or field of this name holds a time in microseconds."""
    return name in _TIMES or name.endswith("_at")


def is_possible_time(micros: int) -> bool:
    """Return whether a stored time is one of the years 1 to 9999."""
    return FIRST_MICROS <= micros <= LAST_MICROS


def if_damaged(value: Any) -> Mapping[str, Any]:
    """Return the metadata of a field whose damage does not make its row unusable; `value` replaces a damaged value."""
    return {_IF_DAMAGED: value}


class DamagedText(str):
    """The text that is returned for stored bytes that are not UTF-8."""

    __slots__ = ()


# Not empty, because an empty agent or session has a meaning.
_DAMAGED_TEXT: Final = DamagedText("\N{REPLACEMENT CHARACTER}")


def text_from_bytes(stored: bytes) -> str:
    """Return stored text. It is the text factory of every connection: SQLite's driver quotes damaged text in errors."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return _DAMAGED_TEXT


@lru_cache(maxsize=4096)
def _row_type(names: tuple[str, ...]) -> type[tuple[Any, ...]]:
    """Return the class of rows with these columns as attributes. Making a named tuple takes twenty times as long."""
    columns = {name: property(itemgetter(place)) for place, name in enumerate(names)}
    return type("_FileRow", (tuple,), {**columns, "__slots__": ()})


class _FileResult:
    """The result of a statement that the driver has run on an SQLite file, read from its cursor.

    It has what repositories use of SQLAlchemy's results. A statement that SQLAlchemy runs takes four times as long.
    """

    def __init__(self, cursor: Any, read: Callable[[Any], Any] | None = None) -> None:
        self._cursor = cursor
        self._names = tuple([column[0] for column in cursor.description or ()])
        self._read = read
        self.rowcount: int = cursor.rowcount

    def __iter__(self) -> Iterator[Any]:
        return map(self._read or _row_type(self._names), self._cursor)

    def keys(self) -> tuple[str, ...]:
        return self._names

    def all(self) -> list[Any]:
        return list(self)

    def mappings(self) -> _FileResult:
        return _FileResult(self._cursor, lambda row: dict(zip(self._names, row, strict=True)))

    def scalars(self) -> _FileResult:
        return _FileResult(self._cursor, itemgetter(0))

    def first(self) -> Any:
        row = next(iter(self), None)
        self.close()
        return row

    def one_or_none(self) -> Any:
        rows = list(islice(self, 2))
        self.close()
        if len(rows) > 1:
            raise LookupError(f"a query for one row of {', '.join(self._names)} found several")
        return rows[0] if rows else None

    def one(self) -> Any:
        row = self.one_or_none()
        if row is None:
            raise LookupError(f"a query for one row of {', '.join(self._names)} found none")
        return row

    def scalar(self) -> Any:
        row = self.first()
        return None if row is None else row[0]

    def scalar_one(self) -> Any:
        return self.one()[0]

    def close(self) -> None:
        self._cursor.close()


@lru_cache(maxsize=4096)
def _planned_once(sql: str) -> str:
    return _LOOKED_AT.sub(r"\1 +:", sql)


def driver_of(connection: Connection) -> Any:
    """Return the driver's connection to an SQLite file, on which the statements of repositories run."""
    return connection.connection.driver_connection


def execute(connection: Connection, sql: str, /, **values: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run one statement with named parameters.

    Collections are bound as JSON: read them in SQL with `json_each(:name)`.
    """
    dialect: Dialect | None = connection.get_execution_options().get(OPTION)
    if dialect is not None:
        return dialect.execute(connection, sql, values)
    bound = {name: value if isinstance(value, _SCALARS) else to_json(value) for name, value in values.items()}
    cursor = driver_of(connection).execute(_planned_once(sql), bound)
    return cast("CursorResult[*tuple[Any, ...]]", _FileResult(cursor))


def stream(connection: Connection, sql: str, /, **values: Any) -> CursorResult[*tuple[Any, ...]]:
    """Run one query whose rows are fetched as they are read, because they may not fit into memory."""
    dialect: Dialect | None = connection.get_execution_options().get(OPTION)
    if dialect is not None:
        return dialect.execute(connection, sql, values, streamed=True)
    return execute(connection, sql, **values)  # SQLite's driver streams every query


def tables_of(connection: Connection) -> Mapping[str, frozenset[str]]:
    """Return the tables of a transaction's store with their columns, without the tables of search indexes."""
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
        driver_of(connection).executemany(_planned_once(sql), rows)


def defer_references(connection: Connection) -> None:
    """Check the references between rows at the end of the transaction only."""
    dialect: Dialect | None = connection.get_execution_options().get(OPTION)
    if dialect is not None:
        dialect.defer_references(connection)
    else:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")


def read_rows(result: CursorResult[*tuple[Any, ...]], record: type[Record]) -> list[Record]:
    """Return the rows of a result as records, without damaged ones.

    Raises `TypeError` when the columns do not fit the fields.
    """
    return records_of(result, record, tuple(result.keys()))


def stream_rows(result: CursorResult[*tuple[Any, ...]], record: type[Record]) -> Iterator[Record]:
    """Yield the rows of a result as records, each read when it is asked for, without damaged ones."""
    with closing(result):  # so that a caller who stops early leaves no cursor open
        yield from _readable(result, record, tuple(result.keys()))


def read_row(result: CursorResult[*tuple[Any, ...]], record: type[Record]) -> Record | None:
    """Return the only row of a result as a record, or None when there is none. Raises `DamagedRow` if it is damaged."""
    row = result.one_or_none()
    return None if row is None else _reader(record, tuple(result.keys()))(row)


def records_of(rows: Iterable[Sequence[Any]], record: type[Record], columns: tuple[str, ...]) -> list[Record]:
    """Return rows with these columns as records, without damaged ones."""
    return list(_readable(rows, record, columns))


def _readable(rows: Iterable[Sequence[Any]], record: type[Record], columns: tuple[str, ...]) -> Iterator[Record]:
    read = _reader(record, columns)
    for row in rows:
        try:
            found = read(row)
        except DamagedRow:
            continue
        yield found


def field_names(record: type) -> tuple[str, ...]:
    """Return the names of a record's fields in their order."""
    names: tuple[str, ...] | None = getattr(record, "_fields", None) or getattr(record, "__struct_fields__", None)
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
    """Return the value of JSON text. Raises `DamagedRow` if it is no JSON, because the file is damaged."""
    try:
        return _decode_json(value)
    except (msgspec.DecodeError, TypeError, UnicodeDecodeError):  # NaN, which `json` writes, or damage
        pass
    try:
        found = json.loads(value)
        to_json([found]).encode()  # no stored text has a lone surrogate
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged_row("JSON") from error
    return found


class DamagedRow(Permanent):
    """A row has a value that Reverie cannot have written: its file is damaged. The rest of the store can be used."""


def is_vector(stored: Any, dim: int) -> bool:
    """Return whether a stored value is a vector of `dim` numbers (float32, little-endian). Others are damaged."""
    return isinstance(stored, bytes) and len(stored) == 4 * dim


def valid_json(column: str) -> str:
    """Return SQL for a column of JSON with empty JSON in place of damaged values, which would fail the statement."""
    return f"CASE WHEN json_valid({column}) THEN {column} ELSE '[]' END"


def damaged_row(what: str) -> DamagedRow:
    """Return the error of a damaged row; `what` names the damaged part, never its content."""
    return DamagedRow(
        f"a row of a database is damaged ({what}): run `reverie db verify`, which names it, and restore a backup"
    )


_SCALARS: Final = (str, int, float, bytes, types.NoneType)


_readers: dict[tuple[type, tuple[str, ...]], Callable[[Sequence[Any]], Any]] = {}


def _reader(record: type[Record], columns: tuple[str, ...]) -> Callable[[Sequence[Any]], Record]:
    """Return a function that makes a record of a row with these columns; it is made once for each record and query."""
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
    declared = getattr(record, "__dataclass_fields__", {})
    spared = {name for name in columns if name in declared and _IF_DAMAGED in declared[name].metadata}
    for name in spared:
        converters[f"convert_{name}"] = _converter_with_default(name, hints[name], declared[name].metadata[_IF_DAMAGED])
    arguments = (
        f"{name}=convert_{name}({name})" if f"convert_{name}" in converters else f"{name}={name}" for name in columns
    )
    # The call is generated code: for a memory's 34 fields, a dict of keyword arguments takes twice as long.
    found = [_validity_test(name, hints[name]) for name in columns if name not in spared]
    tests = " and ".join(f"({test})" for test in found if test) or "True"
    source = f"lambda {', '.join(columns)}: record({', '.join(arguments)}) if {tests} else damaged()"

    def damaged() -> typing.NoReturn:
        raise damaged_row(f"a value of {record.__name__} has another type or no possible time")

    names_of_source = {"record": record, "damaged": damaged, **converters}
    make: Callable[..., Any] = eval(source, names_of_source)  # noqa: S307 - field names of our own
    return lambda row: make(*row)


def _converter_with_default(name: str, hint: Any, instead: Any) -> Callable[[Any], Any]:
    """Return a function that converts a stored value for a field, and replaces a damaged value by `instead`."""
    is_sound = eval(f"lambda {name}: {_validity_test(name, hint) or 'True'}")  # noqa: S307 - field names of our own
    convert = _converter(hint)

    def read(value: Any) -> Any:
        with suppress(DamagedRow):
            if is_sound(value):
                return value if convert is None else convert(value)
        return instead

    return read


def _validity_test(name: str, hint: Any) -> str:
    """Return a Python expression that is true for valid stored values of a field; empty if all values are valid."""
    kind, optional = _kind_of(hint)
    if kind in (int, datetime):
        test = f"{name}.__class__ is int"
        if kind is datetime or is_time(name):
            test += f" and {FIRST_MICROS} <= {name} <= {LAST_MICROS}"
    elif kind is float:
        test = f"{name}.__class__ is float or {name}.__class__ is int"
    elif kind is bytes:
        test = f"{name}.__class__ is bytes"
    elif kind is bool:
        test = f"{name}.__class__ is int or {name}.__class__ is bool"
    elif kind is Any:  # JSON of any kind
        return f"{name}.__class__ is str"
    elif kind in (str, Literal) or _is_collection(kind):
        test = f"{name}.__class__ is str"
        optional = optional or _is_collection(kind)
    else:
        return ""
    return f"{name} is None or ({test})" if optional else test


def _is_collection(kind: Any) -> bool:
    return kind in (tuple, list) or (isinstance(kind, type) and issubclass(kind, Mapping))


def _kind_of(hint: Any) -> tuple[Any, bool]:
    """Return the type of a field without None, and whether it may be None."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kind = next((typing.get_origin(option) or option for option in options if option is not types.NoneType), None)
    return kind, types.NoneType in options


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts a stored value to this type, or None if no conversion is needed."""
    kind, optional = _kind_of(hint)
    if kind is bool:
        return bool
    if kind is Any:
        return from_json
    if kind is datetime:
        return lambda value: None if value is None else from_micros(value)
    if kind is tuple:
        return lambda value: tuple(from_json_of(list, value)) if value else ()
    if kind is list:
        return lambda value: from_json_of(list, value) if value else []
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return lambda value: from_json_of(dict, value) if value else (None if optional else {})
    return None


def from_json_of(kind: type, value: str) -> Any:
    """Return the value of JSON text as this type. Raises `DamagedRow` for anything else."""
    found = from_json(value)
    if not isinstance(found, kind):
        raise damaged_row(f"JSON without a {kind.__name__}")
    return found
