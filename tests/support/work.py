"""Counts work, so that a test can say how it grows: a time depends on the machine, a count does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event


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


@contextmanager
def counted_statements(engine: Engine) -> Iterator[list[str]]:
    """The SQL that is executed, in order; a statement for many rows is there once."""
    executed: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        executed.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield executed
    finally:
        event.remove(engine, "before_cursor_execute", note)
