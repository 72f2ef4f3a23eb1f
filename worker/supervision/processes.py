"""Ties the lives of processes together, so that what Reverie starts ends with it.

Invariant: a child does not outlive its parent, even one that got SIGKILL, and nothing in a child's process
group outlives the child.
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
from typing import IO

# Set for every child of the supervisor. Inherited by grandchildren too, whose parent is another process:
# only the code that a supervised process starts with may read it.
PARENT_PID_VARIABLE = "REVERIE_PARENT_PID"

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PARENT_POLL_SECONDS = 1.0
_LOG_ROTATE_BYTES = 10 * 1024 * 1024  # some days of a noisy process; one older file is kept beside it

# Loaded at import: between fork and exec is no place for the dynamic loader.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def parent_pid_from(environ: Mapping[str, str]) -> int | None:
    """Return the supervisor's pid as it told this process, or None where no supervisor started it."""
    text = environ.get(PARENT_PID_VARIABLE, "")
    return int(text) if text.isdecimal() else None


def die_with_parent(expected_parent_pid: int | None = None, signal: int = signals.SIGTERM) -> None:
    """Have this process receive `signal` when its parent dies, at once if it is dead already.

    Linux: the kernel sends it when the *thread* that forked this process ends. Elsewhere a daemon thread
    looks each second. Without `expected_parent_pid`, a parent that died before this call goes unnoticed.
    """
    parent_pid = os.getppid() if expected_parent_pid is None else expected_parent_pid
    if _libc is None:
        threading.Thread(target=watch_parent, args=(parent_pid, signal), daemon=True).start()
        return
    _set_parent_death_signal(signal)
    if os.getppid() != parent_pid:  # it died before the kernel knew of our wish
        os.kill(os.getpid(), signal)


def end_with_supervisor(environ: Mapping[str, str]) -> None:
    """Have a process that `reverie up` started end with it, however that ends; do nothing in any other."""
    supervisor = parent_pid_from(environ)
    if supervisor is not None:
        die_with_parent(supervisor, signal=signals.SIGKILL)


def watch_parent(parent_pid: int, signal: int) -> None:
    """Return only after `parent_pid` is no longer our parent, having sent ourselves `signal`."""
    while os.getppid() == parent_pid:
        time.sleep(_PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal)


def give_way(niceness: int) -> None:
    """Let the other processes of this machine go before this one; 19 gives way the most (setpriority(2)).

    Where Linux shares the processors out by sessions (sched(7), autogroups), the niceness of a process counts within
    its session alone: one that leads a session, as those of the supervisor do, gives that the same niceness.
    """
    os.nice(niceness)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):  # another system, a kernel without autogroups, or one that forbids it
            Path("/proc/self/autogroup").write_text(f"{niceness}\n", encoding="ascii")


def spawn(
    argv: Sequence[str], env: Mapping[str, str], log_path: Path | None, parent_death_signal: int
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, with its output appended to `log_path` or to our own output.

    `env` comes on top of our environment. Call it in the main thread only: on Linux the child dies with the
    thread that forked it. Raises OSError when the program cannot be started.
    """
    environment = {**os.environ, **env, PARENT_PID_VARIABLE: str(os.getpid())}
    with contextlib.ExitStack() as stack:
        output = None if log_path is None else stack.enter_context(_open_log(log_path))
        return subprocess.Popen(
            list(argv),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            # Out of the terminal's foreground group: Ctrl-C reaches the supervisor alone, which stops the
            # others in order.
            start_new_session=True,
            # The supervisor has one thread, so code between fork and exec is safe. Foreign programs
            # (valkey-server) have no other way to be tied to us.
            preexec_fn=_tie_to_parent(os.getpid(), parent_death_signal),
        )


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether `process` ended, without reaping it where the platform can.

    Until it is reaped its pid, which is also its group's id, cannot go to another process.
    """
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def kill_group(group_id: int) -> None:
    """Send SIGKILL to all that is left of a process group; an empty or vanished group is fine."""
    # macOS answers EPERM where only the unreaped leader is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group_id, signals.SIGKILL)


def private_folder(path: Path) -> Path:
    """Make `path` and what is missing above it for the owner's eyes only, and return it."""
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    return path


def _open_log(path: Path) -> IO[bytes]:
    private_folder(path.parent)
    if path.exists() and path.stat().st_size > _LOG_ROTATE_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    # In append mode, so that rotation from outside by copy and truncate works too.
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb", buffering=0)


def _tie_to_parent(parent_pid: int, signal: int) -> Callable[[], None]:
    def before_exec() -> None:
        # The supervisor's handler is still in place here and would swallow the signal until exec.
        if signal != signals.SIGKILL:
            signals.signal(signal, signals.SIG_DFL)
        if _libc is not None:
            _set_parent_death_signal(signal)
        if os.getppid() != parent_pid:
            os._exit(1)

    return before_exec


def _set_parent_death_signal(signal: int) -> None:
    if _libc is not None and _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG, {signal}): {os.strerror(number)}")
