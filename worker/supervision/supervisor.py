"""Starts Reverie's processes in order, keeps them alive, and stops them in reverse order.

Invariant: when `Supervisor.run` returns or raises, all of its processes and their process groups are dead. When the
supervisor itself is killed, the kernel ends its children (`worker.supervision.processes`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from reverie.errors import Unavailable
from worker.supervision.alive_signs import SIGN_SECONDS
from worker.supervision.child import Child, Death, ProcessSpec
from worker.supervision.log_files import LogFiles
from worker.supervision.run_file import RunFile, hold_data_dir, write_run_file

__all__ = ["ProcessEvent", "ProcessSpec", "Supervisor"]

log = structlog.get_logger(__name__)

_READY_POLL_SECONDS = 0.1
_LOGS_CHECK_SECONDS = 10.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LEVELS = {
    "process_died": "warning",
    "process_killed": "warning",
    "process_hangs": "error",
    "process_keeps_crashing": "error",
}


@dataclass(frozen=True, kw_only=True)
class ProcessEvent:
    """An event that `reverie up` shows.

    kind: process_started, process_ready, process_died (will be restarted), process_keeps_crashing (once for each crash
    loop), process_hangs (it is killed and restarted), process_stopping, process_killed (its grace period was over),
    process_stopped.
    """

    kind: str
    name: str
    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    restart_in_seconds: float | None = None
    error: str | None = None
    log_path: Path | None = None
    last_lines: tuple[str, ...] = ()


class Supervisor:
    """Keeps the processes of `specs` alive on `data_dir` for as long as `run` runs."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        data_dir: Path,
        *,
        on_event: Callable[[ProcessEvent], None] | None = None,
        log_files: LogFiles | None = None,
    ) -> None:
        self._children = [Child(spec) for spec in sorted(specs, key=lambda spec: spec.order)]
        self._data_dir = data_dir
        self._on_event = on_event
        self._log_files = log_files
        self._logs_due = self._signs_due = 0.0
        self._started_at = datetime.now(UTC)
        self._stop_signal: int | None = None
        self._kill_now = False
        self._lock = self._folder = self._wakeup_read = self._wakeup_write = -1
        self._run_file_failed = False

    def run(self) -> int:
        """Run until SIGINT, SIGTERM or SIGHUP and return 0; a SIGINT while stopping kills the remaining processes.

        Call it in the main thread. Raises Conflict: when Reverie runs on this data folder already; Unavailable: when a
        process cannot be started or is not ready in time. All processes are stopped before it raises.
        """
        with hold_data_dir(self._data_dir) as lock, self._signals_caught():
            self._lock = lock
            self._folder = os.open(self._data_dir, os.O_RDONLY)  # kept open, so that no other folder gets its inode
            try:
                self._rotate_logs()
                self._start_all()
                self._keep_alive()
            finally:
                self._stop_all()
                os.close(self._folder)
        return 0

    def _start_all(self) -> None:
        for child in self._children:
            if self._stop_signal is not None:
                return
            if child.spec.before_start is not None:
                child.spec.before_start()
            self._start(child)
            if child.spec.while_starting is not None:
                child.spec.while_starting()
            self._await_ready(child)

    def _start(self, child: Child) -> None:
        restarting = child.started_at is not None
        try:
            pid = child.start((self._lock, self._wakeup_read, self._wakeup_write))
        except OSError as error:
            if not restarting:
                raise Unavailable(f"{child.spec.name} cannot be started: {error}") from error
            # It ran before, so the cause is temporary (no memory to fork, a full process table): count it as a death.
            delay_seconds = child.plan_restart(lived_seconds=0.0)
            self._emit("process_died", child, error=str(error), restart_in_seconds=delay_seconds)
        else:
            self._write_run_file()
            self._emit("process_started", child, pid=pid)

    def _await_ready(self, child: Child) -> None:
        spec = child.spec
        if spec.ready is None:
            return
        deadline = time.monotonic() + spec.ready_timeout_seconds
        while self._stop_signal is None:
            # Check first that the process lives: another process may answer in place of a dead one.
            if child.pid is not None and not child.has_exited() and spec.ready():
                self._emit("process_ready", child, pid=child.pid)
                return
            if time.monotonic() > deadline:
                advice = f"see {spec.log_path}" if spec.log_path else "see its output above"
                raise Unavailable(f"{spec.name} was not ready after {spec.ready_timeout_seconds:g} s: {advice}")
            self._restart_dead()
            self._sleep(_READY_POLL_SECONDS)

    def _keep_alive(self) -> None:
        while self._stop_signal is None:
            self._check_folder()
            self._restart_dead()
            self._rotate_logs()
            self._kill_hanging()
            due = [child.restart_due for child in self._children if child.restart_due is not None]
            if self._log_files is not None:
                due.append(self._logs_due)
            self._sleep(max(0.0, min([*due, self._signs_due]) - time.monotonic()))

    def _check_folder(self) -> None:
        """Raise `Unavailable` when the data folder was removed or replaced, as writes would go to deleted files."""
        try:
            in_place = os.path.samestat(self._data_dir.stat(), os.fstat(self._folder))
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                return  # an unreadable folder may become readable again
            in_place = False
        if not in_place:
            self._kill_now = True
            raise Unavailable(
                f"the data folder {self._data_dir} was removed or replaced while Reverie ran: everything ends, as what"
                " it accepts would be lost. Put the folder back, and start `reverie up` again"
            )

    def _kill_hanging(self) -> None:
        """Kill the processes that give no sign any more; `_restart_dead` restarts them."""
        if time.monotonic() < self._signs_due:
            return
        self._signs_due = time.monotonic() + SIGN_SECONDS
        for child in self._children:
            if child.hangs():
                self._emit("process_hangs", child, pid=child.pid)
                child.kill()

    def _rotate_logs(self) -> None:
        if self._log_files is not None and time.monotonic() >= self._logs_due:
            self._log_files.rotate()
            self._logs_due = time.monotonic() + _LOGS_CHECK_SECONDS

    def _restart_dead(self) -> None:
        """Reap the processes that died and restart those that are due."""
        for child in self._children:
            if child.has_exited():
                self._handle_death(child, child.reap())
            if child.restart_due is not None and child.restart_due <= time.monotonic():
                self._start(child)

    def _handle_death(self, child: Child, death: Death) -> None:
        delay_seconds = child.plan_restart(death.lived_seconds)
        self._write_run_file()
        self._emit(
            "process_died",
            child,
            pid=death.pid,
            exit_code=death.exit_code,
            signal=death.signal,
            restart_in_seconds=delay_seconds,
        )
        if child.keeps_crashing:
            self._emit(
                "process_keeps_crashing",
                child,
                exit_code=death.exit_code,
                signal=death.signal,
                log_path=child.spec.log_path,
                last_lines=child.last_lines(),
            )

    def _stop_all(self) -> None:
        """Stop the highest order first, and processes of the same order together."""
        latest_first = self._children[::-1]
        latest_first.sort(key=lambda child: -child.stop_order)
        for _, group in itertools.groupby(latest_first, key=lambda child: child.stop_order):
            self._stop_together([child for child in group if child.pid is not None])

    def _stop_together(self, children: list[Child]) -> None:
        began = time.monotonic()
        for child in children:
            self._emit("process_stopping", child, pid=child.pid)
            child.terminate()
        killed: set[str] = set()
        while children := self._reap_exited(children):
            waited_seconds = time.monotonic() - began
            for child in children:
                late = self._kill_now or waited_seconds >= child.spec.stop_grace_seconds
                if late and child.spec.name not in killed:
                    killed.add(child.spec.name)
                    child.kill()
                    grace = child.spec.stop_grace_seconds
                    error = None if self._kill_now else f"it did not end within {grace:g} s"
                    self._emit("process_killed", child, pid=child.pid, error=error)
            graces = [c.spec.stop_grace_seconds for c in children if c.spec.name not in killed]
            self._sleep(max(0.0, min(graces) - waited_seconds) if graces else None)

    def _reap_exited(self, children: list[Child]) -> list[Child]:
        """Reap the processes that exited; return the others."""
        for child in children:
            if child.has_exited():
                death = child.reap()
                self._emit("process_stopped", child, pid=death.pid, exit_code=death.exit_code, signal=death.signal)
        return [child for child in children if child.pid is not None]

    @contextlib.contextmanager
    def _signals_caught(self) -> Iterator[None]:
        """Catch stop signals; make them and the death of a child interrupt `_sleep`."""
        self._wakeup_read, self._wakeup_write = os.pipe()
        for end in (self._wakeup_read, self._wakeup_write):
            os.set_blocking(end, False)
        caught = [signal.SIGCHLD, *_STOP_SIGNALS]
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            caught.remove(signal.SIGHUP)  # nohup: the supervisor is meant to outlive the terminal
        former = {number: signal.signal(number, self._handle_signal) for number in caught}
        former_wakeup = signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(former_wakeup)
            for number, handler in former.items():
                signal.signal(number, handler)
            os.close(self._wakeup_read)
            os.close(self._wakeup_write)

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            return
        if self._stop_signal is None:
            self._stop_signal = number
        elif number == signal.SIGINT:
            self._kill_now = True

    def _sleep(self, seconds: float | None) -> None:
        """Sleep for `seconds`, or until a signal arrives (the death of a child is one)."""
        if select.select([self._wakeup_read], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup_read, 65536)

    def _write_run_file(self) -> None:
        content = RunFile(
            supervisor_pid=os.getpid(),
            started_at=self._started_at,
            processes=[child.run_file_entry() for child in self._children],
        )
        try:
            write_run_file(self._data_dir, content)
            self._run_file_failed = False
        except OSError as error:
            # A full disk must not stop running processes; the file only informs `reverie status`.
            if not self._run_file_failed:
                log.warning("run_file_not_written", error=str(error))
            self._run_file_failed = True

    def _emit(self, kind: str, child: Child, **details: Any) -> None:
        event = ProcessEvent(kind=kind, name=child.spec.name, **details)
        known = {key: value for key, value in details.items() if value is not None}
        # The process boundary: our output may be closed (a closed terminal, `reverie up | head`), and an error from
        # writing to it would leave processes running.
        with contextlib.suppress(Exception):
            getattr(log, _LEVELS.get(kind, "info"))(kind, name=event.name, **known)
        if self._on_event is not None:
            with contextlib.suppress(Exception):
                self._on_event(event)
