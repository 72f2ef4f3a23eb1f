"""Rows as records, and records as columns: matched by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection

from storage.engine import Database
from storage.rows import execute, insert_sql, read_row, read_rows, select_list, to_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThing:
    """A record with every kind of field."""

    id: int
    agent: str
    pinned: bool = False
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing(NewThing):
    """A stored record: it inherits the fields of the new one."""

    stored_at: int


class Pair(NamedTuple):
    """A record without names in its constructor."""

    id: int
    calls: list[str]


THING = NewThing(id=1, agent="ana", pinned=True, tags=("a", "ü"), metadata={"n": float("inf")}, score=None)


@pytest.fixture
def connection(tmp_path: Any) -> Iterator[Connection]:
    database = Database(tmp_path / "a.db")
    with database.atomic() as opened:
        execute(opened, "CREATE TABLE things (id, agent_id, pinned, tags, metadata, score, stored_at)")
        execute(opened, insert_sql("things", NewThing, stored_at=":now"), **to_parameters(THING), now=7)
        yield opened
    database.close()


def test_what_is_inserted_is_read_back(connection: Connection) -> None:
    """Given a record of every kind of field, when it is stored and read, then it is equal."""
    (thing,) = read_rows(execute(connection, f"SELECT {select_list(Thing)} FROM things"), Thing)
    assert thing == Thing(**{name: getattr(THING, name) for name in NewThing.__dataclass_fields__}, stored_at=7)
    assert (type(thing.pinned), type(thing.tags)) == (bool, tuple)


def test_columns_are_matched_by_name_in_any_order(connection: Connection) -> None:
    """Given columns in another order and an expression, then each field gets the column of its name."""
    pair = read_row(execute(connection, "SELECT tags AS calls, id FROM things"), Pair)
    assert pair == Pair(1, ["a", "ü"])
    columns = select_list(Pair, "t", calls="json_array('x')")
    assert read_row(execute(connection, f"SELECT {columns} FROM things AS t"), Pair) == Pair(1, ["x"])


def test_null_is_an_empty_collection_and_no_row_is_none(connection: Connection) -> None:
    """Given NULL for a collection, then it is empty; given no row, then there is no record."""
    assert read_row(execute(connection, "SELECT 1 AS id, NULL AS calls"), Pair) == Pair(1, [])
    assert read_row(execute(connection, "SELECT id, tags AS calls FROM things WHERE id = 9"), Pair) is None


def test_a_column_without_a_field_is_refused(connection: Connection) -> None:
    """Given a column that no field is named like, then reading it is an error, also for a missing field."""
    with pytest.raises(TypeError, match="Pair has no field for the columns score"):
        read_rows(execute(connection, "SELECT id, score FROM things"), Pair)
    with pytest.raises(TypeError, match="calls"):
        read_rows(execute(connection, "SELECT id FROM things"), Pair)


def test_collections_are_bound_as_json(connection: Connection) -> None:
    """Given a collection as a parameter, then SQL reads it with json_each."""
    found = execute(connection, "SELECT id FROM things WHERE id IN (SELECT value FROM json_each(:ids))", ids={1, 2})
    assert list(found.scalars()) == [1]
