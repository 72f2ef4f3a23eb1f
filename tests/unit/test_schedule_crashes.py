"""Schedules, killed between any two statements: what is there is as after one of the commits, and goes on from there.

And every step twice: the second time changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memory.scheduling.executing import Delegated, Outcome, RetryAfter
from memory.scheduling.rules import RunResult
from memory.scheduling.schedules import cancel_run, complete_run, run_now
from reverie.errors import Conflict
from reverie.scheduling.types import RunReport
from support.scheduled import BAD, GOOD, WORKERS, Killed, Scheduled

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Step:
    """Something that is done to a store, and what the store holds before."""

    given: Callable[[Scheduled], object]
    does: Callable[[Scheduled], object]
    # The least number of statements and commits in it, so that the cuts are known to be there.
    cuts: int = 6


def run_of(time: Scheduled) -> str:
    """The run that has not ended, of whichever schedule."""
    with time.store.reading() as tx:
        found = tx.connection.exec_driver_sql(
            "SELECT id FROM schedule_runs WHERE status IN ('pending', 'running') ORDER BY due_at"
        )
        return str(found.scalars().one())


def due(make: Callable[[Scheduled], object]) -> Callable[[Scheduled], None]:
    """Schedules whose time has come; two were missed."""

    def given(time: Scheduled) -> None:
        make(time)
        time.to_hour()
        time.advance(7_200)

    return given


def sent(failures: int = 0, *, crashes: int = 0, make: Callable[[Scheduled], str] = Scheduled.hourly) -> Any:
    """A run whose task is on its way, after some failures and deaths over it, with 20 runs before it."""

    def given(time: Scheduled) -> None:
        schedule = make(time)
        for _ in range(20 if time.schedule(schedule).next_run_at else 0):
            time.advance(1)
            time.execute(run_now(time.store, schedule, agent="ana", now=time.now).id)
        for _ in range(failures):
            time.fire(schedule, BAD)
        time.now = max(time.now, time.schedule(schedule).next_run_at or 0)
        time.claim()
        for _ in range(crashes):
            time.die_over(run_of(time))
            time.advance(25)
            time.take_up()

    return given


def handed_over(time: Scheduled) -> None:
    """A run in the agent's hands."""
    sent(make=lambda time: time.hourly(executor=WORKERS))(time)
    time.execute(run_of(time), Delegated())


def stranded(time: Scheduled) -> None:
    """A run whose lease has ended, one past its deadline, one whose task got lost."""
    for executor in (None, WORKERS, None):
        time.hourly(**({"executor": executor} if executor else {}))
    time.to_hour()
    first, second, third = sorted(one.run for one in time.claim())
    time.die_over(first)
    time.execute(second, Delegated())
    assert third
    time.advance(601)


def died_over(crashes: int) -> Callable[[Scheduled], None]:
    """A run over which so many workers have died, the last of them just found out."""

    def given(time: Scheduled) -> None:
        sent(crashes=crashes - 1)(time)
        time.die_over(run_of(time))
        time.advance(25)

    return given


def executed(outcome: Outcome) -> Callable[[Scheduled], object]:
    return lambda time: time.execute(run_of(time), outcome)


def cancelled(time: Scheduled) -> None:
    cancel_run(time.store, run_of(time), agent="ana", rules=time.rules, now=time.now)


def reported(time: Scheduled) -> None:
    complete_run(time.store, run_of(time), RunReport(output="done"), agent="ana", rules=time.rules, now=time.now)


def asked_for(time: Scheduled) -> None:
    with time.store.reading() as tx:
        schedule = str(tx.connection.exec_driver_sql("SELECT id FROM schedules").scalar_one())
    run_now(time.store, schedule, agent="ana", now=time.now)


def broken(time: Scheduled) -> None:
    time.spoil(time.hourly(), cadence="{}")
    time.hourly()


def once(time: Scheduled) -> str:
    return time.once(60)


STEPS = {
    "a cron is claimed": Step(due(Scheduled.hourly), Scheduled.claim),
    "an interval is claimed": Step(due(lambda time: time.every(600)), Scheduled.claim),
    "a one-shot is claimed": Step(due(once), Scheduled.claim),
    "three are claimed": Step(due(lambda time: [time.hourly() for _ in range(3)]), Scheduled.claim, 10),
    "one cannot be computed": Step(due(broken), Scheduled.claim, 8),
    "a run succeeds": Step(sent(), executed(GOOD), 12),
    "a run fails": Step(sent(), executed(BAD), 12),
    "a run fails for the third time": Step(sent(2), executed(BAD), 13),
    "a run fails for the fifth time": Step(sent(4), executed(BAD), 13),
    "a one-shot succeeds": Step(sent(make=once), executed(GOOD), 11),
    "a one-shot fails and is to be retried": Step(sent(make=once), executed(BAD), 11),
    "a one-shot fails for good": Step(sent(3, make=once), executed(BAD), 11),
    "a receiver is gone": Step(sent(), executed(RunResult("failed", gone=True)), 12),
    "a run is put back": Step(sent(), executed(RetryAfter("503", 8)), 7),
    "a run is postponed": Step(sent(), lambda time: time.execute(run_of(time), wait=3), 5),
    "a run is handed over": Step(sent(), executed(Delegated()), 7),
    "a run is reported": Step(handed_over, reported, 8),
    "a run is cancelled": Step(sent(), cancelled, 7),
    "a one-shot is cancelled": Step(sent(make=once), cancelled, 7),
    "a run is asked for": Step(Scheduled.hourly, asked_for, 4),
    "runs are taken up": Step(stranded, Scheduled.take_up, 12),
    "a run has killed its last worker": Step(died_over(5), Scheduled.take_up, 9),
}
# When a task was sent goes by the real clock where a person asks for the run.
VOLATILE = ("sent_at",)


