"""The disk is full for a minute while messages come in, and has room again."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene
from benchmarks.faults.setting import small_disk
from reverie.errors import ReverieError

_MEGABYTES: Final = 300
_SECONDS: Final = 60.0
_TINY_SECONDS: Final = 5.0
_MESSAGES: Final = 200
_PAUSE_SECONDS: Final = 0.1


def _cause(scene: Scene) -> None:
    disk = scene.setting.disk
    assert disk is not None
    scene.accepted.send([f"message {number} before the disk is full" for number in range(_MESSAGES)])
    disk.fill()
    try:
        ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
        number = refused = 0
        while time.monotonic() < ends:
            # The broker writes what it accepts to the same disk: it refuses what it cannot keep.
            try:
                scene.accepted.send([f"message {number} while the disk is full"])
            except ReverieError:
                refused += 1
            number += 1
            scene.tell(f"{number} messages sent while the disk is full, {refused} refused")
            time.sleep(_PAUSE_SECONDS)
        scene.figures["refused"] = refused
    finally:
        disk.empty()


SCENARIO: Final = Scenario(
    "full_disk",
    "the disk is full for 60 s",
    _cause,
    # Nothing can be stored meanwhile, of anybody.
    Limits(others_stored_seconds=None, others_recalled_seconds=1.0, recovery_seconds=60.0),
    setting=partial(small_disk, _MEGABYTES),
)
