"""Removes old backups from a folder of backups."""

from __future__ import annotations

from adapters.backups.repository import Repository
from reverie.errors import Rejected


def prune_repository(repository: Repository, keep: int) -> tuple[list[str], int, int]:
    """Remove the backups older than the newest `keep` complete ones; return their ids, and blocks and bytes freed.

    An incomplete backup does not count, so that a store that has become damaged never loses its last good copy.
    Raises `Rejected`, and removes nothing, if a manifest is damaged.
    """
    manifests, damaged = repository.manifests()
    if damaged:
        raise Rejected(f"{damaged[0].error}: remove the file if it cannot be repaired", field="dest")
    complete = [manifest.number for manifest in manifests if not manifest.failed]
    oldest_kept = complete[-keep] if len(complete) >= keep else 0
    removed = [manifest.id for manifest in manifests if manifest.number < oldest_kept]
    for backup_id in removed:
        repository.remove(backup_id)
    return removed, *repository.remove_unused_blocks()
