"""Checks of the machine: Python, SQLite, memory, open files, and the broker's program."""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterator
from typing import Final

import psutil
import pysqlite3

from reverie import __version__
from storage.engine import check_sqlite_version
from worker.doctor.findings import Finding
from worker.settings import Settings
from worker.supervision.embedded_broker import valkey_server_path

# All processes together keep below 1.5 GiB, see docs/benchmarks.md.
_MEMORY_BYTES: Final = 3 * 2**29
# A process keeps a few files open for each workspace in use.
_OPEN_FILES: Final = 1_024
_GIB: Final = 2**30


def check_programs() -> Iterator[Finding]:
    """Check the versions of Python, Reverie and SQLite."""
    yield Finding("Reverie", "ok", f"{__version__} on Python {platform.python_version()}, {platform.platform()}")
    check_sqlite_version()
    yield Finding("SQLite", "ok", pysqlite3.sqlite_version)


def check_memory(*, running: bool) -> Iterator[Finding]:
    """Check that there is memory for all processes, unless they run already."""
    memory = psutil.virtual_memory()
    found = f"{memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB available"
    if running or memory.available >= _MEMORY_BYTES:
        yield Finding("Memory", "ok", found)
    else:
        advice = f"Reverie needs {_MEMORY_BYTES / _GIB:.1f} GiB under load: end other programs"
        yield Finding("Memory", "warning", found, f'{advice}, or set embedding_provider = "model2vec"')


def check_open_files() -> Iterator[Finding]:
    """Check how many files a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = "any number" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES:
        yield Finding("Open files", "ok", f"{limit} allowed")
    else:
        most = "unlimited" if hard == resource.RLIM_INFINITY else hard
        yield Finding("Open files", "warning", f"{limit} allowed", f"raise it before `reverie up`: ulimit -n {most}")


def check_broker_program(settings: Settings) -> Iterator[Finding]:
    """Check the program of the embedded broker, unless a broker is named."""
    if settings.broker is None:
        yield Finding("Broker program", "ok", str(valkey_server_path()))
