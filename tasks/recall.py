"""Recording of recall events: from the broker's log into the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from memory import recall
from reverie import contract
from worker.app import current_runtime, task


@task(contract.RECORD_RECALLS)
def record_recalls(*, workspace: str) -> Mapping[str, Any]:
    """Record the entries of a workspace's recall log."""
    runtime = current_runtime()
    runtime.inbox.clear_notification(contract.RECORD_RECALLS, workspace)
    report = recall.record_recalls(runtime.recall_log, runtime.stores, workspace=workspace)
    if report.more:
        runtime.notify_stage("recalls", workspace)
    return asdict(report)
