"""Runs as an agent sees them: their history, asked for by hand, cancelled, reported and forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.scheduling.executing import Delegated, RetryAfter
from memory.scheduling.schedules import (
    cancel_run,
    complete_run,
    pause_schedule,
    read_run,
    run_history,
    run_now,
    update_schedule,
)
from reverie.clock import from_micros
from reverie.errors import Conflict, NotFound
from reverie.scheduling.types import RunReport, ScheduleChanges, ScheduleRun
from support.scheduled import BAD, GOOD, HOOK, SECOND, WORKERS, Scheduled


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    """A workspace without schedules."""
    time = Scheduled(tmp_path / "data")
    yield time
    time.close()


def sent_run(time: Scheduled, **fields: Any) -> str:
    """The run of a schedule whose time has come."""
    time.hourly(**fields)
    time.to_hour()
    (sent,) = time.sweep()
    return sent.run


def report(time: Scheduled, run: str, *, agent: str = "ana", **fields: Any) -> ScheduleRun:
    return complete_run(time.store, run, RunReport(**fields), agent=agent, rules=time.rules, now=time.now)


def cancel(time: Scheduled, run: str, *, agent: str = "ana") -> ScheduleRun:
    return cancel_run(time.store, run, agent=agent, rules=time.rules, now=time.now)


def by_hand(time: Scheduled, schedule: str) -> ScheduleRun:
    return run_now(time.store, schedule, agent="ana", now=time.now)


# --- history ---


def test_the_history_is_the_newest_first_page_by_page(time: Scheduled) -> None:
    """Given runs of a schedule, then they are listed from the last one back, with what came of them."""
    schedule = time.hourly()
    runs = [time.fire(schedule, outcome).id for outcome in (GOOD, BAD, GOOD)]
    history = run_history(time.store, schedule, agent="ana", limit=2)
    assert [run.id for run in history] == [runs[2], runs[1]]
    assert [run.id for run in run_history(time.store, schedule, agent="ana", limit=2, offset=2)] == [runs[0]]
    assert (history[1].status, history[1].error, history[1].summary) == ("failed", "it broke", "it broke")
    assert history[0] == read_run(time.store, runs[2], agent="ana")
    assert history[0].due_at == history[0].created_at == history[0].started_at == from_micros(time.now)


def test_a_run_says_which_times_it_stands_for(time: Scheduled) -> None:
    """Given a schedule that missed two times, then its run says so; one that missed none says nothing of it."""
    schedule = time.hourly()
    time.to_hour()
    first = time.moment()
    time.advance(7_200)
    run = read_run(time.store, time.fire(schedule).id, agent="ana")
    assert (run.first_due_at, run.due_at, run.coalesced) == (first, time.moment(), 2)
    run = read_run(time.store, time.fire(schedule).id, agent="ana")
    assert (run.first_due_at, run.coalesced) == (None, 0)


def test_of_another_agent_nothing_is_seen_or_changed(time: Scheduled) -> None:
    """Given a run of one agent, when another asks for it, reports or cancels it, then there is no such run."""
    run = sent_run(time, executor=WORKERS)
    schedule = time.run(run).schedule
    before = time.rows()
    for call in (
        lambda: read_run(time.store, run, agent="bob"),
        lambda: run_history(time.store, schedule, agent="bob", limit=1),
        lambda: run_now(time.store, schedule, agent="bob", now=time.now),
        lambda: report(time, run, agent="bob"),
        lambda: cancel(time, run, agent="bob"),
    ):
        with pytest.raises(NotFound):
            call()
    assert time.rows() == before


def test_only_the_last_20_ended_runs_are_kept(time: Scheduled) -> None:
    """Given 30 runs of a schedule and one of another, then the last 20 of the one are left, and that of the other."""
    other = time.once(10)
    kept = time.fire(other).id
    schedule = time.hourly()
    runs = [time.fire(schedule).id for _ in range(30)]
    assert [run.id for run in time.runs(schedule)] == runs[-20:]
    assert [run.id for run in time.runs(other)] == [kept]


def test_an_open_run_is_not_among_those_that_are_counted_or_forgotten(time: Scheduled) -> None:
    """Given 20 ended runs and one under way, then all are there until that one ends."""
    schedule = time.hourly()
    for _ in range(20):
        time.fire(schedule)
    run = by_hand(time, schedule)
    assert len(time.runs(schedule)) == 21
    time.execute(run.id)
    assert len(time.runs(schedule)) == 20
    assert time.runs(schedule)[-1].id == run.id


@pytest.mark.parametrize("kept", [1, 2])
def test_a_run_that_has_just_ended_is_kept_though_it_stands_for_an_earlier_time_than_others(
    tmp_path: Path, kept: int
) -> None:
    """Given runs by hand after a due time that nobody swept, when its run ends, then that one is kept and can be read.

    Its report would be refused for ever if the transaction that takes it could not find it afterwards.
    """
    time = Scheduled(tmp_path / "data", runs_kept=kept)
    schedule = time.hourly(executor=WORKERS)
    time.to_hour()
    for _ in range(3):
        time.advance(1)
        time.execute(by_hand(time, schedule).id)
    (sent,) = time.sweep()
    assert report(time, sent.run).status == "success"
    assert sent.run in [run.id for run in time.runs(schedule)]
    assert len(time.runs(schedule)) == kept
    time.close()


# --- by hand ---


@pytest.mark.parametrize("status", ["active", "paused", "disabled", "completed", "failed"])
def test_a_schedule_can_be_run_by_hand_whatever_its_status(time: Scheduled, status: str) -> None:
    """Given a schedule of any status, when it is run by hand, then its run waits, and its next time is what it was."""
    schedule = time.hourly()
    time.spoil(schedule, status=status)
    before = time.schedule(schedule).next_run_at
    run = by_hand(time, schedule)
    assert (run.status, run.trigger, run.due_at) == ("pending", "manual", time.moment())
    assert time.execute(run.id) == {"success": 1}
    assert time.schedule(schedule).next_run_at == before
    assert time.schedule(schedule).status == status


def test_of_a_schedule_one_run_is_under_way_at_a_time(time: Scheduled) -> None:
    """Given a run that waits or goes on, when another is asked for, then that is a conflict that names it."""
    schedule = time.hourly()
    run = by_hand(time, schedule)
    with pytest.raises(Conflict, match=f"run {run.id} .* is pending: wait for it, or cancel it"):
        by_hand(time, schedule)
    time.die_over(run.id)
    with pytest.raises(Conflict, match="is running"):
        by_hand(time, schedule)
    cancel(time, run.id)
    assert by_hand(time, schedule).status == "pending"


def test_a_run_by_hand_at_the_very_time_of_another_is_another(time: Scheduled) -> None:
    """Given a clock that stands still, when a schedule is run by hand thrice, then each is a run of its own."""
    schedule = time.hourly()
    runs = []
    for _ in range(3):
        runs.append(by_hand(time, schedule))
        time.execute(runs[-1].id)
    assert len({run.due_at for run in runs}) == 3
    assert len(time.runs(schedule)) == 3


def test_what_is_due_while_a_run_by_hand_is_under_way_comes_when_it_has_ended(time: Scheduled) -> None:
    """Given a run by hand across a due time, then that time has its own run afterwards."""
    schedule = time.hourly()
    run = by_hand(time, schedule)
    time.to_hour()
    due = time.now
    assert time.claim() == []
    time.execute(run.id)
    (sent,) = time.claim()
    assert (time.run(sent.run).due_at, time.run(sent.run).trigger) == (due, "schedule")


# --- cancelled ---


def test_a_pending_run_that_is_cancelled_is_never_executed(time: Scheduled) -> None:
    """Given a run that waits, when it is cancelled, then its task does nothing; cancelled again it stays as it was."""
    run = sent_run(time)
    ended = cancel(time, run)
    assert (ended.status, ended.finished_at) == ("cancelled", time.moment())
    time.advance(5)
    assert cancel(time, run) == ended
    assert time.execute(run) == {"skipped": 1}
    time.advance(60)
    assert time.sweep() == []
    assert time.notifications() == []


def test_a_run_that_has_ended_cannot_be_cancelled(time: Scheduled) -> None:
    """Given a run that succeeded, when it is cancelled, then that is a conflict that says how it ended."""
    run = sent_run(time)
    time.execute(run)
    before = time.rows()
    with pytest.raises(Conflict, match="has ended: success"):
        cancel(time, run)
    assert time.rows() == before


def test_a_run_that_waits_to_be_tried_again_can_be_cancelled(time: Scheduled) -> None:
    """Given a run that failed for now, when it is cancelled, then it is not tried again."""
    run = sent_run(time)
    time.execute(run, RetryAfter("503", 8))
    cancel(time, run)
    time.advance(60)
    assert time.sweep() == []
    assert time.run(run).status == "cancelled"


# --- reported ---


def test_a_report_ends_the_run_with_all_that_follows(time: Scheduled) -> None:
    """Given a run in the agent's hands, when it is reported, then it, its schedule and the notification say so."""
    run = sent_run(time, executor=WORKERS, notification_policy="conditional")
    time.execute(run, Delegated())
    time.advance(60)
    found = report(time, run, output="watered", summary="w", turn_count=2, cost=0.5, notify=True)
    assert (found.status, found.output, found.summary, found.turn_count, found.cost) == (
        "success",
        "watered",
        "w",
        2,
        0.5,
    )
    assert found.finished_at == time.moment()
    assert time.schedule(found.schedule_id).last_run_status == "success"
    assert time.notification_kinds() == ["run success"]


