"""What payloads are sent to: a running stack over HTTP, and what became of them."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Self

import psutil
import redis

from adapters.broker.inbox import WorkerInbox
from benchmarks.harness.progress import Progress
from benchmarks.harness.stack import Stack
from reverie import contract

# The token of the operator of this stack alone.
TOKEN: Final = f"rv_fuzz_{secrets.token_hex(16)}"
AGENT: Final = "bench"
WORKSPACE: Final = "fuzz"
_TIMEOUT_SECONDS: Final = 20.0
# What Celery logs of a process of its pool that ended without being told to.
_DIED: Final = re.compile(rb"pid:\d+ exited with|task_killed")


@dataclass(slots=True)
class Found:
    """What became of the payloads of one kind."""

    sent: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    noted: threading.Lock = field(default_factory=threading.Lock)

    def note(self, outcome: str, failure: str = "") -> None:
        """Count an outcome; `failure` says what must not have happened."""
        with self.noted:
            self.sent += 1
            self.outcomes[outcome] += 1
            if failure:
                self.failures.append(failure)


@dataclass(slots=True)
class Scene:
    """What a kind of payloads has to work with."""

    stack: Stack
    seed: int
    tell: Progress


class Caller:
    """One connection to the server of a stack, opened again when it ends."""

    def __init__(self, stack: Stack) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: bytes, headers: dict[str, str], found: Found, what: str) -> int:
        """Send a request and note its answer; return the status, 0 for none."""
        try:
            self._connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **headers})
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException, UnicodeError, ValueError):
            found.note("no answer")
            self._connection.close()
            return 0
        wrong = answer.status == http.HTTPStatus.INTERNAL_SERVER_ERROR
        about = f"{what} {path[:200]} {body[:300]!r}: {text[:200]!r}" if wrong else ""
        found.note(f"answers {answer.status}", about)
        if answer.will_close:
            self._connection.close()
        return answer.status

    def post(self, path: str, body: Any, found: Found, what: str) -> int:
        """Send a body of odd texts as JSON, with lone surrogates escaped."""
        headers = {"Content-Type": "application/json", "X-Reverie-Agent": AGENT, "X-Reverie-Workspace": WORKSPACE}
        return self.send("POST", path, json.dumps(body).encode(), headers, found, what)

    def get(self, path: str, found: Found) -> int:
        """Read something of the agent and workspace that are fuzzed."""
        return self.send(
            "GET", path, b"", {"X-Reverie-Agent": AGENT, "X-Reverie-Workspace": WORKSPACE}, found, "after a key"
        )


def processes_of(stack: Stack) -> dict[str, int | None]:
    """Return the pids of the supervised processes by name."""
    return {entry.name: entry.pid for entry in stack.processes()}


def deaths(stack: Stack, before: dict[str, int | None]) -> list[str]:
    """Return which processes have ended since: those of the supervisor, and those of the workers' pools."""
    after = processes_of(stack)
    ended = [name for name, pid in before.items() if after.get(name) != pid or not pid or not psutil.pid_exists(pid)]
    for path in sorted((stack.data / "logs").glob("*.log*")):
        ended += [f"{path.name}: {match.group().decode()}" for match in _DIED.finditer(path.read_bytes())]
    return ended


def crashed_tasks(stack: Stack) -> int:
    """Return how many tasks ended in an error that is none of Reverie's own."""
    return sum(path.read_bytes().count(b"task_crashed") for path in (stack.data / "logs").glob("*.log*"))


def inbox_left(stack: Stack, seconds: float) -> int:
    """Return how many items are left in the inbox of the fuzzed workspace after a while."""
    deadline = time.monotonic() + seconds
    with redis.Redis.from_url(stack.broker_url) as broker:  # which waits as long as it takes
        inbox = WorkerInbox(broker, prefix=contract.DEFAULT_PREFIX)
        while (left := inbox.stats(WORKSPACE).size) and time.monotonic() < deadline:
            time.sleep(0.5)
    return left
