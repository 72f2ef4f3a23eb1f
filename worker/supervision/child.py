"""One supervised process: starting, stopping, reaping it, and when to restart it.

Invariant: before a child is restarted, its former process group is dead.

Reverie's own processes start as forks of the supervisor, which has imported their modules already. Otherwise each would
import them for 0.8 s of CPU and have its own 60 MB for them. As with `spawn`, the child leads a session and dies with
the supervisor. Fork in the main thread of a process without other threads: a lock that another thread holds at the fork
stays locked in the child.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import psutil

from reverie.errors import ReverieError
from worker.supervision.alive_signs import AliveWatch
from worker.supervision.processes import (
    PARENT_PID_VARIABLE,
    has_exited,
    kill_group,
    open_output,
    set_parent_death_signal,
    set_process_name,
    spawn,
)
from worker.supervision.run_file import RunFileEntry

# The signals whose handlers of the supervisor must not run in a child. SIGINT gets Python's own handler again.
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class ForkedProcess:
    """A forked child with the methods of `subprocess.Popen` that the supervisor uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Reap the child if it has exited; return its code, negative for a signal, or None while it runs."""
        self._wait(os.WNOHANG)
        return self.returncode

    def wait(self) -> int:
        """Wait for the child to exit, reap it, and return its code, negative for a signal."""
        self._wait(0)
        assert self.returncode is not None
        return self.returncode

    def _wait(self, options: int) -> None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)


def fork(
    target: Callable[[], object],
    name: str,
    env: Mapping[str, str],
    log_path: Path | None,
    parent_death_signal: int,
    *,
    private_descriptors: Sequence[int] = (),
) -> ForkedProcess:
    """Run `target` in a child in a session of its own, with its output appended to `log_path` or to our own output.

    `name` is what `ps -o comm` and `top` show, on Linux. `env` is added to our environment. The child closes
    `private_descriptors`: otherwise it would keep the supervisor's lock after the supervisor's death. Raises OSError:
    when no process can be made.
    """
    parent_pid = os.getpid()
    with open_output(log_path) as output:
        sys.stdout.flush()
        sys.stderr.flush()
        # Blocked until the child has its own handlers: the supervisor's handlers would swallow a signal in between.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            pid = os.fork()
            if pid == 0:

                def child() -> object:
                    _become_child(parent_pid, parent_death_signal, None if output is None else output.fileno())
                    set_process_name(name)
                    for descriptor in private_descriptors:
                        os.close(descriptor)
                    os.environ.update({**env, PARENT_PID_VARIABLE: str(parent_pid)})
                    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                    return target()

                _run_and_exit(child)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return ForkedProcess(pid)


def _become_child(parent_pid: int, parent_death_signal: int, output: int | None) -> None:
    """Lead a session of its own, tied to the supervisor, with its own signals and output."""
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        # A signal that is ignored stays ignored, as after an exec: SIGHUP under nohup.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.setsid()
    set_parent_death_signal(parent_death_signal)
    if os.getppid() != parent_pid:  # the supervisor died before the call
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a kill must not lose log lines


def _run_and_exit(child: Callable[[], object]) -> NoReturn:
    """Run the child and end the process as the interpreter would, without unwinding the supervisor's stack."""
    code = 1
    try:
        code = _exit_code(child)
        # Wait for threads and call exit functions, as the interpreter and multiprocessing's forks do at their end.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(child: Callable[[], object]) -> int:
    """Run the child; return its exit code. Errors are printed: this is the boundary of the process."""
    try:
        child()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)  # noqa: T201 - the log of the process
        return 1
    except ReverieError as error:
        print(f"reverie: {error}", file=sys.stderr)  # noqa: T201 - the log of the process
        return 1
    except BaseException:  # noqa: BLE001 - the boundary of the process
        traceback.print_exc()
        return 1
    return 0


_FIRST_BACKOFF_SECONDS = 0.2
_LONGEST_BACKOFF_SECONDS = 5.0
_HEALTHY_AFTER_SECONDS = 30.0
_SHORT_LIFE_SECONDS = 10.0
_CRASH_LOOP_DEATHS = 5
_TAIL_BYTES = 4096
_TAIL_LINES = 8


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """A process to keep alive.

    `target`: runs in a fork of the supervisor instead of `argv`.
    `order`: lower ones start first and stop last; processes of the same order stop together. `stop_order` replaces it
    for the stop.
    `env` is added to the supervisor's own environment.
    `ready` is polled for at most `ready_timeout_seconds` before the next process starts.
    `before_start` runs once, before the first start, and `while_starting` once, after it and before `ready` is polled;
    an exception in either ends the supervisor. `before_each_start` runs before every start, restarts too, and must not
    raise.
    `log_path` receives its output; None: the supervisor's own output.
    `alive_path` is a file that the process touches every few seconds once it works; it is killed if it has not done so
    for `hang_seconds`.
    `parent_death_signal` is the signal that the kernel sends when the supervisor is killed (Linux).
    """

    name: str
    argv: Sequence[str]
    target: Callable[[], object] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stop_grace_seconds: float = 10.0
    order: int = 0
    stop_order: int | None = None
    ready: Callable[[], bool] | None = None
    ready_timeout_seconds: float = 30.0
    log_path: Path | None = None
    before_start: Callable[[], None] | None = None
    before_each_start: Callable[[], object] | None = None
    while_starting: Callable[[], None] | None = None
    alive_path: Path | None = None
    hang_seconds: float = 120.0
    parent_death_signal: int = signal.SIGTERM


