"""A process of the pipeline's pool is killed again and again while messages of several workspaces wait."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

import psutil

from benchmarks.faults.scenario import Limits, Scenario, Scene
from benchmarks.harness.stack import Stack

_KILLS: Final = 6
_MESSAGES: Final = 200


def _cause(scene: Scene) -> None:
    for number in range(2 if scene.quick else _KILLS):
        texts = [f"message {number}-{index} about the harbour" for index in range(_MESSAGES)]
        scene.accepted.send(texts, session=f"s{number}")
        victim = scene.chance.choice(_children(scene.stack))
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(victim).kill()
        scene.tell(f"{number + 1} processes killed")
        scene.wait_until(partial(_replaced, scene.stack, victim), "no new process came")


def _replaced(stack: Stack, pid: int) -> bool:
    now = _children(stack)
    return bool(now) and pid not in now


def _children(stack: Stack) -> list[int]:
    """Return the processes of the pipeline worker's pool."""
    for entry in stack.processes():
        if entry.name == "pipeline" and entry.pid:
            with contextlib.suppress(psutil.NoSuchProcess):
                return [child.pid for child in psutil.Process(entry.pid).children()]
    return []


# Others share the pool: they wait for a new process, and for what the dead one had claimed.
SCENARIO: Final = Scenario(
    "killed_child", "a pool process of the pipeline is killed six times", _cause, Limits(others_stored_seconds=5.0)
)
