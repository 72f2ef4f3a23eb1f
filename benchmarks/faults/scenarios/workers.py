"""Workers die or hang, clocks are wrong, and messages come that are slow to read."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from typing import Final

import psutil

from benchmarks.faults.others import OTHERS
from benchmarks.faults.scenario import Limits, Scenario, Scene
from benchmarks.faults.setting import stepped_clock
from benchmarks.harness.stack import WORKSPACE, Stack
from reverie import Reverie
from reverie.clock import new_id, now_micros
from reverie.contract import MessagePayload
from reverie.errors import InboxFull, ReverieError

_KILLS: Final = 6
_MESSAGES_A_KILL: Final = 200
_BYTES: Final = 500_000
_PATTERN_CHARACTERS: Final = 3_900
_PATTERN_MESSAGES: Final = 45
_BLANKS: Final = ("\u3000", "\u2003", "\u0085", "\u2028", "\u2029", "\u3000\n")
_REPEATED: Final = ("please ", "'z ", "well,\t", "漢", "1_", "password for a ", "i want you to never forget ")
_HANG_SECONDS: Final = 20.0
_TINY_HANG_SECONDS: Final = 2.0
_YEAR_SECONDS: Final = 365 * 86_400.0
_STEPS_SECONDS: Final = (_YEAR_SECONDS, 0.0, -300.0, -2_400.0, 0.0)
# As soon as the clock is ahead, beat starts every job, among them those that remove old content.
_STAY_SECONDS: Final = 15.0
_TINY_STAY_SECONDS: Final = 3.0
_MEMORIES: Final = 20
_INBOX_MB: Final = 64
_LIMIT: Final = _INBOX_MB * 1_000_000 // 2 // 1_280  # of one workspace
_INBOX_BATCH: Final = 1_000
_LARGE_MESSAGES: Final = 10_000
_TINY_LARGE_MESSAGES: Final = 300
_BATCH: Final = 500
_GOAL_SECONDS: Final = 1.0
_SESSIONS: Final = 250
_TINY_SESSIONS: Final = 30
_MESSAGES_A_SESSION: Final = 3
_READERS: Final = 2
_WORKSPACE: Final = "bench"


def _killed_child(scene: Scene) -> None:
    """A process of the pipeline's pool is killed again and again while messages of several workspaces wait."""
    for number in range(2 if scene.quick else _KILLS):
        texts = [f"message {number}-{index} about the harbour" for index in range(_MESSAGES_A_KILL)]
        scene.accepted.send(texts, session=f"s{number}")
        victim = scene.chance.choice(_children(scene.stack))
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(victim).kill()
        scene.tell(f"{number + 1} processes killed")
        scene.wait_until(partial(_replaced, scene.stack, victim), "no new process came")


def _replaced(stack: Stack, pid: int) -> bool:
    now = _children(stack)
    return bool(now) and pid not in now


def _children(stack: Stack) -> list[int]:
    """Return the processes of the pipeline worker's pool."""
    for entry in stack.processes():
        if entry.name == "pipeline" and entry.pid:
            with contextlib.suppress(psutil.NoSuchProcess):
                return [child.pid for child in psutil.Process(entry.pid).children()]
    return []


def _slow_texts(scene: Scene) -> None:
    """Messages come that are slow to read for a careless reader: blanks of all kinds, and what patterns begin with."""
    size = _BYTES // 10 if scene.quick else _BYTES
    for number, piece in enumerate([*_BLANKS, *_REPEATED]):
        text = f"message {number} begins{piece * (size // len(piece.encode()))}and ends"
        scene.accepted.send([text], session="long")
    for number in range(_PATTERN_MESSAGES):
        piece = _REPEATED[number % len(_REPEATED)]
        text = f"{number}{piece * (_PATTERN_CHARACTERS // len(piece))}"
        scene.accepted.send([text[:_PATTERN_CHARACTERS]], session=f"pattern-{number}")


def _stopped_worker(scene: Scene) -> None:
    """A worker hangs: all processes of the pipeline are stopped for a while (SIGSTOP) and go on."""
    family = _pipeline(scene)
    for process in family:
        process.suspend()
    try:
        ends = time.monotonic() + (_TINY_HANG_SECONDS if scene.quick else _HANG_SECONDS)
        number = 0
        while time.monotonic() < ends:
            # Accepting needs no worker.
            scene.accepted.send([f"message {number} while the worker hangs"])
            number += 1
            scene.tell(f"{number} messages accepted while the worker hangs")
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _pipeline(scene: Scene) -> list[psutil.Process]:
    entry = next(entry for entry in scene.stack.processes() if entry.name == "pipeline")
    parent = psutil.Process(entry.pid)
    return [parent, *parent.children(recursive=True)]


