"""Runs that nobody is at: lost tasks, dead workers and deadlines, and when the sweep is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from memory.scheduling.due_runs import MAX_CRASHES
from memory.scheduling.executing import Delegated, RetryAfter
from memory.scheduling.schedules import (
    cancel_run,
    complete_run,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    run_now,
    update_schedule,
)
from reverie.errors import ReverieError
from reverie.scheduling.cadence import Cron, Interval, Once
from reverie.scheduling.types import RunReport, ScheduleChanges
from storage.stores import Store
from support.scheduled import BAD, GOOD, SECOND, WORKERS, Killed, Scheduled


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    """A workspace without schedules."""
    time = Scheduled(tmp_path / "data")
    yield time
    time.close()


def test_a_task_that_got_lost_is_sent_again_after_15_seconds_and_not_sooner(time: Scheduled) -> None:
    """Given runs whose tasks never arrive, then they are sent again every 15 s, as the same runs, until one begins."""
    time.hourly()
    time.to_hour()
    (sent,) = time.sweep()
    for _ in range(4):
        assert time.due_at() == time.now + 15 * SECOND
        time.advance(14.999_999)
        assert time.sweep() == []
        time.advance(0.000_001)
        assert time.sweep() == [sent]
        assert time.sweep() == []
    assert time.execute(sent.run) == {"success": 1}
    assert time.execute(sent.run) == {"skipped": 1}
    time.advance(60)
    assert time.sweep() == []


def test_a_run_whose_worker_died_is_sent_again_when_its_lease_ends(time: Scheduled) -> None:
    """Given a worker killed over a run, when its lease ends and not before, then the run is executed by another."""
    schedule = time.hourly()
    time.to_hour()
    (sent,) = time.sweep()
    started = time.now
    time.die_over(sent.run)
    time.advance(25 - 0.000_001)  # 15 s for a webhook, 10 s of margin
    assert time.sweep() == []
    time.advance(0.000_001)
    assert time.sweep() == [sent]
    assert time.run(sent.run).crashes == 1
    assert time.execute(sent.run) == {"success": 1}
    run = time.run(sent.run)
    assert (run.status, run.started_at, run.crashes) == ("success", started, 1)
    assert time.schedule(schedule).consecutive_failures == 0


def test_a_run_that_kills_every_worker_has_failed_after_five(time: Scheduled) -> None:
    """Given a run that kills whoever executes it, then after the fifth it has failed, and says why."""
    schedule = time.hourly()
    time.to_hour()
    time.sweep()
    for number in range(MAX_CRASHES):
        (run,) = time.open_runs(schedule)
        assert run.crashes == number
        time.die_over(run.id)
        time.advance(25)
        time.sweep()
    (run,) = time.runs(schedule)
    assert (run.status, run.error) == ("failed", "5 workers died while executing it")
    assert time.schedule(schedule).consecutive_failures == 1
    assert time.notification_kinds() == ["run failed"]


def test_a_run_is_not_ended_by_a_sweep_that_read_it_before_its_slow_worker_put_it_back(
    time: Scheduled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a run of four crashes, when its worker puts it back as the sweep comes, then it goes on."""
    schedule = time.hourly()
    time.to_hour()
    time.sweep()
    for _ in range(MAX_CRASHES - 1):
        time.die_over(time.open_runs(schedule)[0].id)
        time.advance(25)
        time.sweep()
    (run,) = time.open_runs(schedule)

    writing = Store.writing
    others: list[str] = []

    def overtaken(store: Store, **keywords: Any) -> Any:
        if not others:
            others.append("the worker commits between the sweep's look and its transaction")
            with writing(store) as tx:
                (held,) = tx.connection.exec_driver_sql("SELECT token FROM schedule_runs WHERE id = ?", (run.id,)).one()
                assert tx.open_runs.retry_later(run.id, held, not_before=time.clock + 60 * SECOND, error="busy")
        return writing(store, **keywords)

    time.die_over(run.id)
    time.advance(25)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "writing", overtaken)
        assert time.take_up() == []
    assert time.run(run.id).status == "pending"


def test_a_task_that_the_agents_workers_never_report_has_timed_out(time: Scheduled) -> None:
    """Given a run in the agent's hands, when its deadline passes, then it has timed out, and counts as a failure."""
    schedule = time.hourly(executor=WORKERS, timeout_seconds=300)
    time.to_hour()
    (sent,) = time.sweep()
    time.execute(sent.run, Delegated())
    assert time.due_at() == time.now + 300 * SECOND
    time.advance(300 - 0.000_001)
    assert time.sweep() == []
    time.advance(0.000_001)
    assert time.sweep() == []
    run = time.run(sent.run)
    assert (run.status, run.error) == ("timed_out", "it did not finish within its timeout")
    assert run.finished_at == time.now
    assert time.schedule(schedule).consecutive_failures == 1
    assert time.sweep() == []
    assert time.notification_kinds() == ["run timed_out"]


