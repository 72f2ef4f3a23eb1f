"""What jobs that run often cost where nothing happens: no file is opened, none is written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.idle_stores import DueJob, IdleFiles, IdleStores, run_where_changed, run_where_due
from memory.jobs import ORDINARY_RUN, JobRun
from memory.sessions.lifecycle import SessionEndHooks, close_idle_sessions
from memory.sessions.summary_jobs import has_new
from reverie import contract
from reverie.clock import now_micros
from reverie.contract import ACCOUNT_STORE
from storage.stores import Store, Stores
from storage.written import WrittenStores
from support.pipeline import WORKSPACE, Pipeline

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


def test_a_store_that_is_open_is_asked_for_all_jobs(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given two jobs that wait for the same store, when one of them opens it, then the other need not."""
    idle_stores, opened = IdleStores(), Opened(pipe.stores, monkeypatch)
    jobs = [DueJob(name, nothing, lambda _: None) for name in ("one", "other")]

    def run() -> None:
        for job in jobs:
            assert not run_where_due(pipe.stores, job, now=pipe.now(), idle_stores=idle_stores)

    pipe.advance(60)
    run()
    pipe.say("and then?")
    pipe.settle()
    pipe.advance(60)
    opened.since()
    run()
    assert len(opened.since()) == 1


@pytest.mark.sqlite("PostgreSQL does not tell who wrote")
def test_jobs_of_scheduling_look_at_no_store_for_the_messages_in_it(pipe: Pipeline) -> None:
    """Given messages that pass through all stages, then only other jobs ask the store; any other write is asked for."""
    idle, asked, moment = {False: IdleStores(), True: IdleStores()}, list[bool](), [0.0]
    stores = pipe.stores
    stores.written = WrittenStores(stores.data_dir, stores.names, stores.stamp, monotonic=lambda: moment[0])

    def look() -> list[bool]:
        asked.clear()
        moment[0] += 200  # what is written at a start is looked at by all for three minutes
        for of_schedules, marks in idle.items():
            marks.due(
                "job",
                stores,
                lambda _, of_schedules=of_schedules: asked.append(of_schedules),
                now=pipe.now(),
                of_schedules=of_schedules,
            )
        return asked

    pipe.advance(60)
    assert look() == [False, True]
    assert look() == []
    pipe.say("and then?")
    pipe.settle()
    pipe.advance(60)
    assert look() == [False]
    with pipe.store.writing():
        pass
    pipe.say("and then?")
    pipe.settle()
    pipe.advance(60)
    assert look() == [False, True]


def test_after_a_long_look_a_job_rests_except_for_what_becomes_due(pipe: Pipeline) -> None:
    """Given a look of five seconds, then what is written is looked at 20 s later, and what becomes due at its time."""
    moment, asked = [0.0], list[int]()
    idle_stores = IdleStores(monotonic=lambda: moment[0], processor=lambda: 5.0 if asked else 0.0)
    due = pipe.now() + HOUR * 1_000_000

    def due_at(_: object) -> int:
        asked.append(pipe.now())
        return due

    def run() -> dict[str, Any]:
        return run_where_due(pipe.stores, DueJob("job", nothing, due_at), now=pipe.now(), idle_stores=idle_stores)

    pipe.advance(60)
    assert not run()
    pipe.say("and then?")
    pipe.settle()
    moment[0] += 15
    assert not run()
    assert len(asked) == 1
    moment[0] += 10
    assert not run()
    assert len(asked) == 2
    moment[0] -= 10
    pipe.advance(HOUR)
    assert run()["ran"] == 1


def test_a_look_that_only_waited_delays_no_other(pipe: Pipeline) -> None:
    """Given a look of five seconds in which the machine did something else, then what is written is looked at."""
    moment, asked = [0.0], list[int]()
    idle_stores = IdleStores(monotonic=lambda: moment[0], processor=lambda: 0.0)

    def due_at(_: object) -> int:
        asked.append(pipe.now())
        moment[0] += 5
        return pipe.now() + HOUR * 1_000_000

    pipe.advance(60)
    for looks in (1, 2):
        assert not run_where_due(pipe.stores, DueJob("job", nothing, due_at), now=pipe.now(), idle_stores=idle_stores)
        assert len(asked) == looks
        pipe.say("and then?")
        pipe.settle()


@pytest.mark.sqlite("damages a file")
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


