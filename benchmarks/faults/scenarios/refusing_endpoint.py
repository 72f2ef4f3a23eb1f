"""The embedding endpoint refuses everything for a while, then answers with vectors of another dimension, then NaN."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.faults.endpoint import Mood, MoodyEndpoint, moody_endpoint
from benchmarks.faults.scenario import Limits, Scenario, Scene

_MOODS: Final[tuple[Mood, ...]] = ("refuses", "other_dimension", "not_a_number")
_SECONDS: Final = 30.0
_TINY_SECONDS: Final = 4.0
_PAUSE_SECONDS: Final = 0.1


def _cause(scene: Scene) -> None:
    endpoint = scene.setting.endpoint
    assert isinstance(endpoint, MoodyEndpoint)
    number = 0
    asked = endpoint.requests
    for mood in _MOODS:
        endpoint.mood = mood
        ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
        while time.monotonic() < ends:
            scene.accepted.send([f"message {number} while the endpoint {mood}"])
            number += 1
            scene.tell(f"{number} messages sent, the endpoint {mood}")
            time.sleep(_PAUSE_SECONDS)
    scene.figures["requests"] = endpoint.requests - asked
    endpoint.mood = "well"


SCENARIO: Final = Scenario(
    "refusing_endpoint",
    "the embedding endpoint refuses everything, or answers with useless vectors",
    _cause,
    # Who waits for vectors is told at once that there are none; the circuit breaker looks again within a minute.
    Limits(others_stored_seconds=5.0, recovery_seconds=120.0),
    setting=moody_endpoint,
)
