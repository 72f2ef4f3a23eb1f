"""The clock is a year ahead for one sweep, or is set back: what was written meanwhile holds nothing up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from memory.idle_stores import IdleStores
from memory.memories.extraction_windows import progress_of
from memory.scheduling.due_runs import bring_back
from memory.scheduling.notifier import NotPushed, Pushing, push_due
from reverie import clock
from storage.stores import Store, Stores
from storage.upkeep.jobs import JobRuns
from support.copied_data import copy_data
from support.scheduled import GOOD, SECOND, Scheduled

MINUTE = 60 * SECOND
YEAR = 365 * 86_400
# How far the clock is set back, or was ahead.
STEPS = pytest.mark.parametrize("seconds", [300, 2_400, YEAR], ids=["5 minutes", "40 minutes", "a year"])
EVERY = 15 * SECOND
WITHIN = 12 * SECOND


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.close()


@pytest.fixture
def jobs(stores: Stores) -> JobRuns:
    return stores.jobs()


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    time = Scheduled(tmp_path / "scheduled")
    yield time
    time.close()


def sweep(jobs: JobRuns, now: int) -> bool:
    """Claim the period of a sweep as a worker does."""
    period = now // WITHIN
    if not jobs.claim("sweep", period=period, now=now, within=WITHIN):
        return False
    jobs.finish("sweep", period=period, now=now)
    return True


START = 10**15
TICKS = range(START, START + 240 * EVERY, EVERY)


@pytest.fixture(scope="module")
def swept_for_an_hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in whose account a sweep ran for an hour."""
    folder = tmp_path_factory.mktemp("hour") / "data"
    with closing(Stores(folder)) as stores:
        jobs = stores.jobs()
        assert all(sweep(jobs, now) for now in TICKS)
    return folder


@STEPS
@pytest.mark.parametrize("phase", [-6, -1, 0, 1, 6])
def test_a_sweep_misses_one_period_at_most_when_the_clock_is_set_back(
    swept_for_an_hour: Path, tmp_path: Path, seconds: int, phase: int
) -> None:
    """Given sweeps of an hour, when the clock steps back, then of all that come afterwards one at most is skipped."""
    back = TICKS[-1] - seconds * SECOND + phase * SECOND
    with closing(Stores(copy_data(swept_for_an_hour, tmp_path / "data"))) as stores:
        jobs = stores.jobs()
        outcomes = [sweep(jobs, back + number * EVERY) for number in range(1, 241)]
    assert outcomes.count(False) <= 1
    assert all(outcomes[1:])


def test_a_sweep_runs_on_while_the_clock_goes_forward_and_back(jobs: JobRuns) -> None:
    """Given a clock that jumps with each tick, then no two periods in a row are skipped."""
    start = 10**15
    jumps = (0, 3_600, -2_400, YEAR, -YEAR, 300, -300, 40, -90, YEAR, 0, -YEAR)
    outcomes, offset = [], 0
    for number in range(120):
        offset += jumps[number % len(jumps)] * SECOND
        outcomes.append(sweep(jobs, start + offset + number * EVERY))
    assert not any(not first and not second for first, second in pairwise(outcomes))


def test_the_twin_of_a_sweep_is_refused_whatever_the_clock_did_before(jobs: JobRuns) -> None:
    """Given two beats, when the clock has been set back, then of each pair of tasks one runs."""
    for now in (10**15, 10**15 - 2_400 * SECOND):
        assert sweep(jobs, now)
        assert not sweep(jobs, now + SECOND)
        assert not sweep(jobs, now - SECOND)


def test_the_last_run_shown_is_the_newest_and_not_that_of_the_future(jobs: JobRuns) -> None:
    """Given a run of a year ahead, when another has run since, then that one is the last."""
    sweep(jobs, 10**15 + YEAR * SECOND)
    sweep(jobs, 10**15)
    assert jobs.last_runs()["sweep"].started_at == 10**15


def test_a_manual_run_delays_no_sweep(jobs: JobRuns) -> None:
    """Given a run by hand, when the sweep is due a second later, then it runs."""
    assert jobs.claim("sweep", period=10**15, now=10**15)
    assert sweep(jobs, 10**15 + SECOND)


@STEPS
def test_the_lease_of_a_job_that_died_while_the_clock_was_ahead_ends(stores: Stores, seconds: int) -> None:
    """Given a lease from the future, when the job is due, then it is taken over; a plausible one is not."""
    store = stores.workspace("w")
    with store.writing() as tx:
        assert tx.leases.acquire("job", now=10**15 + seconds * SECOND, seconds=120) is not None
    with store.writing() as tx:
        assert tx.leases.acquire("job", now=10**15, seconds=120) is not None
        assert tx.leases.acquire("job", now=10**15 - MINUTE, seconds=120) is None


