"""A workspace is deleted again and again while messages for it arrive: what comes after a deletion is stored."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from benchmarks.faults.scenario import Scenario, Scene
from reverie import Reverie
from reverie.clock import new_id, now_micros
from reverie.contract import MessagePayload
from reverie.errors import ReverieError

_BUSY: Final = "busy"
_DELETIONS: Final = 10


def _cause(scene: Scene) -> None:
    halt = threading.Event()
    sender = threading.Thread(target=_send_all_the_time, args=(scene, halt), name="sender")
    sender.start()
    try:
        with Reverie("bench", url=scene.stack.url, workspace=_BUSY, timeout_seconds=60) as ana:
            for number in range(2 if scene.quick else _DELETIONS):
                # Answered is deleted: these have to go, and what is sent from now on has to stay.
                ana.ingest("old", {"role": "user", "content": f"before deletion {number}"}, wait="stored")
                ana.delete_workspace()
                after = [f"message {number}-{index} after the deletion" for index in range(20)]
                if number == (1 if scene.quick else _DELETIONS - 1):
                    scene.accepted.send(after, workspace=_BUSY)
                scene.tell(f"deleted {number + 1} times")
    finally:
        halt.set()
        sender.join()


def _send_all_the_time(scene: Scene, halt: threading.Event) -> None:
    """Send messages of which each may be before or after a deletion."""
    producer = scene.stack.producer(_BUSY)
    while not halt.wait(0.002):
        payload = MessagePayload(
            id=new_id(), agent="bench", session="meanwhile", role="user", content="meanwhile", created_at=now_micros(),
            trace="fault",
        )  # fmt: skip
        with suppress(ReverieError):
            producer.enqueue([payload])


SCENARIO: Final = Scenario("deleted_workspace", "a workspace is deleted ten times while it is written to", _cause)
