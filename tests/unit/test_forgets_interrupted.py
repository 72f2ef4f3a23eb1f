"""What is forgotten in several places is finished after a kill, and nothing that came afterwards goes with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory.lifecycle import forgetting
from memory.lifecycle.forgetting import RemovalServices, finish_forgets, forget_session, forget_workspace
from memory.memories.agent_memories import forget_in_account
from memory.pipeline.ingest import ingest_batch
from reverie.clock import now_micros
from reverie.errors import StoreUnavailable
from storage.memories.records import NewMemory
from storage.sessions.sessions import STEP_ROWS
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.verify import verify
from support.extracting import Extracting, tell
from support.pipeline import WORKSPACE, Pipeline

LATER = 3_600 * 1_000_000


class Killed(BaseException):
    """Stands for a SIGKILL: no handler of the product catches it."""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def finish(pipe: Pipeline) -> dict[str, Any]:
    services = RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls)
    return finish_forgets(services, now=now_micros() + LATER)


def kill(*_: object, **__: object) -> None:
    raise Killed


def test_a_kill_before_the_accounts_part_is_made_up_for(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a process killed between the two databases, then a sweep forgets the account's part, once."""
    pipe.say("secret")
    pipe.settle()
    asked: list[tuple[str, str | None]] = []

    def ask(_: object, *, agent: str, session: str, **__: object) -> int:
        asked.append((agent, session))
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "forget_in_account", kill)
        with pytest.raises(Killed):
            forget_session(pipe.stores, pipe.store, pipe.inbox, pipe.working, agent="ana", session="s")
    monkeypatch.setattr(forgetting, "forget_in_account", ask)
    services = RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls)
    assert finish_forgets(services, now=now_micros()) == {}, "it may still be worked on"
    assert finish(pipe) == {"forgets_finished": 1}
    assert asked == [("ana", "s")]
    assert finish(pipe) == {}


def test_a_kill_before_the_stores_part_is_made_up_for(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a process killed before the session was deleted, then the sweep deletes it."""
    pipe.say("secret")
    pipe.settle()
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "_forget_in_store", kill)
        with pytest.raises(Killed):
            forget_session(pipe.stores, pipe.store, pipe.inbox, pipe.working, agent="ana", session="s")
    assert pipe.count("messages") == 1
    assert finish(pipe) == {"forgets_finished": 1}
    assert pipe.count("messages") == 0


def test_one_that_cannot_be_finished_is_named_with_its_error(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an interrupted forget whose rest fails for an hour, then the sweep names it, and not after two minutes."""
    pipe.say("secret")
    pipe.settle()
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "forget_in_account", kill)
        with pytest.raises(Killed):
            forget_session(pipe.stores, pipe.store, pipe.inbox, pipe.working, agent="ana", session="s")

    def fails(*_: object, **__: object) -> int:
        raise StoreUnavailable("the account is locked")

    monkeypatch.setattr(forgetting, "forget_in_account", fails)
    services = RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls)
    assert finish_forgets(services, now=now_micros() + 120_000_000) == {"forgets_waiting": 1}
    assert finish(pipe) == {"forgets_waiting": 1, "late_forgets": {"forget 1": "the account is locked"}}


def test_what_was_said_after_a_kill_stays(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a session that was deleted, and begun again before the sweep, then the sweep keeps the new one."""
    pipe.say("secret")
    pipe.settle()
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "forget_in_account", kill)
        with pytest.raises(Killed):
            forget_session(pipe.stores, pipe.store, pipe.inbox, pipe.working, agent="ana", session="s")
    pipe.say("hello again")
    pipe.settle()
    assert finish(pipe) == {"forgets_finished": 1}
    assert pipe.count("messages") == 1


def test_a_refused_forget_is_not_done_later(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a store that cannot be written, then the caller is told, and no sweep forgets behind its back."""
    pipe.say("keep")
    pipe.settle()

    def refuse(*_: object) -> bool:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "_forget_in_store", refuse)
        with pytest.raises(StoreUnavailable):
            forget_session(pipe.stores, pipe.store, pipe.inbox, pipe.working, agent="ana", session="s")
    assert finish(pipe) == {}
    assert pipe.count("messages") == 1


