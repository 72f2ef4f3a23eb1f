"""Parts that the pipeline's stages share: sizes of embedding batches, and replies to waiting producers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import structlog

from adapters.broker.inbox import row_name
from adapters.embedders.base import REMOTE, Embedder
from adapters.embedders.openai_compatible import BATCH_INPUTS
from memory.pipeline.broker_status import take_sample, watch_broker
from memory.stage import live_latencies
from reverie.contract import Outcome
from reverie.errors import Unavailable
from storage.pipeline.records import ReadyMessage
from storage.stores import Store
from worker.reports import observe_latencies
from worker.runtime import Runtime

log = structlog.get_logger(__name__)


def embed_batch_size(configured: int, embedder: Embedder) -> int:
    """Return how many chunks to claim and embed together: the configured number, or less for a remote embedder.

    A remote embedder gets one request per claim: the timeout of one request is below the lease, that of several is not.
    """
    return min(configured, BATCH_INPUTS) if embedder.device == REMOTE else configured


def has_waiting_producers(runtime: Runtime, store: Store) -> bool:
    """Return whether a producer waits for outcomes of this workspace; False if the broker is unavailable."""
    try:
        return runtime.inbox.anyone_waiting(store.name)
    except Unavailable:
        return False


def look_after_broker(runtime: Runtime) -> dict[str, Any]:
    """Tell producers how much may wait, and log losses of the broker. Broker errors are suppressed."""
    lost = ""
    with contextlib.suppress(Unavailable):
        runtime.inbox.set_limits(runtime.settings.inbox_limits)
        lost = watch_broker(runtime.inbox, runtime.settings.data, now=runtime.now())
    if lost:
        log.error("broker_lost_its_content", error=lost)
    return {"broker_lost": lost} if lost else {}


def keep_figures(runtime: Runtime) -> None:
    """Store the figures of this minute for the pipeline page; without a broker there are none."""
    with contextlib.suppress(Unavailable):
        take_sample(runtime.stores.pipeline_samples(), runtime.inbox, runtime.monitor, now=runtime.now())


def warn_of_broker(runtime: Runtime) -> None:
    """Log broker settings that could lose messages, and tell producers how much may wait.

    Broker errors are suppressed: the sweep does it then.
    """
    with contextlib.suppress(Unavailable):
        runtime.inbox.set_limits(runtime.settings.inbox_limits)
        for warning in runtime.monitor.warnings():
            log.warning("broker_could_lose_messages", warning=warning)


def report_searchable(
    runtime: Runtime, store: Store, messages: Sequence[ReadyMessage], *, at: int, degraded: str = ""
) -> None:
    """Tell waiting producers that messages can be recalled since `at` (microseconds), and record the pipeline's lag.

    `degraded` says why they can be found by keywords only. Broker errors are suppressed: notification is best effort.
    """
    if not messages:
        return
    with contextlib.suppress(Unavailable):
        if not degraded:
            latencies = live_latencies(messages, at)
            observe_latencies(runtime, "searchable", latencies)
            runtime.monitor.record_lags(latencies)
        if runtime.inbox.anyone_waiting(store.name):
            outcomes = [
                (row_name(one.kind, one.row_id), Outcome(id=one.id, state="searchable", degraded=degraded))
                for one in messages
            ]
            runtime.inbox.reply(store.name, outcomes)
