"""Messages for hundreds of workspaces arrive at once, and all of them are recalled in turn."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene
from reverie import Reverie

_WORKSPACES: Final = 300
_TINY_WORKSPACES: Final = 25


def _cause(scene: Scene) -> None:
    count = _TINY_WORKSPACES if scene.quick else _WORKSPACES
    names = [f"many{number:04d}" for number in range(count)]
    began = time.monotonic()
    for name in names:
        scene.accepted.send([f"the boat of {name} is in the harbour"], workspace=name)
    scene.wait_until(scene.accepted.all_searchable, "not every workspace has its message", 300.0)
    scene.figures["all_searchable_after_seconds"] = time.monotonic() - began
    longest = 0.0
    for _ in range(2):  # the second round opens no store and makes no index
        longest = 0.0
        for name in names:
            with Reverie("bench", url=scene.stack.url, workspace=name, timeout_seconds=30) as ana:
                began = time.monotonic()
                found = ana.recall("where is the boat?", mode="keyword").results
                longest = max(longest, time.monotonic() - began)
            if [result.text for result in found] != [f"the boat of {name} is in the harbour"]:
                scene.broken.append(f"workspace {name} did not find its own message alone")
    scene.figures["longest_recall_seconds"] = longest


# Others take their turn among three hundred new workspaces.
SCENARIO: Final = Scenario("many_workspaces", "300 workspaces begin at once", _cause, Limits(others_stored_seconds=5.0))
