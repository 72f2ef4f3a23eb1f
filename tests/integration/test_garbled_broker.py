"""A broker in which another program has written: what cannot be read is passed over, and everybody else goes on."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from memory.pipeline.broker_status import read_broker, watch_broker
from memory.pipeline.ingest import IngestServices, drain_inbox
from memory.pipeline.recovery import recover_inbox
from memory.recall import record_recalls
from memory.sessions.sessions import newest_messages
from reverie import Reverie, contract
from reverie.clock import new_id
from reverie.pipeline.inbox import inbox_field
from reverie.pipeline.producer import Producer
from reverie.sessions.working import working_epoch_key, working_key
from support.agents import until
from support.broker import running_valkey
from support.forks import RUN_MODULE, Program
from support.pipeline import turns
from worker.reports import send_heartbeat
from worker.runtime import Runtime
from worker.supervision.run_file import read_run_file, run_file_path, write_run_file

ROOT = Path(__file__).parents[2]
PREFIX = contract.DEFAULT_PREFIX


class Worker:
    """A worker for all queues on a broker of its own."""

    def __init__(self, data: Path, url: str) -> None:
        self.url = url
        self.broker = redis.Redis.from_url(url)
        settings = {"REVERIE_DATA": str(data), "REVERIE_BROKER": url, "REVERIE_EMBEDDING_PROVIDER": "none"}
        environment = {**os.environ, **settings}
        self.process = Program(RUN_MODULE, ["cli", "worker"], environment, data / "worker.log", folder=ROOT)

    def processes(self) -> set[int]:
        """The pids of the worker and its children."""
        return {child.pid for child in psutil.Process(self.process.pid).children()} | {self.process.pid}

    def store(self, content: str) -> None:
        """Hand over a message and wait until it is stored."""
        with Reverie("ana", broker=self.url, url="http://127.0.0.1:1") as memory:
            memory.ingest("s", {"role": "user", "content": content}, wait="stored", timeout_seconds=60)

    def put(self, queue: str, *messages: bytes) -> None:
        """Put messages into a queue and wait until all have been taken, in order of their arrival."""
        key = PREFIX + queue
        self.broker.lpush(key, *messages)
        until(lambda: not self.broker.llen(key) and not self.broker.hlen(PREFIX + "unacked"), f"{queue} is not empty")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.broker.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with running_valkey() as url:
        worker = Worker(tmp_path_factory.mktemp("data"), url)
        try:
            worker.store("before")
            yield worker
        finally:
            worker.close()


def task_message(
    *,
    headers: dict[str, Any] | None = None,
    properties: dict[str, Any] | None = None,
    body: Any = None,
    **changes: Any,
) -> bytes:
    """A task as Reverie sends it, with changes."""
    packed = json.dumps([[], {"workspace": "ws"}, {}] if body is None else body).encode()
    message: dict[str, Any] = {
        "body": base64.b64encode(packed).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": contract.INGEST_MESSAGES, "id": new_id(), **(headers or {})},
        "properties": {
            "delivery_info": {"exchange": "", "routing_key": contract.QUEUE_INGEST},
            "delivery_tag": new_id(),
            "body_encoding": "base64",
            **(properties or {}),
        },
    }
    return json.dumps({**message, **changes}).encode()


REFUSED = {
    "no JSON": b"not json",
    "cut off": task_message()[:-20],
    "no object": b"[1, 2]",
    "nested": b"[" * 50_000,
    "not UTF-8": b"\xff\xfe",
    "a type of kombu": b'{"__type__": "uuid", "__value__": 5}',
    "no properties": task_message(properties={"delivery_tag": None}),
    "properties of another type": b'{"properties": 5, "headers": {}, "body": ""}',
    "headers of another type": b'{"properties": {}, "headers": 5, "body": ""}',
    "no way to answer": task_message(properties={"delivery_info": {}}),
    "a body that is not base64": task_message(body="é"),
    "another encoding of the body": task_message(properties={"body_encoding": "none"}),
    "another content type": task_message(**{"content-type": "application/x-python-serialize"}),
    "compressed": task_message(headers={"compression": "application/x-gzip"}),
    "an unknown task": task_message(headers={"task": "reverie.none"}),
    "a task that is a list": task_message(headers={"task": ["x"]}),
    "no id": task_message(headers={"id": None}),
    "an id that is an object": task_message(headers={"id": {}}),
    "arguments that are a text": task_message(body=[[], "ws", {}]),
    "a time that is none": task_message(headers={"expires": "soon"}),
    "for later": task_message(headers={"eta": "2999-01-01T00:00:00"}),
    "no arguments": task_message(body=7),
    "arguments by position": task_message(body=[["ws"], {}, {}]),
    "an argument that is a list": task_message(body=[[], {"workspace": ["ws"]}, {}]),
    "an argument of half a character": task_message(body=[[], {"workspace": "\ud800"}, {}]),
    "an unknown argument": task_message(body=[[], {"event": "x"}, {}]),
    "no workspace": task_message(body=[[], {}, {}]),
    "another task to follow": task_message(body=[[], {"workspace": "ws"}, {"callbacks": [{"task": "x"}]}]),
    "huge": task_message(body=[[], {"workspace": "w" * 2_000_000}, {}]),
}


def test_messages_that_are_no_tasks_end_no_worker(worker: Worker) -> None:
    """Given messages in the queues that Reverie does not send, when a worker takes them, then it goes on with ours."""
    before = worker.processes()

    for queue in contract.QUEUES:
        worker.put(queue, *REFUSED.values())
    worker.store("after")

    until(lambda: not worker.broker.zcard(PREFIX + "unacked_index"), "a message is neither done nor refused")
    assert worker.processes() == before


def test_tasks_as_beat_sends_them_are_not_refused(worker: Worker) -> None:
    """Given a periodic job with the time limit and the end that beat gives it, then it is run."""
    done = PREFIX + "progress:*"

    def finished() -> int:
        return sum(int(worker.broker.hget(key, "done") or 0) for key in worker.broker.keys(done))

    before, processes = finished(), worker.processes()
    limited = {"timelimit": [300, None], "expires": "2999-01-01T00:00:00+00:00", "eta": None}
    for task in (contract.RECOVER_INBOX, contract.SWEEP_STAGES, contract.RUN_DUE_SCHEDULES):
        worker.put(contract.TASK_QUEUES[task], task_message(headers={**limited, "task": task}, body=[[], {}, {}]))
    until(lambda: finished() >= before + 3, "the jobs do not run")
    assert worker.processes() == processes


NO_NUMBER = (b"abc", b"", b"-1", b"9" * 30, b"1e300", b"nan", b"\xff")
NO_JSON = (b"", b"\xff", b"{", b"[" * 50_000, b"7", b'{"id": "\xff"}', b'{"started_at": 1e300}')


def pipeline_of(runtime: Runtime) -> Producer:
    return Producer(runtime.settings.broker_url, workspace="ws", prefix=runtime.settings.broker_prefix)


def store(runtime: Runtime, content: str) -> None:
    """Accept a message and store it, as producer and worker do."""
    pipeline_of(runtime).enqueue(turns(content))
    drain_inbox(
        IngestServices(runtime.inbox, runtime.working_memory),
        lambda: runtime.store("ws"),
        workspace="ws",
        now=runtime.now,
    )


def newest(runtime: Runtime) -> list[str]:
    found = newest_messages(runtime.store("ws"), runtime.working_memory, agent="ana", session="s")
    return [message.content for message in found]


def test_counts_of_the_inbox_that_are_no_numbers_stop_nobody(runtime: Runtime) -> None:
    """Given garbled counts, numbers and limits, then messages are accepted and stored, and the status is told."""
    state, limits = (f"{runtime.settings.broker_prefix}inboxes:{name}" for name in ("state", "limits"))
    expected = []
    for number, garbled in enumerate(NO_NUMBER):
        for name in ("number", "items", "bytes", "bytes:ws"):
            runtime.broker.hset(state, name, garbled)
        for name in ("items", "workspace_items", "x"):
            runtime.broker.hset(limits, name, garbled)
        expected.append(f"message {number}")
        store(runtime, expected[-1])
        assert runtime.inbox.stats("ws").size == 0
        state_of_broker = read_broker(runtime.inbox, runtime.monitor)
        assert (state_of_broker.error, state_of_broker.inbox.items) == ("", 0)
    with runtime.store("ws").reading() as tx:
        assert tx.dead_letters.count() == 0
    assert newest(runtime) == expected
    runtime.inbox.set_limits(runtime.settings.inbox_limits)
    assert runtime.inbox.totals().limits == runtime.settings.inbox_limits


@pytest.mark.parametrize("garbled", NO_NUMBER, ids=repr)
def test_tries_of_an_item_that_are_no_number_do_not_keep_it_in_the_inbox(runtime: Runtime, garbled: bytes) -> None:
    """Given an item whose tries are garbled, then it is stored or set aside, and the next one is stored."""
    (payload,) = turns("tried")
    pipeline_of(runtime).enqueue([payload])
    runtime.broker.hset(f"{runtime.settings.broker_prefix}inbox:ws:tries", inbox_field(payload), garbled)
    store(runtime, "next")
    assert runtime.inbox.stats("ws").size == 0
    assert newest(runtime)[-1] == "next"


@pytest.mark.parametrize("score", [-1, 0, 1e16, 1e300])
def test_an_inbox_with_a_member_that_has_no_item_is_recovered(runtime: Runtime, score: float) -> None:
    """Given a name in the order of an inbox without an item, then the sweep stores what is there, and removes it."""
    inbox = f"{runtime.settings.broker_prefix}inbox:ws"
    pipeline_of(runtime).enqueue(turns("one"))
    for part in (":due", ":taken"):
        runtime.broker.zadd(inbox + part, {b"nobody\xff": score})
    runtime.broker.sadd(f"{runtime.settings.broker_prefix}inboxes", b"\xff", "no name")
    for _ in range(2):
        recover_inbox(IngestServices(runtime.inbox, runtime.working_memory), runtime.stores, now=runtime.now)
    assert newest(runtime) == ["one"]
    assert runtime.inbox.workspaces() == []


def test_a_long_note_of_who_waits_does_not_hold_up_the_broker(runtime: Runtime) -> None:
    """Given half a megabyte where it is noted who waits for an item, then the item is stored at once."""
    (payload,) = turns("awaited")
    pipeline_of(runtime).enqueue([payload])
    field = inbox_field(payload)
    runtime.broker.hset(f"{runtime.settings.broker_prefix}inbox:ws:waiting", field, b"[" * 500_000)
    store(runtime, "next")
    assert newest(runtime) == ["awaited", "next"]


def test_working_memory_that_cannot_be_read_is_read_from_the_store(runtime: Runtime) -> None:
    """Given lists and epochs that another program has written, then the messages are those of the store."""
    prefix = runtime.settings.broker_prefix
    keys = (working_key(prefix, "ws", "ana", "s"), working_epoch_key(prefix, "ws", "ana", "s"))
    store(runtime, "one")
    for garbled in (*NO_JSON, *NO_NUMBER):
        runtime.broker.delete(*keys)
        runtime.broker.rpush(keys[0], garbled)
        assert newest(runtime) == ["one"]
        runtime.broker.delete(*keys)
        runtime.broker.set(keys[1], garbled)
        assert newest(runtime) == ["one"]
    runtime.broker.delete(*keys)
    runtime.broker.rpush(keys[0], b"{")
    store(runtime, "two")
    assert newest(runtime) == ["one", "two"]


def test_measurements_that_cannot_be_read_are_left_out(runtime: Runtime) -> None:
    """Given garbled heartbeats, progress and lags beside good ones, then the status has the good ones."""
    prefix = runtime.settings.broker_prefix
    send_heartbeat(runtime, "good", started_at=1.0)
    runtime.monitor.record_lags([2.0])
    for number, garbled in enumerate((*NO_JSON, *NO_NUMBER)):
        runtime.broker.set(f"{prefix}worker:{number}", garbled)
        runtime.broker.hset(f"{prefix}progress:good", mapping={"at": garbled, "done": garbled, "embedder": garbled})
        runtime.broker.lpush(f"{prefix}lag", garbled, b"1:" + garbled, garbled + b":1")
        found = read_broker(runtime.inbox, runtime.monitor)
        assert (found.error, [worker.name for worker in found.workers]) == ("", ["good"])
        assert found.lag.p50_seconds == 2.0
    runtime.broker.hset(f"{prefix}worker:hash", "a", "b")
    assert read_broker(runtime.inbox, runtime.monitor).error == ""


def test_recalls_that_cannot_be_read_are_dropped_and_counted(runtime: Runtime) -> None:
    """Given entries of the recall log that are none, then each is dropped, and the log is empty."""
    store(runtime, "one")
    runtime.recall_log.append("ws", NO_JSON)
    report = record_recalls(runtime.recall_log, runtime.stores, workspace="ws")
    assert (report.unreadable, runtime.recall_log.read("ws", limit=10)) == (len(NO_JSON), [])


@pytest.mark.parametrize("garbled", NO_JSON, ids=lambda value: repr(value[:20]))
def test_files_of_the_data_folder_that_are_damaged_stop_no_sweep(runtime: Runtime, garbled: bytes) -> None:
    """Given damaged files in which processes keep what they have seen, then each counts as not there."""
    data = runtime.settings.data
    store(runtime, "one")
    watch_broker(runtime.inbox, data, now=runtime.now())
    (data / "run" / "broker.json").write_bytes(garbled)
    assert watch_broker(runtime.inbox, data, now=runtime.now()) == ""
    write_run_file(data, [])
    run_file_path(data).write_bytes(garbled)
    assert read_run_file(data) is None
