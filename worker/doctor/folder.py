"""Checks of the data folder: its owner, its disk, its databases and their backups."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import psutil

from adapters.backups.repository import open_repository, read_header
from reverie.counts import counted
from reverie.errors import ReverieError
from storage.opened import open_stores
from worker.backup_secret import backup_secret
from worker.doctor.findings import Finding
from worker.settings import Settings

_SPACE_BYTES: Final = 2**30
_LEAST_SPACE_BYTES: Final = 2**27
# SQLite's write-ahead log needs shared memory, which these do not have.
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


def check_databases(data: Path, database: str | None = None) -> Iterator[Finding]:
    """Check that each database can be read by this version."""
    stores = open_stores(data, database)
    unusable = []
    names = stores.names()
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
        found = f"{counted(len(names), 'workspace')} readable; `reverie db verify` compares their content"
        yield Finding("Databases", "ok", found)


def check_backups(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check that backups are made, and how old the newest is."""
    folder = settings.backup_folder
    if folder is None:
        advice = "name a folder on another disk as `backup_folder`, or run `reverie backup` yourself: docs/backup.md"
        yield Finding("Backups", "warning", "none are made", advice)
        return
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
