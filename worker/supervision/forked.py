"""Starts a process of ours as a fork of the supervisor, which has imported its modules already.

Each process would otherwise import the same modules for 0.8 s of CPU and hold 60 MB of its own for them. As with
`spawn`, the child leads a session and dies with the supervisor. Call it in the main thread of a process without other
threads: a lock that another thread holds at the fork stays locked in the child.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from reverie.errors import ReverieError
from worker.supervision.processes import (
    PARENT_PID_VARIABLE,
    open_output,
    set_parent_death_signal,
    set_process_name,
)

# The signals whose handlers of the supervisor must not run in a child. SIGINT gets Python's own handler again.
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class ForkedProcess:
    """A forked child, with what the supervisor uses of `subprocess.Popen`."""

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
    `private_descriptors`: it would keep the supervisor's lock beyond the supervisor's death. Raises OSError: when
    no process can be made.
    """
    parent_pid = os.getpid()
    with open_output(log_path) as output:
        sys.stdout.flush()
        sys.stderr.flush()
        # Blocked until the child has its own handlers: a signal in between would be lost in the supervisor's.
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
    if os.getppid() != parent_pid:  # it died before the call
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a kill must not take lines of the log with it


def _run_and_exit(child: Callable[[], object]) -> NoReturn:
    """Run the child and end the process as the interpreter would, without unwinding the supervisor's stack."""
    code = 1
    try:
        code = _exit_code(child)
        # As the interpreter does at its end, and multiprocessing in its forks: wait for threads, call exit functions.
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
