"""Metrics for Prometheus: the pipeline's status, the counts of all processes, the machine, and the time of requests.

They are read on each scrape. Workspaces, agents and sessions are never labels: their number is unbounded, and their
names are private.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from adapters.broker.shared_metrics import Sample, SharedMetric
from beat_schedule import PERIODIC_JOBS
from reverie.contract import BACK_UP
from reverie.errors import Unavailable
from reverie.pipeline.status import PipelineStatus, TimeStatus
from worker.conditions import found_wrong
from worker.runtime import Runtime
from worker.settings import Settings

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
# In seconds: from a recall within this process to a call that waits until its messages are searchable.
_BUCKETS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# A metric with the creation time of each series would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The registry of one application."""

    def __init__(self, read_status: Callable[[], PipelineStatus], *others: Callable[[], Iterable[Metric]]) -> None:
        self._registry = CollectorRegistry()
        for read in (lambda: _pipeline_gauges(read_status()), *others):
            self._registry.register(_Scraped(read))
        ProcessCollector(registry=self._registry)
        self._requests = Histogram(
            "reverie_http_request_seconds",
            "Duration of requests.",
            ("method", "route", "status"),
            registry=self._registry,
            buckets=_BUCKETS,
        )

        self._recalls = self._histogram("reverie_recall_duration_seconds", "Duration of recalls in this server.")
        self._contexts = self._histogram(
            "reverie_context_duration_seconds", "Time that this server took to build context documents."
        )

    def observe_recall(self, seconds: float, *, degraded: bool) -> None:
        """Record one recall; it is `degraded` if it was answered by words alone, or without a reranker."""
        self._recalls.labels(str(degraded).lower()).observe(seconds)

    def observe_context(self, seconds: float, *, degraded: bool) -> None:
        """Record one context document, whose recall may have been degraded."""
        self._contexts.labels(str(degraded).lower()).observe(seconds)

    def _histogram(self, name: str, description: str) -> Histogram:
        histogram = Histogram(name, description, ("degraded",), registry=self._registry, buckets=_BUCKETS)
        for degraded in ("false", "true"):  # so that the first one is an increase
            histogram.labels(degraded)
        return histogram

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record one request."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).observe(seconds)

    def counter(self, name: str, description: str, read_value: Callable[[], float]) -> None:
        """Add a counter that `read_value` returns on each scrape; its name gets the suffix `_total`."""
        self._registry.register(_Scraped(lambda: [CounterMetricFamily(name, description, value=read_value())]))

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Scraped(Collector):
    """Metrics that a function reads on each scrape, and not when they are registered."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering reads nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Read the metrics."""
        return self._read()


def _pipeline_gauges(status: PipelineStatus) -> Iterator[GaugeMetricFamily]:
    yield _gauge("reverie_broker_up", "Whether the broker answers.", float(status.broker == "up"))
    yield from _broker_gauges(status)
    yield from _stage_gauges(status)
    yield _gauge("reverie_dead_letters", "Dead letters, which a person replays or drops.", status.dead_letters)
    yield _gauge("reverie_wal_bytes", "Size of the write-ahead logs of all workspaces.", status.wal_bytes)
    yield _gauge("reverie_workspaces", "Workspaces that exist.", status.workspaces_total)
    yield _gauge("reverie_stores_unusable", "Databases that cannot be read.", len(status.errors))
    up = float(status.embedder.state != "down")
    yield _gauge("reverie_embedder_up", "Whether the server's embedder answers.", up)
    yield _gauge("reverie_memories", "Current memories of all workspaces and the account.", status.memories)
    stored = {name: float(amount) for name, amount in status.stored.items()}
    yield _labelled("reverie_stored", "Use of each resource that quotas limit, in all workspaces.", "what", stored)
    use = "Largest part of a quota that a workspace has used; 1 is full."
    yield _labelled("reverie_quota_use", use, "quota", status.quota_use)
    yield from _job_gauges(status)
    yield from _language_model_gauges(status)
    reranks = float(status.reranker.state != "down")
    yield _gauge("reverie_reranker_up", "Whether the server's reranker answers.", reranks)
    yield from _time_gauges(status.time)


