"""Payloads that nobody means to send, made from a seed: requests, items of inboxes and queues, queries, settings."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from reverie import contract
from reverie.calls import Call, route_of
from reverie.clock import new_id, now_micros
from reverie.contract import MessagePayload
from reverie.pipeline.inbox import inbox_field
from reverie.upkeep import MakeCheckpoint
from server.app import endpoints

_PIECES: Final = (
    "a", "word ", "my password is ", "I live in ", "\u3000", "\u2028", "\x85", "\x00", "\ud800", "\udfff", "e\u0301",
    "漢", "👩\u200d👧", '"', "'", "*", "-", "a-b", "NEAR(", " AND ", " OR NOT ", "content:", "^", "{", "[", "<", "\\",
    "%00", "../", "\r\n", "\ufeff", "\u202e", "1" * 40, "-1", "1e999", "NaN", "null", "0x7f", "2026-13-45", "$", "`",
)  # fmt: skip
_QUERY_PIECES: Final = (
    "AND", "OR", "NOT", "NEAR", "NEAR(a b, 5)", "NEAR/2", "(", ")", "((", '"', '""', "*", "a*", '"a b"*', "^", "^a",
    ":", "content:", "{content text}:", "-", "-a", "+", "a + b", "a-b", "lantern", "quay", "a", "\x00", "\ud800", "'",
    ";", "--", "/*", "%", "_", "\\", "rank", "fts", "MATCH", "漢", "e\u0301", "\u0130", "ß", "\u202e", "\ufdfa", "{",
)  # fmt: skip
_NUMBERS: Final = (0, -1, 1, 2**31, 2**63, -(2**63) - 1, 2**70, 1.5, 1e308, -0.0)
_HEADERS: Final = (
    "X-Reverie-Agent",
    "X-Reverie-Workspace",
    "X-Reverie-User",
    "X-Reverie-Trace",
    "Content-Type",
    "Accept",
)
# Commits with git each time, which is slow and not about the payload.
_LEFT_OUT: Final = (MakeCheckpoint,)
_MOST_PIECES: Final = 40
_DEEP: Final = 2_000


@dataclass(frozen=True, slots=True)
class FuzzedRequest:
    """A request; header values and the path are as they go over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Fuzzer:
    """Makes payloads: the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        kinds = (endpoint.kind for endpoint in endpoints())
        self.kinds: list[type[Call[Any]]] = [kind for kind in kinds if kind not in _LEFT_OUT]

    def text(self) -> str:
        """Return a text of odd pieces, one of them often repeated."""
        pieces = self.chance.choices(_PIECES, k=self.chance.randrange(6))
        if self.chance.random() < 0.3:
            pieces.append(self.chance.choice(_PIECES) * self.chance.randrange(_MOST_PIECES))
        if self.chance.random() < 0.02:
            pieces.append(self.chance.choice(_PIECES) * 5_000)
        return "".join(pieces)

    def query(self) -> str:
        """Return a text to look for: odd pieces, the syntax of full-text search, or any characters of Unicode."""
        chosen = self.chance.random()
        if chosen < 0.4:
            return self.text()
        if chosen < 0.7:
            return " ".join(self.chance.choices(_QUERY_PIECES, k=self.chance.randrange(1, 12)))
        return "".join(chr(self.chance.randrange(0x110000)) for _ in range(self.chance.randrange(1, 60)))

    def value(self, depth: int = 3) -> Any:
        """Return a JSON value."""
        chosen = self.chance.randrange(8 if depth else 5)
        if chosen <= 1:
            return self.text()
        if chosen == 2:
            return self.chance.choice(_NUMBERS)
        if chosen <= 4:
            return self.chance.choice((None, True, False, "", [], {}))
        if chosen == 5:
            return [self.value(depth - 1) for _ in range(self.chance.randrange(4))]
        return {self.text(): self.value(depth - 1) for _ in range(self.chance.randrange(4))}

    def body(self, kind: type[Call[Any]]) -> bytes:
        """Return a body for a call: some of its arguments with odd values, or no such thing at all."""
        chosen = self.chance.random()
        if chosen < 0.1:
            return self.chance.randbytes(self.chance.randrange(200))
        if chosen < 0.15:
            return b"[" * _DEEP + b"]" * _DEEP
        names = [name for name in kind.__struct_encode_fields__ if self.chance.random() < 0.6]
        return self._json({name: self.value() for name in names} if chosen < 0.9 else self.value())

    def request(self) -> tuple[type[Call[Any]], FuzzedRequest]:
        """Return a call and a request to its route."""
        kind = self.chance.choice(self.kinds)
        route = route_of(kind)
        path = route.path
        for name in route.path_fields:
            path = path.replace("{" + name + "}", quote(self.text().encode("utf-8", "replace"), safe="") or "x")
        if not route.has_body and self.chance.random() < 0.7:
            names = self.chance.choices([*kind.__struct_encode_fields__, "x"], k=2)
            path += "?" + "&".join(f"{name}={quote(self.text().encode('utf-8', 'replace'))}" for name in names)
        headers = {"Content-Type": "application/json"} if self.chance.random() < 0.9 else {}
        if self.chance.random() < 0.3:
            odd = quote(self.text().encode("utf-8", "replace"), safe=" \"'*-{}[]<>$`^:,.")
            headers[self.chance.choice(_HEADERS)] = odd[:500]
        return kind, FuzzedRequest(route.method, path, headers, self.body(kind) if route.has_body else b"")

    def item(self, item_id: str, *, agent: str) -> tuple[str, bytes]:
        """Return a field and an item of the inbox: a message with odd fields, a damaged one, or neither."""
        payload = MessagePayload(
            id=item_id, agent=agent, session="s", role="user", content=self.text().encode("utf-8", "replace").decode(),
            created_at=now_micros(), trace="t",
        )  # fmt: skip
        return inbox_field(payload), self._altered(msgspec.json.encode(payload))

    def _altered(self, good: bytes) -> bytes:
        chosen = self.chance.random()
        if chosen < 0.3:
            return good
        if chosen < 0.5:
            damaged = bytearray(good)
            for _ in range(self.chance.randrange(1, 4)):
                damaged[self.chance.randrange(len(damaged))] = self.chance.randrange(256)
            return bytes(damaged)
        if chosen < 0.6:
            return self.chance.randbytes(self.chance.randrange(300))
        fields: dict[str, Any] = json.loads(good)
        for _ in range(self.chance.randrange(1, 4)):
            fields[self.chance.choice([*fields, "x", "metadata", "tool_calls", "tags"])] = self.value()
        return self._json(fields)

    def settings(self) -> bytes:
        """Return a file of settings."""
        if self.chance.random() < 0.2:
            return self.chance.randbytes(self.chance.randrange(200))
        names = (
            "log_level",
            "port",
            "workspace",
            "worker_concurrency",
            "embedding_provider",
            "x",
            "sweep_interval_seconds",
        )
        lines = [f"{name} = {json.dumps(self.value(1))}" for name in self.chance.choices(names, k=3)]
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def _json(self, value: Any) -> bytes:
        # Half with escapes, in which a lone surrogate is valid JSON, half with bytes that are not valid UTF-8 then.
        return json.dumps(value, ensure_ascii=self.chance.random() < 0.5).encode("utf-8", "surrogatepass")


_TASK_HEADERS: Final = (
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
_NESTED: Final = 20_000


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
            return queue, b"[" * _NESTED + b"]" * _NESTED
        message = self._task(task)
        if chosen < 0.3:
            self._alter(message, _TOP)
        elif chosen < 0.5:
            self._alter(message["headers"], _TASK_HEADERS)
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
