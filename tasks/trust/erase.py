"""Erasures: jobs that forget with a receipt."""

from __future__ import annotations

from typing import Any

from memory.trust import erasing
from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.CONTINUE_ERASURES)
def continue_erasures(runtime: Runtime) -> dict[str, Any]:
    """Work on the erasures that have not finished."""
    return dict(erasing.continue_erasures(runtime.erasure_services))
