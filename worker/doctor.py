"""Checks of the machine that `reverie doctor` makes: programs, memory, the data folder, its disk, and backups."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

import psutil
import pysqlite3

from reverie import __version__
from reverie.counts import counted
from reverie.errors import ReverieError
from reverie.pipeline.status import Finding
from storage.driver import check_sqlite_version
from storage.opened import open_stores
from worker.settings import Settings
from worker.supervision.broker_address import valkey_server_path

# Yields findings. Raises Reverie's errors, whose texts say what to do.
Check: TypeAlias = Callable[[], Iterator[Finding]]


def run_check(subject: str, check: Check) -> Iterator[Finding]:
    """Yield the findings of a check. An error ends the check and is a problem."""
    try:
        yield from check()
    except ReverieError as error:
        yield Finding(subject, "problem", str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        yield Finding(
            subject, "problem", f"{place}{error.strerror or error}", "see who owns it, and whether it is there"
        )


# All processes together keep below 1.5 GiB, see docs/benchmarks.md.
_MEMORY_BYTES: Final = 3 * 2**29
# A process keeps a few files open for each workspace in use.
_OPEN_FILES: Final = 1_024
_GIB: Final = 2**30


def check_programs() -> Iterator[Finding]:
    """Check the versions of Python, Reverie and SQLite."""
    yield Finding("Reverie", "ok", f"{__version__} on Python {platform.python_version()}, {platform.platform()}")
    check_sqlite_version()
    yield Finding("SQLite", "ok", pysqlite3.sqlite_version)


def check_memory(*, running: bool) -> Iterator[Finding]:
    """Check that there is memory for all processes, unless they run already."""
    memory = psutil.virtual_memory()
    found = f"{memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB available"
    if running or memory.available >= _MEMORY_BYTES:
        yield Finding("Memory", "ok", found)
    else:
        advice = f"Reverie needs {_MEMORY_BYTES / _GIB:.1f} GiB under load: end other programs"
        yield Finding("Memory", "warning", found, f'{advice}, or set embedding_provider = "model2vec"')


def check_open_files() -> Iterator[Finding]:
    """Check how many files a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = "any number" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES:
        yield Finding("Open files", "ok", f"{limit} allowed")
    else:
        most = "unlimited" if hard == resource.RLIM_INFINITY else hard
        yield Finding("Open files", "warning", f"{limit} allowed", f"raise it before `reverie up`: ulimit -n {most}")


def check_broker_program(settings: Settings) -> Iterator[Finding]:
    """Check the program of the embedded broker, unless a broker is named."""
    if settings.broker is None:
        yield Finding("Broker program", "ok", str(valkey_server_path()))


_SPACE_BYTES: Final = 2**30
_LEAST_SPACE_BYTES: Final = 2**27
_LEAST_LOG_BYTES: Final = 2**20
# SQLite's write-ahead log needs shared memory, which these file systems do not have.
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smbfs", "smb3", "afpfs", "fuse.sshfs", "9p", "glusterfs", "ceph", "lustre", "beegfs"}
)
# A backup may take this many times its interval before it counts as missing.
_LATE_INTERVALS: Final = 2
_SHOWN: Final = 5


def check_folder(data: Path) -> Iterator[Finding]:
    """Check that the folder is the user's own, private and writable."""
    status = data.stat()
    if status.st_uid != os.geteuid() and os.geteuid() != 0:
        advice = "run Reverie as the user who owns it, or name another folder with --data"
        yield Finding("Data folder", "problem", f"{data} belongs to another user (uid {status.st_uid})", advice)
    elif not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("Data folder", "problem", f"{data} cannot be written", f"chmod u+rwx {data}")
    elif stat.S_IMODE(status.st_mode) & 0o077:
        found = f"{data} can be entered by others (mode {stat.S_IMODE(status.st_mode):o})"
        yield Finding("Data folder", "warning", found, f"chmod 700 {data}")
    else:
        yield Finding("Data folder", "ok", str(data))


