"""One run from its start to its end: what an executor comes back with, and whose result it is that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.scheduling import executing
from memory.scheduling.executing import AttemptLimits, Delegated, Execution, ExecutorBusy, Outcome, RetryAfter
from memory.scheduling.rules import RunResult
from memory.scheduling.schedules import cancel_run, complete_run, delete_schedule, update_schedule
from reverie.errors import StoreUnavailable
from reverie.scheduling.types import LlmExecutor, RunReport, ScheduleChanges
from support.scheduled import BAD, GOOD, HOOK, SECOND, WORKERS, Scheduled


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    """A workspace without schedules."""
    time = Scheduled(tmp_path / "data")
    yield time
    time.close()


def begun(time: Scheduled, **fields: Any) -> tuple[str, str]:
    """A schedule of each hour whose time has come, and its run."""
    schedule = time.hourly(**fields)
    time.to_hour()
    (sent,) = time.sweep()
    return schedule, sent.run


# --- what comes back ---


def test_a_result_is_kept_with_all_that_it_says(time: Scheduled) -> None:
    """Given a full result, then the run has it, with when it started and ended."""
    schedule, run = begun(time)
    started = time.now

    def slowly(_: Execution) -> Outcome:
        time.advance(7)
        return RunResult("success", output="all of it", summary="it", turn_count=3, cost=0.25)

    assert time.execute(run, slowly) == {"success": 1}
    found = time.run(run)
    assert (found.status, found.output, found.summary, found.error) == ("success", "all of it", "it", "")
    assert (found.turn_count, found.cost) == (3, 0.25)
    assert (found.started_at, found.finished_at) == (started, started + 7 * SECOND)
    assert time.schedule(schedule).last_run_at == time.now


def test_the_summary_is_the_first_of_what_was_said(time: Scheduled) -> None:
    """Given results without a summary, then it is taken from the output, and else from the error."""
    for result, summary in (
        (RunResult("success", output="x" * 600), "x" * 500),
        (RunResult("failed", output="half", error="broke"), "half"),
        (RunResult("failed", error="broke"), "broke"),
        (RunResult("success", output="x", summary=""), ""),
        (RunResult("success", summary=" y" * 600), ("y " * 250).strip()),
    ):
        _, run = begun(time)
        time.execute(run, result)
        assert time.run(run).summary == summary
        delete_schedule(time.store, time.run(run).schedule, agent="ana")


def test_what_cannot_be_stored_is_replaced_and_the_run_ends(time: Scheduled) -> None:
    """Given an executor that says half characters and NULs everywhere, then its run ends with the rest of it."""
    bad = "a\x00b\ud800"
    _, run = begun(time)
    assert time.execute(run, RetryAfter(bad, 1)) == {"put_back": 1}
    assert time.run(run).error == "a\ufffdb?"
    time.advance(1)
    assert time.execute(run, RunResult("failed", output=bad, error=bad, summary=bad)) == {"failed": 1}
    found = time.run(run)
    assert {found.output, found.error, found.summary} == {"a\ufffdb?"}


@pytest.mark.parametrize("error", [ValueError("no luck"), KeyError("x"), RuntimeError("half \ud800")])
def test_whatever_an_executor_raises_the_run_has_failed_with_it(time: Scheduled, error: Exception) -> None:
    """Given an executor that raises, then the run has failed, says why, and the schedule goes on."""
    schedule, run = begun(time)
    assert time.execute(run, error) == {"failed": 1}
    assert time.run(run).error.startswith(f"{type(error).__name__}: ")
    assert time.schedule(schedule).consecutive_failures == 1
    assert time.fire(schedule).status == "success"


def test_an_executor_gets_its_schedule_its_run_and_the_seconds_it_has(time: Scheduled) -> None:
    """Given each kind of executor, then it is told what it is, and no more time than the run has left."""
    time.limits = AttemptLimits(webhook=15.0, llm=120.0, task=10.0)
    for executor, timeout, seconds in ((HOOK, 600, 15), (LlmExecutor(), 600, 120), (WORKERS, 600, 10), (HOOK, 4, 4)):
        seen: list[Execution] = []

        def looking(execution: Execution, seen: list[Execution] = seen) -> Outcome:
            seen.append(execution)
            return GOOD

        schedule, run = begun(time, executor=executor, timeout_seconds=timeout)
        time.execute(run, looking)
        (execution,) = seen
        assert (execution.schedule.id, execution.run.id, execution.executor) == (schedule, run, executor)
        assert (execution.run.status, execution.seconds) == ("running", seconds)
        assert execution.run.deadline == time.clock + timeout * SECOND
        delete_schedule(time.store, schedule, agent="ana")


def test_no_transaction_is_open_while_it_is_executed(time: Scheduled) -> None:
    """Given an executor that writes to the store itself, then nothing keeps it waiting."""

    def writing(_: Execution) -> Outcome:
        with time.store.writing(lock_wait_seconds=0.0):
            return GOOD

    _, run = begun(time)
    assert time.execute(run, writing) == {"success": 1}


# --- trying again ---


def test_a_run_that_is_to_be_tried_again_waits_its_time_and_keeps_its_deadline(time: Scheduled) -> None:
    """Given failures that may pass, then the same run is executed again after each wait, within one deadline."""
    schedule, run = begun(time, timeout_seconds=100)
    started, deadline = time.now, time.clock + 100 * SECOND
    for tries, wait in enumerate((2, 8, 32)):
        assert time.run(run).tries == tries
        assert time.execute(run, RetryAfter("503", wait)) == {"put_back": 1}
        found = time.run(run)
        assert (found.status, found.tries, found.error) == ("pending", tries + 1, "503")
        assert (found.started_at, found.deadline) == (started, deadline)
        assert time.execute(run) == {"skipped": 1}, "a task that comes too early waits"
        time.advance(wait)
        assert [sent.run for sent in time.sweep()] == [run]
    assert time.execute(run) == {"success": 1}
    assert (time.run(run).error, len(time.runs(schedule))) == ("", 1)
    assert time.schedule(schedule).consecutive_failures == 0


def test_what_would_be_tried_again_after_the_deadline_has_timed_out(time: Scheduled) -> None:
    """Given a failure that may pass, when the wait would outlast the run, then it has timed out now."""
    schedule, run = begun(time, timeout_seconds=60)
    time.execute(run, RetryAfter("503", 40))
    time.advance(40)
    assert time.execute(run, RetryAfter("503", 20)) == {"timed_out": 1}
    assert time.run(run).error == "no time is left to try again: 503"
    assert time.schedule(schedule).consecutive_failures == 1


def test_the_last_attempt_gets_no_more_time_than_is_left(time: Scheduled) -> None:
    """Given a run with 5 s left, then the attempt has 5 s; with less than one, it has one."""
    seen: list[float] = []

    def looking(execution: Execution) -> Outcome:
        seen.append(execution.seconds)
        return RetryAfter("503", 4.5)

    _, run = begun(time, timeout_seconds=10)
    time.execute(run, looking)
    time.advance(5)
    time.execute(run, looking)
    time.advance(4.5)
    time.execute(run, looking)
    assert seen == [10, 5, 1]
    assert time.run(run).status == "timed_out"


# --- postponed ---


def test_a_run_whose_executor_is_busy_is_sent_again_when_it_has_waited(time: Scheduled) -> None:
    """Given an executor that asks for 3 s, then the run has not begun, and is sent at the end of them, once."""
    schedule, run = begun(time, timeout_seconds=60)
    assert time.execute(run, wait=3) == {"postponed": 1}
    found = time.run(run)
    assert (found.status, found.started_at, found.deadline, found.tries) == ("pending", None, None, 0)
    assert time.due_at() == time.now + 3 * SECOND
    assert time.execute(run) == {"skipped": 1}
    time.advance(3)
    assert [sent.run for sent in time.sweep()] == [run]
    assert time.sweep() == []
    assert time.execute(run) == {"success": 1}
    assert time.schedule(schedule).consecutive_failures == 0


def test_a_run_that_waits_already_is_not_begun_sooner_by_being_postponed(time: Scheduled) -> None:
    """Given a run that waits 32 s for its next attempt, when its executor is found busy, then it still does."""
    _, run = begun(time)
    time.execute(run, RetryAfter("503", 32))
    due = time.due_at()
    before = time.rows()
    assert time.execute(run, wait=1) == {"skipped": 1}
    assert time.rows() == before
    assert time.due_at() == due


def test_a_run_that_has_begun_or_ended_is_not_postponed(time: Scheduled) -> None:
    """Given a run in the hands of a worker, then another task of it, and one that comes afterwards, change nothing."""
    _, run = begun(time)
    counts = []

    def busy(_: Execution) -> Outcome:
        counts.append(time.execute(run, wait=1))
        return GOOD

    assert time.execute(run, busy) == {"success": 1}
    assert [*counts, time.execute(run, wait=1)] == [{"skipped": 1}, {"skipped": 1}]
    assert time.run(run).status == "success"


# --- handed over ---


def test_a_run_that_was_handed_over_waits_for_its_report(time: Scheduled) -> None:
    """Given a task that was sent to the agent's workers, then the run goes on until they report."""
    schedule, run = begun(time, executor=WORKERS)
    assert time.execute(run, Delegated()) == {"delegated": 1}
    assert (time.run(run).status, time.run(run).tries) == ("running", 1)
    time.advance(599)
    assert time.sweep() == []
    assert time.execute(run) == {"skipped": 1}
    complete_run(time.store, run, RunReport(output="done"), agent="ana", rules=time.rules, now=time.now)
    assert time.schedule(schedule).last_run_status == "success"


