"""Reads what a server tells Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the values by name and label values, in the order of the labels' names; without buckets."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def metric_names(families: Iterable[Metric]) -> set[str]:
    """Return the names under which metrics are described: counters with `_total`, histograms without a suffix."""
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
