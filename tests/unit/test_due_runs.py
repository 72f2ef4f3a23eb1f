"""The sweep over schedules: each due time becomes one run, whoever sweeps and however often, and nobody is held up."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from memory.scheduling import due_runs
from memory.scheduling.due_runs import LOST_AFTER_SECONDS, ToSend
from memory.scheduling.executing import Delegated
from memory.scheduling.rules import RunResult
from memory.scheduling.schedules import complete_run, run_now
from reverie.clock import from_micros
from reverie.scheduling.types import RunReport
from support.scheduled import (
    BAD,
    GOOD,
    PATIENT,
    SECOND,
    WORKERS,
    Scheduled,
    assert_partition,
    run_together,
    when_unlocked,
)


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    """A workspace without schedules."""
    time = Scheduled(tmp_path / "data")
    yield time
    time.close()


# --- claiming ---


def test_what_is_due_becomes_one_run_and_the_next_time_is_set_with_it(time: Scheduled) -> None:
    """Given a schedule, when the sweep comes before, at and after its time, then there is one run, for that time."""
    schedule = time.hourly()
    assert time.sweep() == []
    time.to_hour()
    time.now -= 1
    assert time.sweep() == []
    time.now += 1
    (sent,) = time.sweep()
    assert time.sweep() == []
    (run,) = time.runs(schedule)
    assert (run.id, run.trace) == (sent.run, sent.trace)
    assert (run.due_at, run.first_due_at, run.coalesced) == (time.now, time.now, 0)
    assert (run.status, run.created_at, run.started_at) == ("pending", time.now, None)
    assert time.schedule(schedule).next_run_at == time.now + 3_600 * SECOND


def test_schedules_of_all_agents_are_swept_the_longest_due_first(time: Scheduled) -> None:
    """Given schedules of two agents, when both are overdue, then each has its run, in the order of their times."""
    late, early = time.once(120, agent="bob", id="x"), time.once(60, agent="ana", id="x")
    time.advance(600)
    first, second = time.sweep()
    assert time.run(first.run, agent="ana").schedule == early
    assert time.run(second.run, agent="bob").schedule == late


@pytest.mark.parametrize("status", ["paused", "completed", "failed", "disabled"])
def test_only_active_schedules_fire(time: Scheduled, status: str) -> None:
    """Given a schedule of another status, though it has a time, then nothing of it is due."""
    schedule = time.hourly()
    time.spoil(schedule, status=status)
    time.to_hour()
    assert time.due_at() is None
    assert time.sweep() == []


def test_while_a_run_is_under_way_what_becomes_due_waits_and_is_one_run_then(time: Scheduled) -> None:
    """Given a run of three hours of an hourly schedule, when it ends, then one run stands for what was due."""
    schedule = time.hourly(executor=WORKERS, timeout_seconds=86_400)
    time.to_hour()
    began = time.now
    (sent,) = time.sweep()
    time.execute(sent.run, Delegated())
    for _ in range(3):
        time.advance(3_600)
        assert time.sweep() == []
    time.advance(600)
    complete_run(time.store, sent.run, RunReport(), agent="ana", rules=time.rules, now=time.now)
    assert time.due_at() == began + 3_600 * SECOND
    (sent,) = time.sweep()
    run = time.run(sent.run)
    hours = [(at - began) / SECOND / 3_600 for at in (run.first_due_at, run.due_at)]
    assert (hours, run.coalesced) == ([1, 3], 2)
    assert time.schedule(schedule).next_run_at == began + 4 * 3_600 * SECOND


def test_a_slow_run_holds_up_no_other_schedule(time: Scheduled) -> None:
    """Given a run that does not end, then another schedule fires at each of its times."""
    time.hourly(executor=WORKERS, timeout_seconds=86_400)
    other = time.hourly()
    time.to_hour()
    slow, quick = time.sweep()
    if time.run(slow.run).schedule == other:
        slow, quick = quick, slow
    time.execute(slow.run, Delegated())
    for _ in range(3):
        time.execute(quick.run)
        time.advance(3_600)
        (quick,) = time.sweep()
        assert time.run(quick.run).schedule == other


def test_many_that_are_due_at_once_are_claimed_in_batches_all_of_them(time: Scheduled) -> None:
    """Given 250 due schedules, then each is claimed once, in transactions of at most 100."""
    schedules = {time.hourly(user=f"u{number // 50}") for number in range(250)}
    time.to_hour()
    sizes: list[int] = []
    with time.after_each_commit(lambda: sizes.append(len(time.rows()) - sum(sizes) - 250)):
        sent = time.sweep()
    assert sizes == [100, 100, 50]
    assert {time.run(one.run).schedule for one in sent} == schedules
    assert time.sweep() == []


def test_a_time_that_a_run_by_hand_has_taken_to_the_microsecond_still_comes_for_a_one_shot(time: Scheduled) -> None:
    """Given runs by hand asked for at the very time of schedules, then a one-shot has a run of its own all the same."""
    once = time.once(60)
    time.advance(60)
    by_hand = run_now(time.store, once, agent="ana", now=time.now)
    time.execute(by_hand.id, BAD)
    assert time.schedule(once).status == "active"
    (sent,) = time.claim()
    run = time.run(sent.run)
    assert (run.trigger, run.due_at) == ("schedule", time.now + 1)
    time.execute(sent.run)
    assert time.schedule(once).status == "completed"


def test_a_time_that_a_run_by_hand_has_taken_to_the_microsecond_is_not_run_again_by_a_cron(time: Scheduled) -> None:
    """Given a cron whose very due time was asked for by hand, then that run stands for it and the next time is set."""
    hourly = time.hourly()
    time.to_hour()
    time.execute(run_now(time.store, hourly, agent="ana", now=time.now).id)
    assert time.claim() == []
    assert time.schedule(hourly).next_run_at == time.now + 3_600 * SECOND
    assert len(time.runs(hourly)) == 1


# --- several sweeps at once ---


def test_three_sweeps_in_threads_make_each_run_once(time: Scheduled, tmp_path: Path) -> None:
    """Given 60 schedules, when three sweep and execute at once for hours, then no due time has two runs or none."""
    schedules = [time.every(60 + number, user=f"u{number // 50}") for number in range(60)]
    time.rules = replace(time.rules, **PATIENT)
    start = time.now
    sent: list[list[str]] = [[], [], []]
    barrier = threading.Barrier(3)

    def sweeping(number: int) -> None:
        mine = Scheduled(tmp_path / "data", now=start)
        mine.rules = time.rules
        barrier.wait()
        for _ in range(6):
            mine.advance(100)
            for one in when_unlocked(mine.claim):
                sent[number].append(one.run)
                outcome = BAD if len(sent[number]) % 7 == 0 else GOOD
                when_unlocked(partial(mine.execute, one.run, outcome))
        mine.close()

    run_together(*(partial(sweeping, number) for number in range(3)))
    made = [run for schedule in schedules for run in time.runs(schedule)]
    assert sorted(run.id for run in made) == sorted(one for each in sent for one in each)
    assert sum(1 for each in sent if each) >= 2, "one alone has swept"
    time.now = start + 600 * SECOND
    for schedule, seconds in zip(schedules, range(60, 120), strict=True):
        every = [start + at * seconds * SECOND for at in range(1, 600 // seconds + 1)]
        assert_partition(time.runs(schedule), [from_micros(at) for at in every])


_SWEEPER = """
import sys
from functools import partial
from pathlib import Path
from support.scheduled import Scheduled, when_unlocked
mine = Scheduled(Path(sys.argv[1]), now=int(sys.argv[2]))
mine.store
print("ready", flush=True)
sys.stdin.readline()
for _ in range(4):
    mine.advance(100)
    for one in when_unlocked(mine.claim):
        print(one.run)
        when_unlocked(partial(mine.execute, one.run))