def test_a_job_runs_again_where_something_changed_or_its_time_has_come(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a job that found nothing to do, then it takes no lease until the store is written or its time comes."""
    idle_stores, ran = IdleStores(), list[str]()
    at = pipe.now() + 24 * HOUR * 1_000_000

    def run() -> list[str]:
        ran.clear()
        run_where_changed(
            pipe.stores,
            "job",
            lambda run: ran.append(run.store.name),
            now=pipe.now(),
            idle_stores=idle_stores,
            next_at=lambda _: at,
            options=ORDINARY_RUN,
        )
        return [name for name in ran if name != ACCOUNT_STORE]

    pipe.advance(60)
    assert run() == [WORKSPACE]
    stamp = pipe.stores.stamp(WORKSPACE)
    pipe.advance(HOUR)
    assert run() == []
    assert pipe.stores.stamp(WORKSPACE) == stamp, "no lease was written"
    pipe.say("and now?")
    pipe.settle()
    pipe.advance(60)
    assert run() == [WORKSPACE]
    assert run() == []
    pipe.advance(24 * HOUR)
    assert run() == [WORKSPACE]


def test_what_is_idle_is_known_to_the_next_process(pipe: Pipeline, tmp_path: Path) -> None:
    """Given marks that were kept, then a process with the same settings opens no store, and one with others does."""
    passed = itertools.count(0, 400)

    def idle_stores(fingerprint: str) -> IdleStores:
        return IdleStores(IdleFiles(tmp_path / "idle", fingerprint, monotonic=lambda: float(next(passed))))

    def asked(idle: IdleStores, now: int) -> list[str]:
        names = list[str]()
        idle.due("job", pipe.stores, lambda store: names.append(store.name), now=now)
        return names

    pipe.advance(60)
    now = pipe.now()
    first = idle_stores("one")
    assert asked(first, now) == [WORKSPACE]
    assert asked(first, now) == []
    assert asked(idle_stores("one"), now) == []
    assert asked(idle_stores("two"), now) == [WORKSPACE]
    assert asked(idle_stores("two"), now - HOUR * 1_000_000) == [WORKSPACE], "kept by a clock that was ahead"


def test_what_the_only_run_of_a_daily_job_found_is_known_to_the_next_process(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a process that ran a job once, then the next process knows what it found."""

    def asked() -> list[str]:
        names = list[str]()
        idle = IdleStores(IdleFiles(tmp_path / "idle", "same", monotonic=lambda: 0.0))
        idle.due("job", pipe.stores, lambda store: names.append(store.name), now=pipe.now())
        return names

    pipe.advance(60)
    assert asked() == [WORKSPACE]
    assert asked() == []


def test_a_file_is_written_seldom_and_only_when_something_was_looked_at(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a job that runs each second for half an hour, then its file is written some fifteen times, or once if idle.

    The pauses between two writes double until they are five minutes long.
    """
    moment = [0.0]
    files = IdleFiles(tmp_path / "idle", "same", monotonic=lambda: moment[0])
    written = list[float]()
    for moment[0] in range(1_800):
        if files.keep("job", {}, now=pipe.now()):
            written.append(moment[0])
    assert written == [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111, 1411, 1711]

    pipe.advance(60)
    idle = IdleStores(files)
    idle.due("idle-job", pipe.stores, lambda _: None, now=pipe.now())
    path = tmp_path / "idle" / "idle-job.idle"
    path.unlink()
    moment[0] += 600
    idle.due("idle-job", pipe.stores, lambda _: None, now=pipe.now())
    assert not path.exists(), "written though nothing was looked at"


@pytest.mark.sqlite("damages a file")
def test_a_damaged_store_concerns_no_other_and_its_error_is_told_meanwhile(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a garbage file, then every run names it, tries it again only after a while, and looks at the others."""
    path = pipe.stores.database_path("garbage")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 1_000)
    moment = [0.0]
    idle = IdleStores(monotonic=lambda: moment[0])
    pipe.advance(60)
    asked = list[str]()

    def due() -> dict[str, str]:
        return idle.due("job", pipe.stores, lambda store: asked.append(store.name), now=pipe.now())[1]

    assert "damaged" in due()["garbage"]
    with pipe.stores.workspace("sound").database.autocommit() as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    path.write_bytes(pipe.stores.database_path("sound").read_bytes())
    monkeypatch.setattr(pipe.stores.written, "since", lambda *_, **__: (set(), 0.0))
    assert "damaged" in due()["garbage"], "not tried again yet"
    moment[0] = 31.0
    assert due() == {}
    assert asked[0] == WORKSPACE


def test_a_start_with_many_workspaces_looks_at_them_bit_by_bit(tmp_path: Path) -> None:
    """Given more workspaces than there is time for, then each call returns what it found, and all get their turn."""
    stores, passed = Stores(tmp_path), itertools.count(0, 2)
    for number in range(9):
        stores.workspace(f"w{number}")
    idle = IdleStores(monotonic=lambda: float(next(passed)))
    asked = list[str]()

    def due(store: Store) -> int:
        asked.append(store.name)
        return 1

    first = idle.due("job", stores, due, now=now_micros())[0]
    assert 0 < len(first) < 9
    assert idle.next_at("job") <= now_micros(), "the loop does not pause before it looks at the rest"
    for _ in range(500):  # in random order: 9 calls left one out every third time
        if set(asked) != set(stores.names()):
            idle.due("job", stores, due, now=now_micros())
    assert set(asked) == set(stores.names())
    stores.close()