def test_a_run_that_is_reported_twice_is_reported_once(time: Scheduled) -> None:
    """Given a report that is sent again, then it stays as it was first, and counts once."""
    run = sent_run(time, executor=WORKERS)
    time.execute(run, Delegated())
    first = report(time, run, status="failed", error="no water")
    time.advance(5)
    before = time.rows()
    assert report(time, run, status="failed", error="still none") == first
    assert time.rows() == before
    with pytest.raises(Conflict, match="has ended: failed"):
        report(time, run)


def test_a_report_that_comes_after_the_deadline_is_a_conflict(time: Scheduled) -> None:
    """Given a run that has timed out, when it is reported after all, then that is refused, and changes nothing."""
    run = sent_run(time, executor=WORKERS)
    time.execute(run, Delegated())
    time.advance(600)
    time.sweep()
    before = time.rows()
    for status in ("success", "failed"):
        with pytest.raises(Conflict, match="has ended: timed out"):
            report(time, run, status=status)
    assert time.rows() == before


def test_a_report_of_a_cancelled_run_is_a_conflict(time: Scheduled) -> None:
    """Given a run that was cancelled, when its workers report it, then they are told."""
    run = sent_run(time, executor=WORKERS)
    time.execute(run, Delegated())
    cancel(time, run)
    with pytest.raises(Conflict, match="has ended: cancelled"):
        report(time, run)