@pytest.fixture(params=STEPS)
def step(request: pytest.FixtureRequest) -> Step:
    """Each of them in turn."""
    return STEPS[request.param]


@pytest.fixture
def given(tmp_path: Path, step: Step) -> Iterator[Scheduled]:
    """A store as it is before the step."""
    time = Scheduled(tmp_path / "given")
    step.given(time)
    yield time
    time.close()


def rows(time: Scheduled) -> Any:
    return time.rows(without=VOLATILE)


def test_killed_between_any_two_statements_a_step_leaves_all_or_nothing(
    given: Scheduled, step: Step, tmp_path: Path
) -> None:
    """Given a process killed before the nth statement or commit, then the store is as some commit left it."""
    whole = given.copied(tmp_path / "whole")
    committed = [rows(whole)]
    with whole.after_each_commit(lambda: committed.append(rows(whole))):
        step.does(whole)
    assert rows(whole) == committed[-1]
    assert committed[-1] != committed[0]
    whole.close()

    states, cut = [], 0
    while True:
        time = given.copied(tmp_path / f"cut-{cut}")
        with time.killed_before(cut):
            try:
                step.does(time)
            except Killed:
                ended = False
            else:
                ended = True
        found = rows(time)
        assert found in committed, f"half done, killed before statement {cut}"
        states.append(committed.index(found))
        time.close()
        if ended:
            break
        cut += 1
    assert states == sorted(states)
    assert states[-1] == len(committed) - 1
    assert cut >= step.cuts


@pytest.mark.parametrize("step", [name for name in STEPS if "asked for" not in name], indirect=True)
def test_killed_between_any_two_statements_the_sweep_brings_it_to_an_end(
    given: Scheduled, step: Step, tmp_path: Path
) -> None:
    """Given a process killed before the nth statement or commit, when sweeps and workers go on, then all runs end."""
    cut = 0
    while True:
        time = given.copied(tmp_path / f"cut-{cut}")
        with time.killed_before(cut):
            try:
                step.does(time)
            except Killed:
                ended = False
            else:
                ended = True
        settle(time)
        with time.store.reading() as tx:
            counts = "count(*), count(DISTINCT agent_id || schedule_id || due_at), count(*) - count(finished_at)"
            made, apart, left = tx.connection.exec_driver_sql(f"SELECT {counts} FROM schedule_runs").one()
            lost = tx.connection.exec_driver_sql(
                "SELECT count(*) FROM schedules WHERE status = 'active' AND next_run_at IS NULL"
            ).scalar_one()
        assert (made, left, lost) == (apart, 0, 0), f"killed before statement {cut}"
        time.close()
        if ended:
            break
        cut += 1


def settle(time: Scheduled) -> None:
    """What sweeps and workers do until all runs have ended and nothing is due."""
    while (due_at := time.due_at()) is not None:
        with time.store.reading() as tx:
            under_way = tx.open_runs.next_at(lost_after=0) is not None
        if due_at > time.now and not under_way:
            return
        time.now = max(time.now, due_at)
        for one in time.sweep():
            time.execute(one.run)


def test_a_step_done_twice_is_done_once(given: Scheduled, step: Step) -> None:
    """Given a step that was done, when it is done again at the same moment, then nothing changes."""
    with given.store.reading() as tx:
        runs = tx.connection.exec_driver_sql("SELECT id FROM schedule_runs WHERE finished_at IS NULL").scalars().all()
    step.does(given)
    before = rows(given)
    if step.does in (Scheduled.claim, Scheduled.take_up):
        assert step.does(given) == []
    elif step.does is asked_for:
        with pytest.raises(Conflict):
            step.does(given)
    else:
        (run,) = runs
        again: dict[Any, Callable[[], object]] = {
            cancelled: lambda: cancel_run(given.store, run, agent="ana", rules=given.rules, now=given.now),
            reported: lambda: complete_run(
                given.store, run, RunReport(output="done"), agent="ana", rules=given.rules, now=given.now
            ),
        }
        again.get(step.does, lambda: given.execute(run))()
    assert rows(given) == before
