"""Keeps the figures of the pipeline, minute by minute for a day: the broker only knows them as they are now."""

from __future__ import annotations

from adapters.broker.inbox import WorkerInbox
from adapters.broker.monitor import Monitor
from storage.pipeline.samples import MINUTE_MICROS, PipelineSample, PipelineSamples


def take_sample(samples: PipelineSamples, inbox: WorkerInbox, monitor: Monitor, *, now: int) -> None:
    """Keep the figures of this minute, unless they are kept. `now` is in microseconds. Raises `Unavailable`."""
    minute = now // MINUTE_MICROS
    if samples.has(minute):
        return
    totals, lag = inbox.totals(), monitor.lag(now=now / 1_000_000)
    samples.add(PipelineSample(minute, totals.accepted, totals.items, lag.p50_seconds, lag.p99_seconds))
