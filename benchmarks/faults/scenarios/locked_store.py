"""One store is locked for long, as by a migration or a slow disk: only who uses it waits."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Final

import pysqlite3

from benchmarks.faults.scenario import Scenario, Scene
from reverie import Reverie
from reverie.errors import ReverieError

_LOCKED: Final = "locked"
_STAY_SECONDS: Final = 25.0
_TINY_STAY_SECONDS: Final = 4.0
# More than the server has threads.
_WRITERS: Final = 48


def _cause(scene: Scene) -> None:
    scene.accepted.send(["the first message makes the store"], workspace=_LOCKED, wait="searchable")
    stay = _TINY_STAY_SECONDS if scene.quick else _STAY_SECONDS
    done = threading.Event()
    with closing(pysqlite3.connect(scene.stack.database(_LOCKED), isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(_WRITERS) as threads:
            for number in range(_WRITERS):
                threads.submit(_write, scene, number, done)
            ends = time.monotonic() + stay
            while time.monotonic() < ends:
                scene.accepted.send([f"message {time.monotonic()} for a locked store"], workspace=_LOCKED)
                time.sleep(0.5)
            raw.execute("ROLLBACK")
            done.set()


def _write(scene: Scene, number: int, done: threading.Event) -> None:
    with Reverie("bench", url=scene.stack.url, workspace=_LOCKED, timeout_seconds=60) as ana:
        while not done.is_set():
            with suppress(ReverieError):
                ana.set_fact("harbour", f"pier {number}", "open")


SCENARIO: Final = Scenario("locked_store", "one store is locked for 25 s while 48 callers write to it", _cause)
