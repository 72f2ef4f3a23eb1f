"""Erasures, which forget with a receipt, and forgets whose process was killed."""

from __future__ import annotations

from typing import Any

from memory.lifecycle import erasing
from memory.lifecycle.forgetting import finish_forgets
from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.CONTINUE_ERASURES)
def continue_erasures(runtime: Runtime) -> dict[str, Any]:
    """Work on the unfinished erasures, and finish interrupted forgets."""
    services = runtime.erasure_services
    return {**finish_forgets(services, now=runtime.now()), **erasing.continue_erasures(services)}
