"""Calls to a broker that hangs: each has its time, and those after the first do not wait for theirs."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from reverie import Reverie
from reverie.errors import Unavailable
from reverie.pipeline.broker import Gate, call_broker, celery_settings, connect, within


@pytest.fixture
def silent_url(tmp_path: Path) -> Iterator[str]:
    """The address of a broker that accepts connections and answers nothing, as a stopped process does."""
    path = tmp_path / "b.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(64)
        yield f"unix://{path}?db=0"


def test_a_call_gets_no_more_time_than_its_caller_has(silent_url: str) -> None:
    """Given a broker that answers nothing, when a call may take 0.1 s, then it fails as unavailable, by that limit."""
    with connect(silent_url) as broker, within(0.1), pytest.raises(Unavailable, match="did not answer in time"):
        call_broker(broker.ping)
    with connect(silent_url, timeout_seconds=0.1) as broker, pytest.raises(Unavailable, match="did not answer in time"):
        call_broker(broker.ping)


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_call_whose_time_ends_between_two_steps_is_unavailable(
    silent_url: str, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Given a machine that pauses at any step of a call, also before the check of a new connection, then it is late."""
    looks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 100.0 if next(looks) < steps else 101.0)
    monkeypatch.setattr("reverie.pipeline.broker.time", clock)
    with connect(silent_url) as broker, within(0.05), pytest.raises(Unavailable, match="did not answer in time"):
        call_broker(broker.ping)


def test_an_open_connection_keeps_to_the_time_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a connection that was opened with little time, then later calls have their own, and none goes beyond."""
    monkeypatch.setattr("reverie.pipeline.broker.time", SimpleNamespace(monotonic=lambda: 100.0))
    ours, theirs = socket.socketpair()
    broker = connect("unix:///nowhere", timeout_seconds=4.0)
    connection: Any = broker.connection_pool.make_connection()
    connection._sock = ours
    connection._parser.on_connect(connection)
    with theirs:
        for seconds in (0.5, 4.0, 0.25):
            with within(seconds):
                connection.send_command("PING", check_health=False)
            assert ours.gettimeout() == pytest.approx(seconds)
            theirs.sendall(b"+PONG\r\n")
            with within(seconds):
                assert connection.read_response() == b"PONG"
        connection.disconnect()


def test_while_a_broker_hangs_one_call_a_second_tries_it() -> None:
    """Given a call without an answer, then others fail at once, and one a second tries it until an answer."""
    now = [100.0]
    gate = Gate(monotonic=lambda: now[0])
    gate.enter("a", 5.0)
    gate.leave(silent=True)
    with pytest.raises(redis.TimeoutError, match="before this one"):
        gate.enter("b", 5.0)
    now[0] += 1.1
    gate.enter("b", 5.0)
    gate.enter("b", 5.0)  # the next step of the same call
    with pytest.raises(redis.TimeoutError):
        gate.enter("c", 5.0)
    gate.leave(silent=True)
    now[0] += 1.1
    gate.enter("c", 5.0)
    now[0] += 11
    gate.enter("d", 5.0)  # c was abandoned with its thread
    gate.leave(silent=False)
    gate.enter("e", 5.0)
    gate.enter("f", 5.0)


def test_many_threads_do_not_all_wait_for_a_broker_that_hangs(silent_url: str) -> None:
    """Given a broker that hangs, when thirty calls follow the first, then none of them reaches it."""
    with connect(silent_url, timeout_seconds=0.2) as broker:
        # On a clock that stands still, no second passes after which one call would try it again.
        broker.connection_pool.connection_class.gate = Gate(monotonic=lambda: 100.0)
        with pytest.raises(Unavailable):
            call_broker(broker.ping)
        errors: list[str] = []

        def call() -> None:
            with pytest.raises(Unavailable) as raised:
                call_broker(broker.ping)
            errors.append(str(raised.value))

        threads = [threading.Thread(target=call) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum("before this one" in error for error in errors) == 30


def test_a_caller_in_a_hurry_says_nothing_about_the_broker(silent_url: str) -> None:
    """Given calls with 20 ms each, when they get no answer, then the others are not told that the broker hangs."""
    with connect(silent_url) as broker:
        for _ in range(2):
            with within(0.02), pytest.raises(Unavailable, match=r"reading from socket|time of the call"):
                call_broker(broker.ping)


def test_a_producer_is_told_within_its_own_time(silent_url: str) -> None:
    """Given a client that waits for at most 0.1 s, when the broker hangs, then ingest fails in that."""
    with (
        Reverie("ana", broker=silent_url, timeout_seconds=0.1) as memory,
        pytest.raises(Unavailable, match="in time") as raised,
    ):
        memory.ingest("s", {"role": "user", "content": "x", "id": "m1"})
    assert raised.value.unconfirmed == ("m1",)


def test_tasks_are_sent_and_received_with_a_timeout() -> None:
    """Given the settings of Celery, at both ends, then neither a connection nor an answer is awaited for ever."""
    options = celery_settings("p:")["broker_transport_options"]
    assert 0 < options["socket_timeout"] <= 5
    assert 0 < options["socket_connect_timeout"] <= 5


def test_every_connection_to_the_broker_is_made_in_one_place() -> None:
    """Given the product's code, then nobody makes a redis client but `connect`, and the supervisor's own short one."""
    root = Path(__file__).parents[2]
    folders = ("adapters", "cli", "client", "memory", "retrieval", "server", "storage", "tasks", "worker")
    makers = {
        str(path.relative_to(root))
        for folder in folders
        for path in (root / folder).rglob("*.py")
        if "build" not in path.relative_to(root).parts
        and any(maker in path.read_text(encoding="utf-8") for maker in ("Redis.from_url(", "Redis(", "ConnectionPool("))
    }
    assert makers == {"client/reverie/pipeline/broker.py", "worker/supervision/embedded_broker.py"}
