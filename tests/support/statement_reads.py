"""What each statement on PostgreSQL reads, and by which plan: those within triggers and functions are counted, too.

The server counts, in each session, the rows that sequential scans return and the entries that indexes return. The
difference that a statement makes is what it reads, whatever runs inside of it. What an index skips is not counted, so
the plan of each statement is looked at as well: all scans must be limited by `store_id`.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, Engine, event

from storage.postgres.engine import SCHEMA

_RELATIONS: Final = """
    SELECT r.oid::bigint, coalesce(t.relname, r.relname), r.relkind
    FROM pg_class AS r LEFT JOIN pg_index AS i ON i.indexrelid = r.oid LEFT JOIN pg_class AS t ON t.oid = i.indrelid
    WHERE r.relnamespace = %s::regnamespace AND r.relkind IN ('r', 'i') AND EXISTS (
        SELECT 1 FROM pg_attribute AS a
        WHERE a.attrelid = coalesce(t.oid, r.oid) AND a.attname = 'store_id'
    )
"""
_OF_STORE: Final = re.compile(r"store_id = |'store \d+'")
_VALUE: Final = re.compile(r"%\((\w+)\)s")
# For which psycopg tells the server a type.
_CAST: Final = {int: "::bigint", float: "::double precision", bytes: "::bytea"}
_PLANNED: Final = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"})
_NONE: Final = (0, 0, 0)
_COUNTS: Final = """
    SELECT relation, pg_stat_get_xact_numscans(relation), pg_stat_get_xact_tuples_returned(relation),
        pg_stat_get_xact_tuples_fetched(relation)
    FROM unnest(%s::text::oid[]) AS relation WHERE pg_stat_get_xact_numscans(relation) > 0
"""


_Counts = dict[int, tuple[int, int, int]]


@dataclass(slots=True)
class Reads:
    """The most that one run of a statement has read of one table; one for many rows of values counts as many.

    `index_rows` are entries of indexes that matched, or rows that were found by them, whichever are more.
    """

    statement: str
    table: str
    sequential_scans: int = 0
    sequential_rows: int = 0
    index_rows: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """A statement with the store and the values that it was first run with, and its plan for them."""

    statement: str
    store: str | None
    values: Any
    plan: dict[str, Any]

    def planned_by(self, connection: psycopg.Connection[Any], *, kept: bool = False) -> Planned:
        """Return the statement as another database plans it; `kept`, as a plan for any values is."""
        connection.execute("SELECT set_config('reverie.store', %s, false)", [self.store])
        if not kept:
            return replace(self, plan=_plan(connection, self.statement, self.values))
        names = list(self.values)
        statement = _VALUE.sub(
            lambda found: f"${names.index(found[1]) + 1}{_CAST.get(type(self.values[found[1]]), '')}", self.statement
        )
        return replace(self, plan=_plan(connection, statement.replace("%%", "%"), None, "GENERIC_PLAN, "))

    def unlimited(self, tables: Collection[str]) -> list[str]:
        """Return the scans of tables that are not limited to one store by what they look up."""
        return [found for node, table in _scans(self.plan) if table in tables and (found := _unlimited(node))]


def _plan(connection: psycopg.Connection[Any], statement: str, values: Any, options: str = "") -> dict[str, Any]:
    row = connection.execute(f"EXPLAIN ({options}FORMAT JSON) {statement}", values).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def _scans(node: dict[str, Any], table: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the nodes of a plan with the tables that they read."""
    table = node.get("Relation Name", table if node["Node Type"].startswith("Bitmap") else "")
    yield node, table
    for inner in node.get("Plans", ()):
        yield from _scans(inner, table)


def _unlimited(node: dict[str, Any]) -> str:
    """Return what a node reads without naming a store."""
    kind = node["Node Type"]
    if kind == "Seq Scan":
        return f"Seq Scan on {node['Relation Name']}"
    if "Index" not in kind or _OF_STORE.search(node.get("Index Cond", "")):
        return ""
    return f"{kind} on {node['Index Name']}"


