"""The disk is full three times while messages come in; when it has room again, the broker is killed.

The broker rewrites its file before: from then on, a write that falls short leaves a gap in it.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene
from benchmarks.faults.setting import small_disk
from reverie.errors import ReverieError
from reverie.pipeline.broker import call_broker, connect

_MEGABYTES: Final = 300
_TIMES: Final = 3
_SECONDS: Final = 20.0
_TINY_SECONDS: Final = 2.0
_BETWEEN_SECONDS: Final = 5.0
_MESSAGES: Final = 200
_PAUSE_SECONDS: Final = 0.1


def _cause(scene: Scene) -> None:
    scene.accepted.send([f"message {number} before the disk is full" for number in range(_MESSAGES)])
    with connect(scene.stack.broker_url) as broker:
        call_broker(broker.bgrewriteaof)
    refused = 0
    for time_number in range(_TIMES):
        refused += _send_while_full(scene, time_number)
        time.sleep(_BETWEEN_SECONDS)
    scene.figures["refused"] = refused
    (pid,) = [process.pid for process in scene.stack.processes() if process.name == "broker" and process.pid]
    os.kill(pid, signal.SIGKILL)


def _send_while_full(scene: Scene, time_number: int) -> int:
    """Fill the disk for a while and send messages all the time; return how many were refused."""
    disk = scene.setting.disk
    assert disk is not None
    number = refused = 0
    disk.fill()
    try:
        ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
        while time.monotonic() < ends:
            # The broker writes what it accepts to the same disk: it refuses what it cannot keep.
            try:
                scene.accepted.send([f"message {number} while the disk is full, {time_number}"])
            except ReverieError:
                refused += 1
            number += 1
            scene.tell(f"{number} messages sent while the disk is full, {refused} refused")
            time.sleep(_PAUSE_SECONDS)
    finally:
        disk.empty()
    return refused


SCENARIO: Final = Scenario(
    "full_disk",
    "the disk is full three times for 20 s, then the broker is killed",
    _cause,
    # Nothing can be stored meanwhile, of anybody.
    Limits(others_stored_seconds=None, others_recalled_seconds=1.0, recovery_seconds=60.0),
    setting=partial(small_disk, _MEGABYTES),
)
