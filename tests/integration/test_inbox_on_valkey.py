"""The scripts of inbox and working memory on a real Valkey: what the unit tests prove on a fake one, in short."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from adapters.broker.inbox import WorkerInbox
from adapters.broker.working_memory import WorkingMemory
from memory.pipeline.recovery import StageSweep
from memory.sessions.sessions import newest_messages
from reverie.errors import NotFound
from storage.pipeline.messages import Messages
from storage.pipeline.work import STAGES
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline, as_json, turns


class Killed(BaseException):
    """The worker is gone."""


@pytest.fixture
def pipe(tmp_path: Path, valkey_url: str, broker_prefix: str) -> Iterator[Pipeline]:
    """A pipeline on a real broker, with two messages in working memory and three in the inbox."""
    pipe = Pipeline(tmp_path / "data", broker=redis.Redis.from_url(valkey_url), prefix=broker_prefix)
    pipe.say("one", "two")
    pipe.settle()
    assert recent(pipe) == ["one", "two"]
    pipe.say("three", "four", "five")
    yield pipe
    pipe.close()


def recent(pipe: Pipeline) -> list[str]:
    return [m.content for m in newest_messages(pipe.store, pipe.working, agent="ana", session="s")]


def dies_after(method: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **keywords: Any) -> Any:
        method(*arguments, **keywords)
        raise Killed

    return run


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (WorkerInbox, "take"),
        (Messages, "insert"),
        (WorkingMemory, "drop"),
        (WorkingMemory, "append"),
        (WorkerInbox, "settle"),
    ],
)
def test_a_worker_killed_after_any_step_loses_and_doubles_nothing(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """Given a death after this step, when the next worker comes, then all is stored once and recent is right."""
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies_after(getattr(owner, name)))
        with pytest.raises(Killed):
            pipe.ingest()
    pipe.lose_worker()
    pipe.settle()
    assert pipe.contents() == recent(pipe) == ["one", "two", "three", "four", "five"]
    assert pipe.waiting_in_inbox() == 0
    assert pipe.dead_letters() == []
    assert verify(pipe.store).wrong == []


def test_garbage_in_the_inbox_is_set_aside_and_the_rest_is_stored(pipe: Pipeline) -> None:
    """Given values that are no payload or have no time, even after a worker died with them, then no script breaks."""
    payload = as_json(turns("bad")[0])
    for number, stamp in enumerate([b"", b"9" * 5_000 + b" ", b"-1 ", b"1e99 "]):
        pipe.smuggle(payload, item_id=f"bad{number}", stamp=stamp)
    pipe.smuggle(b"\xff\x00nonsense", item_id="bad")
    pipe.inbox.take(WORKSPACE, limit=100)
    pipe.lose_worker()
    report = pipe.ingest()
    assert (report.stored, report.dead) == (3, 5)
    assert pipe.waiting_in_inbox() == 0


def test_what_is_given_back_counts_as_untried_and_waits_its_pause(pipe: Pipeline) -> None:
    """Given items that were released, then nothing is taken until the pause is over, and then as the first time."""
    taken = pipe.inbox.take(WORKSPACE, limit=10)
    assert pipe.inbox.take(WORKSPACE, limit=10) == [], "one worker at a time"
    pipe.inbox.release(WORKSPACE, taken, delay_seconds=60)
    assert pipe.inbox.take(WORKSPACE, limit=10) == []
    pipe.make_due()
    again = pipe.inbox.take(WORKSPACE, limit=10)
    assert [item._replace(token="") for item in again] == [item._replace(token="") for item in taken]


def test_a_late_arrival_and_a_repeat_do_not_spoil_working_memory(pipe: Pipeline) -> None:
    """Given one message said before the others and one stored already, then recent is what the store says."""
    pipe.say({"content": "zero", "created_at": datetime(2020, 1, 1, tzinfo=UTC)}, "six")
    pipe.ingest()
    assert recent(pipe) == pipe.contents() == ["zero", "one", "two", "three", "four", "five", "six"]
    messages = newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    pipe.working.append(WORKSPACE, {("ana", "s"): messages[-1:]}, accepted_at={("ana", "s"): pipe.inbox.now_micros()})
    assert pipe.cached() is None
    assert recent(pipe) == pipe.contents()


def test_a_forgotten_session_is_kept_out_by_the_brokers_clock(pipe: Pipeline) -> None:
    """Given accepted messages, when the session is forgotten and spoken in again, then only what came after is kept."""
    pipe.forget()
    pipe.say("after")
    report = pipe.ingest()
    assert (report.forgotten, report.stored) == (3, 1)
    assert recent(pipe) == ["after"]


def test_reading_while_the_worker_stores_never_leaves_a_message_out(pipe: Pipeline) -> None:
    """Given readers who read each session all the time while it is stored, then afterwards none reads too little."""
    sessions = [f"session {number}" for number in range(60)]
    done = threading.Event()
    current = [sessions[0]]

    def read() -> None:
        while not done.is_set():
            with contextlib.suppress(NotFound):
                newest_messages(pipe.store, pipe.working, agent="ana", session=current[0])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    short = []
    try:
        for session in sessions:
            current[0] = session
            for number in range(3):
                pipe.say(f"message {number}", session=session)
                pipe.ingest()
            found = newest_messages(pipe.store, pipe.working, agent="ana", session=session)
            short += [session] if len(found) != 3 else []
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert short == []


def test_after_losing_every_key_everything_stored_becomes_searchable(pipe: Pipeline) -> None:
    """Given stored messages and a broker without a key, when the sweep says what is due, then all are found."""
    pipe.ingest()
    pipe.broker.delete(*pipe.broker.keys(f"{pipe.prefix}*"))
    bodies = {"chunk": pipe.chunk, "chunk-files": pipe.chunk, "embed": pipe.embed, "index": pipe.index}
    sweep, notified = StageSweep(STAGES), list[str]()
    for _ in bodies:
        sweep.run(pipe.stores, now=pipe.now(), notify=lambda stage, _: notified.append(stage))
        while notified:
            bodies[notified.pop()]()
    assert len(pipe.recall("three", mode="vector", limit=100)) == 5
    assert recent(pipe) == ["one", "two", "three", "four", "five"]
