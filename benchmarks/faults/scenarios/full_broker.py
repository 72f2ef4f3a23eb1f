"""The broker's memory is full for a while: it refuses each write, and has room again."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene
from reverie.errors import Unavailable
from reverie.pipeline.broker import connect

_SECONDS: Final = 20.0
_TINY_SECONDS: Final = 3.0
_MESSAGES: Final = 1_000
_PAUSE_SECONDS: Final = 0.1


def _cause(scene: Scene) -> None:
    refused = 0
    scene.accepted.send([f"message {number} before the memory is full" for number in range(_MESSAGES)])
    with connect(scene.stack.broker_url) as broker:
        broker.config_set("maxmemory", 1)
        try:
            ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
            while time.monotonic() < ends:
                try:
                    scene.accepted.send(["a message while the memory is full"])
                    scene.broken.append("a message was accepted by a broker without memory")
                except Unavailable:
                    refused += 1
                scene.tell(f"{refused} messages refused while the memory is full")
                time.sleep(_PAUSE_SECONDS)
        finally:
            broker.config_set("maxmemory", 0)
    scene.figures["refused"] = refused


SCENARIO: Final = Scenario(
    "full_broker",
    "the broker's memory is full for 20 s",
    _cause,
    Limits(others_stored_seconds=None, recovery_seconds=45.0),
)
