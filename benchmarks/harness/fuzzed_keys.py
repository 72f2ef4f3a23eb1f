"""What another program could write to the keys of the broker, made from a seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
import redis

from adapters.broker.monitor import WorkerHeartbeat
from adapters.broker.recall_log import RecallNote
from benchmarks.harness.fuzzed import Fuzzer
from reverie import contract
from reverie.clock import from_micros, new_id, now_micros
from reverie.pipeline.inbox import inbox_field
from reverie.sessions.types import Message
from reverie.sessions.working import working_epoch_key, working_key

_NUMBERS: Final = (
    b"0",
    b"-1",
    b"1",
    b"abc",
    b"",
    b"9" * 30,
    b"1e300",
    b"-1e300",
    b"nan",
    b"inf",
    b"0x10",
    b"\xff",
    b"1.5",
)
_SHARED: Final = ("worker", "progress", "lag", "state", "limits", "inboxes", "recall_names", "unacked")
_OWN: Final = ("working", "epoch", "recalls", "inbox_part", "inbox_item", "flag", "reply")


class KeyFuzzer:
    """Writes to the keys of one workspace, agent and session, and to those that all share."""

    def __init__(self, seed: int, broker: redis.Redis, *, workspace: str, agent: str, session: str) -> None:
        self.fuzzer = Fuzzer(seed)
        self.chance = self.fuzzer.chance
        self._broker = broker
        self._prefix = contract.DEFAULT_PREFIX
        self._workspace, self._agent, self._session = workspace, agent, session

    def write(self) -> str:
        """Write something and return to what kind of key."""
        kind = self.chance.choice(_SHARED if self.chance.random() < 0.3 else _OWN)
        writers: dict[str, Callable[[], None]] = {
            "worker": self._worker, "progress": self._progress, "lag": self._lag, "state": self._state,
            "limits": self._limits, "inboxes": self._inboxes, "recall_names": self._recall_names,
            "unacked": self._unacked, "working": self._working, "epoch": self._epoch, "recalls": self._recalls,
            "inbox_part": self._inbox_part, "inbox_item": self._inbox_item, "flag": self._flag, "reply": self._reply,
        }  # fmt: skip
        try:
            writers[kind]()
        except redis.ResponseError:  # the key has another type by now
            self._broker.delete(working_key(self._prefix, self._workspace, self._agent, self._session))
        return kind

    def _value(self, good: Any) -> bytes:
        """Return something in the place of the JSON of `good`."""
        encoded = msgspec.json.encode(good)
        chosen = self.chance.random()
        if chosen < 0.2:
            return encoded
        if chosen < 0.5:
            damaged = bytearray(encoded)
            for _ in range(self.chance.randrange(1, 4)):
                damaged[self.chance.randrange(len(damaged))] = self.chance.randrange(256)
            return bytes(damaged)
        if chosen < 0.7:
            fields = json.loads(encoded)
            if isinstance(fields, dict):
                fields[self.chance.choice(list(fields))] = self.fuzzer.value()
            return json.dumps(fields).encode()
        if chosen < 0.8:
            return self._number()
        return self.chance.randbytes(self.chance.randrange(60)) if chosen < 0.97 else b"[" * 100_000

    def _number(self) -> bytes:
        return self.chance.choice(_NUMBERS)

    def _inbox(self, suffix: str) -> str:
        return f"{self._prefix}inbox:{self._workspace}{suffix}"

    def _worker(self) -> None:
        beat = WorkerHeartbeat(name="w", host="h", pid=1, queues=["ingest"], started_at=1.0, seen_at=now_micros() / 1e6)
        key = f"{self._prefix}worker:{self.chance.randrange(20)}"
        if self.chance.random() < 0.1:
            self._broker.delete(key)
            self._broker.hset(key, "a", "b")
        else:
            self._broker.set(key, self._value(beat), ex=600)

    def _progress(self) -> None:
        names = [
            key.decode("utf-8", "replace")
            for key in cast("list[bytes]", self._broker.keys(f"{self._prefix}progress:*"))
        ]
        if names:
            field = self.chance.choice(("at", "done", "embedder", "language_model"))
            self._broker.hset(self.chance.choice(names), field, self._number())

    def _lag(self) -> None:
        self._broker.lpush(f"{self._prefix}lag", self._number() + b":" + self._number())

    def _state(self) -> None:
        field = self.chance.choice(("number", "items", "bytes", f"bytes:{self._workspace}", "x"))
        self._broker.hset(f"{self._prefix}inboxes:state", field, self._number())

    def _limits(self) -> None:
        field = self.chance.choice(("workspace_items", "workspace_bytes", "items", "bytes", "x"))
        self._broker.hset(f"{self._prefix}inboxes:limits", field, self._number())

    def _inboxes(self) -> None:
        self._broker.sadd(f"{self._prefix}inboxes", self._text())

    def _recall_names(self) -> None:
        self._broker.sadd(f"{self._prefix}recalls", self._text())

    def _text(self) -> bytes:
        return self.fuzzer.text()[:200].encode("utf-8", "surrogatepass")

    def _unacked(self) -> None:
        tag = new_id()
        self._broker.hset(f"{self._prefix}unacked", tag, self._value([{"body": ""}, "", "ingest"]))
        self._broker.zadd(f"{self._prefix}unacked_index", {tag: 1})

    def _working(self) -> None:
        key = working_key(self._prefix, self._workspace, self._agent, self._session)
        message = Message(
            id=new_id(), session=self._session, sequence=1, role="user", content="a lantern",
            created_at=from_micros(now_micros()),
        )  # fmt: skip
        if self.chance.random() < 0.1:
            self._broker.delete(key)
            self._broker.set(key, self._value(message))
        else:
            self._broker.rpush(key, self._value(message))

    def _epoch(self) -> None:
        own = working_epoch_key(self._prefix, self._workspace, self._agent, self._session)
        key = own if self.chance.random() < 0.8 else f"{self._prefix}working-epoch"
        self._broker.set(key, self._number() + b" " + self._value("x"), ex=600)

    def _recalls(self) -> None:
        note = RecallNote(agent=self._agent, recall=new_id(), query="q", at=now_micros(), hits=[(1, 0.5)])
        field = "e" if self.chance.random() < 0.9 else "x"
        self._broker.xadd(f"{self._prefix}recalls:{self._workspace}", {field: self._value(note)})
        self._broker.sadd(f"{self._prefix}recalls", self._workspace)

    def _inbox_part(self) -> None:
        field = inbox_field(self._agent, new_id()).encode() if self.chance.random() < 0.5 else self._text()
        part = self.chance.choice((":due", ":taken", ":tries", ":waiting", ":holder", ":pause"))
        if part in (":due", ":taken"):
            self._broker.zadd(self._inbox(part), {field: self.chance.choice((0, -1, 1, 1e16, 1e300))})
        elif part in (":tries", ":waiting"):
            self._broker.hset(self._inbox(part), field, self._number() if part == ":tries" else self._value("x"))
        else:
            self._broker.set(self._inbox(part), self._number(), ex=2)

    def _inbox_item(self) -> None:
        item_id = new_id()
        field = inbox_field(self._agent, item_id)
        stamp = str(now_micros()).encode() if self.chance.random() < 0.7 else self._number()
        self._broker.hset(self._inbox(""), field, stamp + b" " + self.fuzzer.item(item_id, agent=self._agent))
        self._broker.zadd(self._inbox(":due"), {field: 1})
        if self.chance.random() < 0.3:
            self._broker.hset(self._inbox(":tries"), field, self._number())
        if self.chance.random() < 0.3:
            self._broker.hset(self._inbox(":waiting"), field, f"{self._prefix}lag stored;".encode() + self._value("x"))
        self._broker.sadd(f"{self._prefix}inboxes", self._workspace)

    def _flag(self) -> None:
        task = self.chance.choice(list(contract.TASK_QUEUES))
        self._broker.set(f"{self._prefix}wake:{task}:{self._workspace}", self._number(), ex=2)

    def _reply(self) -> None:
        self._broker.rpush(f"{self._prefix}reply:{new_id()}", self._value([{"id": "x", "state": "stored"}]))
