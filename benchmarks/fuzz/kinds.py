"""The kinds of payloads: what each sends, to a running stack or to a process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import redis

from benchmarks.fuzz.files import send_files
from benchmarks.fuzz.sending import AGENT, WORKSPACE, Caller, Found, Scene
from benchmarks.harness.fuzzed import Fuzzer
from benchmarks.harness.fuzzed_keys import KeyFuzzer
from benchmarks.harness.fuzzed_tasks import TaskFuzzer
from reverie import contract
from reverie.clock import new_id, now_micros
from reverie.pipeline.inbox import inbox_field

_THREADS: Final = 4
# A queue of refused messages is worked off in a moment; waiting bounds the memory of the broker.
_MOST_QUEUED: Final = 500
_DRAIN_SECONDS: Final = 300.0
_SESSION: Final = "s"
_ROUTES: Final = ("/v1/recall", "/v1/context", "/v1/sessions/search", "/v1/memories/search")
_MODES: Final = ("hybrid", "keyword", "vector")


def send_requests(scene: Scene, count: int) -> Found:
    """Send requests to all routes."""

    def send(seed: int, count: int, found: Found) -> None:
        fuzzer = Fuzzer(seed)
        with Caller(scene.stack) as caller:
            for _ in range(count):
                kind, request = fuzzer.request()
                caller.send(request.method, request.path, request.body, request.headers, found, kind.__name__)

    return _in_threads(scene, count, send)


def send_items(scene: Scene, count: int) -> Found:
    """Put items into an inbox, as any program with access to the broker can: the next sweep finds them."""
    key = f"{contract.DEFAULT_PREFIX}inbox:{WORKSPACE}"

    def send(seed: int, count: int, found: Found) -> None:
        fuzzer = Fuzzer(seed)
        with _broker(scene) as broker:
            for _ in range(count):
                item_id = new_id()
                member = inbox_field(AGENT, item_id)
                broker.hset(key, member, f"{now_micros()} ".encode() + fuzzer.item(item_id, agent=AGENT))
                broker.zadd(f"{key}:due", {member: 1})
                broker.sadd(f"{contract.DEFAULT_PREFIX}inboxes", WORKSPACE)
                found.note("put")

    return _in_threads(scene, count, send)


def send_tasks(scene: Scene, count: int) -> Found:
    """Put messages into the queues, and wait until the workers have taken them."""

    def queued(broker: redis.Redis) -> int:
        return sum(int(broker.llen(contract.DEFAULT_PREFIX + queue)) for queue in contract.QUEUES)

    def send(seed: int, count: int, found: Found) -> None:
        fuzzer = TaskFuzzer(seed, workspace=WORKSPACE)
        with _broker(scene) as broker:
            for number in range(count):
                queue, message = fuzzer.message()
                broker.lpush(contract.DEFAULT_PREFIX + queue, message)
                found.note("put")
                if number % 50 == 0:
                    _wait_until(lambda: queued(broker) < _MOST_QUEUED)
            if not _wait_until(lambda: not queued(broker)):
                found.failures.append(f"{queued(broker)} messages are left in the queues")

    return _in_threads(scene, count, send)


def send_keys(scene: Scene, count: int) -> Found:
    """Write to keys of the broker, and read and write over HTTP what depends on them."""

    def send(seed: int, count: int, found: Found) -> None:
        answers = Found()
        with _broker(scene) as broker, Caller(scene.stack) as caller:
            fuzzer = KeyFuzzer(seed, broker, workspace=WORKSPACE, agent=AGENT, session=_SESSION)
            for number in range(count):
                found.note(f"put {fuzzer.write()}")
                if number % 3 == 0:
                    caller.get(f"/v1/sessions/{_SESSION}/working", answers)
                if number % 10 == 0:
                    message = {"role": "user", "content": f"message {number}"}
                    caller.post("/v1/messages", {"session": _SESSION, "messages": [message]}, answers, "messages")
                    caller.post("/v1/recall", {"query": "lantern", "mode": "keyword"}, answers, "recall")
                if number % 25 == 0:
                    caller.get("/v1/status", answers)
                    caller.get("/metrics", answers)
        with found.noted:
            found.outcomes += answers.outcomes
            found.failures += answers.failures

    return _in_threads(scene, count, send)


def send_queries(scene: Scene, count: int) -> Found:
    """Send texts to look for, in the syntax of full-text search among others, to each route that searches."""
    with Caller(scene.stack) as caller:
        texts = ["a lantern on the quay", 'a-b NEAR(x) "quoted"', "漢字 かな", "e\u0301te\u0301", "content: *"]
        messages = [{"role": "user", "content": f"{text} {number}"} for number, text in enumerate(texts * 20)]
        body = {"session": "words", "messages": messages, "wait": "searchable", "timeout_seconds": 15}
        caller.post("/v1/messages", body, Found(), "messages")

    def send(seed: int, count: int, found: Found) -> None:
        fuzzer = Fuzzer(seed)
        with Caller(scene.stack) as caller:
            for _ in range(count):
                route = fuzzer.chance.choices(_ROUTES, weights=(6, 2, 1, 1))[0]
                body = {"query": fuzzer.query()}
                if route == "/v1/recall":
                    body["mode"] = fuzzer.chance.choice(_MODES)
                caller.post(route, body, found, "query")

    return _in_threads(scene, count, send)


def _broker(scene: Scene) -> redis.Redis:
    """Return a connection that waits as long as it takes: the machine is busy on purpose."""
    return redis.Redis.from_url(scene.stack.broker_url)


def _in_threads(scene: Scene, count: int, send: Callable[[int, int, Found], None]) -> Found:
    found, began = Found(), time.monotonic()
    errors: list[str] = []

    def run(seed: int, count: int) -> None:
        try:
            send(seed, count, found)
        except Exception as error:  # noqa: BLE001 - the boundary of a thread: the benchmark must say that it broke
            errors.append(f"the benchmark failed: {type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=run, args=(scene.seed + number, count // _THREADS)) for number in range(_THREADS)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(0.5) if threads[0].is_alive() else time.sleep(0.5)
        scene.tell(f"{found.sent:,} of {count:,} sent")
    found.seconds = time.monotonic() - began
    found.failures += errors
    return found


def _wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _DRAIN_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# Those that damage files come first: they need no stack.
KINDS: Final[dict[str, Callable[[Scene, int], Found]]] = {
    "requests": send_requests,
    "queries": send_queries,
    "items": send_items,
    "tasks": send_tasks,
    "keys": send_keys,
    "files": send_files,
}
