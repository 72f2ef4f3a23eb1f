"""A broker that lost its content, has no memory, takes no writes, or is configured to lose something."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from adapters.broker.monitor import durability_warnings
from adapters.broker.working_memory import WorkingMemory
from memory.pipeline.broker_status import lost_lines, watch_broker
from memory.sessions.sessions import newest_messages
from reverie.errors import Unavailable, WaitTimeout
from reverie.pipeline.broker import connect
from reverie.pipeline.producer import Producer
from support.broker import running_valkey
from support.pipeline import PREFIX, WORKSPACE, Pipeline, turns


@pytest.fixture(scope="module")
def own_url() -> Iterator[str]:
    """A broker whose settings these tests change."""
    with running_valkey() as url:
        yield url


@pytest.fixture
def pipe(tmp_path: Path, own_url: str) -> Iterator[Pipeline]:
    """A pipeline on it, with one message stored and in working memory, and two in the inbox."""
    pipe = Pipeline(tmp_path / "data", broker=connect(own_url))
    pipe.broker.flushdb()
    pipe.say("one")
    pipe.settle()
    newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    pipe.say("two", "three")
    yield pipe
    for name, value in (("maxmemory", 0), ("min-replicas-to-write", 0)):
        pipe.broker.config_set(name, value)
    pipe.close()


def out_of_memory(pipe: Pipeline) -> None:
    pipe.broker.config_set("maxmemory", 1)


def refuses_writes(pipe: Pipeline) -> None:
    # As READONLY and MISCONF, which is what a full disk gives, it refuses each write with an error.
    pipe.broker.config_set("min-replicas-to-write", 1)


def placed(pipe: Pipeline) -> bool:
    """Whether each item of the inbox is in exactly one of its two sorted sets."""
    name = f"{PREFIX}inbox:{WORKSPACE}"
    items = set(pipe.broker.hkeys(name))
    due, taken = (set(pipe.broker.zrange(f"{name}:{part}", 0, -1)) for part in ("due", "taken"))
    return due | taken == items and not due & taken


@pytest.mark.parametrize("refuse", [out_of_memory, refuses_writes])
def test_what_a_refusing_broker_is_asked_happens_whole_or_not_at_all(
    pipe: Pipeline, refuse: Callable[[Pipeline], None]
) -> None:
    """Given a broker that refuses writes, then each call raises or works, no item is misplaced, and all is stored."""
    refuse(pipe)
    with pytest.raises(Unavailable):
        pipe.say("four")
    held = []
    try:
        held = pipe.inbox.take(WORKSPACE, limit=1)
        pipe.inbox.begin(WORKSPACE, held)
    except Unavailable:
        pass
    assert placed(pipe)
    pipe.inbox.release(WORKSPACE, held, delay_seconds=0, begun=held)
    assert placed(pipe)
    pipe.broker.config_set("maxmemory", 0)
    pipe.broker.config_set("min-replicas-to-write", 0)
    pipe.inbox.take("elsewhere", limit=1)  # what could not be given back
    pipe.make_due()
    pipe.settle()
    assert pipe.contents() == ["one", "two", "three"]
    found = newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    assert [message.content for message in found] == ["one", "two", "three"]
    assert pipe.dead_letters() == []


def test_workers_store_what_waits_while_the_broker_is_out_of_memory(pipe: Pipeline) -> None:
    """Given a broker without memory, then its inbox can be emptied and sessions forgotten, which gives memory back."""
    out_of_memory(pipe)
    pipe.ingest()
    assert pipe.waiting_in_inbox() == 0
    assert pipe.contents() == ["one", "two", "three"]
    assert pipe.cached() is None, "the list could not grow: the store is read"
    assert pipe.forget()


def test_a_producer_that_waits_sends_again_what_the_broker_lost(
    pipe: Pipeline, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a broker that was flushed while a producer waits, then the message is stored, and the producer told."""
    monkeypatch.setattr("reverie.pipeline.producer._ASK_SECONDS", 0.05)
    pipe.broker.flushdb()
    accepted = threading.Event()
    outcomes: list[str] = []

    def send() -> None:
        producer = Producer(own_url, workspace=WORKSPACE, prefix=PREFIX)
        told = producer.enqueue(turns("kept"), wait="stored", timeout_seconds=60, on_accepted=accepted.set)
        outcomes.extend(outcome.state for outcome in told)

    thread = threading.Thread(target=send)
    thread.start()
    assert accepted.wait(60)
    pipe.broker.flushdb()
    pipe.drain(lambda: not pipe.waiting_in_inbox())
    pipe.ingest()
    thread.join(60)
    assert outcomes == ["stored"]
    assert pipe.contents() == ["one", "kept"]


