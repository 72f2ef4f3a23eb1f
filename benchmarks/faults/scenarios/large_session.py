"""A session of thousands of chunks is forgotten: it is gone at once, and writers of the same store hardly wait."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene
from benchmarks.harness.stack import WORKSPACE
from reverie import Reverie
from reverie.clock import new_id, now_micros
from reverie.contract import MessagePayload

_MESSAGES: Final = 10_000
_TINY_MESSAGES: Final = 300
_BATCH: Final = 500
_GOAL_SECONDS: Final = 1.0


def _cause(scene: Scene) -> None:
    count = _TINY_MESSAGES if scene.quick else _MESSAGES
    _fill(scene, count)
    with Reverie("bench", url=scene.stack.url, workspace=WORKSPACE, timeout_seconds=120) as ana:
        began = time.monotonic()
        ana.forget_session("large")
        scene.figures["answered_after_seconds"] = time.monotonic() - began
        if any(result.session == "large" for result in ana.recall("pier of the harbour", limit=50).results):
            scene.broken.append("a recall found something of a session that was forgotten")
        longest = 0.0
        with scene.stack.watch(WORKSPACE) as watch:
            while left := watch.number("SELECT count(*) FROM messages WHERE content LIKE 'pier %'"):
                began = time.monotonic()
                ana.set_fact("harbour", "pier", str(left))
                longest = max(longest, time.monotonic() - began)
                scene.tell(f"{left:,} rows left, the longest write took {longest:.2f} s")
                time.sleep(0.2)
    scene.figures["writers_waited_seconds"] = longest
    if longest > _GOAL_SECONDS:
        scene.broken.append(f"a writer of the same store waited for {longest:.1f} s")


def _fill(scene: Scene, count: int) -> None:
    producer = scene.stack.producer(WORKSPACE)
    for first in range(0, count, _BATCH):
        producer.enqueue([_payload(first + index) for index in range(min(_BATCH, count - first))])
    with scene.stack.watch(WORKSPACE) as watch:
        scene.wait_until(
            lambda: watch.number("SELECT count(*) FROM chunks WHERE indexed_at IS NOT NULL") >= count,
            "the session is not searchable",
            600.0,
        )


def _payload(number: int) -> MessagePayload:
    return MessagePayload(
        id=new_id(), agent="bench", session="large", role="user", content=f"pier {number} of the harbour",
        created_at=now_micros(), trace="fault",
    )  # fmt: skip


SCENARIO: Final = Scenario(
    "large_session",
    "a session of 10,000 chunks is forgotten",
    _cause,
    Limits(others_stored_seconds=None),  # while it is filled, others share the pipeline with 10,000 messages
    env={"REVERIE_SWEEP_INTERVAL_SECONDS": "2"},
)
