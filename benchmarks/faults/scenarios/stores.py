"""A disk is full, and stores are locked, damaged, deleted, or made by the hundred."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Final

import pysqlite3

from benchmarks.faults.scenario import Limits, Scenario, Scene
from benchmarks.faults.setting import small_disk
from reverie import Reverie
from reverie.clock import new_id, now_micros
from reverie.contract import MessagePayload
from reverie.errors import ReverieError
from reverie.pipeline.broker import call_broker, connect

_MEGABYTES: Final = 300
_TIMES: Final = 3
_SECONDS: Final = 20.0
_TINY_SECONDS: Final = 2.0
_BETWEEN_SECONDS: Final = 5.0
_MESSAGES: Final = 200
_PAUSE_SECONDS: Final = 0.1
_WORKSPACES: Final = 300
_TINY_WORKSPACES: Final = 25
_LOCKED: Final = "locked"
_LOCKED_SECONDS: Final = 25.0
_TINY_LOCKED_SECONDS: Final = 4.0
# More than the server has threads.
_WRITERS: Final = 48
_BROKEN: Final = "broken"
_BROKEN_SECONDS: Final = 40.0
_TINY_BROKEN_SECONDS: Final = 4.0
_BUSY: Final = "busy"
_DELETIONS: Final = 10


def _full_disk(scene: Scene) -> None:
    """The disk is full three times while messages come in; when it has room again, the broker is killed.

    The broker rewrites its file before: from then on, a write that falls short leaves a gap in it.
    """
    scene.accepted.send([f"message {number} before the disk is full" for number in range(_MESSAGES)])
    with connect(scene.stack.broker_url) as broker:
        call_broker(broker.bgrewriteaof)
    refused = 0
    for time_number in range(_TIMES):
        refused += _send_while_full(scene, time_number)
        time.sleep(_BETWEEN_SECONDS)
    scene.figures["refused"] = refused
    (pid,) = [process.pid for process in scene.stack.processes() if process.name == "broker" and process.pid]
    os.kill(pid, signal.SIGKILL)


def _send_while_full(scene: Scene, time_number: int) -> int:
    """Fill the disk for a while and send messages all the time; return how many were refused."""
    disk = scene.setting.disk
    assert disk is not None
    number = refused = 0
    disk.fill()
    try:
        ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
        while time.monotonic() < ends:
            # The broker writes what it accepts to the same disk: it refuses what it cannot keep.
            try:
                scene.accepted.send([f"message {number} while the disk is full, {time_number}"])
            except ReverieError:
                refused += 1
            number += 1
            scene.tell(f"{number} messages sent while the disk is full, {refused} refused")
            time.sleep(_PAUSE_SECONDS)
    finally:
        disk.empty()
    return refused


def _many_workspaces(scene: Scene) -> None:
    """Messages for hundreds of workspaces arrive at once, and all of them are recalled in turn."""
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


def _locked_store(scene: Scene) -> None:
    """One store is locked for long, as by a migration or a slow disk: only who uses it waits."""
    scene.accepted.send(["the first message makes the store"], workspace=_LOCKED, wait="searchable")
    stay = _TINY_LOCKED_SECONDS if scene.quick else _LOCKED_SECONDS
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
                ana.facts.set("harbour", f"pier {number}", "open")


def _damaged_store(scene: Scene) -> None:
    """The database of one workspace is garbage: its messages wait, and nobody else notices."""
    path = scene.stack.database(_BROKEN)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(b"this is no database " * 1_000)
    refused = 0
    ends = time.monotonic() + (_TINY_BROKEN_SECONDS if scene.quick else _BROKEN_SECONDS)
    with Reverie("bench", url=scene.stack.url, workspace=_BROKEN, timeout_seconds=30) as ana:
        number = 0
        while time.monotonic() < ends:
            scene.accepted.send([f"message {number} for a damaged store"], workspace=_BROKEN)
            number += 1
            try:
                ana.recall("anything", mode="keyword")
            except ReverieError:
                refused += 1
            time.sleep(0.2)
        errors = ana.status().errors
    if _BROKEN not in errors:
        scene.broken.append("the status does not name the damaged store")
    if refused != number:
        scene.broken.append(f"{number - refused} recalls of a damaged store were answered")
    scene.figures["messages_waiting"] = number
    path.unlink()


def _deleted_workspace(scene: Scene) -> None:
    """A workspace is deleted again and again while messages for it arrive: what comes after a deletion is stored."""
    halt = threading.Event()
    sender = threading.Thread(target=_send_all_the_time, args=(scene, halt), name="sender")
    sender.start()
    try:
        with Reverie("bench", url=scene.stack.url, workspace=_BUSY, timeout_seconds=60) as ana:
            for number in range(2 if scene.quick else _DELETIONS):
                # Once the deletion is answered, messages sent before it must be gone, and those sent later must stay.
                ana.ingest("old", {"role": "user", "content": f"before deletion {number}"}, wait="stored")
                ana.admin.workspaces.delete()
                after = [f"message {number}-{index} after the deletion" for index in range(20)]
                if number == (1 if scene.quick else _DELETIONS - 1):
                    scene.accepted.send(after, workspace=_BUSY)
                scene.tell(f"deleted {number + 1} times")
    finally:
        halt.set()
        sender.join()


def _send_all_the_time(scene: Scene, halt: threading.Event) -> None:
    """Send messages all the time, each of which may come before or after a deletion."""
    producer = scene.stack.producer(_BUSY)
    while not halt.wait(0.002):
        payload = MessagePayload(
            id=new_id(), agent="bench", session="meanwhile", role="user", content="meanwhile", created_at=now_micros(),
            trace="fault",
        )  # fmt: skip
        with suppress(ReverieError):
            producer.enqueue([payload])


SCENARIOS: Final = (
    Scenario(
        "full_disk",
        "the disk is full three times for 20 s, then the broker is killed",
        _full_disk,
        # Nobody's messages can be stored meanwhile.
        Limits(others_stored_seconds=None, others_recalled_seconds=1.0, recovery_seconds=60.0),
        setting=partial(small_disk, _MEGABYTES),
    ),
    # Others take their turn among three hundred new workspaces.
    Scenario("many_workspaces", "300 workspaces begin at once", _many_workspaces, Limits(others_stored_seconds=5.0)),
    Scenario("locked_store", "one store is locked for 25 s while 48 callers write to it", _locked_store),
    Scenario("damaged_store", "the database of one workspace is garbage for 40 s", _damaged_store),
    Scenario("deleted_workspace", "a workspace is deleted ten times while it is written to", _deleted_workspace),
)