def test_a_report_that_comes_before_the_hand_over_is_noted_is_kept(time: Scheduled) -> None:
    """Given workers so quick that they report first, then the run has ended once, and stays so."""
    schedule, run = begun(time, executor=WORKERS)

    def quick(_: Execution) -> Outcome:
        complete_run(time.store, run, RunReport(output="quick"), agent="ana", rules=time.rules, now=time.now)
        return Delegated()

    assert time.execute(run, quick) == {"superseded": 1}
    assert (time.run(run).status, time.run(run).output) == ("success", "quick")
    assert time.notification_kinds() == ["run success"]
    assert time.schedule(schedule).status == "active"


# --- whose result counts ---


def cancelled(time: Scheduled, run: str) -> None:
    cancel_run(time.store, run, agent="ana", rules=time.rules, now=time.now)


def taken_over(time: Scheduled, run: str) -> None:
    time.advance(25)
    assert [sent.run for sent in time.sweep()] == [run]
    assert time.execute(run, RunResult("success", output="the second worker's")) == {"success": 1}


def taken_over_and_under_way(time: Scheduled, run: str) -> None:
    time.advance(25)
    time.sweep()
    time.die_over(run)


def given_up(time: Scheduled, run: str) -> None:
    time.advance(25)
    time.sweep()


