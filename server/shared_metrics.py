"""Shows Prometheus what all processes have counted together in the broker, the server's own part included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from adapters.broker.inbox import WorkerInbox
from adapters.broker.shared_metrics import Sample, SharedMetric, SharedMetrics
from reverie.errors import Unavailable


class SharedMetricsCollector(Collector):
    """Adds what this server has counted, then reads the sums. Without a broker there are none: they are unknown."""

    def __init__(self, metrics: Callable[[], SharedMetrics], inbox: Callable[[], WorkerInbox]) -> None:
        self._metrics, self._inbox = metrics, inbox

    def describe(self) -> list[CounterMetricFamily]:
        """Return nothing, so that registering does not ask the broker."""
        return []

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        """Read the sums of all processes."""
        try:
            metrics = self._metrics()
            metrics.flush()
            found = metrics.read()
            accepted = self._inbox().totals().accepted
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