@pytest.mark.parametrize("step", ["_set_aside", "_remove"])
def test_a_deletion_that_was_killed_is_finished(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Given a kill before or after the rename of a workspace, then the sweep deletes it and its files."""
    pipe.say("secret")
    pipe.settle()
    with monkeypatch.context() as patch:
        if step == "_set_aside":
            patch.setattr(Stores, "_set_aside", kill)
        else:
            patch.setattr("storage.stores._remove", kill)
        with pytest.raises(Killed):
            forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    assert finish(pipe)["forgets_finished"] == 1
    assert pipe.stores.names() == []
    assert not (pipe.stores.data_dir / "deleted").exists()


def test_a_deletion_that_was_killed_takes_no_later_workspace(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a workspace deleted by a process that was killed then, and begun anew, then the sweep keeps the new one."""
    pipe.say("secret")
    pipe.settle()
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "forget_in_account", kill)
        with pytest.raises(Killed):
            forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    pipe.say("hello again")
    ingest_batch(pipe.ingest_services, pipe.stores.workspace(WORKSPACE), now=pipe.now())
    assert finish(pipe) == {"forgets_finished": 1}
    with pipe.stores.workspace(WORKSPACE, create=False).reading() as tx:
        assert tx.for_agent("ana").sessions.find("s") is not None


def test_a_message_accepted_during_a_deletion_is_in_the_new_workspace(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a worker that has opened the old file, when a message comes after the deletion, then it is not lost."""
    pipe.say("old")
    pipe.settle()
    theirs = Stores(pipe.stores.data_dir)
    old = theirs.workspace(WORKSPACE)
    inbox_forgotten = pipe.inbox.forget_workspace

    def then_accept(workspace: str) -> None:
        inbox_forgotten(workspace)
        pipe.say("new")  # accepted while the files are still in their place

    monkeypatch.setattr(pipe.inbox, "forget_workspace", then_accept)
    assert forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    monkeypatch.undo()
    with pytest.raises(StoreUnavailable, match="was deleted a moment ago"):
        ingest_batch(pipe.ingest_services, old, now=pipe.now())
    theirs.close()
    pipe.broker.delete(*pipe.broker.keys("*:pause"))
    assert ingest_batch(pipe.ingest_services, pipe.stores.workspace(WORKSPACE), now=pipe.now()).stored == 1
    with pipe.stores.workspace(WORKSPACE).reading() as tx:
        rows = tx.for_agent("ana")
        found = rows.messages.in_session(rows.sessions.get("s").row_id, limit=10)
    assert [message.content for message in found] == ["new"]


@pytest.mark.parametrize("is_inode_given_again", [False, True])
def test_a_writer_that_waits_for_the_lock_while_a_workspace_is_deleted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_inode_given_again: bool
) -> None:
    """Given a deletion that holds the lock, then a writer of another process commits nothing to the deleted file, nor
    to the next one in its place, to which the file system may give its inode."""
    mine, theirs = Stores(tmp_path), Stores(tmp_path)
    store = theirs.workspace("ws")
    inode = store.inode

    def write_meanwhile() -> None:
        with pytest.raises(StoreUnavailable), store.writing(lock_wait_seconds=0.0):
            pytest.fail("the lock is held")

    assert mine.delete_workspace("ws", when_closed=write_meanwhile)
    with pytest.raises(StoreUnavailable, match="deleted a moment ago"), store.writing():
        pytest.fail("nothing may be written")
    theirs.workspace("ws")
    if is_inode_given_again:
        monkeypatch.setattr("storage.engine._inode", lambda _path: inode)
    with pytest.raises(StoreUnavailable, match="deleted a moment ago"), store.writing():
        pytest.fail("nothing may be written")
    monkeypatch.undo()
    with theirs.workspace("ws").writing() as tx:
        tx.for_agent("ana").sessions.ensure("s", now=1)
    theirs.close()
    mine.close()


@pytest.mark.sqlite("damages a file")
def test_a_damaged_workspace_can_be_deleted(tmp_path: Path) -> None:
    """Given a garbage file, then deleting the workspace removes it."""
    stores = Stores(tmp_path)
    path = stores.database_path("garbage")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 1_000)
    assert stores.delete_workspace("garbage")
    assert stores.names() == []
    stores.close()


def say_much(pipe: Pipeline, count: int = 400) -> list[str]:
    said = [pipe.say(f"the harbour has pier number {number}") for number in range(count)]
    pipe.settle()
    return [ids[0] for ids in said]


def recalled(pipe: Pipeline) -> int:
    return len(pipe.recall("which pier does the harbour have?").results)


def test_a_large_session_is_gone_at_once_and_its_rows_in_short_steps(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a kill right after a large session was forgotten, then nobody finds anything of it, and a sweep cleans."""
    ids = say_much(pipe)
    pipe.say("the pier is closed", session="other")
    pipe.settle()
    assert recalled(pipe) > 1
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "remove_forgotten", kill)
        with pytest.raises(Killed):
            pipe.forget()
    assert pipe.count("messages") == 401, "nothing is removed yet"
    with pipe.store.reading() as tx:
        rows = tx.for_agent("ana")
        assert [session.id for session in rows.sessions.list()] == ["other"]
        assert [rows.messages.with_id(one) for one in ids] == [[]] * len(ids)
        assert tx.retention.expired(before=2**60, limit=1) == []
    assert recalled(pipe) == 1
    assert verify(pipe.store).wrong == []

    pipe.say({"content": "hello again", "id": ids[0]})  # an id of a forgotten message, and the id of its session
    pipe.settle()
    with pipe.store.reading() as tx:
        rows = tx.for_agent("ana")
        found = rows.messages.in_session(rows.sessions.get("s").row_id, limit=10)
    assert [(message.id, message.content) for message in found] == [(ids[0], "hello again")]

    assert finish(pipe) == {"forgets_finished": 1}
    assert (pipe.count("messages"), pipe.count("sessions")) == (2, 2)
    assert verify(pipe.store).wrong == []


