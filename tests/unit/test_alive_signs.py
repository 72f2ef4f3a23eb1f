"""Who hangs, by the signs of life that processes leave in files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memory.pipeline.faults import STALLED_SECONDS
from worker import consumption
from worker.supervision import alive_signs
from worker.supervision.alive_signs import ALIVE_FILE, SIGN_SECONDS, AliveWatch, PoolSigns, give_alive_signs


def touch(path: Path, at: float) -> None:
    path.touch()
    os.utime(path, (at, at))


def looks(watch: AliveWatch, begin: float, end: float) -> list[float]:
    """Look every two seconds; return when the process was found hanging."""
    found, now = [], begin
    while now <= end:
        if watch.hangs(now):
            found.append(now)
        now += SIGN_SECONDS
    return found


def test_a_process_hangs_when_its_signs_end(tmp_path: Path) -> None:
    """Given signs until a moment, then the process hangs once the patience has passed since, and not before."""
    path = tmp_path / "worker.alive"
    watch = AliveWatch(path, patience_seconds=10)
    assert looks(watch, 0, 100) == [], "without a first sign there is nothing to miss"
    for moment in range(100, 130, 2):
        touch(path, moment)
        assert not watch.hangs(moment)
    assert looks(watch, 130, 145)[0] == 140


def test_a_clock_that_is_set_back_is_a_sign_like_any_other(tmp_path: Path) -> None:
    """Given a file whose time goes back with the clock of the machine, then it counts as a sign."""
    path = tmp_path / "worker.alive"
    watch = AliveWatch(path, patience_seconds=5)
    for moment, at in ((0, 5_000.0), (4, 1_000.0), (8, 1_004.0), (12, 1_008.0)):
        touch(path, at)
        assert not watch.hangs(moment)


def test_a_pause_in_which_nobody_looked_does_not_count(tmp_path: Path) -> None:
    """Given a supervisor that was stopped for an hour with its processes, when it looks again, then nobody hangs, and
    somebody who still gives no sign does after the patience."""
    path = tmp_path / "worker.alive"
    watch = AliveWatch(path, patience_seconds=10)
    touch(path, 0)
    assert looks(watch, 0, 4) == []
    assert looks(watch, 3_600, 3_602) == []
    assert looks(watch, 3_604, 3_610) != []


def test_a_new_process_does_not_inherit_the_signs_of_the_old_one(tmp_path: Path) -> None:
    """Given a process that hung, when it is restarted and has not given its first sign, then it does not hang."""
    path = tmp_path / "worker.alive"
    watch = AliveWatch(path, patience_seconds=4)
    touch(path, 0)
    assert looks(watch, 0, 10)
    watch.restart()
    assert not path.exists()
    assert looks(watch, 10, 60) == []


def test_only_a_child_that_does_not_count_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given children of a pool, one of which ceases to count, then the system is asked about this one alone, and it is
    killed once it has also used no processor for half a minute."""
    looked_at, killed = [], []

    def activity(pid: int, _: float) -> tuple[int, float]:
        looked_at.append(pid)
        return 0, 0.0

    monkeypatch.setattr(alive_signs, "_activity", activity)
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    signs = PoolSigns()
    for look in range(40):
        alive_signs._SLOT.pack_into(signs._memory, 0, 101, look)
        alive_signs._SLOT.pack_into(signs._memory, alive_signs._SLOT.size, 102, min(look, 10))
        signs.kill_stopped(look * SIGN_SECONDS)
        if killed:
            break
    assert (set(looked_at), killed) == ({102}, [102])
    assert 10 * SIGN_SECONDS + 30 <= look * SIGN_SECONDS <= 10 * SIGN_SECONDS + 36


def test_signs_are_given_where_the_supervisor_looks(tmp_path: Path) -> None:
    """Given a named file, then a process gives its first sign there; without one it gives none."""
    give_alive_signs({})
    path = tmp_path / "server.alive"
    give_alive_signs({ALIVE_FILE: str(path)})
    while not path.exists():
        os.sched_yield()
    assert path.stat().st_mode & 0o777 == 0o600


class Machine:
    """A worker whose event loop the test turns, and a clock that only the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, longest_task_seconds: float = 300) -> None:
        self.now = 1_000.0
        self.running: set[str] = set()
        self.exits: list[int] = []
        monkeypatch.setattr(consumption, "active_requests", self.running)
        monkeypatch.setattr(os, "_exit", self.exits.append)
        self.consumption = consumption.Consumption(longest_task_seconds, clock=lambda: self.now)

    def live(
        self, seconds: float, *, looks: bool = False, turns: bool = True, full: bool = False, broker: bool = True
    ) -> float:
        """Let time pass as the threads of a worker see it; return for how long it was found stalled at the most."""
        worst = 0.0
        for _ in range(int(seconds / SIGN_SECONDS)):
            self.now += SIGN_SECONDS
            if turns:
                self.consumption.turned(full=full)
            if looks:
                self.consumption.looked()
            if broker:
                self.consumption.broker_answered()
            worst = max(worst, self.consumption.judge())
        return worst


def test_a_worker_that_looks_into_empty_queues_works(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine(monkeypatch).live(3_600, looks=True) == 0


def test_a_worker_with_a_free_place_that_looks_into_no_queue_is_stalled_and_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a loop that turns and sends no BRPOP, then it is a fault after 20 s, and the process ends after 40 s."""
    machine = Machine(monkeypatch)
    assert machine.live(18) < STALLED_SECONDS
    assert machine.consumption.works()
    machine.live(6)
    assert not machine.consumption.works()
    assert machine.exits == []
    machine.live(24)
    assert machine.exits[0] == os.EX_TEMPFAIL


def test_a_worker_whose_messages_count_though_nothing_runs_is_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given places that were not freed when their tasks ended, then the worker is not busy."""
    assert Machine(monkeypatch).live(30, full=True) >= STALLED_SECONDS


def test_a_full_worker_is_busy_for_as_long_as_its_longest_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a task that lasts, then its worker works until the limit of tasks; one that is never ended is a fault."""
    machine = Machine(monkeypatch, longest_task_seconds=60)
    machine.running.add("task")
    machine.consumption.looked()
    assert machine.live(88, full=True) == 0
    assert machine.live(30, full=True) >= STALLED_SECONDS


def test_a_loop_that_does_not_turn_is_a_fault_though_a_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.running.add("task")
    machine.live(10, full=True)
    assert machine.live(30, full=True, turns=False) >= STALLED_SECONDS


def test_a_broker_that_is_away_is_not_the_fault_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an outage of an hour, then the worker is not stalled; if it takes nothing afterwards, it is."""
    machine = Machine(monkeypatch)
    machine.live(10, looks=True)
    assert machine.live(3_600, broker=False, turns=False) < STALLED_SECONDS
    assert machine.exits == []
    assert machine.live(30) >= STALLED_SECONDS


def test_a_worker_that_ends_takes_no_more_tasks_and_is_not_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.consumption.end()
    assert machine.live(600, turns=False) == 0


def test_a_machine_that_slept_finds_no_worker_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a process that stood still for an hour, when it goes on, then only the time of two looks counts."""
    machine = Machine(monkeypatch)
    machine.live(10, looks=True)
    machine.now += 3_600
    assert machine.live(2) < STALLED_SECONDS
