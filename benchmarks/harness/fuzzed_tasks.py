"""Messages in the queues of Celery, made from a seed: tasks of ours, altered, damaged, or no such thing."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from benchmarks.harness.fuzzed import Fuzzer
from reverie import contract
from reverie.clock import new_id

_HEADERS: Final = (
    "task", "id", "eta", "expires", "timelimit", "retries", "root_id", "parent_id", "group", "group_index", "shadow",
    "origin", "ignore_result", "compression", "stamps", "stamped_headers", "argsrepr", "kwargsrepr", "reverie_trace",
    "lang", "__proxy__", "x",
)  # fmt: skip
_PROPERTIES: Final = (
    "correlation_id", "reply_to", "delivery_mode", "delivery_info", "delivery_tag", "priority", "body_encoding",
)  # fmt: skip
_TOP: Final = ("body", "content-encoding", "content-type", "headers", "properties")
_TYPES: Final = ("application/json", "application/x-python-serialize", "application/x-yaml", "text/plain", "x", None)
_ARGUMENTS: Final = ("workspace", "run", "manual", "dry_run", "scope", "event", "self", "x")
_HUGE_BYTES: Final = 2_000_000
_DEEP: Final = 20_000


class TaskFuzzer:
    """Makes messages of queues, the same ones for the same seed, except for ids."""

    def __init__(self, seed: int, *, workspace: str) -> None:
        self.fuzzer = Fuzzer(seed)
        self.chance = self.fuzzer.chance
        self._workspace = workspace

    def message(self) -> tuple[str, bytes]:
        """Return a queue and a message for it."""
        task, queue = self.chance.choice(list(contract.TASK_QUEUES.items()))
        if self.chance.random() < 0.1:
            queue = self.chance.choice(contract.QUEUES)
        chosen = self.chance.random()
        if chosen < 0.1:
            return queue, self.chance.randbytes(self.chance.randrange(300))
        if chosen < 0.12:
            return queue, b"[" * _DEEP + b"]" * _DEEP
        message = self._task(task)
        if chosen < 0.3:
            self._alter(message, _TOP)
        elif chosen < 0.5:
            self._alter(message["headers"], _HEADERS)
        elif chosen < 0.65:
            self._alter(message["properties"], _PROPERTIES)
        elif chosen < 0.7:
            message["content-type"] = self.chance.choice(_TYPES)
        elif chosen < 0.75:
            message["body"] = self._packed([[], {"workspace": "w" * self.chance.randrange(_HUGE_BYTES)}, {}])
        encoded = bytearray(json.dumps(message).encode())
        if 0.75 <= chosen < 0.85:
            for _ in range(self.chance.randrange(1, 4)):
                encoded[self.chance.randrange(len(encoded))] = self.chance.randrange(256)
        return queue, bytes(encoded[: self.chance.randrange(len(encoded))] if 0.85 <= chosen < 0.92 else encoded)

    def _task(self, task: str) -> dict[str, Any]:
        names = self.chance.sample(_ARGUMENTS, self.chance.randrange(3))
        named: Any = {"workspace": self._workspace} if self.chance.random() < 0.4 else {}
        named |= {name: self.fuzzer.value() for name in names}
        payload: Any = [[], named, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
        if self.chance.random() < 0.2:
            payload[self.chance.randrange(3)] = self.fuzzer.value()
        if self.chance.random() < 0.05:
            payload = self.fuzzer.value()
        return {
            "body": self._packed(payload),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": task, "id": new_id(), "retries": 0, "timelimit": [None, None]},
            "properties": {
                "correlation_id": new_id(),
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": contract.TASK_QUEUES[task]},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": new_id(),
            },
        }

    def _alter(self, fields: dict[str, Any], names: tuple[str, ...]) -> None:
        for name in self.chance.sample(names, self.chance.randrange(1, 4)):
            if self.chance.random() < 0.3:
                fields.pop(name, None)
            else:
                fields[name] = self.fuzzer.value()

    @staticmethod
    def _packed(payload: Any) -> str:
        return base64.b64encode(json.dumps(payload).encode()).decode()
