"""Starts and ends processes, and makes sure that no process that Reverie has started outlives it.

Invariant: a child does not outlive its parent, even after a SIGKILL of the parent, and no process in a child's group
outlives the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal as signals
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import structlog

from storage.held_locks import can_set_session_niceness, can_take_priority_back
from storage.private_files import private_folder

# Set for every child of the supervisor. Grandchildren inherit it, but have another parent: only the entry point of a
# supervised process may read it.
PARENT_PID_VARIABLE = "REVERIE_PARENT_PID"

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_NAME = 15
_PARENT_POLL_SECONDS = 1.0
# Without CAP_SYS_ADMIN, all processes of a machine together may set the niceness of a session only once in 0.1 s
# (`proc_sched_autogroup_set_nice` in Linux), but processes that start together do so at once.
_SESSION_PAUSE_SECONDS = 0.1
_SESSION_TRIES = 20
_OPEN_FILES = 4_096

# Loaded at import: the dynamic loader must not run between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

log = structlog.get_logger(__name__)


def parent_pid_from(environ: Mapping[str, str]) -> int | None:
    """Return the pid of the supervisor that started this process, or None if none did."""
    text = environ.get(PARENT_PID_VARIABLE, "")
    return int(text) if text.isdecimal() else None


def raise_file_limit() -> None:
    """Let this process open as many files as it may, up to 4,096: open stores and connections need hundreds."""
    try:
        import resource
    except ImportError:  # not a Unix
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def die_with_parent(expected_parent_pid: int | None = None, signal: int = signals.SIGTERM) -> None:
    """Make this process receive `signal` when its parent dies, or now if the parent is already dead.

    Linux: the kernel sends it when the *thread* that forked this process ends. Elsewhere a daemon thread checks every
    second. Without `expected_parent_pid`, a parent that died before this call goes unnoticed.
    """
    parent_pid = os.getppid() if expected_parent_pid is None else expected_parent_pid
    if _libc is None:
        threading.Thread(target=watch_parent, args=(parent_pid, signal), daemon=True).start()
        return
    set_parent_death_signal(signal)
    if os.getppid() != parent_pid:  # the parent died before the call to prctl
        os.kill(os.getpid(), signal)


def end_with_supervisor(environ: Mapping[str, str]) -> None:
    """End this process when the `reverie up` that started it ends for any reason; do nothing in other processes."""
    supervisor = parent_pid_from(environ)
    if supervisor is not None:
        die_with_parent(supervisor, signal=signals.SIGKILL)


def watch_parent(parent_pid: int, signal: int) -> None:
    """Wait until `parent_pid` is no longer the parent, then send `signal` to this process."""
    while os.getppid() == parent_pid:
        time.sleep(_PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal)


def lower_priority(niceness: int) -> None:
    """Lower the CPU priority of this process; 19 is the lowest priority (setpriority(2)).

    If Linux divides the processors between sessions (sched(7), autogroups), a process's niceness counts only within its
    session, so a session leader, as every supervised process is, sets the niceness of the session as well.

    A process that may not raise its priority again does not lower it: holding the write lock of a store, it would make
    others wait (`storage.held_locks`).
    """
    if not can_take_priority_back():
        return
    os.nice(niceness)
    if os.getsid(0) == os.getpid() and can_set_session_niceness():
        _set_session_niceness(niceness)


def lower_priority_now(niceness: int) -> None:
    """Lower the CPU priority of all threads of this process, a child of a worker's pool.

    If its worker leads the session, as every supervised worker does, the session's priority is lowered, too (see
    `lower_priority`).
    """
    if not can_take_priority_back():
        return
    threads = [int(entry.name) for entry in Path("/proc/self/task").glob("*")] or [0]
    for thread in threads:
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)
    if os.getsid(0) == os.getppid() and can_set_session_niceness():
        _set_session_niceness(niceness)


def spawn(
    argv: Sequence[str], env: Mapping[str, str], log_path: Path | None, parent_death_signal: int
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, with its output appended to `log_path` or to our own output.

    `env` is added to our environment. Call it in the main thread only: on Linux the child dies with the thread that
    forked it. Raises OSError: when the program cannot be started.
    """
    environment = {**os.environ, **env, PARENT_PID_VARIABLE: str(os.getpid())}
    with open_output(log_path) as output:
        return subprocess.Popen(
            list(argv),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            # Outside the terminal's foreground group: Ctrl-C reaches only the supervisor, which stops the others in
            # order.
            start_new_session=True,
            # The supervisor has one thread, so code between fork and exec is safe. There is no other way to make
            # foreign programs (valkey-server) die with the supervisor.
            preexec_fn=_tie_to_parent(os.getpid(), parent_death_signal),
        )


class ChildProcess(Protocol):
    """A child of this process: a `subprocess.Popen`, or a fork."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Reap the child if it has exited; return its code, or None while it runs."""


def has_exited(process: ChildProcess) -> bool:
    """Return whether `process` has exited, without reaping it if the platform supports that.

    Until it is reaped its pid, which is also its group's id, cannot go to another process.
    """
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def kill_group(group_id: int) -> None:
    """Send SIGKILL to the remaining processes of a group, if there are any."""
    # macOS returns EPERM if only the unreaped leader is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group_id, signals.SIGKILL)


def users_of(folder: Path) -> list[int]:
    """Return the pids of this user's other processes with an open file in a folder, if the system shows them."""
    import psutil

    inside = f"{folder.resolve()}{os.sep}"
    found: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and any(file.path.startswith(inside) for file in process.open_files()):
                found.append(process.pid)
    return found


def open_output(log_path: Path | None) -> contextlib.AbstractContextManager[IO[bytes] | None]:
    """Return the log file, opened for appending, as a context; None for a process that uses our own output.

    A log that cannot be opened must not keep a process from running: it then uses our own output, too.
    """
    if log_path is None:
        return contextlib.nullcontext()
    try:
        private_folder(log_path.parent)
        # In append mode, so that rotation from outside by copy and truncate works too.
        return os.fdopen(os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb", buffering=0)
    except OSError as error:
        log.warning("log_file_not_opened", path=str(log_path), error=str(error))
        return contextlib.nullcontext()


def _tie_to_parent(parent_pid: int, signal: int) -> Callable[[], None]:
    def before_exec() -> None:
        # Until exec, the supervisor's handler is still in place here and would swallow the signal.
        if signal != signals.SIGKILL:
            signals.signal(signal, signals.SIG_DFL)
        if _libc is not None:
            set_parent_death_signal(signal)
        if os.getppid() != parent_pid:
            os._exit(1)

    return before_exec


def set_process_name(name: str) -> None:
    """Set the name that `ps -o comm` and `top` show, of which Linux keeps 15 bytes; nothing on other systems."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def set_parent_death_signal(signal: int) -> None:
    """Make the kernel send this process `signal` when the thread that forked it ends, where the kernel can do that."""
    if _libc is not None and _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG, {signal}): {os.strerror(number)}")


def _set_session_niceness(niceness: int) -> None:
    for _ in range(_SESSION_TRIES):
        try:
            Path("/proc/self/autogroup").write_text(f"{niceness}\n", encoding="ascii")
        except BlockingIOError:
            time.sleep(_SESSION_PAUSE_SECONDS)
        except OSError:  # another system, a kernel without autogroups, or no permission
            return
        else:
            return
