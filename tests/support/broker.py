"""A real Valkey on a unix socket in its own folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.harness.folders import short_folder
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.embedded_broker import broker_command, wait_until_ready


@contextmanager
def running_valkey() -> Iterator[str]:
    """Start a broker and yield its URL; its process is killed at the end."""
    folder = short_folder("rv-")
    process = subprocess.Popen(broker_command(folder), stdout=subprocess.DEVNULL)
    try:
        url = embedded_broker_url(folder)
        wait_until_ready(url, 60)
        yield url
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
