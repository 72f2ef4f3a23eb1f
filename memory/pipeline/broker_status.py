"""The broker's part of the status: queues, inboxes and how full they are, workers, the lag, and losses.

The broker holds an id that was made up when a sweep first found it empty. A file in the data folder remembers the id:
if the broker has another one, it was flushed, replaced, or has lost its file. Stored messages are not affected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from reverie.clock import from_micros, rfc3339
from reverie.counts import counted
from reverie.errors import Unavailable
from reverie.pipeline.calls import InboxLimits
from reverie.pipeline.status import InboxStatus, InboxUse, LagStatus, WorkerStatus
from storage.pipeline.samples import MINUTE_MICROS, PipelineSample, PipelineSamples
from storage.private_files import read_json, write_private

if TYPE_CHECKING:  # their modules import redis, which a status needs only where a broker listens
    from adapters.broker.inbox import InboxStats, WorkerInbox
    from adapters.broker.monitor import Monitor


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The state that the broker reports; empty, with the error, if it does not answer."""

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
        workers = monitor.workers()
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
    return BrokerState(queues, inboxes, use, workers, lag, warnings)


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


_SHOWN_MICROS: Final = 24 * 3_600 * 1_000_000


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """The broker at the last look. `items` waited in it then; times are in microseconds, 0 for never."""

    id: str
    items: int
    seen_at: int
    lost_at: int = 0
    lost_items: int = 0
    lost_seen_at: int = 0


def watch_broker(inbox: WorkerInbox, data: Path, *, now: int) -> str:
    """Compare the broker with the one seen last; return a text on what was lost, empty if nothing was.

    Raises `Unavailable` without a broker.
    """
    found, items = inbox.identity(), inbox.totals().items
    known = read_json(_path(data), _Known)
    lost = known is not None and known.id != found
    state = _Known(
        id=found,
        items=items,
        seen_at=now,
        lost_at=now if lost else known.lost_at if known else 0,
        lost_items=known.items if lost and known else known.lost_items if known else 0,
        lost_seen_at=known.seen_at if lost and known else known.lost_seen_at if known else 0,
    )
    path = _path(data)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(path, msgspec.json.encode(state))
    return _line(state) if lost else ""


def lost_lines(data: Path, *, now: int) -> list[str]:
    """Return a line for the status if the broker has lost its content within the last day."""
    known = read_json(_path(data), _Known)
    return [_line(known)] if known is not None and 0 <= now - known.lost_at < _SHOWN_MICROS else []


def _line(known: _Known) -> str:
    return (
        f"the broker has lost its content, noticed at {rfc3339(known.lost_at)}: it was flushed, replaced or started"
        " without its file. Everything stored is there. What was accepted and not stored yet is lost:"
        f" {counted(known.lost_items, 'message')} waited at {from_micros(known.lost_seen_at):%H:%M:%S} UTC. Agents that"
        " waited for `stored` have sent theirs again; others must"
    )


def _path(data: Path) -> Path:
    return data / "run" / "broker.json"


def take_sample(samples: PipelineSamples, inbox: WorkerInbox, monitor: Monitor, *, now: int) -> None:
    """Store the figures of this minute if they are not stored yet. `now` in microseconds. Raises `Unavailable`."""
    minute = now // MINUTE_MICROS
    if samples.has(minute):
        return
    totals, lag = inbox.totals(), monitor.lag(now=now / 1_000_000)
    samples.add(PipelineSample(minute, totals.accepted, totals.items, lag.p50_seconds, lag.p99_seconds))
