"""Counts work, so that a test can say how it grows: a time depends on the machine, a count does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, event

from storage import rows
from storage.stores import Store
from storage.transaction import Transaction


def count_calls(work: Callable[[], object]) -> int:
    """The number of functions that a piece of work calls in this thread, those written in C included."""
    calls = 0

    def note(_frame: object, event_name: str, _argument: object) -> None:
        nonlocal calls
        calls += event_name in ("call", "c_call")

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(former)
    return calls


@dataclass(slots=True)
class SqlWork:
    """What SQLite was asked for: statements, and steps of its virtual machine in hundreds."""

    statements: int = 0
    hundreds_of_steps: int = 0


@contextmanager
def counted_sql(engine: Engine) -> Iterator[SqlWork]:
    """Counts the statements that are executed on an engine, one for many rows once, and the steps they take."""
    work = SqlWork()

    def note_statement(_statement: str, _values: Any) -> None:
        work.statements += 1

    def note_steps() -> int:
        work.hundreds_of_steps += 1
        return 0

    def begin(raw: Any, *_: object) -> None:
        raw.set_progress_handler(note_steps, 100)

    def end(raw: Any, *_: object) -> None:
        raw.set_progress_handler(None, 0)

    listeners = {"checkout": begin, "checkin": end}
    for name, listener in listeners.items():
        event.listen(engine, name, listener)
    try:
        with noted_statements(note_statement):
            yield work
    finally:
        for name, listener in listeners.items():
            event.remove(engine, name, listener)


@contextmanager
def noted_statements(note: Callable[[str, Any], None]) -> Iterator[None]:
    """Calls `note` with each statement that this process runs on a store, and with its values."""

    class Noting:
        def __init__(self, raw: Any) -> None:
            self._raw = raw

        def __getattr__(self, name: str) -> Callable[[str, Any], Any]:
            def run(statement: str, values: Any) -> Any:
                note(statement, values)
                return getattr(self._raw, name)(statement, values)

            return run

    def note_event(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        note(statement, values)

    driver_of = rows.driver_of
    rows.driver_of = lambda connection: Noting(driver_of(connection))
    event.listen(Engine, "before_cursor_execute", note_event)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", note_event)
        rows.driver_of = driver_of


def plan_of(store: Store, ask: Callable[[Transaction], Any]) -> str:
    """The query plans of all that is asked in one transaction."""
    asked: list[tuple[str, Any]] = []

    def note(statement: str, values: Any) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, values))

    with store.reading() as tx, noted_statements(note):
        ask(tx)
    with store.reading() as tx:
        explained = [(f"EXPLAIN QUERY PLAN {statement}", values) for statement, values in asked]
        return "\n".join(row[3] for one in explained for row in tx.connection.exec_driver_sql(*one))
