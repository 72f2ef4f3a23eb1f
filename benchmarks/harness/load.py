"""Producers that keep going through failures: what a call could not confirm is sent again with the same ids."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.harness.texts import Texts, Turn, payload_of
from reverie.contract import MessagePayload, WaitFor
from reverie.errors import Unavailable, WaitTimeout
from reverie.pipeline.producer import Producer

_LARGEST_BATCH = 50
_AGAIN_SECONDS = 0.2
_STORED_SECONDS = 60.0
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An acknowledgement: when the call began, and which state it returned."""

    called_at: float
    state: WaitFor


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
        self._acknowledged: dict[str, Acknowledged] = {}
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
            return {
                item_id for item_id, acknowledgement in self._acknowledged.items() if acknowledgement.state == state
            }

    def acknowledged_after(self, moment: float) -> set[str]:
        """Return the ids of calls that began after a monotonic time, and of everything acknowledged as stored."""
        with self._noted:
            return {
                item_id
                for item_id, acknowledgement in self._acknowledged.items()
                if acknowledgement.called_at > moment or acknowledgement.state == "stored"
            }

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
            called_at = time.monotonic()
            try:
                producer.enqueue(batch, wait=wait, timeout_seconds=_STORED_SECONDS)
            except WaitTimeout:
                self._note(batch, called_at, "queued")
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
                self._note(batch, called_at, wait)
                return True
        with self._noted:
            self.surprises.append(f"{len(batch)} messages were never accepted within {self._patience:g} s")
        return False

    def _note(self, batch: Sequence[MessagePayload], called_at: float, state: WaitFor) -> None:
        with self._noted:
            self._acknowledged.update(dict.fromkeys((p.id for p in batch), Acknowledged(called_at, state)))
