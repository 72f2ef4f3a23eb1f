"""Backups that Reverie makes by itself."""

from __future__ import annotations

from typing import Any

from reverie import contract
from worker.job_runs import periodic_task
from worker.periodic_backups import back_up_if_due
from worker.runtime import Runtime


@periodic_task(contract.BACK_UP, enabled=lambda settings: settings.backup_folder is not None)
def back_up(runtime: Runtime, *, manual: bool = False) -> dict[str, Any]:
    """Add a backup to `backup_folder` if one is due, or in any case if started manually, and remove old ones."""
    return back_up_if_due(runtime, manual=manual)
