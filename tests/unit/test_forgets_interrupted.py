"""What is forgotten in several places is finished after a kill, and nothing that came afterwards goes with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.pipeline.ingest import ingest_batch
from memory.sessions import forgetting
from memory.sessions.forgetting import ForgetServices, finish_forgets, forget_session, forget_workspace
from reverie.clock import now_micros
from reverie.errors import StoreUnavailable
from storage.sessions.forgotten import STEP_ROWS
from storage.stores import Stores
from storage.upkeep.verify import verify
from support.pipeline import WORKSPACE, Pipeline

LATER = 3_600 * 1_000_000


class Killed(BaseException):
    """Stands for a SIGKILL: no handler of the product catches it."""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def finish(pipe: Pipeline) -> dict[str, int]:
    services = ForgetServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls)
    return finish_forgets(services, now=now_micros() + LATER)


def kill(*_: object, **__: object) -> None:
    raise Killed


def test_a_kill_before_the_accounts_part_is_made_up_for(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a process killed between the two databases, then a sweep forgets the account's part, once."""
    pipe.say("secret")
    pipe.settle()
    asked: list[tuple[str, str | None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "forget_in_account", kill)
        with pytest.raises(Killed):
            forget_session(pipe.stores, pipe.store, pipe.inbox, pipe.working, agent="ana", session="s")
    monkeypatch.setattr(
        forgetting, "forget_in_account", lambda _, *, agent, workspace, session: asked.append((agent, session))
    )
    services = ForgetServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls)
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
            forget_workspace(pipe.stores, pipe.inbox, pipe.working, pipe.recalls, workspace=WORKSPACE)
    assert finish(pipe)["forgets_finished"] == 1
    assert pipe.stores.names() == []
    assert not (pipe.stores.data_dir / "deleted").exists()


def test_a_deletion_that_was_killed_takes_no_later_workspace(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a workspace deleted by a process that was killed then, and begun anew, then the sweep keeps the new one."""
    pipe.say("secret")
    pipe.settle()
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "_forget_rest_of_workspace", kill)
        with pytest.raises(Killed):
            forget_workspace(pipe.stores, pipe.inbox, pipe.working, pipe.recalls, workspace=WORKSPACE)
    pipe.say("hello again")
    ingest_batch(pipe.inbox, pipe.stores.workspace(WORKSPACE), pipe.working, now=pipe.now())
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
    assert forget_workspace(pipe.stores, pipe.inbox, pipe.working, pipe.recalls, workspace=WORKSPACE)
    monkeypatch.undo()
    with pytest.raises(StoreUnavailable, match="was deleted a moment ago"):
        ingest_batch(pipe.inbox, old, pipe.working, now=pipe.now())
    theirs.close()
    pipe.broker.delete(*pipe.broker.keys("*:pause"))
    assert ingest_batch(pipe.inbox, pipe.stores.workspace(WORKSPACE), pipe.working, now=pipe.now()).stored == 1
    with pipe.stores.workspace(WORKSPACE).reading() as tx:
        rows = tx.for_agent("ana")
        found = rows.messages.in_session(rows.sessions.get("s").row_id, limit=10)
    assert [message.content for message in found] == ["new"]


def test_a_writer_that_waits_for_the_lock_while_a_workspace_is_deleted_is_refused(tmp_path: Path) -> None:
    """Given a deletion that holds the lock, then a writer of another process commits nothing to the deleted file."""
    mine, theirs = Stores(tmp_path), Stores(tmp_path)
    store = theirs.workspace("ws")

    def write_meanwhile() -> None:
        with pytest.raises(StoreUnavailable), store.writing(lock_wait_seconds=0.0):
            pytest.fail("the lock is held")

    assert mine.delete_workspace("ws", when_closed=write_meanwhile)
    with pytest.raises(StoreUnavailable, match="deleted a moment ago"), store.writing():
        pytest.fail("nothing may be written")
    theirs.workspace("ws")
    with pytest.raises(StoreUnavailable, match="deleted a moment ago"), store.writing():
        pytest.fail("nothing may be written")
    with theirs.workspace("ws").writing() as tx:
        tx.for_agent("ana").sessions.ensure("s", now=1)
    theirs.close()
    mine.close()


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
        patch.setattr(forgetting, "_remove_rows", kill)
        with pytest.raises(Killed):
            pipe.forget()
    assert pipe.count("messages") == 401, "nothing is removed yet"
    with pipe.store.reading() as tx:
        rows = tx.for_agent("ana")
        assert [session.id for session in rows.sessions.list()] == ["other"]
        assert rows.messages.with_ids(ids) == {}
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
    monkeypatch.setattr(forgetting, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(forgetting.time, "sleep", lambda _: left.append(pipe.count("chunks")))
    assert pipe.forget()
    assert left[0] == 400
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) <= STEP_ROWS
    assert pipe.count("sessions") == 0
