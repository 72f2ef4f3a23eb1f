"""When the supervisor starts a process again, and when it kills one: on a clock that is set, with played processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from worker.supervision import child as child_module
from worker.supervision import supervisor as supervisor_module
from worker.supervision.child import Child, Death, ProcessSpec
from worker.supervision.supervisor import Supervisor


class PlayedTime:
    """Stands in for the module `time`; it passes only while the supervisor sleeps.

    When it sleeps until a signal comes, `signal` is called.
    """

    def __init__(self) -> None:
        self.now = 1_000.0
        self.signal: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float | None) -> None:
        if seconds in (None, math.inf):
            self.signal()
        else:
            self.now += seconds


class PlayedChild(Child):
    """A process that takes no notice of SIGTERM."""

    alive, exited = False, False

    @property
    def pid(self) -> int | None:
        return 1 if self.alive else None

    def start(self, private_descriptors: Sequence[int] = ()) -> int:
        self.alive, self.restart_due = True, None
        return 1

    def has_exited(self) -> bool:
        return self.exited

    def terminate(self) -> None:
        """Nothing happens."""

    def kill(self) -> None:
        self.exited = True

    def reap(self) -> Death:
        self.alive, self.exited = False, False
        return Death(pid=1, exit_code=None, signal="SIGKILL", lived_seconds=0.0)


Events = list[tuple[str, float]]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> PlayedTime:
    """The clock of a supervisor whose processes are played."""
    played = PlayedTime()
    for module in (supervisor_module, child_module):
        monkeypatch.setattr(module, "time", played)
    monkeypatch.setattr(Supervisor, "_sleep", lambda _, seconds: played.sleep(seconds))
    monkeypatch.setattr(Supervisor, "_write_run_file", lambda _: None)
    monkeypatch.setattr(supervisor_module, "Child", PlayedChild)
    monkeypatch.setattr(supervisor_module, "SIGN_SECONDS", math.inf)  # played processes give no signs
    return played


def test_a_process_that_died_is_started_again_when_its_delay_is_over(time: PlayedTime, tmp_path: Path) -> None:
    """Given a process that dies four times, then each time it is started after its delay, and not before."""
    events: Events = []
    supervisor = Supervisor(
        [ProcessSpec(name="one", argv=["one"])], tmp_path, on_event=lambda event: events.append((event.kind, time.now))
    )
    (child,) = supervisor._children

    def die() -> None:
        if len(events) < 8:
            child.kill()
        else:
            supervisor._stop_signal = 15

    time.signal = die
    child.start()
    supervisor._keep_alive()

    assert [kind for kind, _ in events] == ["process_died", "process_started"] * 4
    moments = [at for _, at in events]
    delays = [after - before for before, after in zip(moments[::2], moments[1::2], strict=True)]
    assert delays == pytest.approx([0.0, 0.2, 0.4, 0.8])


def test_a_process_that_ignores_sigterm_is_killed_when_its_grace_is_over(time: PlayedTime, tmp_path: Path) -> None:
    """Given two processes with graces of 0.5 s and 3 s, when both are stopped, then each is killed after its own."""
    events: Events = []
    supervisor = Supervisor(
        [ProcessSpec(name=name, argv=[name], stop_grace_seconds=grace) for name, grace in (("a", 3.0), ("b", 0.5))],
        tmp_path,
        on_event=lambda event: events.append((f"{event.name} {event.kind} {event.error}", time.now - 1_000.0)),
    )
    for child in supervisor._children:
        child.start()
    supervisor._stop_all()

    assert [(what, at) for what, at in events if "killed" in what] == [
        ("b process_killed it did not end within 0.5 s", 0.5),
        ("a process_killed it did not end within 3 s", 3.0),
    ]
    assert not any(child.alive for child in supervisor._children)