def _broker_gauges(status: PipelineStatus) -> Iterator[GaugeMetricFamily]:
    if status.broker != "up":
        return  # an absent gauge means "unknown", a zero would mean "nothing is waiting"
    yield _labelled("reverie_queue_depth", "Tasks waiting in a queue.", "queue", status.queues)
    oldest = max((inbox.oldest_age_seconds for inbox in status.inboxes), default=0.0)
    yield _gauge("reverie_inbox_size", "Items accepted but not yet stored.", sum(box.size for box in status.inboxes))
    yield _gauge("reverie_inbox_oldest_seconds", "Age of the oldest item in the inbox.", oldest)
    yield _gauge("reverie_inbox_bytes", "Size of the items accepted but not yet stored.", status.inbox.bytes)
    use = max([status.inbox.full, *(box.full for box in status.inboxes)])
    yield _gauge("reverie_inbox_full", "Largest used part of a limit of the inboxes; 1 is full.", use)
    yield _gauge("reverie_workers", "Workers that are alive.", len(status.workers))
    yield _gauge("reverie_faults", "Faults that keep accepted messages from being processed.", len(status.faults))
    percentiles = {"50": status.lag.p50_seconds, "99": status.lag.p99_seconds}
    known = {name: value for name, value in percentiles.items() if value is not None}
    yield _labelled(
        "reverie_lag_seconds", "Seconds from accepted to searchable, last five minutes.", "percentile", known
    )


def _stage_gauges(status: PipelineStatus) -> Iterator[GaugeMetricFamily]:
    waiting = {name: float(stage.waiting) for name, stage in status.stages.items()}
    oldest = {name: stage.oldest_age_seconds for name, stage in status.stages.items()}
    yield _labelled("reverie_stage_waiting", "Rows waiting at a stage.", "stage", waiting)
    yield _labelled("reverie_stage_oldest_seconds", "Age of the oldest row waiting at a stage.", "stage", oldest)


def _job_gauges(status: PipelineStatus) -> Iterator[GaugeMetricFamily]:
    jobs = {name.removeprefix("reverie."): job for name, job in status.jobs.items()}
    started = {name: job.started_at.timestamp() for name, job in jobs.items()}
    failed = {name: float(job.error is not None or found_wrong(job)) for name, job in jobs.items()}
    yield _labelled("reverie_job_last_run_timestamp_seconds", "Start of a job's latest run.", "job", started)
    yield _labelled(
        "reverie_job_failed",
        "Whether a job's latest run failed, or found a store that is not consistent.",
        "job",
        failed,
    )
    counts = GaugeMetricFamily("reverie_job_last_counts", "Counts of a job's latest run.", labels=["job", "count"])
    for name, job in jobs.items():
        for what, value in job.counts.items():
            if isinstance(value, (int, float)):
                counts.add_metric([name, what], value)
    yield counts
    newest = status.jobs[BACK_UP].counts.get("newest_at") if BACK_UP in status.jobs else None
    if isinstance(newest, (int, float)):
        yield _gauge("reverie_backup_newest_timestamp_seconds", "When the newest backup was made.", newest)


def _language_model_gauges(status: PipelineStatus) -> Iterator[GaugeMetricFamily]:
    model, today = status.language_model, status.language_model.today
    yield _gauge("reverie_language_model_up", "Whether the server's language model answers.", model.state != "down")
    used = {name: float(getattr(today, name)) for name in today.__struct_fields__}
    yield _labelled("reverie_language_model_today", "Usage of the language model since midnight UTC.", "what", used)


