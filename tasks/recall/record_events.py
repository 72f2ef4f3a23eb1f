"""What recalls found, from the broker's log into the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.recall.events import record_recalls as record_logged
from reverie import contract
from worker.app import runtime, task


@task(contract.RECORD_RECALLS)
def record_recalls(*, workspace: str) -> Mapping[str, Any]:
    """Record what waits in a workspace's recall log."""
    here = runtime()
    here.inbox.clear_notification(contract.RECORD_RECALLS, workspace)
    report = record_logged(here.recall_log, here.stores, workspace=workspace)
    if report.more:
        here.notify_stage("recalls", workspace)
    return report.counts()
