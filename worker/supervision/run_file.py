"""The run file and the lock in `<data_dir>/run`: which supervisor runs on this data folder, with which processes.

Invariant: at most one supervisor at a time holds a data folder. The lock is the kernel's, so a dead process cannot
keep it; `up.json` only informs `reverie status` and may be out of date after a SIGKILL.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import psutil
import structlog

from reverie.errors import Conflict
from storage.private_files import make_data_folder, private_folder, write_private
from worker.supervision.data_lock import lock_path, written_pid
from worker.supervision.processes import kill_group

log = structlog.get_logger(__name__)

_LEFTOVER_GRACE_SECONDS = 5.0
_SAME_PROCESS_SECONDS = 1.0  # create_time is the boot time, exact to a second, plus ticks since then


class RunFileEntry(msgspec.Struct, frozen=True):
    """One supervised process; `pid` is None while it waits to be restarted."""

    name: str
    pid: int | None
    restarts: int
    started_at: datetime | None
    created: float | None  # as the kernel reports it, to distinguish the process from a later one with its pid
    log_path: str | None


class RunFile(msgspec.Struct, frozen=True):
    """The content of the run file, `up.json`."""

    supervisor_pid: int
    started_at: datetime
    processes: Sequence[RunFileEntry]


def run_file_path(data_dir: Path) -> Path:
    """Return the path of the run file of `data_dir`."""
    return data_dir / "run" / "up.json"


def write_run_file(data_dir: Path, content: RunFile) -> None:
    """Replace the run file atomically: a reader sees the old or the new one. Raises OSError."""
    write_private(run_file_path(data_dir), msgspec.json.encode(content))


def read_run_file(data_dir: Path) -> RunFile | None:
    """Return the run file of the last supervisor, or None if there is none or it cannot be decoded.

    After a SIGKILL of the supervisor it is out of date: see `data_lock.supervisor_pid`.
    """
    try:
        return msgspec.json.decode(run_file_path(data_dir).read_bytes(), type=RunFile)
    except (FileNotFoundError, ValueError, RecursionError):
        return None


@contextlib.contextmanager
def hold_data_dir(data_dir: Path) -> Iterator[int]:
    """Hold the lock of `data_dir`, after ending the processes that a killed supervisor left running there.

    Yields the lock's descriptor, which a forked child must close: the lock lasts until every copy is closed.

    Raises Conflict: when another supervisor runs on it.
    """
    make_data_folder(data_dir)
    private_folder(data_dir / "run")
    # Never unlinked: otherwise two processes could hold locks on two files of the same name.
    descriptor = os.open(lock_path(data_dir), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise already_running(data_dir, written_pid(descriptor)) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        _end_leftovers(data_dir)
        try:
            yield descriptor
        finally:
            run_file_path(data_dir).unlink(missing_ok=True)
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def already_running(data_dir: Path, pid: int | None) -> Conflict:
    """Return the error that refuses a second Reverie on one data folder."""
    pid_text = f"pid {pid}" if pid else "pid unknown"
    advice = f"stop it with `kill {pid}`" if pid else "stop it"
    return Conflict(
        f"Reverie is already running on {data_dir} ({pid_text}): {advice}, or choose another data folder",
        field="data_dir",
    )


def _end_leftovers(data_dir: Path) -> None:
    """End the processes of a supervisor that has died.

    On Linux the kernel has already sent them a signal, and this waits for their end; macOS has no such signal, and the
    broker would run for ever. The caller holds the lock, so no running supervisor owns these processes.
    """
    last = read_run_file(data_dir)
    leftovers = [found for entry in (last.processes if last else ()) if (found := _still_running(entry))]
    for process in leftovers:
        log.warning("leftover_process", pid=process.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    _, stubborn = psutil.wait_procs(leftovers, timeout=_LEFTOVER_GRACE_SECONDS)
    for process in stubborn:
        kill_group(process.pid)
    psutil.wait_procs(stubborn, timeout=_LEFTOVER_GRACE_SECONDS)


def _still_running(entry: RunFileEntry) -> psutil.Process | None:
    if entry.pid is None or entry.created is None:
        return None
    try:
        process = psutil.Process(entry.pid)
        same = abs(process.create_time() - entry.created) < _SAME_PROCESS_SECONDS
        leads_its_session = os.getsid(entry.pid) == entry.pid  # as every process that the supervisor starts
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None
    return process if same and leads_its_session and entry.pid != os.getpid() else None
