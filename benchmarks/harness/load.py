"""Producers that keep going through failures, and the comparison of a database with what they sent.

Messages that a call could not confirm are sent again with the same ids.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.harness.stack import Stack
from benchmarks.harness.texts import Texts, Turn, payload_of
from benchmarks.harness.watch import Watch
from reverie.contract import MessagePayload, WaitFor
from reverie.errors import Unavailable, WaitTimeout
from reverie.pipeline.producer import Producer
from storage.stores import Store
from storage.verify import verify

_LARGEST_BATCH = 50
_AGAIN_SECONDS = 0.2
_STORED_SECONDS = 60.0
PATIENCE_SECONDS = 120.0


class Receiving(Protocol):
    """What messages are sent to."""

    def producer(self) -> Producer:
        """Return a producer."""


class Load:
    """Sends `count` different messages over `seconds` from several threads, and records what was acknowledged.

    A batch that nobody accepts is sent again for `patience` seconds.
    """

    def __init__(
        self,
        stack: Receiving,
        texts: Texts,
        count: int,
        *,
        seconds: float,
        producers: int,
        seed: int,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._stack = stack
        self._seconds = seconds
        self._patience = patience
        self._noted = threading.Lock()
        self._halt = threading.Event()
        self._acknowledged: dict[str, WaitFor] = {}
        self.markers: dict[str, str] = {}
        self.unavailable = 0
        self.resent = 0
        self.surprises: list[str] = []
        shares = [self._messages(texts, range(first, count, producers)) for first in range(producers)]
        self._threads = [
            threading.Thread(
                target=self._send_all,
                args=(share, "stored" if number == producers - 1 and producers > 1 else "queued", seed + number),
                daemon=True,
            )
            for number, share in enumerate(shares)
        ]

    def start(self) -> None:
        """Start sending."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads and wait for them."""
        self._halt.set()
        for thread in self._threads:
            thread.join()

    @property
    def done(self) -> bool:
        """Return whether everything has been sent."""
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def acknowledged_count(self) -> int:
        """Return the number of messages acknowledged."""
        return len(self._acknowledged)

    @property
    def stored_count(self) -> int:
        """Return the number of messages acknowledged as stored."""
        return len(self.acknowledged_as("stored"))

    def acknowledged(self) -> set[str]:
        """Return the ids of all acknowledged messages."""
        return set(self._acknowledged)

    def acknowledged_as(self, state: WaitFor) -> set[str]:
        """Return the ids acknowledged with this state."""
        with self._noted:
            return {item_id for item_id, acknowledged in self._acknowledged.items() if acknowledged == state}

    def _messages(self, texts: Texts, numbers: range) -> list[MessagePayload]:
        payloads = []
        for number in numbers:
            turn = texts.turns[number % len(texts.turns)]
            marker = f"[{number}]"
            payload = payload_of(Turn(turn.conversation, turn.name, f"{turn.text} {marker}"))
            self.markers[payload.id] = payload.content
            payloads.append(payload)
        return payloads

    def _send_all(self, payloads: Sequence[MessagePayload], wait: WaitFor, seed: int) -> None:
        """Send a share in batches of random sizes, evenly over the time."""
        chance = random.Random(seed)
        producer = self._stack.producer()
        started = time.monotonic()
        sent = 0
        while sent < len(payloads) and not self._halt.is_set():
            batch = payloads[sent : sent + chance.randint(1, _LARGEST_BATCH)]
            if not self._send(producer, batch, wait):
                return
            sent += len(batch)
            self._halt.wait(max(0.0, started + self._seconds * sent / len(payloads) - time.monotonic()))

    def _send(self, producer: Producer, batch: Sequence[MessagePayload], wait: WaitFor) -> bool:
        """Send until it is acknowledged. Return False if it never was."""
        give_up = time.monotonic() + self._patience
        while time.monotonic() < give_up:
            try:
                producer.enqueue(batch, wait=wait, timeout_seconds=_STORED_SECONDS)
            except WaitTimeout:
                self._note(batch, "queued")
                return True
            except Unavailable:
                with self._noted:
                    self.unavailable += 1
                    self.resent += len(batch)
                time.sleep(_AGAIN_SECONDS)
            except Exception as error:  # noqa: BLE001 - the boundary of the thread: recorded; the load goes on
                with self._noted:
                    self.surprises.append(f"{type(error).__name__}: {error}")
                time.sleep(_AGAIN_SECONDS)
            else:
                self._note(batch, wait)
                return True
        with self._noted:
            self.surprises.append(f"{len(batch)} messages were never accepted within {self._patience:g} s")
        return False

    def _note(self, batch: Sequence[MessagePayload], state: WaitFor) -> None:
        with self._noted:
            self._acknowledged.update(dict.fromkeys((p.id for p in batch), state))


@dataclass(slots=True)
class Audit:
    """Counts of lost and duplicate messages, and the findings of `verify`."""

    stored: int = 0
    lost: int = 0
    doubled: int = 0
    dead_letters: int = 0
    not_searchable: int = 0
    dead_reasons: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Return whether a guarantee was broken."""
        return bool(self.lost or self.doubled or self.dead_letters or self.not_searchable or self.wrong)


def audit(stack: Stack, workspace: str, load: Load) -> Audit:
    """Count lost, duplicate and changed messages."""
    with closing(stack.stores()) as stores, stack.watch(workspace) as watch:
        return audit_workspace(watch, stores.workspace(workspace, create=False), load)


def audit_workspace(watch: Watch, store: Store, load: Load) -> Audit:
    """Do what `audit` does, for a workspace in files or in PostgreSQL."""
    found = Audit()
    rows = watch.rows("SELECT id, content FROM messages")
    searchable = {row.id for row in watch.searchable()}
    dead = watch.rows("SELECT item_id, stage, error_type, error FROM dead_letters")
    stored = {str(item_id) for item_id, _ in rows}
    missing = load.acknowledged() - stored - {str(row[0]) for row in dead}
    contents = Counter(content for _, content in rows)
    found.stored = len(stored)
    found.lost = len(missing)
    # By id and by text: every message of the load has a unique text.
    found.doubled = len(rows) - len(stored) + sum(count - 1 for count in contents.values())
    found.not_searchable = len(stored - searchable)
    found.dead_letters = len(dead)
    found.dead_reasons = sorted({f"{stage}: {error_type}: {error}" for _, stage, error_type, error in dead})[:10]
    changed = sum(1 for item_id, content in rows if load.markers.get(item_id) != content)
    found.wrong = [f"{changed} messages are not what was sent"] if changed else []
    found.wrong += _wrong_in(store)
    return found


def verified(stack: Stack, workspace: str) -> list[str]:
    """Return what `verify` finds wrong in a workspace, and whether every chunk is in the vector index."""
    with closing(stack.stores()) as stores:
        return _wrong_in(stores.workspace(workspace, create=False))


def _wrong_in(store: Store) -> list[str]:
    verdict = verify(store)
    wrong = list(verdict.wrong)
    if verdict.counts["chunks"] != verdict.counts["in_vector_index"]:
        wrong.append(f"{verdict.counts['chunks']} chunks, {verdict.counts['in_vector_index']} in the vector index")
    return wrong
