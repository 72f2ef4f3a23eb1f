"""Who hangs, by the signs of life that processes leave in files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reverie.errors import Rejected
from worker.settings import load_settings
from worker.supervision.alive_signs import ALIVE_FILE, SIGN_SECONDS, AliveWatch, give_alive_signs


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


def test_signs_are_given_where_the_supervisor_looks(tmp_path: Path) -> None:
    """Given a named file, then a process gives its first sign there; without one it gives none."""
    give_alive_signs({})
    path = tmp_path / "server.alive"
    give_alive_signs({ALIVE_FILE: str(path)})
    while not path.exists():
        os.sched_yield()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_time_that_busy_processes_could_exceed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given less than ten seconds, then the setting is refused with what is possible; 0 turns it off."""
    monkeypatch.setenv("REVERIE_HANG_SECONDS", "3")
    with pytest.raises(Rejected, match="0, or at least 10"):
        load_settings()
    monkeypatch.setenv("REVERIE_HANG_SECONDS", "0")
    assert load_settings().hang_seconds == 0
