"""Sessions are read all the time while they are stored: afterwards, each read has all messages."""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene
from reverie import Reverie
from reverie.errors import ReverieError

_SESSIONS: Final = 250
_TINY_SESSIONS: Final = 30
_MESSAGES: Final = 3
_READERS: Final = 2
_WORKSPACE: Final = "bench"


def _cause(scene: Scene) -> None:
    total = _TINY_SESSIONS if scene.quick else _SESSIONS
    current, halt = ["read-0"], threading.Event()
    with Reverie("bench", url=scene.stack.url, broker=scene.stack.broker_url, workspace=_WORKSPACE) as client:

        def read() -> None:
            while not halt.is_set():
                with contextlib.suppress(ReverieError):  # it is not there yet
                    client.working(current[0])

        readers = [threading.Thread(target=read, name="reader") for _ in range(_READERS)]
        for reader in readers:
            reader.start()
        short = 0
        try:
            for number in range(total):
                current[0] = f"read-{number}"
                for index in range(_MESSAGES):
                    text = f"message {index} of session {number}"
                    scene.accepted.send([text], session=current[0], wait="stored")
                short += len(client.working(current[0])) != _MESSAGES
                scene.tell(f"{number + 1} sessions stored, {short} of them read without a message")
        finally:
            halt.set()
            for reader in readers:
                reader.join()
    scene.figures["short_sessions"] = short
    if short:
        scene.broken.append(f"{short} of {total} sessions were read without a message that was stored")


SCENARIO: Final = Scenario(
    "read_while_stored", "sessions are read while they are stored", _cause, Limits(others_stored_seconds=2.0)
)
