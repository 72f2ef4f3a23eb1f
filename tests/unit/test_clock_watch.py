"""A clock that has just jumped: what is removed or fired by it waits, and goes on when it is right or steady."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beat_schedule import PERIODIC_JOBS
from reverie import contract
from reverie.errors import Unavailable
from storage.private_files import write_private
from support.kept import NOW, Kept
from worker.app import app
from worker.clock_watch import FILE_NAME, ClockState, ClockWatch, next_state, steady_micros
from worker.job_runs import registered_jobs
from worker.runtime import Runtime
from worker.settings import Settings
from worker.supervision.log_files import LogFiles, LogLimits

SECOND = 1_000_000
HOUR = 3_600 * SECOND
YEAR = 365 * 24 * HOUR


class Machine:
    """A machine's two clocks."""

    def __init__(self) -> None:
        self.wall = NOW
        self.since_start = 5 * HOUR

    def now(self) -> int:
        return self.wall

    def steady(self) -> int:
        return self.since_start

    def pass_time(self, micros: int) -> None:
        self.wall += micros
        self.since_start += micros


@pytest.fixture
def machine() -> Machine:
    return Machine()


def watch(machine: Machine, folder: Path) -> ClockWatch:
    return ClockWatch(folder, now=machine.now, steady=machine.steady)