@dataclass(frozen=True, kw_only=True)
class Death:
    """How a process ended: an exit code, or the name of the signal that ended it."""

    pid: int
    exit_code: int | None
    signal: str | None
    lived_seconds: float


class Child:
    """The running process of a `ProcessSpec`."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.restarts = 0
        self.started_at: datetime | None = None
        self.restart_due: float | None = None  # on the monotonic clock
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._started = 0.0
        self._created: float | None = None
        self._deaths_in_a_row = 0
        self._short_lives_in_a_row = 0
        self._watch = None if spec.alive_path is None else AliveWatch(spec.alive_path, spec.hang_seconds)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def keeps_crashing(self) -> bool:
        """True once for each crash loop: at the death with which the loop begins."""
        return self._short_lives_in_a_row == _CRASH_LOOP_DEATHS

    @property
    def stop_order(self) -> int:
        return self.spec.order if self.spec.stop_order is None else self.spec.stop_order

    def start(self, private_descriptors: Sequence[int] = ()) -> int:
        """Start the process and return its pid; a fork closes `private_descriptors`. Raises OSError."""
        if self.started_at is not None:
            self.restarts += 1
        self.restart_due = None
        self.started_at, self._started = datetime.now(UTC), time.monotonic()
        if self._watch is not None:
            self._watch.restart()
        spec = self.spec
        if spec.before_each_start is not None:
            spec.before_each_start()
        if spec.target is None:
            self._process = spawn(spec.argv, spec.env, spec.log_path, spec.parent_death_signal)
        else:
            self._process = fork(
                spec.target,
                spec.name,
                spec.env,
                spec.log_path,
                spec.parent_death_signal,
                private_descriptors=private_descriptors,
            )
        self._created = psutil.Process(self._process.pid).create_time()
        return self._process.pid

    def has_exited(self) -> bool:
        """Return whether the process has exited and is not reaped yet."""
        return self._process is not None and has_exited(self._process)

    def hangs(self) -> bool:
        """Return whether the process has given no sign for too long; call it every few seconds."""
        return self._watch is not None and self._process is not None and self._watch.hangs(time.monotonic())

    def terminate(self) -> None:
        """Send SIGTERM to the process only: it ends its own group, as a Celery worker does with its pool."""
        if self._process is not None and not has_exited(self._process):
            os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process and its group; `reap` must still be called."""
        if self._process is not None:
            kill_group(self._process.pid)

    def reap(self) -> Death:
        """Reap the exited process and kill the rest of its group."""
        process = self._process
        assert process is not None, "only an exited process can be reaped"
        kill_group(process.pid)
        code = process.wait()
        self._process = None
        return Death(
            pid=process.pid,
            exit_code=code if code >= 0 else None,
            signal=signal.Signals(-code).name if code < 0 else None,
            lived_seconds=time.monotonic() - self._started,
        )

    def plan_restart(self, lived_seconds: float) -> float:
        """Set the time of the next start; return the delay in seconds."""
        if lived_seconds >= _HEALTHY_AFTER_SECONDS:
            self._deaths_in_a_row = 0
        self._deaths_in_a_row += 1
        self._short_lives_in_a_row = self._short_lives_in_a_row + 1 if lived_seconds < _SHORT_LIFE_SECONDS else 0
        delay_seconds = restart_delay_seconds(self._deaths_in_a_row)
        self.restart_due = time.monotonic() + delay_seconds
        return delay_seconds

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines of the log file, to show why the process keeps crashing."""
        path = self.spec.log_path
        if path is None or not path.exists():
            return ()
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return tuple(file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def run_file_entry(self) -> RunFileEntry:
        """Return the entry of this process in the run file."""
        return RunFileEntry(
            name=self.spec.name,
            pid=self.pid,
            restarts=self.restarts,
            started_at=self.started_at,
            created=self._created if self.pid is not None else None,
            log_path=None if self.spec.log_path is None else str(self.spec.log_path),
        )


def restart_delay_seconds(deaths_in_a_row: int) -> float:
    """Return 0 after the first death, then 0.2 s doubling up to 5 s."""
    if deaths_in_a_row <= 1:
        return 0.0
    doublings = min(deaths_in_a_row - 2, 16)  # bounded: a float overflows after a night of deaths
    return float(min(_LONGEST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2**doublings))
