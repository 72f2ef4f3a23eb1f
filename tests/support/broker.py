"""A real Valkey on a unix socket in its own folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Final, Self

import redis

from benchmarks.harness.folders import short_folder
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.embedded_broker import broker_command, wait_until_ready


class RestartableValkey:
    """A broker in a `with` block that can be killed, and started again on the same files."""

    def __init__(self, *options: str) -> None:
        self._folder = short_folder("rv-")
        self._options = options
        self.url = embedded_broker_url(self._folder)

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it, and remove its files."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen([*broker_command(self._folder), *self._options], stdout=subprocess.DEVNULL)
        wait_until_ready(self.url, 60)

    def kill(self) -> None:
        """Kill it, as a crash does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_valkey() -> Iterator[str]:
    """Start a broker and yield its URL; its process is killed at the end."""
    with RestartableValkey() as broker:
        yield broker.url


# More than one test uses at once; a number that is used again is emptied first.
_DATABASES: Final = 64


class Databases:
    """Empty databases of one real broker, which is started when the first is wanted."""

    def __init__(self) -> None:
        self._server: RestartableValkey | None = None
        self._numbers = cycle(range(_DATABASES))

    def new(self) -> redis.Redis:
        """Return a connection to an empty database."""
        if self._server is None:
            self._server = RestartableValkey("--databases", str(_DATABASES), "--save", "", "--appendonly", "no")
            self._server.start()
        database = redis.Redis.from_url(self._server.url, db=next(self._numbers))
        database.flushdb()
        return database

    def close(self) -> None:
        """End the broker."""
        if self._server is not None:
            self._server.__exit__()
            self._server = None


# Those of this process: starting a broker for each of thousands of tests would take longer than the tests.
DATABASES: Final = Databases()
