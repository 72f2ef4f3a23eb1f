"""The broker hangs, has no memory left, or loses its content."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import psutil

from benchmarks.faults.scenario import Limits, Scenario, Scene
from memory.pipeline.broker_status import lost_lines
from reverie.clock import now_micros
from reverie.errors import ReverieError, Unavailable
from reverie.pipeline.broker import connect

_SECONDS: Final = 20.0
_TINY_SECONDS: Final = 3.0
_CALL_SECONDS: Final = 2.0
# A call ends when its time is over, or up to a second later on a busy machine.
_LATEST_SECONDS: Final = _CALL_SECONDS + 1.0
_PAUSE_SECONDS: Final = 0.1
_MESSAGES: Final = 1_000
_FLUSHES: Final = 4
_PRODUCERS: Final = 8
_BETWEEN_FLUSHES_SECONDS: Final = 1.0
# More than the interval of the sweep that notices the loss.
_NOTICED_SECONDS: Final = 60.0


def _stopped_broker(scene: Scene) -> None:
    """The broker hangs: its process is stopped for a while (SIGSTOP) and goes on."""
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


def _full_broker(scene: Scene) -> None:
    """The broker's memory is full for a while: it refuses each write, and has room again."""
    refused = 0
    scene.accepted.send([f"message {number} before the memory is full" for number in range(_MESSAGES)])
    with connect(scene.stack.broker_url) as broker:
        broker.config_set("maxmemory", 1)
        try:
            ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
            while time.monotonic() < ends:
                try:
                    scene.accepted.send(["a message while the memory is full"])
                    scene.broken.append("a message was accepted by a broker without memory")
                except Unavailable:
                    refused += 1
                scene.tell(f"{refused} messages refused while the memory is full")
                time.sleep(_PAUSE_SECONDS)
        finally:
            broker.config_set("maxmemory", 0)
    scene.figures["refused"] = refused


def _emptied_broker(scene: Scene) -> None:
    """The broker loses its content (FLUSHALL) while producers wait until their messages are stored."""
    failed: list[str] = []

    def send(number: int) -> None:
        for index in range(5 if scene.quick else 40):
            try:
                text = f"message {number}-{index} of a producer that waits"
                scene.accepted.send([text], wait="stored", session=f"s{number}", timeout_seconds=60)
            except ReverieError as error:
                failed.append(str(error))

    with connect(scene.stack.broker_url) as broker, ThreadPoolExecutor(_PRODUCERS) as pool:
        calls = [pool.submit(send, number) for number in range(_PRODUCERS)]
        for flush in range(1 if scene.quick else _FLUSHES):
            time.sleep(_BETWEEN_FLUSHES_SECONDS)
            broker.flushall()
            scene.tell(f"emptied {flush + 1} times")
        for call in calls:
            call.result()
    scene.broken.extend(f"a producer that waited was told: {error}" for error in failed[:3])
    scene.wait_until(
        lambda: bool(lost_lines(scene.stack.data, now=now_micros())),
        "nobody noticed that the broker was emptied",
        _NOTICED_SECONDS,
    )


SCENARIOS: Final = (
    # Nobody's messages are accepted meanwhile; recalls need no broker.
    Scenario(
        "stopped_broker",
        "the broker hangs for 20 s",
        _stopped_broker,
        Limits(others_stored_seconds=None, recovery_seconds=15.0),
    ),
    Scenario(
        "full_broker",
        "the broker's memory is full for 20 s",
        _full_broker,
        Limits(others_stored_seconds=None, recovery_seconds=45.0),
    ),
    # A task may be lost with the rest; then the sweep finds the items that it was sent for.
    Scenario(
        "emptied_broker",
        "the broker loses its content four times",
        _emptied_broker,
        Limits(others_stored_seconds=30.0, others_recalled_seconds=1.0, recovery_seconds=60.0),
    ),
)