def test_a_step_removes_few_rows(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a large session, then no transaction removes more than a step's rows."""
    say_much(pipe)
    left = [pipe.count("chunks")]
    monkeypatch.setattr("memory.lifecycle.forgetting.time.sleep", lambda _: left.append(pipe.count("chunks")))
    assert pipe.forget()
    assert left[0] == 400
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) <= STEP_ROWS
    assert pipe.count("sessions") == 0


def kill_in_account(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, forget: Callable[[], object]) -> None:
    """Forget in a process that is killed before the account's part."""
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "forget_in_account", kill)
        with pytest.raises(Killed):
            forget()


@pytest.mark.parametrize("whole_workspace", [False, True])
def test_what_the_account_learned_after_a_kill_stays(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, whole_workspace: bool
) -> None:
    """Given a kill before the account's part, and a session begun again under its id, then only what came before goes.

    What is said again counts as said after it.
    """
    old, again, new = "answer me in Portuguese", "answer with care", "answer in metric units"
    tell(pipe, f"From now on {old} in all my projects", f"From now on {again} in all my projects")
    extracting = Extracting(pipe)
    extracting.sweep()
    assert len(extracting.contents(account=True)) == 2

    def forget() -> object:
        if whole_workspace:
            return forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
        return pipe.forget()

    kill_in_account(pipe, monkeypatch, forget)
    tell(pipe, f"From now on {again} in all my projects", f"From now on {new} in all my projects")
    extracting.sweep()
    assert finish(pipe) == {"forgets_finished": 1}
    extracting.sweep()
    assert sorted(extracting.contents(account=True)) == [
        "Answer in metric units in all my projects.",
        "Answer with care in all my projects.",
    ]
    with pipe.stores.account_store().reading() as tx:
        entries = tx.for_agent("ana").curation.page()
        assert not any("Portuguese" in str(tx.curation.changes(entry.id)) for entry in entries)


def test_the_accounts_part_goes_in_short_transactions(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given many memories of the account from one session, then none of the transactions that delete them is long."""
    account = pipe.stores.account_store()
    with account.writing() as tx:
        for number in range(250):
            metadata = {"workspace": WORKSPACE, "session": "s", "ref_code": "gone"}
            memory = NewMemory(
                id=f"m{number}", content=f"wish {number}", tier="account", created_at=1, metadata=metadata
            )
            tx.for_agent("ana").memories.add(memory, now=1)
    left: list[int] = []
    writing = type(account).writing

    @contextmanager
    def counted(store: Store, **more: Any) -> Iterator[Transaction]:
        with writing(store, **more) as tx:
            yield tx
            left.append(int(tx.connection.exec_driver_sql("SELECT count(*) FROM memories").scalar_one()))

    monkeypatch.setattr(type(account), "writing", counted)
    assert forget_in_account(account, agent="ana", workspace=WORKSPACE, session="s") == 250
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) <= 100


def test_what_was_noted_before_the_clock_was_set_back_is_finished(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a forget that was killed an hour ahead of the present clock, then the sweep does not wait an hour."""
    pipe.say("secret")
    pipe.settle()
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "now_micros", lambda: now_micros() + LATER)
        kill_in_account(pipe, monkeypatch, pipe.forget)
    services = RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls)
    assert finish_forgets(services, now=now_micros()) == {"forgets_finished": 1}