mine.close()
"""


def test_three_sweeps_in_processes_make_each_run_once(time: Scheduled) -> None:
    """Given 40 schedules, when three processes sweep one store at once, then each due time is in one run."""
    schedules = [time.every(60 + number) for number in range(40)]
    paths = [path for path in sys.path if path]
    start, root = time.now, Path(__file__).parents[2]
    code = f"import sys; sys.path[:0] = {[*paths, str(root), str(root / 'tests')]!r}\n{_SWEEPER}"
    command = [sys.executable, "-c", code, str(time.data), str(start)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        sent = [line for process in processes for line in process.communicate(timeout=60)[0].split()]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0, 0]
    made = [run for schedule in schedules for run in time.runs(schedule)]
    assert sorted(run.id for run in made) == sorted(sent)
    for schedule, seconds in zip(schedules, range(60, 100), strict=True):
        every = [start + at * seconds * SECOND for at in range(1, 400 // seconds + 1)]
        assert_partition(time.runs(schedule), [from_micros(at) for at in every])


def test_of_two_sweeps_that_read_the_same_due_schedule_one_makes_its_run(time: Scheduled, tmp_path: Path) -> None:
    """Given a sweep that was overtaken between reading and claiming, then it makes nothing, and sends nothing."""
    schedule = time.hourly()
    time.to_hour()
    other = Scheduled(tmp_path / "data", now=time.now)
    with time.store.reading() as tx:
        (due,) = tx.due_schedules.due(now=time.now, limit=10)
    first = other.claim()
    claim = due_runs._plan(due, time.now)
    with time.store.writing() as tx:
        assert not due_runs._write(tx, claim, time.now, time.clock)
    assert [run.id for run in time.runs(schedule)] == [sent.run for sent in first]
    other.close()


def test_two_sweeps_that_take_up_at_once_send_each_lost_task_once(time: Scheduled, tmp_path: Path) -> None:
    """Given 50 lost tasks, when two sweeps take them up at once, then each is sent by one of them."""
    for _ in range(50):
        time.hourly()
    time.to_hour()
    claimed = {one.run for one in time.claim()}
    time.advance(LOST_AFTER_SECONDS)
    other = Scheduled(tmp_path / "data", now=time.now)
    sent: list[list[ToSend]] = []
    run_together(*(partial(lambda each: sent.append(when_unlocked(each.take_up)), each) for each in (time, other)))
    assert sorted(one.run for each in sent for one in each) == sorted(claimed)
    other.close()


# --- what cannot be computed ---


@pytest.mark.parametrize(
    ("cadence", "why"),
    [
        ("{", "truncated"),
        ('{"type":"moon"}', "Invalid value 'moon'"),
        ('{"type":"cron","expression":"0 * * * *","tz":"Europe/Atlantis"}', "Europe/Atlantis"),
        ('{"type":"cron","expression":"99 * * * *","tz":"UTC"}', "99"),
        ('{"type":"interval","seconds":0}', "every must be"),
        ('{"type":"interval","seconds":60,"anchor":"2027-01-01T00:00:00"}', "needs a time zone"),
    ],
)
def test_a_schedule_that_cannot_be_computed_is_disabled_with_a_notice_and_holds_up_nobody(
    time: Scheduled, cadence: str, why: str
) -> None:
    """Given a row that another version wrote, or a zone that is no more, then it alone is disabled, and why is told."""
    broken = time.hourly(name="broken", notification_policy="never")
    sound = [time.hourly() for _ in range(3)]
    time.spoil(broken, cadence=cadence)
    time.to_hour()
    sent = time.sweep()
    assert {time.run(one.run).schedule for one in sent} == set(sound)
    now = time.schedule(broken)
    assert (now.status, now.next_run_at) == ("disabled", None)
    (notification,) = time.notifications()
    assert (notification.kind, notification.schedule, notification.title) == ("disabled", broken, "broken is disabled")
    assert notification.body.startswith("its cadence cannot be computed: ")
    assert why in notification.body
    assert time.sweep() == []
    assert len(time.notifications()) == 1


def test_a_hundred_schedules_that_cannot_be_computed_do_not_keep_the_others_waiting(time: Scheduled) -> None:
    """Given more broken rows than are read at once, all of them overdue longer, then a sound one still fires."""
    for _ in range(120):
        time.spoil(time.once(10, user=f"u{_ // 50}"), cadence="[]")
    sound = time.once(20)
    time.advance(60)
    (sent,) = time.sweep()
    assert time.run(sent.run).schedule == sound


def test_a_time_that_no_calendar_has_disables_its_schedule_alone(time: Scheduled) -> None:
    """Given a time before the year 1 in a row, then its schedule is disabled and the other fires."""
    broken, sound = time.hourly(), time.hourly()
    time.spoil(broken, next_run_at=-(10**18))
    time.to_hour()
    (sent,) = time.sweep()
    assert time.run(sent.run).schedule == sound
    assert time.schedule(broken).status == "disabled"


def test_where_no_schedule_is_there_is_nothing_to_do(time: Scheduled) -> None:
    """Given an empty store, then a write has to come first."""
    assert time.due_at() is None
    assert time.sweep() == []


def test_a_sweep_that_finds_nothing_writes_nothing(time: Scheduled) -> None:
    """Given schedules of which none is due, when the sweep comes, then no transaction takes the write lock."""
    time.hourly()
    committed: list[int] = []
    with time.after_each_commit(lambda: committed.append(1)):
        assert time.sweep() == []
    assert committed == []


def test_what_follows_a_sweep_that_was_down_is_in_order_for_each_schedule(time: Scheduled) -> None:
    """Given runs of all kinds, then those of one schedule never overlap: each begins when the one before has ended."""
    random = Random(5)
    schedules = [time.every(60), time.once(60), time.hourly()]
    for _ in range(80):
        time.advance(random.choice((20, 90, 900)))
        time.sweep()
        for schedule in schedules:
            for run in time.open_runs(schedule):
                time.execute(run.id, random.choice((GOOD, BAD, RunResult("timed_out"))))
            assert len(time.open_runs(schedule)) <= 1
            if random.random() < 0.2 and not time.open_runs(schedule):
                time.execute(run_now(time.store, schedule, agent="ana", now=time.now).id)
    for schedule in schedules:
        runs = sorted(time.runs(schedule), key=lambda run: run.created_at)
        assert all(before.finished_at <= after.created_at for before, after in pairwise(runs))  # type: ignore[operator]
