"""No worker stores anything while agents go on sending: one workspace fills its inbox, and the others go on."""

from __future__ import annotations

import contextlib
from typing import Final

import psutil

from benchmarks.faults.others import OTHERS
from benchmarks.faults.scenario import Limits, Scenario, Scene
from reverie.errors import ReverieError
from reverie.problems import InboxFull

_LIMIT: Final = 2_000
_BATCH: Final = 100


def _cause(scene: Scene) -> None:
    entry = next(entry for entry in scene.stack.processes() if entry.name == "pipeline")
    parent = psutil.Process(entry.pid)
    family = [parent, *parent.children(recursive=True)]
    for process in family:
        process.suspend()
    try:
        sent = 0
        while sent <= 2 * _LIMIT:
            try:
                scene.accepted.send([f"message {sent + number} that nobody stores" for number in range(_BATCH)])
            except InboxFull:
                break
            sent += _BATCH
            scene.tell(f"{sent:,} messages wait")
        waiting = scene.stack.inbox().stats("bench").size
        scene.figures["waiting"] = waiting
        if waiting > _LIMIT or sent > _LIMIT:
            scene.broken.append(f"{waiting:,} messages wait, of at most {_LIMIT:,}")
        try:
            scene.accepted.send(["a message of others while one inbox is full"], workspace=OTHERS)
        except ReverieError as error:
            scene.broken.append(f"others are refused: {error}")
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


SCENARIO: Final = Scenario(
    "full_inbox",
    "no worker stores, and an inbox is full",
    _cause,
    Limits(others_stored_seconds=None),
    env={"REVERIE_INBOX_WORKSPACE_ITEMS": str(_LIMIT)},
)
