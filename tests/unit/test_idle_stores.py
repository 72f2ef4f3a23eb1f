"""What jobs that run often cost where nothing happens: no file is opened, none is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.idle_stores import DueJob, IdleStores, run_where_due
from memory.jobs import JobRun
from memory.sessions.lifecycle import SessionEndHooks, close_idle_sessions
from memory.sessions.summary_jobs import has_new
from reverie import contract
from storage.stores import Store, Stores
from support.pipeline import Pipeline

HOUR = 3_600


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    pipe.say("where do we go?")
    pipe.settle()
    yield pipe
    pipe.close()


class Opened:
    """The stores that were opened since it was last asked."""

    def __init__(self, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
        self._names: list[str] = []
        real = stores.workspace

        def noted(name: str, **more: Any) -> Store:
            self._names.append(name)
            return real(name, **more)

        monkeypatch.setattr(stores, "workspace", noted)

    def since(self) -> list[str]:
        names, self._names = self._names, []
        return names


def nothing(run: JobRun) -> None:
    run.counts["ran"] += 1


def test_a_store_is_asked_again_when_it_was_written_or_its_time_has_come(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a store with something due in an hour, then it is opened for a write or after the hour, not before."""
    idle_stores, opened = IdleStores(), Opened(pipe.stores, monkeypatch)
    pipe.advance(60)
    due = pipe.now() + HOUR * 1_000_000

    def run() -> dict[str, Any]:
        return run_where_due(
            pipe.stores, DueJob("job", nothing, lambda _: due), now=pipe.now(), idle_stores=idle_stores
        )

    assert not run()
    assert opened.since()
    assert not run()
    assert opened.since() == []
    pipe.say("and then?")
    pipe.settle()
    opened.since()
    assert not run()
    assert opened.since()
    pipe.advance(HOUR)
    assert run()["ran"] == 1


def test_a_store_that_cannot_be_read_is_told_and_holds_up_no_other(pipe: Pipeline) -> None:
    """Given one damaged file among the workspaces, then its error has a line of its own and the job runs elsewhere."""
    broken = pipe.stores.database_path("broken")
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no database" * 1_000)
    counts = run_where_due(pipe.stores, DueJob("job", nothing, lambda _: 0), now=pipe.now())
    assert counts["ran"] == 1
    assert list(counts["unreadable"]) == ["broken"]


def test_silent_sessions_are_waited_for_without_opening_their_files(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an active session, then its store is opened once, then when it has been silent for long, and then ends."""
    idle_stores, ending = IdleStores(), SessionEndHooks(lambda *_: None, lambda *_: None)
    pipe.advance(60)
    opened = Opened(pipe.stores, monkeypatch)

    def close() -> dict[str, Any]:
        return close_idle_sessions(pipe.stores, ending, now=pipe.now(), idle_hours=12, idle_stores=idle_stores)

    assert not close()
    assert opened.since()
    pipe.advance(11 * HOUR)
    assert not close()
    assert opened.since() == []
    pipe.advance(HOUR)
    assert close()["closed"] == 1


def test_a_workspace_in_which_nothing_was_said_is_not_looked_through_for_summaries(pipe: Pipeline) -> None:
    """Given all messages looked at, then there is nothing new until somebody speaks or one is to be tried again."""
    assert has_new(pipe.store)
    with pipe.store.writing() as tx:
        tx.leases.advance(contract.SUMMARIZE_SESSIONS, "messages", after=0, to=1, now=pipe.now())
    assert not has_new(pipe.store)
    pipe.say("and then?")
    pipe.settle()
    assert has_new(pipe.store)
    with pipe.store.writing() as tx:
        tx.leases.advance(contract.SUMMARIZE_SESSIONS, "messages", after=1, to=2, now=pipe.now())
        tx.leases.advance(contract.SUMMARIZE_SESSIONS, '["ana", "s"]', after=0, to=1, now=pipe.now())
    assert has_new(pipe.store)