def _time_gauges(time: TimeStatus) -> Iterator[GaugeMetricFamily]:
    yield _labelled("reverie_schedules", "Schedules by status.", "status", time.schedules)
    yield _gauge(
        "reverie_schedules_overdue", "Schedules that are due without a run in progress.", time.schedules_overdue
    )
    oldest = time.schedules_oldest_overdue_seconds
    yield _gauge(
        "reverie_schedules_oldest_overdue_seconds", "Seconds for which the first of them has been due.", oldest
    )
    yield _labelled("reverie_schedule_runs_open", "Runs that are pending or running.", "status", time.runs_open)
    pending = time.runs_oldest_pending_seconds
    yield _gauge("reverie_schedule_runs_oldest_pending_seconds", "Age of the oldest pending run.", pending)
    percentiles = {"50": time.start_lag.p50_seconds, "99": time.start_lag.p99_seconds}
    known = {name: value for name, value in percentiles.items() if value is not None}
    yield _labelled(
        "reverie_schedule_start_lag_seconds", "Seconds from due to started, last hour.", "percentile", known
    )
    failed = time.runs_failed_last_day
    yield _gauge("reverie_schedule_runs_failed_last_day", "Runs that failed or timed out in 24 hours.", failed)
    yield _gauge("reverie_reminders_waiting", "Reminders that are not due yet.", time.reminders_waiting)
    yield _gauge("reverie_reminders_due", "Reminders that are due and not delivered.", time.reminders_due)
    due = time.reminders_oldest_due_seconds
    yield _gauge("reverie_reminders_oldest_due_seconds", "Seconds for which the first of them has been due.", due)
    yield _gauge(
        "reverie_notifications_waiting", "Notifications neither pushed nor acknowledged.", time.notifications_waiting
    )
    yield _gauge("reverie_pushes_put_back", "Pushes that failed and will be tried again.", time.pushes_put_back)


def _gauge(name: str, description: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, description, value=value)


def _labelled(name: str, description: str, label: str, values: dict[str, int] | dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, description, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def host_metrics(settings: Settings) -> Iterator[GaugeMetricFamily]:
    """Yield metrics of the installation, with which alerts compare others: the disk, and how often jobs are due."""
    with contextlib.suppress(OSError):  # the folder is not there yet
        disk = shutil.disk_usage(settings.data)
        yield GaugeMetricFamily(
            "reverie_disk_free_bytes", "Free space on the disk of the data folder.", value=disk.free
        )
        yield GaugeMetricFamily("reverie_disk_size_bytes", "Size of the disk of the data folder.", value=disk.total)
    intervals = GaugeMetricFamily("reverie_job_interval_seconds", "How often a job runs.", labels=["job"])
    for job in PERIODIC_JOBS:
        intervals.add_metric([job.task.removeprefix("reverie.")], job.every(settings).total_seconds())
    yield intervals
    if settings.backup_folder is not None:
        seconds = settings.backup_interval_hours * 3_600
        yield GaugeMetricFamily("reverie_backup_interval_seconds", "How often a backup is made.", value=seconds)


def shared_metrics(runtime: Runtime) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
    """Add what this server has counted, and yield the sums of all processes. Without a broker they are unknown."""
    try:
        metrics = runtime.shared_metrics
        metrics.flush()
        found = metrics.read()
        accepted = runtime.inbox.totals().accepted
    except Unavailable:
        return
    yield CounterMetricFamily(
        "reverie_accepted_items", "Messages and files that were put into an inbox.", value=accepted
    )
    for metric, samples in found.items():
        yield _histogram(metric, samples) if metric.buckets else _counter(metric, samples)


def _counter(metric: SharedMetric, samples: list[Sample]) -> CounterMetricFamily:
    family = CounterMetricFamily(metric.name, metric.description, labels=list(metric.labels))
    for sample in samples:
        family.add_metric(sample.labels, sample.value)
    return family


def _histogram(metric: SharedMetric, samples: list[Sample]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.description, labels=list(metric.labels))
    bounds = [*map(str, metric.buckets), "+Inf"]
    for sample in samples:
        counts = list(accumulate(sample.bucket_counts))
        family.add_metric(sample.labels, list(zip(bounds, counts, strict=True)), sum_value=sample.value)
    return family