def check_disk(data: Path) -> Iterator[Finding]:
    """Check the file system of the folder, and the space on it."""
    system = _file_system(data)
    if system in _NETWORK_FILE_SYSTEMS:
        advice = "several processes of SQLite damage their files there: move the folder to a disk of this machine"
        yield Finding("File system", "problem", f"{data} is on {system}, a network file system", advice)
    free = shutil.disk_usage(data).free
    found = f"{free / 2**30:.1f} GiB free" + (f" ({system})" if system else "")
    advice = "make space: on a full disk messages wait in the broker, and nothing is stored"
    if free < _LEAST_SPACE_BYTES:
        yield Finding("Disk", "problem", found, advice)
    elif free < _SPACE_BYTES:
        yield Finding("Disk", "warning", found, advice)
    else:
        yield Finding("Disk", "ok", found)


def check_logs(data: Path) -> Iterator[Finding]:
    """Check that processes can write their logs; without logs they go on, but nobody learns of their errors."""
    folder = data / "logs"
    closed = [path for path in folder.glob("*.log") if not path.is_file() or not os.access(path, os.W_OK)]
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        closed.append(folder)
    for path in closed[:_SHOWN]:
        yield Finding(
            "Logs",
            "problem",
            f"{path.relative_to(data)} cannot be written",
            "correct its owner and mode, and restart Reverie",
        )
    if folder.exists() and shutil.disk_usage(folder).free < _LEAST_LOG_BYTES:
        yield Finding("Logs", "problem", "the disk of the logs is full: nothing is logged", "make space")


def check_databases(data: Path, database: str | None = None) -> Iterator[Finding]:
    """Check that each database can be read by this version."""
    stores = open_stores(data, database)
    unusable = []
    names = stores.all_names()
    for name in names:
        try:
            stores.check_usable(name)
        except ReverieError as error:
            unusable.append(str(error))
    yield from (Finding("Databases", "problem", text) for text in unusable[:_SHOWN])
    if len(unusable) > _SHOWN:
        yield Finding(
            "Databases", "problem", f"{len(unusable) - _SHOWN} more cannot be used", "see `reverie db verify`"
        )
    if not unusable:
        found = f"{counted(len(names), 'database')} readable; `reverie db verify` compares their content"
        yield Finding("Databases", "ok", found)


def check_backups(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check that backups are made, and how old the newest is."""
    folder = settings.backup_folder
    if settings.database is not None:
        yield Finding("Backups", "ok", "are made by PostgreSQL's own tools, unseen by Reverie: docs/scale.md")
        return
    if folder is None:
        advice = "name a folder on another disk as `backup_folder`, or run `reverie backup` yourself: docs/backup.md"
        yield Finding("Backups", "warning", "none are made", advice)
        return
    from adapters.backups.repository import open_repository, read_header
    from worker.backups import backup_secret

    if read_header(folder) is None:
        yield Finding("Backups", "warning", f"none yet in {folder}", "`reverie run back-up` makes one now")
        return
    repository = open_repository(folder, backup_secret(settings))
    ids = repository.ids()
    newest = repository.manifest(ids[-1]).created_at if ids else datetime.fromtimestamp(0, UTC)
    late = timedelta(hours=settings.backup_interval_hours * _LATE_INTERVALS)
    found = f"{counted(len(ids), 'backup')} in {folder}, the newest of {newest:%Y-%m-%d %H:%M} UTC"
    if now - newest > late:
        yield Finding("Backups", "problem", found, "see why with `reverie jobs`, then `reverie run back-up`")
    else:
        yield Finding("Backups", "ok", found)


def _file_system(path: Path) -> str:
    """Return the type of the file system that a path is on, empty if it is not known."""
    resolved = path.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in (resolved, *resolved.parents) if folder in mounts), "")
