"""The part of the status that comes from the broker: queues, inboxes and how full they are, workers, and the lag."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from adapters.broker.inbox import InboxStats, WorkerInbox
from adapters.broker.monitor import Monitor, WorkerHeartbeat
from reverie.errors import Unavailable
from reverie.pipeline.inbox_limits import InboxLimits
from reverie.pipeline.status import InboxStatus, InboxUse, LagStatus, WorkerStatus


@dataclass(frozen=True, slots=True)
class BrokerState:
    """What the broker says; empty, with the error, if it does not answer."""

    queues: dict[str, int] = field(default_factory=dict)
    inboxes: list[InboxStatus] = field(default_factory=list)
    inbox: InboxUse = field(default_factory=InboxUse)
    workers: list[WorkerStatus] = field(default_factory=list)
    lag: LagStatus = field(default_factory=LagStatus)
    warnings: list[str] = field(default_factory=list)
    error: str = ""


def read_broker(inbox: WorkerInbox, monitor: Monitor) -> BrokerState:
    """Return the state of the broker. Never raises."""
    try:
        queues = monitor.queue_depths()
        totals = inbox.totals()
        inboxes = [_inbox(name, inbox.stats(name), totals.limits) for name in inbox.workspaces()]
        workers = [_worker(heartbeat) for heartbeat in monitor.workers()]
        lag = monitor.lag()
        warnings = monitor.warnings()
    except Unavailable as error:
        return BrokerState(error=str(error))
    limits = totals.limits
    use = InboxUse(
        items=totals.items,
        bytes=totals.bytes,
        max_items=limits.items,
        max_bytes=limits.bytes,
        full=_share(totals.items, limits.items, totals.bytes, limits.bytes),
        accepted=totals.accepted,
    )
    known = LagStatus(samples=lag.samples, p50_seconds=lag.p50_seconds, p99_seconds=lag.p99_seconds)
    return BrokerState(queues, inboxes, use, workers, known, warnings)


def _inbox(name: str, stats: InboxStats, limits: InboxLimits) -> InboxStatus:
    return InboxStatus(
        workspace=name,
        size=stats.size,
        oldest_age_seconds=round(stats.oldest_age_seconds, 3),
        bytes=stats.bytes,
        full=_share(stats.size, limits.workspace_items, stats.bytes, limits.workspace_bytes),
    )


def _share(items: int, max_items: int, size: int, max_bytes: int) -> float:
    return round(max(items / max_items, size / max_bytes), 3)


def _worker(heartbeat: WorkerHeartbeat) -> WorkerStatus:
    return WorkerStatus(
        name=heartbeat.name,
        host=heartbeat.host,
        pid=heartbeat.pid,
        queues=heartbeat.queues,
        started_at=_moment(heartbeat.started_at),
        seen_at=_moment(heartbeat.seen_at),
        progress_at=_moment(heartbeat.progress_at) if heartbeat.progress_at else None,
        tasks_done=heartbeat.tasks_done,
        embedder=heartbeat.embedder,
        language_model=heartbeat.language_model,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