def test_a_run_that_is_past_its_deadline_while_it_waits_has_timed_out_with_its_last_error(time: Scheduled) -> None:
    """Given a run that is to be tried again, and nobody does before its deadline, then it has timed out."""
    time.hourly(timeout_seconds=60)
    time.to_hour()
    (sent,) = time.sweep()
    assert time.execute(sent.run, RetryAfter("503", 55)) == {"put_back": 1}
    time.advance(60)
    assert time.execute(sent.run) == {"skipped": 1}, "a task that comes too late begins nothing"
    assert time.sweep() == []
    assert time.run(sent.run).error == "it did not finish within its timeout: 503"


def test_a_taken_back_run_whose_deadline_comes_before_its_task_counts_as_lost_ends_at_its_deadline(
    time: Scheduled,
) -> None:
    """Given a run of 30 s whose worker died after 25, then the sweep is told of its deadline, 5 s later."""
    time.hourly(timeout_seconds=30)
    time.to_hour()
    (sent,) = time.sweep()
    time.die_over(sent.run)
    time.advance(25)
    assert time.sweep() == [sent]
    assert time.due_at() == time.now + 5 * SECOND
    time.advance(5)
    assert time.sweep() == []
    assert time.run(sent.run).status == "timed_out"


def test_what_waits_for_its_next_attempt_is_sent_once_when_its_time_has_come(time: Scheduled) -> None:
    """Given a run put back for 8 s, then it is sent at that very moment, and again only 15 s later."""
    time.hourly()
    time.to_hour()
    (sent,) = time.sweep()
    time.execute(sent.run, RetryAfter("503", 8))
    assert time.due_at() == time.now + 8 * SECOND
    time.advance(8 - 0.000_001)
    assert time.sweep() == []
    time.advance(0.000_001)
    assert time.sweep() == [sent]
    assert time.due_at() == time.now + 15 * SECOND
    assert time.sweep() == []
    time.advance(15)
    assert time.sweep() == [sent]


# --- when the sweep has something to do ---


@pytest.mark.parametrize("seed", range(12))
def test_the_sweep_is_never_told_of_a_time_that_is_too_late_nor_of_one_at_which_nothing_is_to_be_done(
    time: Scheduled, seed: int
) -> None:
    """Given anything that can happen, then the sweep does something at a moment exactly if it was told so before."""
    random, seen = Random(seed), 0
    schedules = [some_schedule(time, random) for _ in range(4)]
    for _ in range(60):
        due_at = time.due_at()
        time.advance(random.choice((0, 0.5, 4, 14, 15, 30, 400, 4_000)) * random.choice((1, random.random())))
        if due_at is not None and random.random() < 0.5:
            time.now = max(time.now, due_at - 1) + random.choice((0, 1))
        before = time.rows()
        did = bool(time.sweep()) or time.rows() != before
        assert did == (due_at is not None and due_at <= time.now)
        seen += did
        happen(time, schedules, random)
    assert seen >= 5


def some_schedule(time: Scheduled, random: Random) -> str:
    """A schedule of any kind."""
    match random.randrange(4):
        case 0:
            return time.hourly()
        case 1:
            return time.every(random.randrange(60, 900), timeout_seconds=random.choice((5, 40, 600)))
        case 2:
            return time.once(random.randrange(1, 600))
        case _:
            return time.every(300, executor=WORKERS, timeout_seconds=random.choice((20, 1_000)))


def happen(time: Scheduled, schedules: list[str], random: Random) -> None:
    """Do something to schedules and runs that agents, workers or operators do."""
    schedule = random.choice(schedules)
    agent: dict[str, Any] = {"agent": "ana", "now": time.now}
    ruled: dict[str, Any] = {**agent, "rules": time.rules}
    try:
        for run in time.open_runs(schedule):
            match random.randrange(8):
                case 0 | 1 if run.status == "pending":
                    outcomes = (GOOD, BAD, Delegated(), RetryAfter("x", random.choice((0, 2, 20, 500))))
                    time.execute(run.id, random.choice(outcomes), wait=random.choice((None, None, 0, 3)))
                case 2 if run.status == "pending":
                    time.execute(run.id, Killed())
                case 3:
                    complete_run(time.store, run.id, RunReport(status=random.choice(("success", "failed"))), **ruled)
                case 4:
                    cancel_run(time.store, run.id, **ruled)
        match random.randrange(8):
            case 0:
                run_now(time.store, schedule, **agent)
            case 1:
                pause_schedule(time.store, schedule, **agent)
            case 2 | 3:
                resume_schedule(time.store, schedule, **ruled)
            case 4:
                cadence = random.choice((Once(time.moment(90)), Interval(120), Cron("*/5 * * * *")))
                update_schedule(
                    time.store, schedule, ScheduleChanges(cadence=cadence), check_url=lambda _: None, **ruled
                )
            case 5 if random.random() < 0.1:
                delete_schedule(time.store, schedule, agent="ana")
    except (ReverieError, Killed):
        return