class StatementReads:
    """Notes the reads and the plan of each statement that SQLAlchemy runs on PostgreSQL in this process.

    Thread-safe. With `most_runs`, the reads of further runs of a statement are not counted: counting takes longer than
    most statements.
    """

    def __init__(self, most_runs: int | None = None) -> None:
        self._most_runs = most_runs
        self._runs: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._reads: dict[tuple[str, str], Reads] = {}
        self._planned: dict[str, Planned] = {}
        self._tables: dict[int, tuple[str, bool]] = {}
        self._relations = ""  # all of them, as the server reads an array: as a list they were converted for each count
        # By connection: what was counted last in its transaction, and the statement that may still be read from.
        self._counted: dict[int, _Counts] = {}
        self._streamed: dict[int, str] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note all statements until the end of the block."""
        hooks = {"begin": self._begun, "before_cursor_execute": self._before, "after_cursor_execute": self._after}
        for name, hook in hooks.items():
            event.listen(Engine, name, hook)
        try:
            yield
        finally:
            for name, hook in hooks.items():
                event.remove(Engine, name, hook)

    def reads(self) -> list[Reads]:
        """Return what was read, by statement and table."""
        with self._lock:
            return list(self._reads.values())

    def planned(self) -> list[Planned]:
        """Return all statements that can be planned."""
        with self._lock:
            return list(self._planned.values())

    def _begun(self, connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            raw = connection.connection.driver_connection
            self._counted.pop(id(raw), None)
            self._streamed.pop(id(raw), None)

    def _before(
        self, connection: Connection, cursor: Any, statement: str, values: Any, _context: Any, many: bool
    ) -> None:
        raw = cursor.connection
        if connection.dialect.name != "postgresql":
            return
        with self._lock:
            self._runs[statement] += 1
        if id(raw) in self._streamed:
            self._note(raw, self._streamed.pop(id(raw)))
        if self._has_run_enough(statement):
            self._counted.pop(id(raw), None)
        elif id(raw) not in self._counted:
            self._counted[id(raw)] = self._count(raw)
        if statement not in self._planned and statement.split(None, 1)[0] in _PLANNED:
            store = raw.execute("SELECT current_setting('reverie.store', true)").fetchone()[0]
            first = values[0] if many else values
            planned = Planned(statement, store, first, _plan(raw, statement, first))
            with self._lock:
                self._planned[statement] = planned

    def _after(
        self, connection: Connection, cursor: Any, statement: str, values: Any, _context: Any, many: bool
    ) -> None:
        if connection.dialect.name != "postgresql" or self._has_run_enough(statement):
            return
        self._note(cursor.connection, statement, len(values) if many else 1)
        if isinstance(cursor, psycopg.ServerCursor):
            self._streamed[id(cursor.connection)] = statement

    def _has_run_enough(self, statement: str) -> bool:
        return self._most_runs is not None and self._runs[statement] > self._most_runs

    def _note(self, raw: psycopg.Connection[Any], statement: str, runs: int = 1) -> None:
        before, now = self._counted.get(id(raw), {}), self._count(raw)
        self._counted[id(raw)] = now
        read: dict[str, list[int]] = {}
        for relation, counts in now.items():
            table, is_index = self._tables[relation]
            scans, returned, fetched = (new - old for new, old in zip(counts, before.get(relation, _NONE), strict=True))
            sums = read.setdefault(table, [0, 0, 0, 0])
            if is_index:
                sums[2] += returned
            else:
                sums[0], sums[1], sums[3] = scans, returned, fetched
        with self._lock:
            for table, (scans, rows, entries, fetched) in read.items():
                most = self._reads.setdefault((statement, table), Reads(statement, table))
                most.sequential_scans = max(most.sequential_scans, scans)
                most.sequential_rows = max(most.sequential_rows, rows)
                most.index_rows = max(most.index_rows, max(entries, fetched) // runs)

    def _count(self, raw: psycopg.Connection[Any]) -> _Counts:
        if not self._tables:
            found = raw.execute(_RELATIONS, [SCHEMA]).fetchall()
            self._tables = {oid: (table, kind == "i") for oid, table, kind in found}
            self._relations = f"{{{','.join(map(str, self._tables))}}}"
        rows = raw.execute(_COUNTS, [self._relations]).fetchall()
        return {relation: (scans, returned, fetched) for relation, scans, returned, fetched in rows}