def deleted(time: Scheduled, run: str) -> None:
    delete_schedule(time.store, time.run(run).schedule, agent="ana")


@pytest.mark.parametrize("meanwhile", [cancelled, taken_over, taken_over_and_under_way, given_up, deleted])
@pytest.mark.parametrize("outcome", [GOOD, BAD, Delegated(), RetryAfter("503", 2)], ids=lambda one: type(one).__name__)
def test_the_result_of_a_run_that_is_no_longer_this_workers_is_dropped(
    time: Scheduled, outcome: Outcome, meanwhile: Callable[[Scheduled, str], None]
) -> None:
    """Given a slow worker whose run was cancelled, deleted or taken over, then what it says changes nothing."""
    _, run = begun(time)
    seen: list[Any] = []

    def slow(_: Execution) -> Outcome:
        meanwhile(time, run)
        seen.append(time.rows())
        return outcome

    assert time.execute(run, slow) == {"superseded": 1}
    assert [time.rows()] == seen


def test_two_workers_that_get_the_same_run_execute_it_once(time: Scheduled) -> None:
    """Given a task that arrives twice, then the second finds the run begun, and later finds it ended."""
    _, run = begun(time)
    counts: list[dict[str, int]] = []

    def meanwhile(_: Execution) -> Outcome:
        counts.append(time.execute(run))
        return GOOD

    assert time.execute(run, meanwhile) == {"success": 1}
    assert [*counts, time.execute(run)] == [{"skipped": 1}, {"skipped": 1}]
    assert len(time.notifications()) == 1


