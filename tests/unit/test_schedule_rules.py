"""What follows from how a run ended: for its schedule, and for whoever is to know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.scheduling.executing import Delegated, RetryAfter
from memory.scheduling.rules import RunResult, ScheduleRules, effects_of
from memory.scheduling.schedules import (
    cancel_run,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    run_now,
    update_schedule,
)
from reverie.scheduling.cadence import Cron, Once
from reverie.scheduling.types import ScheduleChanges
from support.scheduled import BAD, GOOD, SECOND, WORKERS, Scheduled

TIMED_OUT = RunResult("timed_out", error="too slow")


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    """A workspace without schedules."""
    time = Scheduled(tmp_path / "data")
    yield time
    time.close()


def state(time: Scheduled, schedule: str) -> tuple[Any, ...]:
    """Status, failures in a row, how the last run ended, and in how many seconds the next one comes."""
    now = time.schedule(schedule)
    after = None if now.next_run_at is None else (now.next_run_at - time.now) / SECOND
    return now.status, now.consecutive_failures, now.last_run_status, after


def manually(time: Scheduled, schedule: str, outcome: Any = GOOD) -> str:
    """Have a run asked for by hand executed; returns how it ended."""
    run = run_now(time.store, schedule, agent="ana", now=time.now)
    time.execute(run.id, outcome)
    return time.run(run.id).status


def change(time: Scheduled, schedule: str, **changes: Any) -> None:
    update_schedule(
        time.store,
        schedule,
        ScheduleChanges(**changes),
        agent="ana",
        rules=time.rules,
        check_url=lambda _: None,
        now=time.now,
    )


def pause(time: Scheduled, schedule: str) -> None:
    pause_schedule(time.store, schedule, agent="ana", now=time.now)


def resume(time: Scheduled, schedule: str) -> None:
    resume_schedule(time.store, schedule, agent="ana", rules=time.rules, now=time.now)


def cancel(time: Scheduled, run: str) -> None:
    cancel_run(time.store, run, agent="ana", rules=time.rules, now=time.now)


# --- how runs end ---


@pytest.mark.parametrize(
    ("outcome", "failures"),
    [(GOOD, 0), (BAD, 1), (TIMED_OUT, 1), (RunResult("cancelled"), 0)],
    ids=["success", "failed", "timed_out", "cancelled"],
)
@pytest.mark.parametrize("kind", ["cron", "interval"])
def test_a_repeated_schedule_goes_on_however_a_run_ends(
    time: Scheduled, kind: str, outcome: RunResult, failures: int
) -> None:
    """Given a cron or an interval, when a run ends, then the next comes at its time, and only failures are counted."""
    schedule = time.hourly() if kind == "cron" else time.every(3_600)
    run = time.fire(schedule, outcome)
    assert (run.status, run.trigger, run.attempt) == (outcome.status, "schedule", 1)
    assert state(time, schedule) == ("active", failures, outcome.status, 3_600)
    assert time.schedule(schedule).last_run_at == time.now


def test_a_one_shot_that_succeeds_is_completed(time: Scheduled) -> None:
    """Given a one-shot, when its run succeeds, then it is completed and never fires again."""
    schedule = time.once()
    time.fire(schedule)
    assert state(time, schedule) == ("completed", 0, "success", None)
    time.advance(86_400)
    assert time.sweep() == []
    assert len(time.runs(schedule)) == 1


@pytest.mark.parametrize("outcome", [BAD, TIMED_OUT])
def test_a_failed_one_shot_is_retried_three_times_and_then_stays_failed(time: Scheduled, outcome: RunResult) -> None:
    """Given a one-shot that always fails, then runs of their own follow after 30, 60 and 120 s, and then none."""
    schedule = time.once()
    ended = []
    for wait in (30, 60, 120):
        time.fire(schedule, outcome)
        ended.append(time.now)
        assert state(time, schedule) == ("active", len(ended), outcome.status, wait)
        time.advance(wait - 0.000_001)
        assert time.sweep() == [], "not before its time"
    time.fire(schedule, outcome)
    assert state(time, schedule) == ("failed", 4, outcome.status, None)
    time.advance(86_400)
    assert time.sweep() == []

    runs = time.runs(schedule)
    assert [(run.trigger, run.attempt) for run in runs] == [("schedule", 1), ("retry", 2), ("retry", 3), ("retry", 4)]
    assert [run.due_at for run in runs[1:]] == [at + s * SECOND for at, s in zip(ended, (30, 60, 120), strict=True)]
    assert {(run.first_due_at - run.due_at, run.coalesced) for run in runs} == {(0, 0)}
    assert time.notification_kinds() == [f"run {outcome.status}"] * 3 + ["alert", f"run {outcome.status}"]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_one_shot_whose_retry_succeeds_is_completed(time: Scheduled, failing: int) -> None:
    """Given a one-shot that fails some times, when a retry succeeds, then it is completed and its failures count 0."""
    schedule = time.once()
    for _ in range(failing):
        time.fire(schedule, BAD)
    time.fire(schedule)
    assert state(time, schedule) == ("completed", 0, "success", None)
    assert time.schedule(schedule).retries == 0


def test_a_retry_that_is_overdue_is_made_once(time: Scheduled) -> None:
    """Given a retry that nobody could make for a day, when the sweep is back, then it is one run, for its time."""
    schedule = time.once()
    time.fire(schedule, BAD)
    due = time.schedule(schedule).next_run_at
    time.advance(86_400)
    time.fire(schedule, BAD)
    assert time.runs(schedule)[-1].due_at == due
    assert state(time, schedule) == ("active", 2, "failed", 60)


def test_a_one_shot_whose_run_is_cancelled_is_paused_and_fires_when_resumed(time: Scheduled) -> None:
    """Given a one-shot whose run is cancelled, then it is paused, not failed; when resumed, it fires at once."""
    schedule = time.once()
    time.fire(schedule, BAD)
    time.advance(30)
    (sent,) = time.sweep()
    cancel(time, sent.run)
    assert state(time, schedule) == ("paused", 1, "cancelled", None)
    time.advance(3_600)
    assert time.sweep() == []
    resume(time, schedule)
    assert state(time, schedule) == ("active", 0, "cancelled", 0)
    time.fire(schedule, BAD)
    assert time.runs(schedule)[-1].trigger == "schedule"
    assert state(time, schedule) == ("active", 1, "failed", 30)


# --- failures in a row ---


def test_somebody_is_told_at_three_failures_once_and_at_five_the_schedule_is_disabled(time: Scheduled) -> None:
    """Given a schedule that always fails, then an alert follows the third failure, and after the fifth none fires."""
    schedule = time.hourly(name="plants", notification_policy="on_failure", channel="c", session="s", user="kate")
    for number in range(1, 5):
        time.fire(schedule, BAD)
        assert state(time, schedule)[:2] == ("active", number)
    time.fire(schedule, TIMED_OUT)
    assert state(time, schedule) == ("disabled", 5, "timed_out", None)
    assert time.notification_kinds() == ["run failed"] * 3 + ["alert", "run failed", "run timed_out", "disabled"]
    alert, disabled = (one for one in time.notifications() if one.kind != "run")
    assert alert.title == "plants has failed 3 times in a row"
    assert disabled.title == "plants is disabled after 5 failures in a row"
    assert (alert.body, disabled.body) == ("it broke", "too slow\nResume it once this is fixed.")
    assert {(one.channel, one.session, one.user) for one in time.notifications()} == {("c", "s", "kate")}
    time.advance(86_400)
    assert time.sweep() == []


def test_under_never_nothing_is_told_but_that_it_is_disabled(time: Scheduled) -> None:
    """Given the policy never, when a schedule fails five times, then the only notice is that it fires no more."""
    schedule = time.hourly(notification_policy="never")
    time.fire(schedule)
    for _ in range(5):
        time.fire(schedule, BAD)
    assert time.notification_kinds() == ["disabled"]


def test_what_was_cancelled_is_no_failure_and_does_not_make_good_for_one(time: Scheduled) -> None:
    """Given two failures, when a run is cancelled and one fails, then that is the third in a row."""
    schedule = time.hourly()
    for outcome in (BAD, BAD, RunResult("cancelled"), BAD):
        time.fire(schedule, outcome)
    assert state(time, schedule)[1] == 3
    assert time.notification_kinds() == ["run failed"] * 3 + ["alert"]


def test_a_success_sets_failures_to_0_and_another_alert_follows_three_more(time: Scheduled) -> None:
    """Given a schedule that recovers, when it fails three times once more, then it is alerted of once more."""
    schedule = time.hourly(notification_policy="on_failure")
    for outcome in (BAD, BAD, BAD, BAD, GOOD):
        time.fire(schedule, outcome)
    assert state(time, schedule)[:2] == ("active", 0)
    for _ in range(4):
        time.fire(schedule, BAD)
    assert time.notification_kinds().count("alert") == 2
    assert state(time, schedule)[0] == "active"


def test_what_was_disabled_begins_anew_when_resumed(time: Scheduled) -> None:
    """Given a disabled schedule, when it is resumed, then it fires at its next time and may fail four times again."""
    schedule = time.hourly()
    for _ in range(5):
        time.fire(schedule, BAD)
    time.advance(5_400)
    resume(time, schedule)
    assert state(time, schedule) == ("active", 0, "failed", 1_800)
    for _ in range(4):
        time.fire(schedule, BAD)
    assert state(time, schedule)[:2] == ("active", 4)


def test_the_limits_are_an_operators(tmp_path: Path) -> None:
    """Given other rules, then the alert and the end come by them."""
    time = Scheduled(tmp_path / "data", alert_after_failures=1, disable_after_failures=2)
    schedule = time.every(60, notification_policy="on_failure")
    time.fire(schedule, BAD)
    time.fire(schedule, BAD)
    assert time.notification_kinds() == ["run failed", "alert", "run failed", "disabled"]
    time.close()


def test_an_executor_that_is_gone_disables_at_once(time: Scheduled) -> None:
    """Given a receiver that says it is gone for good, then nothing is sent to it again, also of a one-shot."""
    for make in (time.once, time.hourly):
        schedule = make(notification_policy="never")
        time.fire(schedule, RunResult("failed", error="410 Gone", gone=True))
        assert state(time, schedule) == ("disabled", 1, "failed", None)
    assert time.notification_kinds() == ["disabled", "disabled"]
    time.advance(86_400)
    assert time.sweep() == []


# --- who is told ---


@pytest.mark.parametrize(
    ("policy", "notify", "expected_statuses"),
    [
        ("always", None, ["success", "failed", "timed_out"]),
        ("always", False, ["success", "failed", "timed_out"]),
        ("on_failure", None, ["failed", "timed_out"]),
        ("on_failure", True, ["failed", "timed_out"]),
        ("conditional", True, ["success", "failed", "timed_out"]),
        ("conditional", False, []),
        ("conditional", None, ["failed", "timed_out"]),
        ("never", True, []),
        ("never", None, []),
    ],
)
def test_each_policy_tells_what_it_says(
    time: Scheduled, policy: str, notify: bool | None, expected_statuses: list[str]
) -> None:
    """Given a policy and what the executor says, then these ends are told, and what was cancelled is not."""
    schedule = time.hourly(notification_policy=policy)
    for status in ("success", "failed", "timed_out", "cancelled"):
        time.fire(schedule, replace(GOOD, status=status, notify=notify))
    assert [one.run_status for one in time.notifications()] == expected_statuses


def test_a_notification_says_of_which_run_it_is_and_what_came_of_it(time: Scheduled) -> None:
    """Given a run that succeeded, then its notification has the goal for a title, and the summary for a text."""
    schedule = time.hourly(goal="look after all of the " + "very " * 30 + "thirsty plants")
    run = time.fire(schedule, RunResult("success", output="long " * 200, summary="short"))
    (notification,) = time.notifications()
    about = (notification.schedule, notification.run, notification.kind, notification.run_status)
    assert about == (schedule, run.id, "run", "success")
    assert notification.title.startswith("look after all of the very")
    assert notification.title.endswith(": success")
    assert len(notification.title) <= 60 + len(": success")
    assert notification.body == run.summary == "short"


# --- what is changed while a run is under way ---


@pytest.mark.parametrize("outcome", [GOOD, BAD], ids=["success", "failed"])
def test_a_schedule_that_is_paused_during_its_run_stays_paused(time: Scheduled, outcome: RunResult) -> None:
    """Given a run under way, when its schedule is paused, then the run ends, and nothing fires but by resuming."""
    schedule = time.hourly()
    time.advance(3_600)
    (sent,) = time.sweep()
    pause(time, schedule)
    time.execute(sent.run, outcome)
    assert state(time, schedule) == ("paused", int(outcome is BAD), outcome.status, None)
    time.advance(86_400)
    assert time.sweep() == []


def test_a_paused_schedule_is_not_disabled_and_counts_from_0_when_resumed(time: Scheduled) -> None:
    """Given four failures, when the fifth comes while it is paused, then it stays paused."""
    schedule = time.hourly()
    for _ in range(4):
        time.fire(schedule, BAD)
    time.advance(3_600)
    (sent,) = time.sweep()
    pause(time, schedule)
    time.execute(sent.run, BAD)
    assert state(time, schedule)[:2] == ("paused", 5)
    assert "disabled" not in time.notification_kinds()
    resume(time, schedule)
    assert state(time, schedule)[:2] == ("active", 0)


def test_a_one_shot_paused_during_its_run_is_completed_by_success_and_not_retried_after_a_failure(
    time: Scheduled,
) -> None:
    """Given one-shots paused while they run, then the one that succeeds is done and the other waits to be resumed."""
    done, failed = time.once(), time.once()
    time.advance(60)
    first, second = time.sweep()
    for schedule in (done, failed):
        pause(time, schedule)
    ends = {run.schedule: run.id for run in (time.run(first.run), time.run(second.run))}
    time.execute(ends[done])
    time.execute(ends[failed], BAD)
    assert state(time, done)[:1] == ("completed",)
    assert state(time, failed) == ("paused", 1, "failed", None)
    resume(time, failed)
    assert state(time, failed) == ("active", 0, "failed", 0)


def test_a_one_shot_paused_and_resumed_during_its_run_fires_no_second_time(time: Scheduled) -> None:
    """Given a one-shot under way, when it is paused and resumed, then its run is the one it has."""
    schedule = time.once()
    time.advance(60)
    (sent,) = time.sweep()
    pause(time, schedule)
    resume(time, schedule)
    time.execute(sent.run)
    assert state(time, schedule) == ("completed", 0, "success", None)
    assert time.sweep() == []


@pytest.mark.parametrize("outcome", [GOOD, BAD], ids=["success", "failed"])
def test_a_one_shot_given_another_time_during_its_run_fires_then(time: Scheduled, outcome: RunResult) -> None:
    """Given a run under way, when its one-shot gets a new time, then how the run ends does not take that away."""
    schedule = time.once()
    time.advance(60)
    (sent,) = time.sweep()
    change(time, schedule, cadence=Once(time.moment(600)))
    time.execute(sent.run, outcome)
    assert state(time, schedule)[0::3] == ("active", 600)
    time.fire(schedule)
    assert state(time, schedule)[0] == "completed"


def test_a_cron_that_becomes_a_one_shot_while_it_is_paused_and_runs_is_not_completed(time: Scheduled) -> None:
    """Given a paused cron under way, when it becomes a one-shot of tomorrow, then its run completes nothing."""
    schedule = time.hourly()
    time.advance(3_600)
    (sent,) = time.sweep()
    pause(time, schedule)
    change(time, schedule, cadence=Once(time.moment(86_400)))
    time.execute(sent.run)
    assert state(time, schedule)[0] == "paused"
    resume(time, schedule)
    assert state(time, schedule)[0::3] == ("active", 86_400)


def test_a_one_shot_that_becomes_a_cron_during_its_run_goes_on(time: Scheduled) -> None:
    """Given a one-shot under way, when it becomes a cron, then its failure is one of a cron."""
    schedule = time.once()
    time.advance(60)
    (sent,) = time.sweep()
    change(time, schedule, cadence=Cron("0 12 * * *"))
    time.execute(sent.run, BAD)
    assert state(time, schedule)[:3] == ("active", 1, "failed")
    assert len(time.runs(schedule)) == 1


def test_what_a_run_says_after_its_schedule_was_deleted_is_lost(time: Scheduled) -> None:
    """Given a run under way, when its schedule is deleted, then the result is dropped and nobody is told."""
    schedule = time.hourly()
    time.advance(3_600)
    (sent,) = time.sweep()

    def deleting(_: Any) -> RunResult:
        delete_schedule(time.store, schedule, agent="ana")
        return BAD

    assert time.execute(sent.run, deleting) == {"superseded": 1}
    assert time.rows() == []


# --- runs asked for by hand ---


def test_a_one_shot_run_by_hand_before_its_time_still_fires_at_it(time: Scheduled) -> None:
    """Given a one-shot, when it is run by hand before its time, then neither success nor failure changes its time."""
    for outcome in (GOOD, BAD):
        schedule = time.once(600)
        assert manually(time, schedule, outcome) == outcome.status
        assert state(time, schedule)[0::3] == ("active", 600)
        assert time.fire(schedule).trigger == "schedule"
        assert state(time, schedule)[0] == "completed"


def test_a_paused_one_shot_run_by_hand_before_its_time_is_not_completed(time: Scheduled) -> None:
    """Given a paused one-shot of tomorrow, when it is run by hand, then it can be resumed for tomorrow."""
    schedule = time.once(86_400)
    pause(time, schedule)
    manually(time, schedule)
    assert state(time, schedule)[0] == "paused"
    resume(time, schedule)
    assert state(time, schedule)[0::3] == ("active", 86_400)


def test_a_paused_one_shot_run_by_hand_instead_of_at_its_time_is_completed(time: Scheduled) -> None:
    """Given a one-shot that was paused at its time, when it is run by hand, then it is done."""
    schedule = time.once()
    pause(time, schedule)
    time.advance(3_600)
    assert manually(time, schedule, BAD) == "failed"
    assert state(time, schedule) == ("paused", 1, "failed", None)
    manually(time, schedule)
    assert state(time, schedule) == ("completed", 0, "success", None)


def test_a_run_by_hand_that_is_under_way_at_the_time_of_a_one_shot_takes_nothing_from_it(time: Scheduled) -> None:
    """Given a one-shot, when a run by hand goes on beyond its time, then it fires when that has ended."""
    schedule = time.once()
    run = run_now(time.store, schedule, agent="ana", now=time.now)
    time.advance(90)
    assert [sent.run for sent in time.sweep()] == [run.id]  # its task counts as lost; nothing else is due
    time.execute(run.id)
    (sent,) = time.sweep()
    assert time.run(sent.run).trigger == "schedule"


def test_a_one_shot_run_by_hand_after_it_was_completed_stays_completed(time: Scheduled) -> None:
    """Given a completed one-shot, when it is run by hand and fails, then it stays completed, and no retry follows."""
    schedule = time.once()
    time.fire(schedule)
    manually(time, schedule, BAD)
    assert state(time, schedule) == ("completed", 1, "failed", None)


def test_a_failed_one_shot_that_succeeds_by_hand_is_completed(time: Scheduled) -> None:
    """Given a one-shot that has failed for good, when it succeeds by hand, then it is completed."""
    schedule = time.once()
    for _ in range(4):
        time.fire(schedule, BAD)
    manually(time, schedule, BAD)
    assert state(time, schedule)[0] == "failed"
    manually(time, schedule)
    assert state(time, schedule) == ("completed", 0, "success", None)


def test_a_one_shot_that_waits_for_a_retry_is_completed_by_a_run_by_hand(time: Scheduled) -> None:
    """Given a retry to come, when a run by hand fails, the retry stays; when one succeeds, no retry follows."""
    schedule = time.once()
    time.fire(schedule, BAD)
    manually(time, schedule, BAD)
    assert state(time, schedule) == ("active", 2, "failed", 30)
    manually(time, schedule)
    assert state(time, schedule) == ("completed", 0, "success", None)
    time.advance(3_600)
    assert time.sweep() == []


def test_a_run_by_hand_of_a_repeated_schedule_changes_no_time_but_counts(time: Scheduled) -> None:
    """Given a cron, when it is run by hand, then its next time stays, and the failure is one of those in a row."""
    schedule = time.hourly()
    before = time.schedule(schedule).next_run_at
    for _ in range(5):
        time.advance(1)
        manually(time, schedule, BAD)
    assert time.schedule(schedule).status == "disabled"
    manually(time, schedule)
    assert state(time, schedule) == ("disabled", 0, "success", None)
    resume(time, schedule)
    assert time.schedule(schedule).next_run_at == before


# --- what cannot be read ---


@pytest.mark.parametrize("outcome", [GOOD, BAD, RetryAfter("later", 1e9)])
def test_a_run_ends_though_the_cadence_of_its_schedule_cannot_be_read_any_more(time: Scheduled, outcome: Any) -> None:
    """Given a row that another version wrote, when its run ends, then it does, and nothing is held up."""
    schedule = time.once(60)
    time.advance(60)
    (sent,) = time.sweep()
    time.spoil(schedule, cadence='{"type": "moon"}')
    time.execute(sent.run, outcome)
    assert time.run(sent.run).status in ("success", "failed", "timed_out")


def test_a_run_that_nobody_is_at_ends_though_its_cadence_cannot_be_read_any_more(time: Scheduled) -> None:
    """Given such a row and another whose deadlines have passed, when the sweep comes, then both runs have ended."""
    spoiled, sound = time.hourly(executor=WORKERS), time.hourly(executor=WORKERS)
    time.advance(3_600)
    for sent in time.sweep():
        time.execute(sent.run, Delegated())
    time.spoil(spoiled, cadence="{")
    time.advance(601)
    assert time.sweep() == []
    assert [time.runs(schedule)[0].status for schedule in (spoiled, sound)] == ["timed_out", "timed_out"]


def test_consequences_are_told_without_a_store(time: Scheduled) -> None:
    """Given records, then what follows is computed from them alone: the same each time."""
    schedule = time.hourly()
    time.advance(3_600)
    (sent,) = time.sweep()
    arguments = (time.schedule(schedule), time.run(sent.run), BAD, "it broke")
    first, second = (effects_of(*arguments, now=time.now, rules=ScheduleRules()) for _ in range(2))
    assert first == second
    assert first.values == {"last_run_at": time.now, "last_run_status": "failed", "consecutive_failures": 1}
