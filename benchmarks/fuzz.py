"""Send odd payloads to a running stack: requests and items of the inbox, all made from a seed.

None may be answered 500 and none may end a process. In the end a message of somebody else becomes searchable, and the
inbox is empty. Before, texts that are derived from each regular expression of the product are searched.
"""

from __future__ import annotations

import argparse
import http.client
import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import redis

from benchmarks.harness.fuzzed import Fuzzer
from benchmarks.harness.options import parser, run
from benchmarks.harness.patterns import find_patterns
from benchmarks.harness.progress import Progress
from benchmarks.harness.pumping import pumps_of, slow_pumps
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import Stack
from reverie import Reverie, contract
from reverie.clock import new_id, now_micros
from reverie.errors import ReverieError
from reverie.pipeline.broker import connect
from reverie.pipeline.inbox import inbox_field

_PAYLOADS: Final = 100_000
_QUICK_PAYLOADS: Final = 400
_THREADS: Final = 4
_TIMEOUT_SECONDS: Final = 20.0
_DRAIN_SECONDS: Final = 120.0
# The token of the operator of this stack alone.
_TOKEN: Final = f"rv_fuzz_{secrets.token_hex(16)}"
_ENVIRONMENT: Final = {"REVERIE_EMBEDDING_PROVIDER": "hash", "REVERIE_TOKEN": _TOKEN}
# Of a hundred payloads; the rest are requests.
_ITEMS: Final = 20
_AGENT: Final = "bench"
_WORKSPACE: Final = "fuzz"


@dataclass(slots=True)
class _Found:
    """What became of the payloads."""

    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    noted: threading.Lock = field(default_factory=threading.Lock)

    def note(self, status: int, what: str) -> None:
        with self.noted:
            self.statuses[status] += 1
            if status == http.HTTPStatus.INTERNAL_SERVER_ERROR:
                self.failures.append(what)


def main() -> None:
    """Measure and write the result."""
    options = _options()
    result = Result(benchmark="fuzz", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    tell = Progress()
    _pump(result, options.seed, quick=options.quick)
    tell.step("patterns searched")
    count = options.payloads or (_QUICK_PAYLOADS if options.quick else _PAYLOADS)
    with Stack(env=_ENVIRONMENT) as stack:
        stack.wait_server()
        before = {entry.name: entry.pid for entry in stack.processes()}
        found = _Found()
        threads = [
            threading.Thread(target=_send, args=(stack, options.seed + number, count // _THREADS, found))
            for number in range(_THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tell.step("payloads sent")
        stored = _is_stored(stack)
        waiting = _inbox_left(stack)
        after = {entry.name: entry.pid for entry in stack.processes()}
    dead = [name for name, pid in before.items() if after.get(name) != pid]
    for status, number in sorted(found.statuses.items()):
        result.add(f"answers_{status}" if status else "no_answer", number)
    result.notes += [*(f"died: {name}" for name in dead), *found.failures[:10]]
    result.goals += [
        Goal(what=f"answers 500 to {count:,} odd payloads", relation="==", goal=0, figure=len(found.failures)),
        Goal(what="processes that ended", relation="==", goal=0, figure=len(dead)),
        Goal(what="items left in the inbox", relation="==", goal=0, figure=waiting),
        Goal(what="messages of somebody else that are searchable afterwards", relation="==", goal=1, figure=stored),
    ]
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("fuzz", __doc__, data=False)
    options.add_argument("--payloads", type=int, default=None, help=f"how many; {_PAYLOADS:,} by default")
    return options.parse_args()


def _pump(result: Result, seed: int, *, quick: bool) -> None:
    found, _ = find_patterns()
    limit, characters = (4, 200) if quick else (60, 4_000)
    slow = [
        f"{one.where}: {pumped}"
        for one in found
        for pumped in slow_pumps(one.pattern, pumps_of(one.pattern, seed=seed, limit=limit), characters=characters)
    ]
    result.add("patterns", len(found))
    result.notes += slow[:10]
    result.goals.append(Goal(what="patterns that are not linear", relation="==", goal=0, figure=len(slow)))


def _send(stack: Stack, seed: int, count: int, found: _Found) -> None:
    fuzzer = Fuzzer(seed)
    broker = connect(stack.broker_url)
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=_TIMEOUT_SECONDS)
    for number in range(count):
        if number % 100 < _ITEMS:
            item_id = new_id()
            _smuggle(broker, item_id, fuzzer.item(item_id, agent=_AGENT))
            continue
        kind, request = fuzzer.request()
        try:
            headers = {"Authorization": f"Bearer {_TOKEN}", **request.headers}
            connection.request(request.method, request.path, request.body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException, UnicodeError, ValueError):
            found.note(0, kind.__name__)
            connection.close()
            continue
        found.note(answer.status, f"{kind.__name__} {request.path[:200]} {request.body[:300]!r}: {text[:200]!r}")
        if answer.will_close:
            connection.close()
    connection.close()
    broker.close()


def _smuggle(broker: redis.Redis, item_id: str, payload: bytes) -> None:
    """Put bytes into the inbox, as any program with access to the broker can: the next sweep finds them."""
    key, member = f"{contract.DEFAULT_PREFIX}inbox:{_WORKSPACE}", inbox_field(_AGENT, item_id)
    broker.hset(key, member, f"{now_micros()} ".encode() + payload)
    broker.zadd(f"{key}:due", {member: 1})
    broker.sadd(f"{contract.DEFAULT_PREFIX}inboxes", _WORKSPACE)


def _is_stored(stack: Stack) -> int:
    """Return 1 if a message of somebody else becomes searchable, else 0."""
    with Reverie(
        "lif", broker=stack.broker_url, url=stack.url, workspace="others", token=_TOKEN, timeout_seconds=60
    ) as client:
        try:
            client.ingest("s", {"role": "user", "content": "a lantern on the quay"}, wait="searchable")
            return int(bool(client.recall("lantern on the quay").results))
        except ReverieError:
            return 0


def _inbox_left(stack: Stack) -> int:
    """Return how many of the smuggled items are left in the inbox after a while."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    while (left := stack.inbox().stats(_WORKSPACE).size) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


if __name__ == "__main__":
    run(main)
