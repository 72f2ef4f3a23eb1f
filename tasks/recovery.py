"""The sweeps that make good what was lost: driven by beat, harmless when driven twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory import recovery
from reverie import contract
from reverie.errors import ReverieError
from tasks.embed import embed_workspace
from worker.app import runtime, task
from worker.runtime import run_job


@task(contract.RECOVER_INBOX)
def recover_inbox(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Store what has been in an inbox for too long."""
    here = runtime()

    def work() -> dict[str, Any]:
        report = recovery.recover_inbox(
            here.inbox, here.stores, here.working, now=here.now, on_stored=lambda name: here.wake("chunk", name)
        )
        return report.counts()

    every = here.settings.sweep_interval_seconds
    return run_job(here, contract.RECOVER_INBOX, every_seconds=every, work=work, by_hand=by_hand)


@task(contract.SWEEP_STAGES)
def sweep_stages(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Wake the stages at which something waits."""
    here = runtime()

    def work() -> dict[str, Any]:
        return here.stage_sweep.run(here.stores, now=here.now(), wake=here.wake).counts()

    every = here.settings.sweep_interval_seconds
    return run_job(here, contract.SWEEP_STAGES, every_seconds=every, work=work, by_hand=by_hand)


@task(contract.BACKFILL_EMBEDDINGS)
def backfill_embeddings(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Embed what has no vector yet, in small batches; says nothing where no embedder is available (I13)."""
    here = runtime()

    def work() -> dict[str, Any]:
        done = 0
        errors: dict[str, str] = {}
        for workspace in here.stores.names() if here.embedder is not None else ():
            try:
                if not here.stores.is_idle(workspace, ("embed",)):
                    counts = embed_workspace(here, workspace, batch_size=here.settings.backfill_batch_size)
                    done += counts.get("done", 0)
            except ReverieError as error:
                errors[workspace] = str(error)
        return {"done": done, **({"errors": errors} if errors else {})}

    every = here.settings.backfill_interval_minutes * 60
    return run_job(here, contract.BACKFILL_EMBEDDINGS, every_seconds=every, work=work, by_hand=by_hand)
