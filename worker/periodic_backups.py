"""Backups that beat has made: whether one is due, by the backups that are there, and what to do for it.

A backup that fails leaves none, so it is due at the next look, some minutes later.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.backups.manifest import Manifest
from adapters.backups.pruning import prune_repository
from adapters.backups.repository import (
    Header,
    Repository,
    create_repository,
    locked,
    make_private,
    open_repository,
    read_header,
)
from memory.upkeep.backup import back_up
from reverie.clock import from_micros
from reverie.errors import Conflict, Permanent, Rejected, StoreUnavailable
from storage.private_files import write_private
from worker.backup_secret import backup_secret
from worker.backups import backup_source
from worker.runtime import Runtime

# The id of the folder of backups that was used last: an empty folder in its place is a disk that is not mounted.
_USED = "backups.used"


def back_up_if_due(runtime: Runtime, *, manual: bool) -> dict[str, Any]:
    """Add a backup to `backup_folder` if the newest is older than `backup_interval_hours`, and return counts.

    A manual run adds one in any case. Raises what `back_up` raises, `Rejected` for a folder that cannot be used, and
    `Permanent` while the newest backup is incomplete.
    """
    settings = runtime.settings
    assert settings.backup_folder is not None
    folder = settings.backup_folder.resolve()
    try:
        repository = _opened(runtime, folder)
        with locked(folder):
            ids = repository.ids()
            newest = repository.manifest(ids[-1]) if ids else None
            if not manual and newest is not None and not _is_due(newest, runtime, settings.backup_interval_hours):
                counts = {"not_due": 1}
            else:
                newest = back_up(backup_source(runtime), repository)
                removed = prune_repository(repository, settings.backup_keep)[0]
                counts = {"backups": 1, "stores": len(newest.stores), "new_bytes": newest.new_bytes}
                counts["removed"] = len(removed)
            kept = len(repository.ids())
    except Conflict:  # a backup or restore that somebody has started
        return {"busy": 1}
    if newest is not None and newest.failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in newest.failed.items())
        raise Permanent(f"backup {newest.id} in {folder} is incomplete ({reasons})")
    made_at = {} if newest is None else {"newest_at": newest.created_at.timestamp()}
    return {**counts, "kept": kept, **made_at}


def _is_due(newest: Manifest, runtime: Runtime, hours: float) -> bool:
    """Return whether the next backup is due; a backup of the future means that the clock was set back."""
    now: datetime = from_micros(runtime.now())
    return not newest.created_at <= now < newest.created_at + timedelta(hours=hours)


def _opened(runtime: Runtime, folder: Path) -> Repository:
    """Return the folder of backups, created if it is empty and none was used before. Raises `Rejected`."""
    data = runtime.settings.data.resolve()
    if folder == data or folder.is_relative_to(data):
        raise Rejected(f"backup_folder {folder} lies in the data folder: name another", field="backup_folder")
    if not folder.is_dir():
        raise StoreUnavailable(f"backup_folder {folder} does not exist: create it, or mount its disk")
    secret = backup_secret(runtime.settings)
    used, header = data / _USED, read_header(folder)
    if header is None and used.exists():
        raise StoreUnavailable(
            f"backup_folder {folder} has no backups any more: mount its disk, or remove {used} to begin anew"
        )
    make_private(folder, encrypted=secret is not None)
    if header is None:
        create_repository(folder, secret)
        header = read_header(folder)
    _note_used(used, header)
    return open_repository(folder, secret)


def _note_used(used: Path, header: Header | None) -> None:
    if header is not None and not (used.exists() and used.read_text().strip() == header.id):
        write_private(used, f"{header.id}\n".encode())
