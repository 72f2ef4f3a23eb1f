"""No transaction of the pipeline holds the lock of a store for long, however slow the database and large the batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import repository
from storage.verify import verify
from support.pipeline import Pipeline

# What a row or a statement takes in a database on busy cores.
STEP_SECONDS = 0.001


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


@pytest.fixture
def long_writes(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of long transactions on a clock that goes on with each statement and each row that is written."""
    spent = [0.0]
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + spent[0])

    def slow(run: Callable[..., Any], is_many: bool) -> Callable[..., Any]:
        def wrapped(connection: Any, sql: str, /, *rows: Any, **values: Any) -> Any:
            spent[0] += STEP_SECONDS * (len(rows[0]) if is_many else 1)
            return run(connection, sql, *rows, **values)

        return wrapped

    monkeypatch.setattr(repository, "execute", slow(repository.execute, False))
    monkeypatch.setattr(repository, "execute_many", slow(repository.execute_many, True))
    noted: list[float] = []
    pipe.stores.on_long_write = noted.append
    return noted


@pytest.mark.parametrize("sessions", [1, 300])
@pytest.mark.parametrize("chats", [False, True])
def test_a_large_batch_is_stored_in_short_transactions(
    pipe: Pipeline, long_writes: list[float], sessions: int, chats: bool
) -> None:
    """Given 400 messages of one session or of many, when each stage works on them, then no transaction is long."""
    for number in range(400):
        name = f"s{number % sessions}"
        where = {"provider": "slack", "chat_id": name, "session": None} if chats else {"session": name}
        pipe.say(f"message {number}", **where)
    assert pipe.ingest().stored == 400
    for stage in (pipe.chunk, pipe.embed, pipe.index):
        pipe.drain(lambda stage=stage: stage().more)
    assert long_writes == []
    assert len(pipe.ready) == 400
    assert verify(pipe.store).wrong == []
    with pipe.store.reading() as tx:
        sql = "SELECT count(*), count(DISTINCT content) FROM messages"
        assert tx.connection.exec_driver_sql(sql).one() == (400, 400)
        sql = "SELECT content FROM messages WHERE session_row = (SELECT min(row_id) FROM sessions) ORDER BY sequence"
        first = [row[0] for row in tx.connection.exec_driver_sql(sql)]
    assert first == [f"message {number}" for number in range(0, 400, sessions)]


def test_many_files_are_stored_in_short_transactions(pipe: Pipeline, long_writes: list[float]) -> None:
    """Given 200 files, when they are stored and cut, then no transaction is long."""
    for number in range(200):
        pipe.hand_in(f"{number}.md", f"file {number}")
    assert pipe.ingest().stored == 200
    pipe.drain(lambda: pipe.chunk().more)
    assert long_writes == []
    assert pipe.count("chunks") == 200
