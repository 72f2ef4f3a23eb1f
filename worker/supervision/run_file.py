"""`<data_dir>/run`: who runs Reverie on this data folder, and with which processes.

Invariant: at most one supervisor at a time holds a data folder. The lock is the kernel's, so it cannot be
left behind; `up.json` is only a picture of it for `reverie status` and may be out of date after a SIGKILL.
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
from worker.supervision.processes import kill_group, private_folder

log = structlog.get_logger(__name__)

_LEFTOVER_GRACE_SECONDS = 5.0
_SAME_PROCESS_SECONDS = 1.0  # create_time is boot time, known to a second, plus ticks since


class UpProcess(msgspec.Struct, frozen=True):
    """One supervised process; `pid` is None while it waits to be started again."""

    name: str
    pid: int | None
    restarts: int
    started_at: datetime | None
    created: float | None  # what the kernel says of `pid`, to tell it from a later process with that pid
    log_path: str | None


class UpFile(msgspec.Struct, frozen=True):
    """The content of `up.json`."""

    supervisor_pid: int
    started_at: datetime
    processes: Sequence[UpProcess]


def up_file_path(data_dir: Path) -> Path:
    """Return where the supervisor of `data_dir` writes its pids."""
    return data_dir / "run" / "up.json"


def write_up_file(data_dir: Path, content: UpFile) -> None:
    """Replace `up.json` at once: a reader sees the old or the new one. Raises OSError."""
    path = up_file_path(data_dir)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(content))
    draft.replace(path)


def read_up_file(data_dir: Path) -> UpFile | None:
    """Return what the last supervisor wrote, or None where there is none or it cannot be read.

    After a SIGKILL of the supervisor it is out of date: see `supervisor_pid`.
    """
    try:
        return msgspec.json.decode(up_file_path(data_dir).read_bytes(), type=UpFile)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def supervisor_pid(data_dir: Path) -> int | None:
    """Return the pid of the supervisor that runs on `data_dir` now, or None; 0 if it did not yet say."""
    try:
        descriptor = os.open(_lock_path(data_dir), os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that two askers do not take each other for a supervisor.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _written_pid(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold_data_dir(data_dir: Path) -> Iterator[None]:
    """Be the one supervisor of `data_dir`; end what a supervisor that was killed left running there.

    Raises Conflict when another one runs.
    """
    private_folder(data_dir / "run")
    # Never unlinked: two processes could then hold locks on two files of one name.
    descriptor = os.open(_lock_path(data_dir), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise already_running(data_dir, _written_pid(descriptor)) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        _end_leftovers(data_dir)
        try:
            yield
        finally:
            up_file_path(data_dir).unlink(missing_ok=True)
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def already_running(data_dir: Path, pid: int | None) -> Conflict:
    """Return the error that refuses a second Reverie on one data folder."""
    who = f"pid {pid}" if pid else "pid unknown"
    advice = f"stop it with `kill {pid}`" if pid else "stop it"
    return Conflict(
        f"Reverie is already running on {data_dir} ({who}): {advice}, or choose another data folder",
        field="data_dir",
    )


def _lock_path(data_dir: Path) -> Path:
    return data_dir / "run" / "up.lock"


def _written_pid(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0)
    return int(text) if text.isdigit() else 0


def _end_leftovers(data_dir: Path) -> None:
    """End the processes of a supervisor that is gone.

    On Linux the kernel told them to end when it died, and this waits for it; where there is no such thing
    (macOS) the broker would go on for ever. Whoever calls holds the lock, so no one else answers for them.
    """
    last = read_up_file(data_dir)
    leftovers = [found for entry in (last.processes if last else ()) if (found := _still_running(entry))]
    for process in leftovers:
        log.warning("leftover_process", pid=process.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    _, stubborn = psutil.wait_procs(leftovers, timeout=_LEFTOVER_GRACE_SECONDS)
    for process in stubborn:
        kill_group(process.pid)
    psutil.wait_procs(stubborn, timeout=_LEFTOVER_GRACE_SECONDS)


def _still_running(entry: UpProcess) -> psutil.Process | None:
    if entry.pid is None or entry.created is None:
        return None
    try:
        process = psutil.Process(entry.pid)
        same = abs(process.create_time() - entry.created) < _SAME_PROCESS_SECONDS
        leads_its_session = os.getsid(entry.pid) == entry.pid  # as all that the supervisor starts
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None
    return process if same and leads_its_session and entry.pid != os.getpid() else None
