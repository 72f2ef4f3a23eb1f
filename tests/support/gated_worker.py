"""A real worker whose tasks last for as long as a test wants."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from reverie import contract
from reverie.pipeline.broker import celery_class, celery_settings, celery_url
from support.forks import Program

TASK: Final = "reverie.test_gated"
PATIENCE_SECONDS: Final = 90.0
# Each task notes that it has begun, waits until its gate is open, and notes that it has ended.
_WORKER: Final = """
import os, sys, time
from pathlib import Path
from reverie import contract
from worker import app as module
from worker.running import run_worker
folder, queue, concurrency, limit_seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
contract.TASK_QUEUES["reverie.test_gated"] = queue
module.app.conf.task_time_limit = limit_seconds
def note(what, name):
    with (folder / what).open("a") as file:
        file.write(f"{name} {os.getpid()}\\n")
@module.task("reverie.test_gated")
def gated(*, workspace):
    note("begun", workspace)
    while not (folder / f"{workspace}.open").exists():
        time.sleep(0.01)
    note("ended", workspace)
    return {}
exec(sys.argv[5])
run_worker(module.settings, [queue], concurrency, int(sys.argv[6]) or None)
"""


def wait_until(met: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition is met."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)  # for half a minute, in many tests


class GatedWorker:
    """A worker of one queue in a `with` block; each of its tasks has a name, and lasts until `open` names it."""

    def __init__(
        self,
        folder: Path,
        broker_url: str,
        *,
        queue: str = contract.QUEUE_INDEX,
        concurrency: int = 1,
        limit_seconds: int = 300,
        before: str = "",
        autoscale: int = 0,
    ) -> None:
        """Tasks are killed after `limit_seconds`; `before` is code that the worker runs before it starts."""
        self._folder = folder
        self._queue = queue
        self._app = celery_class()("tests", broker=celery_url(broker_url), set_as_current=False)
        self._app.conf.update(celery_settings(contract.DEFAULT_PREFIX))
        self._arguments = [str(folder), queue, str(concurrency), str(limit_seconds), before, str(autoscale)]
        self._environment = {
            "REVERIE_DATA": str(folder / "data"),
            "REVERIE_BROKER": broker_url,
            "REVERIE_EMBEDDING_PROVIDER": "none",
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
        }

    def __enter__(self) -> Self:
        """Start the worker."""
        self.process = Program(_WORKER, self._arguments, self._environment, self._folder / "worker.log")
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the worker; its children die with it."""
        self.process.kill()
        self.process.wait()
        self._app.close()

    def send(self, *names: str) -> None:
        """Send a task of each name."""
        for name in names:
            self._app.send_task(TASK, kwargs={"workspace": name}, queue=self._queue)

    def open(self, *names: str) -> None:
        """Let the tasks of these names end."""
        for name in names:
            (self._folder / f"{name}.open").touch()

    def begun(self, name: str) -> list[int]:
        """Return the processes in which a task of this name has begun."""
        return self._noted("begun", name)

    def wait_begun(self, *names: str) -> None:
        """Wait until a task of each name has begun."""
        wait_until(lambda: all(self.begun(name) for name in names), f"{names} begin: {self.log()[-2_000:]}")

    def wait_ended(self, *names: str) -> None:
        """Wait until a task of each name has ended."""
        wait_until(lambda: all(self._noted("ended", name) for name in names), f"{names} end: {self.log()[-2_000:]}")

    def log(self) -> str:
        """Return what the worker has logged."""
        return (self._folder / "worker.log").read_text("utf-8", "replace")

    def _noted(self, what: str, name: str) -> list[int]:
        path = self._folder / what
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == name]