def test_a_task_for_a_run_that_is_not_there_does_nothing(time: Scheduled) -> None:
    """Given a run whose schedule was deleted, when its task comes, then it is passed over."""
    schedule, run = begun(time)
    delete_schedule(time.store, schedule, agent="ana")
    assert time.execute(run) == {"skipped": 1}
    assert time.execute("never-was") == {"skipped": 1}


def test_an_executor_that_cannot_be_read_ends_its_run_and_disables_its_schedule(time: Scheduled) -> None:
    """Given a row that another version wrote, when its task comes, then the run has failed, and a person is told."""
    schedule, run = begun(time, notification_policy="never")
    time.spoil(schedule, executor='{"type": "pigeon"}')
    assert time.execute(run) == {"skipped": 1}
    assert time.run(run).status == "failed"
    assert "its executor cannot be read" in time.run(run).error
    assert time.schedule(schedule).status == "disabled"
    assert time.notification_kinds() == ["disabled"]
    time.advance(86_400)
    assert time.sweep() == []


def test_a_changed_executor_holds_from_the_next_attempt_on(time: Scheduled) -> None:
    """Given a run that waits for another attempt, when the executor is changed, then the new one gets it."""
    schedule, run = begun(time)
    time.execute(run, RetryAfter("503", 2))
    changes = ScheduleChanges(executor=WORKERS)
    update_schedule(
        time.store, schedule, changes, agent="ana", rules=time.rules, check_url=lambda _: None, now=time.now
    )
    time.advance(2)
    seen: list[Any] = []

    def looking(execution: Execution) -> Outcome:
        seen.append(execution.executor)
        return Delegated()

    time.execute(run, looking)
    assert seen == [WORKERS]


def test_an_executor_that_is_busy_counts_no_try(time: Scheduled) -> None:
    """Given an executor that has no room, then the run waits without a try or an error, and is begun when it has."""
    _, run = begun(time)
    assert time.execute(run, lambda _: ExecutorBusy(7.0)) == {"put_back": 1}
    waiting = time.run(run)
    assert (waiting.status, waiting.tries, waiting.error) == ("pending", 0, "")
    time.advance(7)
    assert time.execute(run, lambda _: GOOD) == {"success": 1}


def test_what_was_done_is_kept_though_the_disk_refuses_for_a_moment(
    time: Scheduled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a store that cannot be written just as a run ends, then its outcome is kept later, and done once."""
    schedule, run = begun(time)
    monkeypatch.setattr(executing, "_TRANSIENT_WAIT_SECONDS", 0.01)
    done: list[str] = []
    keep, refused = executing._save, iter((True, True))

    def refusing(*arguments: Any) -> dict[str, int]:
        if next(refused, False):
            raise StoreUnavailable("the disk is full")
        return keep(*arguments)

    monkeypatch.setattr(executing, "_save", refusing)
    assert time.execute(run, lambda e: (done.append(e.run.id), GOOD)[1]) == {"success": 1}
    assert done == [run]
    assert [one.status for one in time.runs(schedule)] == ["success"]
