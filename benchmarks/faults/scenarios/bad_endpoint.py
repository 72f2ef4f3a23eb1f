"""The embedding endpoint misbehaves, in one way after another, each for a while."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from benchmarks.faults.endpoint import Mood, MoodyEndpoint, moody_endpoint
from benchmarks.faults.scenario import Limits, Scenario, Scene

_USELESS: Final[tuple[Mood, ...]] = ("refuses", "other_dimension", "not_a_number", "leaves_out_one", "answers_a_page")
_ENDLESS: Final[tuple[Mood, ...]] = ("says_nothing", "drips", "never_ends", "asks_for_a_pause")
_SECONDS: Final = 30.0
_TINY_SECONDS: Final = 4.0
_PAUSE_SECONDS: Final = 0.1


def _cause(moods: tuple[Mood, ...], scene: Scene) -> None:
    endpoint = scene.setting.endpoint
    assert isinstance(endpoint, MoodyEndpoint)
    number = 0
    asked = endpoint.requests
    for mood in moods:
        endpoint.mood = mood
        ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
        while time.monotonic() < ends:
            scene.accepted.send([f"message {number} while the endpoint {mood}"])
            number += 1
            scene.tell(f"{number} messages sent, the endpoint {mood}")
            time.sleep(_PAUSE_SECONDS)
    scene.figures["requests"] = endpoint.requests - asked
    endpoint.mood = "well"


# Who waits for vectors is told at once that there are none; the circuit breaker looks again within a minute.
_LIMITS: Final = Limits(others_stored_seconds=5.0, recovery_seconds=120.0)
REFUSING: Final = Scenario(
    "refusing_endpoint",
    "the embedding endpoint refuses everything, or answers with useless vectors",
    partial(_cause, _USELESS),
    _LIMITS,
    setting=moody_endpoint,
)
ENDLESS: Final = Scenario(
    "endless_endpoint",
    "the embedding endpoint does not answer, or without end, or asks for a pause",
    partial(_cause, _ENDLESS),
    # Who waits for vectors waits for a request that is given up after 15 s, and for one that looks whether the endpoint
    # answers again. A recall waits for 2 s before it goes on by words; most of them are told at once.
    Limits(others_stored_seconds=35.0, others_recalled_seconds=2.5, recovery_seconds=120.0),
    setting=moody_endpoint,
)
