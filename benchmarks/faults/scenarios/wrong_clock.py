"""The clock of the machine is a year ahead for a while, then right, then five and forty minutes behind."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene
from benchmarks.faults.setting import stepped_clock
from reverie import Reverie

_YEAR_SECONDS: Final = 365 * 86_400.0
_STEPS_SECONDS: Final = (_YEAR_SECONDS, 0.0, -300.0, -2_400.0, 0.0)
# Beat finds every job due as soon as the clock is ahead, among them those that remove what is old.
_STAY_SECONDS: Final = 15.0
_TINY_STAY_SECONDS: Final = 3.0
_MEMORIES: Final = 20


def _cause(scene: Scene) -> None:
    clock = scene.setting.clock
    assert clock is not None
    stay = _TINY_STAY_SECONDS if scene.quick else _STAY_SECONDS
    scene.accepted.send(["the workspace is there"], wait="searchable", timeout_seconds=120.0)
    with Reverie("bench", url=scene.stack.url, workspace="bench", timeout_seconds=60) as ana:
        for number in range(_MEMORIES):
            ana.remember(f"note {number} that nobody must prune")
        schedule = ana.add_schedule("say what the harbour looks like", every=5)
        for number, seconds in enumerate(_STEPS_SECONDS):
            clock.move(seconds)
            ends = time.monotonic() + stay
            while time.monotonic() < ends:
                scene.accepted.send([f"message {number} at {time.monotonic()} on a clock that is {seconds:+.0f} s off"])
                scene.tell(f"the clock is {seconds:+,.0f} s off")
                time.sleep(0.2)
        runs = len(ana.schedule_runs(schedule.id, limit=100))
        scene.wait_until(
            lambda: len(ana.schedule_runs(schedule.id, limit=100)) > runs, "no schedule fires on the right clock", 60.0
        )
        kept = len([memory for memory in ana.memories(limit=100) if memory.content.startswith("note ")])
    scene.figures["memories_kept"] = kept
    if kept != _MEMORIES:
        scene.broken.append(f"{_MEMORIES - kept} memories were removed")


SCENARIO: Final = Scenario(
    "wrong_clock",
    "the clock is a year ahead, then 5 and 40 minutes behind",
    _cause,
    Limits(others_stored_seconds=5.0),
    env={
        "REVERIE_SWEEP_INTERVAL_SECONDS": "2",
        "REVERIE_SCHEDULE_INTERVAL_SECONDS": "1",
        "REVERIE_SCHEDULE_MIN_INTERVAL_SECONDS": "1",
    },
    setting=stepped_clock,
)