@STEPS
def test_a_watermark_of_extraction_in_the_future_does_not_count(stores: Stores, seconds: int) -> None:
    """Given a sweep that noted a time of the future, then sessions before it are read all the same."""
    with stores.workspace("w").writing() as tx:
        progress = progress_of(tx)
        progress.set_watermark(up_to=10**15 + seconds * SECOND, now=10**15 + seconds * SECOND)
        assert progress.watermark(10**15) == 0
        assert progress.watermark(10**15 + seconds * SECOND) == 10**15 + seconds * SECOND


@STEPS
def test_a_schedule_that_fired_while_the_clock_was_ahead_fires_at_its_next_time(time: Scheduled, seconds: int) -> None:
    """Given a sweep in the future, when the clock is right again, then every schedule fires within its interval."""
    schedules = [time.every(60), time.hourly()]
    first = [time.schedule(one).next_run_at for one in schedules]
    time.advance(seconds)
    for sent in time.claim():
        time.execute(sent.run, GOOD)
    time.advance(-seconds)
    assert time.due_at() == time.now, "the store is looked into at once"
    bring_back(time.store, now=lambda: time.now, clock=lambda: time.clock)
    assert time.due_at() == first[0]
    assert [time.schedule(one).next_run_at for one in schedules] == first
    fired = {one: len(time.runs(one)) for one in schedules}
    for _ in range(3):
        time.advance(60)
        for sent in time.claim():
            time.execute(sent.run, GOOD)
    assert len(time.runs(schedules[0])) == fired[schedules[0]] + 3
    assert all(run.created_at <= time.now and run.due_at <= time.now for one in schedules for run in time.runs(one))


@STEPS
def test_a_run_whose_worker_died_while_the_clock_was_ahead_is_sent_again(time: Scheduled, seconds: int) -> None:
    """Given an open run of the future, when the clock is right again, then its lease ends as if it had been so."""
    schedule = time.every(60)
    time.advance(seconds + 60)
    (sent,) = time.claim()
    time.die_over(sent.run)
    time.advance(-seconds)
    bring_back(time.store, now=lambda: time.now, clock=lambda: time.clock)
    time.advance(100)
    assert [again.run for again in time.take_up()] == [sent.run]
    time.execute(sent.run, GOOD)
    assert [run.status for run in time.runs(schedule)] == ["success"]


def test_a_right_clock_brings_nothing_back(time: Scheduled) -> None:
    """Given schedules that fire at their times, then nothing lies in the future."""
    time.every(60)
    for _ in range(3):
        time.advance(60)
        assert bring_back(time.store, now=lambda: time.now, clock=lambda: time.clock) == 0
        for sent in time.claim():
            time.execute(sent.run, GOOD)


def test_a_sweep_that_was_paused_takes_no_run_of_meanwhile_for_one_of_the_future(time: Scheduled) -> None:
    """Given a sweep that stands still for two minutes after it has read the clock, when another process fires
    meanwhile, then its runs keep their times."""
    schedule = time.every(60)
    before = time.now
    time.advance(120)
    (sent,) = time.claim()
    fired = time.runs(schedule)
    read = iter([before])
    assert bring_back(time.store, now=lambda: next(read, time.now), clock=lambda: time.clock) == 0
    assert time.runs(schedule) == fired
    time.execute(sent.run, GOOD)


def test_a_push_that_failed_while_the_clock_was_ahead_is_made(time: Scheduled) -> None:
    """Given a claim and a pause of the future, when the clock is right again, then the notification is pushed."""
    schedule = time.every(60, notification_policy="always")
    time.fire(schedule)
    pushed: list[str] = []

    def failing(workspace: str, _: object) -> None:
        raise NotPushed("down", unavailable=True)

    ahead = time.clock + YEAR * SECOND
    push_due(time.store, Pushing(failing, 10, lambda: time.now, lambda: ahead), has_time=lambda: True)
    well = Pushing(lambda workspace, _: pushed.append(workspace), 10, lambda: time.now, lambda: time.clock)
    assert push_due(time.store, well, has_time=lambda: True)["notifications"] == 1
    assert len(pushed) == 1


def test_idle_stores_are_looked_into_again_after_the_clock_was_set_back(stores: Stores) -> None:
    """Given a store that was idle until a time of the future, when the clock is set back, then it is asked again."""
    stores.workspace("w")
    idle, asked = IdleStores(), []

    def due_at(_: Store) -> int:
        asked.append(1)
        return 10**18

    ahead = 4 * 10**15
    for now in (ahead, ahead + SECOND, ahead - YEAR * SECOND, ahead - YEAR * SECOND + SECOND):
        idle.due("job", stores, due_at, now=now)
    assert len(asked) == 2


def test_the_time_of_a_process_follows_a_clock_that_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a clock that was ahead for a moment, then times are right again at once, and increase by slewing."""
    real = clock.time.time_ns()
    monkeypatch.setattr(clock, "_last_micros", 0)
    shown = iter([real, real - 1_000_000_000, real + YEAR * 10**9, real, real])
    monkeypatch.setattr(clock.time, "time_ns", lambda: next(shown))
    times = [clock.now_micros() for _ in range(5)]
    micros = real // 1_000
    assert times == [micros, micros + 1, micros + YEAR * SECOND, micros, micros + 1]
