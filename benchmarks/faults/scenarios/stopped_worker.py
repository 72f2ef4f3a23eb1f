"""A worker hangs: all processes of the pipeline are stopped for a while (SIGSTOP) and go on."""

from __future__ import annotations

import contextlib
import time
from typing import Final

import psutil

from benchmarks.faults.scenario import Limits, Scenario, Scene

_SECONDS: Final = 20.0
_TINY_SECONDS: Final = 2.0


def _cause(scene: Scene) -> None:
    family = _pipeline(scene)
    for process in family:
        process.suspend()
    try:
        ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
        number = 0
        while time.monotonic() < ends:
            # Accepting needs no worker.
            scene.accepted.send([f"message {number} while the worker hangs"])
            number += 1
            scene.tell(f"{number} messages accepted while the worker hangs")
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _pipeline(scene: Scene) -> list[psutil.Process]:
    entry = next(entry for entry in scene.stack.processes() if entry.name == "pipeline")
    parent = psutil.Process(entry.pid)
    return [parent, *parent.children(recursive=True)]


# Everybody's messages wait in the inbox meanwhile, so no limit holds for that; recalls go on.
SCENARIO: Final = Scenario(
    "stopped_worker", "the pipeline worker hangs for 20 s", _cause, Limits(others_stored_seconds=None)
)
