"""The database of one workspace is garbage: its messages wait, and nobody else notices."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.faults.scenario import Scenario, Scene
from reverie import Reverie
from reverie.errors import ReverieError

_BROKEN: Final = "broken"
_STAY_SECONDS: Final = 40.0
_TINY_STAY_SECONDS: Final = 4.0


def _cause(scene: Scene) -> None:
    path = scene.stack.database(_BROKEN)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(b"this is no database " * 1_000)
    refused = 0
    ends = time.monotonic() + (_TINY_STAY_SECONDS if scene.quick else _STAY_SECONDS)
    with Reverie("bench", url=scene.stack.url, workspace=_BROKEN, timeout_seconds=30) as ana:
        number = 0
        while time.monotonic() < ends:
            scene.accepted.send([f"message {number} for a damaged store"], workspace=_BROKEN)
            number += 1
            try:
                ana.recall("anything", mode="keyword")
            except ReverieError:
                refused += 1
            time.sleep(0.2)
        errors = ana.status().errors
    if _BROKEN not in errors:
        scene.broken.append("the status does not name the damaged store")
    if refused != number:
        scene.broken.append(f"{number - refused} recalls of a damaged store were answered")
    scene.figures["messages_waiting"] = number
    path.unlink()


SCENARIO: Final = Scenario("damaged_store", "the database of one workspace is garbage for 40 s", _cause)
