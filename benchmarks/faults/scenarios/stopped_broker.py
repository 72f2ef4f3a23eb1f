"""The broker hangs: its process is stopped for a while (SIGSTOP) and goes on."""

from __future__ import annotations

import time
from typing import Final

import psutil

from benchmarks.faults.scenario import Limits, Scenario, Scene
from reverie.errors import ReverieError

_SECONDS: Final = 20.0
_TINY_SECONDS: Final = 3.0
_CALL_SECONDS: Final = 2.0
# A call ends with its time, and what the machine adds.
_LATEST_SECONDS: Final = _CALL_SECONDS + 1.0
_PAUSE_SECONDS: Final = 0.1


def _cause(scene: Scene) -> None:
    broker = psutil.Process(next(entry.pid for entry in scene.stack.processes() if entry.name == "broker"))
    longest, calls = 0.0, 0
    broker.suspend()
    try:
        ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
        while time.monotonic() < ends:
            began = time.monotonic()
            try:
                scene.accepted.send([f"message {calls} while the broker hangs"], timeout_seconds=_CALL_SECONDS)
                scene.broken.append("a message was accepted by a broker that hangs")
            except ReverieError:
                longest = max(longest, time.monotonic() - began)
            calls += 1
            scene.tell(f"{calls} calls refused, the longest after {longest:.1f} s")
            time.sleep(_PAUSE_SECONDS)
    finally:
        broker.resume()
    scene.figures["longest_call_seconds"] = longest
    if longest > _LATEST_SECONDS:
        scene.broken.append(f"a call with {_CALL_SECONDS:g} s ended after {longest:.1f} s")


# Nobody's messages are accepted meanwhile; recalls need no broker.
SCENARIO: Final = Scenario(
    "stopped_broker", "the broker hangs for 20 s", _cause, Limits(others_stored_seconds=None, recovery_seconds=15.0)
)