def test_a_producer_that_waits_outlives_a_broker_that_is_away(
    pipe: Pipeline, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a broker that does not answer for a while, then who waits is told; one whose time ends, that it is kept."""
    producer = Producer(own_url, workspace=WORKSPACE, prefix=PREFIX)
    wait_reply, failures = producer._inbox.wait_reply, [Unavailable("away"), Unavailable("away")]

    def away_at_first(reply_to: str, timeout_seconds: float) -> object:
        if failures:
            raise failures.pop()
        pipe.ingest()
        return wait_reply(reply_to, timeout_seconds)

    monkeypatch.setattr(producer._inbox, "wait_reply", away_at_first)
    monkeypatch.setattr("reverie.pipeline.producer._PAUSE_SECONDS", 0.001)
    assert [outcome.state for outcome in producer.enqueue(turns("four"), wait="stored")] == ["stored"]

    def away(*_: object) -> None:
        raise Unavailable("nobody there")

    monkeypatch.setattr(producer._inbox, "wait_reply", away)
    with pytest.raises(WaitTimeout, match="nobody there") as raised:
        producer.enqueue(turns({"content": "five", "id": "m5"}), wait="stored", timeout_seconds=0.05)
    assert raised.value.accepted == ("m5",)


def test_a_broker_that_came_back_empty_is_noticed_once_and_shown_for_a_day(pipe: Pipeline) -> None:
    """Given sweeps before and after a flush, then the second says how much waited, the status too, for a day."""
    data, now = pipe.stores.data_dir, pipe.now()
    assert watch_broker(pipe.inbox, data, now=now) == ""
    assert watch_broker(pipe.inbox, data, now=now) == ""
    assert lost_lines(data, now=now) == []
    pipe.broker.flushdb()
    assert "2 messages waited" in watch_broker(pipe.inbox, data, now=now)
    assert watch_broker(pipe.inbox, data, now=now) == ""
    assert len(lost_lines(data, now=now)) == 1
    assert lost_lines(data, now=now + 25 * 3_600 * 1_000_000) == []


def test_messages_of_a_session_are_right_after_the_broker_lost_its_lists(pipe: Pipeline) -> None:
    """Given a reader that read the epoch before a flush, when more was stored since, then it fills nothing."""
    epoch = pipe.working.epoch(WORKSPACE, "ana", "s")
    old = newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    pipe.broker.flushdb()
    pipe.say("four")
    pipe.ingest()
    WorkingMemory(pipe.broker, prefix=PREFIX).fill(WORKSPACE, "ana", "s", old, epoch=epoch)
    assert pipe.cached() is None


def test_a_broker_that_could_lose_something_is_warned_of(own_url: str) -> None:
    """Given settings of a broker, then each that could lose messages is named, and a sound one is not."""
    with redis.Redis.from_url(own_url) as broker:
        assert durability_warnings(broker, flushed=True) == []
        (warning,) = durability_warnings(broker, flushed=False)
        assert "appendfsync always" in warning
        before = {name: broker.config_get(name)[name] for name in ("appendonly", "appendfsync", "maxmemory-policy")}
        broker.config_set("appendfsync", "everysec")
        assert "appendfsync always" in durability_warnings(broker, flushed=True)[0]
        broker.config_set("appendonly", "no")
        broker.config_set("maxmemory-policy", "allkeys-lru")
        warnings = durability_warnings(broker, flushed=True)
        assert ["appendonly yes" in warnings[0], "noeviction" in warnings[1], len(warnings)] == [True, True, 2]
        broker.execute_command("ACL", "SETUSER", "plain", "on", "nopass", "~*", "+ping")
        with redis.Redis.from_url(own_url, username="plain", password="x") as plain:
            assert durability_warnings(plain, flushed=False) == [], "it may not ask"
        for name, value in before.items():
            broker.config_set(name, value)
