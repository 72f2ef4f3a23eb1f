"""What the status tells of time: from the rows of a store, with ages that grow while nobody writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pysqlite3
import pytest
from sqlalchemy import text

from memory.scheduling.executing import Delegated, RetryAfter
from memory.status import time_status
from reverie.errors import StoreUnavailable, StoreUnusable
from reverie.pipeline.status import LagStatus, TimeStatus
from storage.scheduling import schedules as scheduling_status
from storage.scheduling.records import NewReminder
from storage.scheduling.schedules import RunStart, SchedulingCounts
from storage.status import reading_file
from support.scheduled import BAD, SECOND, WORKERS, Scheduled

EMPTY = TimeStatus(
    schedules=dict.fromkeys(("active", "paused", "completed", "failed", "disabled"), 0),
    runs_open={"pending": 0, "running": 0},
)


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    scheduled = Scheduled(tmp_path / "data")
    yield scheduled
    scheduled.close()


def status(time: Scheduled, *, after_seconds: float = 0) -> TimeStatus:
    """What is told after so many seconds in which nothing was written."""
    inside = time.stores.counts(time.store.name).scheduling
    return time_status([inside], now=time.now + round(after_seconds * SECOND))


def remind(time: Scheduled, name: str, *, in_seconds: float, delivery: str = "auto", error: str = "") -> None:
    due_at = time.now + round(in_seconds * SECOND)
    new = NewReminder(name, None, "s", None, "kate", "call", delivery, due_at)  # type: ignore[arg-type]
    with time.store.writing() as tx:
        tx.for_agent("ana").reminders.add(new, now=time.now)
        tx.connection.execute(text("UPDATE reminders SET error = :e WHERE id = :id"), {"e": error, "id": name})


def test_an_empty_store_has_nothing_to_tell(time: Scheduled) -> None:
    """Given a store without schedules, then every number is there and is zero."""
    assert status(time) == EMPTY


def test_schedules_are_counted_by_their_status(time: Scheduled) -> None:
    """Given schedules of several agents, then they are counted together."""
    time.hourly()
    time.hourly(agent="ben")
    time.spoil(time.hourly(), status="disabled", next_run_at=None)
    assert status(time).schedules == {**EMPTY.schedules, "active": 2, "disabled": 1}


def test_what_nobody_fires_becomes_overdue_without_a_write(time: Scheduled) -> None:
    """Given one look into a store, then a schedule is overdue from its time on, and by more and more."""
    time.every(60)
    time.every(90)
    states = [status(time, after_seconds=seconds) for seconds in (59, 60, 100)]
    overdue = [(one.schedules_overdue, one.schedules_oldest_overdue_seconds) for one in states]
    assert overdue == [(0, 0.0), (1, 0.0), (2, 40.0)]


def test_what_is_due_while_a_run_is_under_way_is_not_overdue(time: Scheduled) -> None:
    """Given a run that takes longer than the interval, then its schedule waits for it and is not late."""
    schedule = time.every(60, executor=WORKERS)
    assert time.fire(schedule, Delegated()).status == "running"
    state = status(time, after_seconds=200)
    assert (state.schedules_overdue, state.runs_open) == (0, {"pending": 0, "running": 1})


def test_a_run_that_nobody_starts_is_told_with_its_age(time: Scheduled) -> None:
    """Given a run for which no worker came, then it is pending since it was made."""
    time.every(60)
    time.advance(60)
    time.claim()
    state = status(time, after_seconds=70)
    assert (state.runs_open["pending"], state.runs_oldest_pending_seconds) == (1, 70.0)


def test_a_run_that_waits_to_be_tried_again_is_not_late_before(time: Scheduled) -> None:
    """Given a receiver that was away, then its run is pending and no age counts until it may be tried again."""
    schedule = time.every(60)
    assert time.fire(schedule, RetryAfter("away", 500.0)).status == "pending"
    state = status(time, after_seconds=400)
    assert (state.runs_open["pending"], state.runs_oldest_pending_seconds) == (1, 0.0)


def test_the_lag_is_that_of_the_last_hour_without_what_was_started_by_hand(time: Scheduled) -> None:
    """Given runs that began 0, 3 and 15 s after their times and one by hand, then the three are told for an hour."""
    schedule = time.every(60)
    for late in (0, 3, 12):
        time.advance(60 + late)
        (run,) = time.claim()
        time.execute(run.run)
    with time.store.writing() as tx:
        tx.connection.execute(
            text(
                "INSERT INTO schedule_runs (id, agent_id, schedule_id, due_at, first_due_at, trigger_kind, status,"
                " created_at, started_at, sent_at) SELECT 'by-hand', agent_id, schedule_id, 1, 1, 'manual', 'success',"
                " 1, started_at, 1 FROM schedule_runs WHERE id = :id"
            ),
            {"id": run.run},
        )
    assert len(time.runs(schedule)) == 4
    lag = status(time).start_lag
    assert lag == LagStatus(samples=3, p50_seconds=3.0, p99_seconds=15.0)
    assert status(time, after_seconds=3_700).start_lag == LagStatus()


def test_percentiles_are_of_what_was_measured(time: Scheduled) -> None:
    """Given a hundred lags, then the median and the 99th percentile are among them."""
    starts = tuple(RunStart(time.now - 1, number * SECOND) for number in range(1, 101))
    start_lag = time_status(
        [SchedulingCounts(starts=starts[:50]), SchedulingCounts(starts=starts[50:])], now=time.now
    ).start_lag
    assert start_lag == LagStatus(samples=100, p50_seconds=50.0, p99_seconds=99.0)


def test_failures_are_those_of_a_day(time: Scheduled) -> None:
    """Given runs that failed, then they are told for a day; a success is no failure."""
    schedule = time.every(60)
    time.fire(schedule, BAD)
    time.advance(80_000)
    time.fire(schedule, BAD)
    time.fire(schedule)
    failed = [status(time, after_seconds=seconds).runs_failed_last_day for seconds in (0, 10_000, 90_000)]
    assert failed == [2, 1, 0]


def test_notifications_wait_until_they_reached_somebody(time: Scheduled) -> None:
    """Given three to tell, one pushed, one acknowledged, then one has reached nobody, and two are not acknowledged."""
    schedule = time.every(60)
    for _ in range(3):
        time.fire(schedule)
    pushed, acknowledged, _ = time.notifications()
    with time.store.writing() as tx:
        tx.connection.execute(text("UPDATE notifications SET delivered_at = 1 WHERE id = :id"), {"id": pushed.id})
        tx.for_agent("ana").notifications.acknowledge([acknowledged.id], now=time.now)
    state = status(time)
    assert (state.notifications_waiting, state.notifications_unacknowledged, state.pushes_put_back) == (1, 2, 0)


def test_reminders_are_due_by_the_moment_of_asking(time: Scheduled) -> None:
    """Given reminders to be pulled and pushed, then what is due and since when is told, apart for those pushed."""
    remind(time, "pulled", in_seconds=10, delivery="pull")
    remind(time, "either", in_seconds=20)
    remind(time, "pushed", in_seconds=500, delivery="push")
    before, after = status(time), status(time, after_seconds=100)
    assert (before.reminders_waiting, before.reminders_due, before.reminders_oldest_due_seconds) == (3, 0, 0.0)
    assert (after.reminders_waiting, after.reminders_due) == (1, 2)
    assert (after.reminders_oldest_due_seconds, after.reminders_oldest_push_seconds) == (90.0, 80.0)


def test_pushes_that_failed_are_counted_until_they_succeed(time: Scheduled) -> None:
    """Given a reminder and a notification whose pushes failed, then both are told as put back."""
    remind(time, "failed", in_seconds=1, error="the receiver answered 500")
    remind(time, "fine", in_seconds=1)
    time.fire(time.every(60))
    with time.store.writing() as tx:
        notification = tx.notifications.claim_next(now=time.clock, clock=time.clock, until=time.clock + 1)
        assert notification is not None
        tx.notifications.retry_later(notification, clock=time.clock, not_before=time.clock, error="away")
    assert status(time).pushes_put_back == 2


def test_workspaces_are_summed(time: Scheduled) -> None:
    """Given two stores, then counts are added and the oldest age is told."""
    time.every(60)
    time.every(70)
    inside = time.stores.counts(time.store.name).scheduling
    state = time_status([inside, inside], now=time.now + 100 * SECOND)
    assert (state.schedules["active"], state.schedules_overdue, state.schedules_oldest_overdue_seconds) == (4, 4, 40.0)


def test_a_look_reads_no_more_than_so_many_of_a_kind(time: Scheduled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more than are looked at, then the longest overdue are among those that are."""
    monkeypatch.setattr(scheduling_status, "MAX_TIMES", 3)
    for seconds in (100, 90, 80, 70, 60):
        time.every(seconds)
    state = status(time, after_seconds=200)
    assert (state.schedules["active"], state.schedules_overdue) == (5, 3)
    assert state.schedules_oldest_overdue_seconds == 140.0


@pytest.mark.sqlite("files of an older schema")
@pytest.mark.parametrize("kind", ["workspace", "account"])
def test_a_store_that_is_not_migrated_says_so(time: Scheduled, kind: str) -> None:
    """Given a store of a later version, an older one, or one of before the first, then its error says what to do."""
    database = time.store.database if kind == "workspace" else time.stores.account()
    path = database.path
    time.close()
    for change, error, expected_error in (
        (
            "UPDATE schema_version SET version = '9999', oldest_program = '9999' WHERE line = 'workspace'",
            StoreUnusable,
            "upgrade Reverie",
        ),
        ("DELETE FROM schema_version WHERE line = 'workspace'", StoreUnavailable, "db migrate"),
        ("DROP TABLE schema_version", StoreUnusable, "before its first release"),
    ):
        raw = pysqlite3.connect(path)
        raw.execute(change)
        raw.commit()
        raw.close()
        with pytest.raises(error, match=expected_error), reading_file(path, kind):  # type: ignore[arg-type]
            pass