def _wrong_clock(scene: Scene) -> None:
    """The clock of the machine is a year ahead for a while, then right, then five and forty minutes behind."""
    clock = scene.setting.clock
    assert clock is not None
    stay = _TINY_STAY_SECONDS if scene.quick else _STAY_SECONDS
    scene.accepted.send(["the workspace is there"], wait="searchable", timeout_seconds=120.0)
    with Reverie("bench", url=scene.stack.url, workspace="bench", timeout_seconds=60) as ana:
        for number in range(_MEMORIES):
            ana.remember(f"note {number} that nobody must prune")
        schedule = ana.schedules.add("say what the harbour looks like", every=60)
        for number, seconds in enumerate(_STEPS_SECONDS):
            clock.move(seconds)
            ends = time.monotonic() + stay
            while time.monotonic() < ends:
                scene.accepted.send([f"message {number} at {time.monotonic()} on a clock that is {seconds:+.0f} s off"])
                scene.tell(f"the clock is {seconds:+,.0f} s off")
                time.sleep(0.2)
        runs = len(ana.runs.list(schedule.id, limit=100))
        scene.wait_until(
            lambda: len(ana.runs.list(schedule.id, limit=100)) > runs, "no schedule fires on the right clock", 150.0
        )
        kept = len([memory for memory in ana.memories.list(limit=100) if memory.content.startswith("note ")])
    scene.figures["memories_kept"] = kept
    if kept != _MEMORIES:
        scene.broken.append(f"{_MEMORIES - kept} memories were removed")


def _full_inbox(scene: Scene) -> None:
    """No worker stores anything while agents go on sending: one workspace fills its inbox, and the others go on."""
    family = _pipeline(scene)
    for process in family:
        process.suspend()
    try:
        sent = 0
        while sent <= 2 * _LIMIT:
            try:
                scene.accepted.send([f"message {sent + number} that nobody stores" for number in range(_INBOX_BATCH)])
            except InboxFull:
                break
            sent += _INBOX_BATCH
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


def _large_session(scene: Scene) -> None:
    """A session of thousands of chunks is forgotten: it is gone at once, and writers of the same store hardly wait."""
    count = _TINY_LARGE_MESSAGES if scene.quick else _LARGE_MESSAGES
    _fill(scene, count)
    with Reverie("bench", url=scene.stack.url, workspace=WORKSPACE, timeout_seconds=120) as ana:
        began = time.monotonic()
        ana.sessions.forget("large")
        scene.figures["answered_after_seconds"] = time.monotonic() - began
        if any(result.session == "large" for result in ana.recall("pier of the harbour", limit=50).results):
            scene.broken.append("a recall found something of a session that was forgotten")
        longest = 0.0
        with scene.stack.watch(WORKSPACE) as watch:
            while left := watch.number("SELECT count(*) FROM messages WHERE content LIKE 'pier %'"):
                began = time.monotonic()
                ana.facts.set("harbour", "pier", str(left))
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


def _read_while_stored(scene: Scene) -> None:
    """Sessions are read all the time while they are stored: afterwards, each read has all messages."""
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
                for index in range(_MESSAGES_A_SESSION):
                    text = f"message {index} of session {number}"
                    scene.accepted.send([text], session=current[0], wait="stored")
                short += len(client.working(current[0])) != _MESSAGES_A_SESSION
                scene.tell(f"{number + 1} sessions stored, {short} of them read without a message")
        finally:
            halt.set()
            for reader in readers:
                reader.join()
    scene.figures["short_sessions"] = short
    if short:
        scene.broken.append(f"{short} of {total} sessions were read without a message that was stored")


SCENARIOS: Final = (
    # Other users share the pool: their messages wait for a new process, and for the claims of the dead one to end.
    Scenario(
        "killed_child",
        "a pool process of the pipeline is killed six times",
        _killed_child,
        Limits(others_stored_seconds=5.0),
    ),
    Scenario(
        "slow_texts", "messages of half a megabyte of blanks, and 45 that patterns are slow in", _slow_texts, Limits()
    ),
    # Everybody's messages wait in the inbox meanwhile, so no limit holds for that; recalls go on.
    Scenario(
        "stopped_worker", "the pipeline worker hangs for 20 s", _stopped_worker, Limits(others_stored_seconds=None)
    ),
    Scenario(
        "wrong_clock",
        "the clock is a year ahead, then 5 and 40 minutes behind",
        _wrong_clock,
        Limits(others_stored_seconds=5.0),
        env={"REVERIE_SWEEP_INTERVAL_SECONDS": "2"},
        setting=stepped_clock,
    ),
    Scenario(
        "full_inbox",
        "no worker stores, and an inbox is full",
        _full_inbox,
        Limits(others_stored_seconds=None),
        env={"REVERIE_INBOX_MB": str(_INBOX_MB)},
    ),
    Scenario(
        "large_session",
        "a session of 10,000 chunks is forgotten",
        _large_session,
        Limits(others_stored_seconds=None),  # while it is filled, others share the pipeline with 10,000 messages
        env={"REVERIE_SWEEP_INTERVAL_SECONDS": "2"},
    ),
    Scenario(
        "read_while_stored",
        "sessions are read while they are stored",
        _read_while_stored,
        Limits(others_stored_seconds=2.0),
    ),
)
