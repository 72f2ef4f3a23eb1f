"""Counts work, so that a test can say how it grows: a time depends on the machine, a count does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, event

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

    def note_statement(*_: object) -> None:
        work.statements += 1

    def note_steps() -> int:
        work.hundreds_of_steps += 1
        return 0

    def begin(raw: Any, *_: object) -> None:
        raw.set_progress_handler(note_steps, 100)

    def end(raw: Any, *_: object) -> None:
        raw.set_progress_handler(None, 0)

    listeners = {"before_cursor_execute": note_statement, "checkout": begin, "checkin": end}
    for name, listener in listeners.items():
        event.listen(engine, name, listener)
    try:
        yield work
    finally:
        for name, listener in listeners.items():
            event.remove(engine, name, listener)


def plan_of(store: Store, ask: Callable[[Transaction], Any]) -> str:
    """The query plans of all that is asked in one transaction."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    event.listen(store.database.engine, "before_cursor_execute", note)
    try:
        with store.reading() as tx:
            ask(tx)
    finally:
        event.remove(store.database.engine, "before_cursor_execute", note)
    with store.reading() as tx:
        explained = [(f"EXPLAIN QUERY PLAN {statement}", parameters) for statement, parameters in asked]
        return "\n".join(row[3] for one in explained for row in tx.connection.exec_driver_sql(*one))