def test_a_clock_that_jumps_ahead_is_believed_after_it_was_steady_for_an_hour(machine: Machine, tmp_path: Path) -> None:
    """Given a jump of a year, then every process waits, for an hour in all, and less where less is at stake."""
    assert watch(machine, tmp_path).seconds_to_wait() == 0
    machine.wall += YEAR
    assert watch(machine, tmp_path).seconds_to_wait() == 3_600
    machine.pass_time(HOUR // 2)
    other = watch(machine, tmp_path)
    assert (other.seconds_to_wait(), other.seconds_to_wait(60)) == (1_800, 0)
    machine.pass_time(HOUR // 2)
    assert other.seconds_to_wait() == 0
    assert watch(machine, tmp_path).look().jumped_at is None


def test_a_clock_that_is_right_again_is_believed_at_once(machine: Machine, tmp_path: Path) -> None:
    """Given a jump ahead and back, however often, then nothing waits any more."""
    seen = watch(machine, tmp_path)
    for _ in range(5):
        assert seen.seconds_to_wait() == 0
        machine.wall += YEAR
        machine.pass_time(15 * SECOND)
        assert seen.seconds_to_wait() > 3_500
        machine.wall -= YEAR
        machine.pass_time(15 * SECOND)
    assert seen.seconds_to_wait() == 0


@pytest.mark.parametrize("seconds", [300, 2_400])
def test_a_clock_that_is_set_back_holds_nothing_up(machine: Machine, tmp_path: Path, seconds: int) -> None:
    """Given a step back, then what is removed by age is younger than it was: no job waits."""
    seen = watch(machine, tmp_path)
    seen.look()
    machine.wall -= seconds * SECOND
    assert seen.seconds_to_wait() == 0
    assert seen.look().jumped_by == -seconds * SECOND


def test_a_clock_that_is_kept_right_never_jumps(machine: Machine, tmp_path: Path) -> None:
    """Given corrections of some seconds, a suspended machine and days of drift, then all is well."""
    seen = watch(machine, tmp_path)
    for number in range(500):
        machine.pass_time(HOUR)
        machine.wall += (number % 7 - 2) * SECOND
        assert seen.seconds_to_wait() == 0


def test_a_restart_of_the_machine_is_no_jump_unless_time_runs_backwards(machine: Machine) -> None:
    """Given another start, then only a clock that shows less than it did before is not believed."""
    state = next_state(None, now=NOW, steady=HOUR, boot="a", settle=HOUR)
    later = next_state(state, now=NOW + 30 * HOUR, steady=SECOND, boot="b", settle=HOUR)
    assert later.jumped_at is None
    earlier = next_state(state, now=NOW - 30 * HOUR, steady=SECOND, boot="b", settle=HOUR)
    assert earlier.jumped_by == -30 * HOUR
    right = next_state(earlier, now=NOW + SECOND, steady=2 * SECOND, boot="b", settle=HOUR)
    assert right.jumped_by == 0


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"boot": 1}'])
def test_a_damaged_file_is_written_anew(machine: Machine, tmp_path: Path, content: bytes) -> None:
    """Given a file that cannot be read, then the clock is believed as at the first start."""
    write_private(tmp_path / FILE_NAME, content)
    assert watch(machine, tmp_path).seconds_to_wait() == 0
    assert isinstance(watch(machine, tmp_path).look(), ClockState)


def test_a_folder_that_cannot_be_written_is_remembered_by_the_process(machine: Machine, tmp_path: Path) -> None:
    """Given a full disk, then a jump is noticed all the same."""
    seen = watch(machine, tmp_path / "missing")
    seen.look()
    machine.wall += YEAR
    assert seen.seconds_to_wait() == 3_600


def test_the_steady_clock_goes_on() -> None:
    """Given two looks, then time has passed."""
    assert 0 < steady_micros() <= steady_micros()


@pytest.fixture
def runtime(machine: Machine, tmp_path: Path) -> Iterator[Runtime]:
    """A process on this machine, with a memory that has decayed in a year."""
    app.loader.import_default_modules()
    runtime = Runtime(
        Settings(data=tmp_path / "data", broker="redis://127.0.0.1:1/0", embedding_provider="none"),
        clock=machine.now,
        steady_clock=machine.steady,
    )
    kept = Kept(tmp_path / "data")
    kept.add(id="fresh", hours_ago=1)
    yield runtime
    kept.close()
    runtime.close()


REMOVING = [
    contract.PRUNE_DECAYED,
    contract.CONSOLIDATE_MEMORIES,
    contract.CONSOLIDATE_CONVERSATIONS,
    contract.DREAM_SWEEP,
    contract.CLOSE_IDLE_SESSIONS,
    contract.APPLY_RETENTION,
    contract.OPTIMIZE_STORE,
]


@pytest.mark.parametrize("name", REMOVING)
def test_a_job_that_removes_by_age_waits_for_the_clock(runtime: Runtime, machine: Machine, name: str) -> None:
    """Given a clock that is a year ahead, then the job does nothing, and by hand says why."""
    job = registered_jobs[name]
    runtime.clock_watch.look()
    machine.wall += YEAR
    assert job.run(runtime, manual=False) == {"waits_for_clock_seconds": 3_600}
    with pytest.raises(Unavailable, match=r"8760\.0 hours ahead"):
        job.run(runtime, manual=True)
    assert name not in runtime.stores.jobs().last_runs()


def test_nothing_is_pruned_by_a_clock_that_is_ahead_for_one_sweep(runtime: Runtime, machine: Machine) -> None:
    """Given a memory of today, then it is there afterwards; a year that has really passed removes it."""
    prune = registered_jobs[contract.PRUNE_DECAYED]
    prune.run(runtime, manual=False)
    machine.wall += YEAR
    assert "pruned" not in prune.run(runtime, manual=False)
    machine.wall -= YEAR
    machine.pass_time(HOUR)
    assert "pruned" not in prune.run(runtime, manual=False)
    machine.pass_time(YEAR)
    assert prune.run(runtime, manual=False)["pruned"] == 1


@pytest.mark.parametrize("name", [contract.RUN_DUE_SCHEDULES, contract.DELIVER_REMINDERS])
def test_what_fires_waits_for_a_minute(runtime: Runtime, machine: Machine, name: str) -> None:
    """Given a clock that is ahead for a moment, then no reminder of the year goes out."""
    runtime.clock_watch.look()
    machine.wall += YEAR
    assert registered_jobs[name].run(runtime, manual=False) == {"waits_for_clock_seconds": 60}


def test_every_other_job_works_whatever_the_clock_says(runtime: Runtime) -> None:
    """Given the table of jobs, then those that wait for the clock are the ones that are named here."""
    waiting = {name for name, job in registered_jobs.items() if job.settles is not None}
    assert waiting == {*REMOVING, contract.RUN_DUE_SCHEDULES, contract.DELIVER_REMINDERS}
    assert waiting <= {job.task for job in PERIODIC_JOBS}


def test_a_simulated_clock_is_taken_as_it_is(make_clocked: Callable[[Callable[[], int]], Runtime]) -> None:
    """Given a runtime that was given its clock, then no jump of it is noticed."""
    times = iter([NOW, NOW, NOW + YEAR, NOW + YEAR])
    runtime = make_clocked(lambda: next(times))
    assert [runtime.clock_watch.seconds_to_wait() for _ in range(2)] == [0, 0]


@pytest.fixture
def make_clocked(tmp_path: Path) -> Callable[[Callable[[], int]], Runtime]:
    return lambda clock: Runtime(Settings(data=tmp_path, embedding_provider="none"), clock=clock)


def test_log_files_are_not_removed_by_a_clock_that_is_ahead(machine: Machine, tmp_path: Path) -> None:
    """Given a rotated file of today, when the clock is a year ahead for a moment, then it stays."""
    old = tmp_path / "server.log.1"
    old.write_text("a line\n")
    machine.wall = old.stat().st_mtime_ns // 1_000
    files = LogFiles(tmp_path, LogLimits(30, 10**6, 5), now=lambda: machine.wall / 1e6, steady=machine.steady)
    files.rotate()
    machine.wall += YEAR
    files.rotate()
    assert old.exists()
    machine.pass_time(2 * HOUR)
    files.rotate()
    assert not old.exists()