def test_a_run_that_reverie_executes_is_not_for_others_to_report(time: Scheduled) -> None:
    """Given a run of a webhook, when somebody reports it, then that is a conflict."""
    run = sent_run(time, executor=HOOK)
    with pytest.raises(Conflict, match="executed by Reverie itself"):
        report(time, run)
    assert time.run(run).status == "pending"


def test_a_run_is_still_reported_though_its_schedule_has_another_executor_by_now(time: Scheduled) -> None:
    """Given a run in the agent's hands, when its schedule is changed to a webhook, then its workers can report it."""
    run = sent_run(time, executor=WORKERS)
    time.execute(run, Delegated())
    update_schedule(
        time.store,
        time.run(run).schedule,
        ScheduleChanges(executor=HOOK),
        agent="ana",
        rules=time.rules,
        check_url=lambda _: None,
        now=time.now,
    )
    assert report(time, run).status == "success"


def test_a_report_of_a_paused_schedules_run_is_taken(time: Scheduled) -> None:
    """Given a schedule that was paused meanwhile, when its run is reported, then it is kept, and it stays paused."""
    run = sent_run(time, executor=WORKERS)
    time.execute(run, Delegated())
    pause_schedule(time.store, time.run(run).schedule, agent="ana", now=time.now)
    assert report(time, run).status == "success"
    assert time.schedule(time.run(run).schedule).status == "paused"


def test_a_long_report_has_a_summary_of_500_characters(time: Scheduled) -> None:
    """Given a report whose 500th character is half of a flag, then the summary ends before it."""
    run = sent_run(time, executor=WORKERS)
    found = report(time, run, output="x" * 499 + "\U0001f1f5\U0001f1f9" * 3)
    assert found.summary == "x" * 499
    assert len(found.output) == 505
    assert time.schedule(found.schedule_id).next_run_at == time.now + 3_600 * SECOND
