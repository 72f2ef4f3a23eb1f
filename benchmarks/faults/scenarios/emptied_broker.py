"""The broker loses its content (FLUSHALL) while producers wait until their messages are stored."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene
from memory.pipeline.broker_watch import lost_lines
from reverie.clock import now_micros
from reverie.errors import ReverieError
from reverie.pipeline.broker import connect

_FLUSHES: Final = 4
_PRODUCERS: Final = 8
_PAUSE_SECONDS: Final = 1.0
# Longer than the sweep that notices it.
_NOTICED_SECONDS: Final = 60.0


def _cause(scene: Scene) -> None:
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
            time.sleep(_PAUSE_SECONDS)
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


# A task may be lost with the rest, and the sweep finds what it was for.
SCENARIO: Final = Scenario(
    "emptied_broker",
    "the broker loses its content four times",
    _cause,
    Limits(others_stored_seconds=30.0, others_recalled_seconds=1.0, recovery_seconds=60.0),
)
