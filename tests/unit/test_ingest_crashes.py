"""A worker killed between any two steps of ingest, a full disk, a store that cannot be used: stored once, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from adapters.broker.inbox import LEASE_SECONDS, WorkerInbox
from adapters.broker.working_memory import WorkingMemory
from memory import stage
from memory.pipeline.ingest import RELEASE_SECONDS, drain_inbox, ingest_batch
from memory.pipeline.recovery import recover_inbox
from memory.sessions.sessions import newest_messages
from memory.stage import MAX_CRASHES
from reverie.contract import INGEST_MESSAGES
from reverie.errors import StoreUnavailable, StoreUnusable, Unavailable
from storage.pipeline.messages import Messages
from storage.sessions.sessions import Sessions
from storage.stores import Stores
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline, turns


class Killed(BaseException):
    """The worker is gone: nothing of ours may catch this and tidy up."""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with two stored messages in a session that is in working memory, and three in the inbox."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("one", "two")
    pipe.settle()
    newest(pipe)
    assert pipe.cached() is not None
    pipe.say("three", "four", "five")
    yield pipe
    pipe.close()


def newest(pipe: Pipeline) -> list[str]:
    return [m.content for m in newest_messages(pipe.store, pipe.working, agent="ana", session="s")]


def die(*_: Any, **__: Any) -> None:
    raise Killed


def die_after(method: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **keywords: Any) -> Any:
        method(*arguments, **keywords)
        raise Killed

    return run


STEPS = {
    "after the items are taken": (WorkerInbox, "take", die_after(WorkerInbox.take)),
    "in the transaction, before its first row": (Sessions, "forgotten_at", die),
    "in the transaction, after its last row": (Messages, "insert", die_after(Messages.insert)),
    "after the commit, before anything is told": (WorkingMemory, "drop", die),
    "after the commit, before working memory": (WorkingMemory, "append", die),
    "before anything is begun with": (WorkerInbox, "begin", die),
    "after the try is counted": (WorkerInbox, "begin", die_after(WorkerInbox.begin)),
    "after working memory, before the inbox is settled and the replies sent": (WorkerInbox, "settle", die),
    "after the inbox is settled": (WorkerInbox, "settle", die_after(WorkerInbox.settle)),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_between_two_steps_loses_and_doubles_nothing(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Given a worker that dies at this step, when the next one comes, then all is stored once and recent is right."""
    owner, name, instead = STEPS[step]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, instead)
        with pytest.raises(Killed):
            pipe.ingest()
    pipe.lose_worker()
    pipe.settle()

    assert pipe.contents() == ["one", "two", "three", "four", "five"]
    assert [message.sequence for message in pipe.messages()] == [1, 2, 3, 4, 5]
    assert newest(pipe) == ["one", "two", "three", "four", "five"]
    cached = pipe.cached()
    assert cached is not None
    assert [message.content for message in cached] == ["one", "two", "three", "four", "five"]
    assert pipe.found("three") == ["three"]
    assert pipe.waiting_in_inbox() == 0
    assert pipe.dead_letters() == []
    assert verify(pipe.store).wrong == []


