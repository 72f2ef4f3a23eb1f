"""Metrics of the installation that alerts compare others with: disk space, and how often jobs and backups are due."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from beat_schedule import PERIODIC_JOBS
from worker.settings import Settings


class HostCollector(Collector):
    """Reads the disk of the data folder on each scrape."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing, so that registering does not look at the disk."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the disk and the settings."""
        settings = self._settings
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