def test_a_worker_killed_at_every_step_in_turn_ends_well(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given one death after the other, when each time new messages come, then nothing is lost, doubled or given up."""
    expected = ["one", "two", "three", "four", "five"]
    for number, (owner, name, instead) in enumerate(STEPS.values()):
        expected += pipe.say(f"more {number}") and [f"more {number}"]
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, instead)
            with pytest.raises(Killed):
                pipe.ingest()
        pipe.lose_worker()
        pipe.settle()
        assert newest(pipe) == expected
    assert pipe.contents() == expected
    assert pipe.dead_letters() == []


def test_an_item_that_kills_its_worker_is_set_aside_and_takes_no_other_with_it(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an item that kills whoever stores it, when it has killed thrice, then it alone is a dead letter."""
    insert = Messages.insert

    def fatal(self: Messages, row: int, numbered: Any, *, now: int) -> None:
        if any(message.content == "four" for _, message in numbered):
            raise Killed
        insert(self, row, numbered, now=now)

    monkeypatch.setattr(Messages, "insert", fatal)
    for _ in range(MAX_CRASHES):
        with pytest.raises(Killed):
            pipe.ingest()
        pipe.lose_worker()
    pipe.drain(lambda: pipe.ingest().taken)
    assert pipe.contents() == ["one", "two", "three", "five"]
    (letter,) = pipe.dead_letters()
    assert (letter.error_type, letter.session, b'"four"' in (letter.payload or b"")) == ("WorkerCrashed", "s", True)
    assert pipe.waiting_in_inbox() == 0


def full(pipe: Pipeline) -> Callable[[], None]:
    """Let the workspace's file grow no more; returns what makes room again."""

    def limit(raw: Any, *_: object) -> None:
        raw.execute("PRAGMA max_page_count = 1")  # SQLite raises this to the present size

    def lift(raw: Any, *_: object) -> None:
        raw.execute("PRAGMA max_page_count = 1073741823")

    engine = pipe.store.database.engine
    event.listen(engine, "checkout", limit)

    def make_room() -> None:
        event.remove(engine, "checkout", limit)
        event.listen(engine, "checkout", lift)

    return make_room


@pytest.mark.sqlite("limits the size of its file")
def test_a_full_disk_delays_what_was_accepted_and_loses_none_of_it(pipe: Pipeline) -> None:
    """Given a database that can grow no more, when ingested, then all stays accepted, and is stored when it can."""
    pipe.ingest()
    make_room = full(pipe)
    pipe.say(*[f"{number} " + "x" * 5_000 for number in range(100)])
    for _ in range(MAX_CRASHES + 2):  # more often than a crash would be forgiven
        with pytest.raises(StoreUnavailable, match="full"):
            pipe.ingest()
        assert pipe.waiting_in_inbox() == 100
        assert pipe.ingest().taken == 0, "it is left alone for some seconds"
        pipe.make_due()
    assert len(pipe.messages()) == 5

    make_room()
    pipe.settle()
    assert len(pipe.messages()) == 105
    assert pipe.dead_letters() == []
    assert verify(pipe.store).wrong == []


def test_whoever_waits_for_the_write_lock_gives_up_before_its_lease_ends(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a lock that is held for long, then the items go back untried: waiting is no death of a worker."""
    monkeypatch.setattr("memory.stage.STAGE_LOCK_WAIT_SECONDS", 0.05)
    for _ in range(MAX_CRASHES + 1):
        with pipe.store.writing(), pytest.raises(StoreUnavailable):
            pipe.ingest()
        pipe.make_due()
    assert {item.tries for item in pipe.inbox.take(WORKSPACE, limit=10)} == {1}
    pipe.lose_worker()
    pipe.ingest()
    assert newest(pipe) == ["one", "two", "three", "four", "five"]


def test_a_stream_of_messages_goes_on_soon_after_its_store_could_not_be_written(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a task that gave up waiting for the lock, then a later message may send another one after two seconds."""
    monkeypatch.setattr("memory.stage.STAGE_LOCK_WAIT_SECONDS", 0.05)
    pipe.inbox.confirm_notification(INGEST_MESSAGES, WORKSPACE)  # whoever said it has sent a task
    store = pipe.store
    with store.writing(), pytest.raises(StoreUnavailable):
        drain_inbox(pipe.ingest_services, lambda: store, workspace=WORKSPACE, now=pipe.now)
    flag = f"{pipe.prefix}wake:{INGEST_MESSAGES}:{WORKSPACE}"
    assert 0 < pipe.broker.pttl(flag) <= RELEASE_SECONDS * 1_000


def test_the_longest_wait_for_the_write_lock_is_well_within_a_lease() -> None:
    """Whatever one sets: a worker that still waits must still hold what it took."""
    assert stage.STAGE_LOCK_WAIT_SECONDS <= LEASE_SECONDS / 2


def test_items_that_another_worker_has_settled_are_not_counted_again(pipe: Pipeline) -> None:
    """Given a slow worker whose items another one has stored, when it counts their tries, then nothing is kept."""
    items = pipe.inbox.take(WORKSPACE, limit=10)
    pipe.inbox.settle(WORKSPACE, items)
    assert not pipe.inbox.begin(WORKSPACE, items)
    assert pipe.broker.hlen(f"{pipe.prefix}inbox:{WORKSPACE}:tries") == 0


@pytest.mark.sqlite("damages a file")
def test_a_store_that_cannot_be_used_leaves_its_items_accepted_and_the_others_go_on(
    pipe: Pipeline, tmp_path: Path
) -> None:
    """Given one corrupt workspace, when the sweep comes, then its error is named and the others are stored."""
    sound, broken = pipe.store, tmp_path / "data" / "workspaces" / "broken" / "memory.db"
    broken.parent.mkdir()
    broken.write_bytes(b"no database" * 1_000)
    pipe.inbox.accept("broken", turns("kept"))
    with pytest.raises(StoreUnusable, match=r"broken/memory\.db"):
        ingest_batch(pipe.ingest_services, pipe.stores.workspace("broken"), now=1)
    old = WorkerInbox.stats

    def long_ago(self: WorkerInbox, workspace: str) -> Any:
        return old(self, workspace)._replace(oldest_age_seconds=60.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerInbox, "stats", long_ago)
        report = recover_inbox(pipe.ingest_services, pipe.stores, now=pipe.now)
    assert list(report.errors) == ["broken"]
    assert report.recovered == 3
    assert sound.name == WORKSPACE
    assert pipe.inbox.stats("broken").size == 1
    broken.unlink()
    ingest_batch(pipe.ingest_services, pipe.stores.workspace("broken"), now=1)
    with pipe.stores.workspace("broken").reading() as tx:
        assert tx.for_agent("ana").sessions.get("s").messages == 1


def test_a_broker_that_goes_away_after_the_commit_is_told_by_the_second_delivery(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a broker lost between commit and settle, when it is back, then nothing is doubled."""

    def gone(*_: Any, **__: Any) -> None:
        raise Unavailable("the broker does not answer")

    with monkeypatch.context() as patch:
        for name in ("settle", "release"):
            patch.setattr(WorkerInbox, name, gone)
        with pytest.raises(Unavailable):
            pipe.ingest()
    pipe.lose_worker()
    report = pipe.ingest()
    assert (report.stored, report.repeated) == (0, 3)
    assert pipe.contents() == ["one", "two", "three", "four", "five"]
    assert newest(pipe) == ["one", "two", "three", "four", "five"]


def test_opening_the_same_data_twice_shows_the_same_messages(pipe: Pipeline, tmp_path: Path) -> None:
    """Given what one process stored, when another opens the folder, then it is there."""
    pipe.settle()
    other = Stores(tmp_path / "data")
    with other.workspace(WORKSPACE).reading() as tx:
        assert tx.for_agent("ana").sessions.get("s").messages == 5
    other.close()
