"""Forgetting wins over everything in flight, and what is sent afterwards begins anew."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.embedders.base import HashEmbedder
from memory.lifecycle import forgetting
from memory.lifecycle.forgetting import RemovalServices, forget_workspace
from memory.pipeline import chunking
from memory.pipeline.dead_letters import replay
from memory.pipeline.ingest import ingest_batch
from memory.sessions.sessions import newest_messages
from reverie.contract import MAX_WAIT_SECONDS
from reverie.errors import NotFound
from reverie.pipeline.inbox import REPLY_SECONDS
from storage.pipeline.work import STAGES
from storage.verify import verify
from support.pipeline import PREFIX, WORKSPACE, Pipeline, as_json, turns

TABLES = (
    "sessions",
    "messages",
    "chunks",
    "chunks_vec",
    "message_chunks",
    "chunk_tags",
    "files",
    "claims",
    "dead_letters",
)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def assert_nothing_left(pipe: Pipeline) -> None:
    assert {table: pipe.count(table) for table in TABLES} == dict.fromkeys(TABLES, 0)
    with pipe.store.reading() as tx:
        generation = tx.index.active("vector")
        assert generation is None or tx.index.vector_ids(generation) == set()
        assert tx.work.is_idle(STAGES)
    assert pipe.cached() is None
    assert pipe.waiting_in_inbox() == 0
    assert verify(pipe.store).wrong == []


def test_a_message_still_in_the_inbox_is_not_stored(pipe: Pipeline) -> None:
    """Given accepted messages and a file, when the session is forgotten first, then none is ever stored."""
    pipe.say("secret")
    pipe.hand_in("file:///secret", "secret", session="s")
    assert not pipe.forget(), "the store had none of it yet"
    report = pipe.ingest()
    assert (report.stored, report.forgotten) == (0, 2)
    pipe.settle()
    assert_nothing_left(pipe)


def test_a_message_that_is_being_stored_is_not_kept(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given items that a worker has taken, when the session is forgotten before its commit, then they are gone."""
    pipe.say("secret")
    take = pipe.inbox.take

    def forget_meanwhile(workspace: str, *, limit: int) -> object:
        taken = take(workspace, limit=limit)
        pipe.forget()
        return taken

    monkeypatch.setattr(pipe.inbox, "take", forget_meanwhile)
    assert ingest_batch(pipe.ingest_services, pipe.store, now=1).forgotten == 1
    assert_nothing_left(pipe)


def test_a_message_that_is_being_chunked_leaves_nothing(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a chunker at work, when the session is forgotten meanwhile, then no chunk is stored."""
    pipe.say({"content": "secret", "tags": ["t"]})
    pipe.hand_in("file:///secret", "secret", session="s")
    pipe.ingest()
    monkeypatch.setattr(chunking, "cut", after(pipe.forget, chunking.cut))
    pipe.chunk()
    assert_nothing_left(pipe)


def test_a_chunk_that_is_being_embedded_leaves_nothing(pipe: Pipeline) -> None:
    """Given a model at work, when the session is forgotten meanwhile, then no vector is stored."""

    class Forgetful(HashEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            pipe.forget()
            return super().embed(texts)

    pipe.say("secret")
    pipe.ingest()
    pipe.chunk()
    assert pipe.embed(Forgetful()).done == 0
    assert_nothing_left(pipe)


def test_a_chunk_forgotten_right_after_it_was_claimed_is_no_trouble(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a claim whose rows are gone before they are read, when the stages go on, then they find nothing."""
    pipe.say("secret")
    pipe.ingest()
    pipe.chunk()
    with pipe.store.writing() as tx:
        claim = tx.work.claim("embed", now=pipe.now(), lease_seconds=10, limit=9)
    pipe.forget()
    assert claim is not None
    assert pipe.embed().done == 0
    assert_nothing_left(pipe)


def test_a_vector_that_is_being_indexed_leaves_nothing(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an indexer that has claimed, when the session is forgotten before it writes, then nothing is indexed."""
    pipe.say("secret")
    pipe.ingest()
    pipe.chunk()
    pipe.embed()
    claim = type(pipe.store).writing
    calls: list[int] = []

    def writing(self: object, **options: float) -> object:
        calls.append(1)
        if len(calls) == 2:  # between the claim and the work
            monkeypatch.setattr(type(pipe.store), "writing", claim)
            pipe.forget()
        return claim(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(type(pipe.store), "writing", writing)
    assert pipe.index().done == 0
    assert len(calls) == 2
    assert_nothing_left(pipe)


@pytest.mark.parametrize("stages", range(5))
def test_a_session_forgotten_at_any_stage_leaves_nothing(pipe: Pipeline, stages: int) -> None:
    """Given a session that has come so far, when it is forgotten and the pipeline goes on, then nothing is left."""
    pipe.say({"content": "secret", "tags": ["t"]}, "secret two", "secret")
    pipe.hand_in("file:///secret", "secret " * 300, session="s")
    for stage in [pipe.ingest, pipe.chunk, pipe.embed, pipe.index][:stages]:
        stage()
    pipe.forget()
    pipe.settle()
    assert_nothing_left(pipe)
    assert pipe.found("secret") == []


def test_what_is_sent_after_forgetting_begins_a_new_session(pipe: Pipeline) -> None:
    """Given a forgotten session, when the same id, and even the same message, is sent again, then it starts anew."""
    pipe.say({"id": "x", "content": "before"}, "and more")
    pipe.settle()
    pipe.forget()
    pipe.say({"id": "x", "content": "after"})
    pipe.settle()
    assert pipe.contents() == ["after"]
    assert [message.sequence for message in pipe.messages()] == [1]
    assert (pipe.found("before"), pipe.found("after")) == ([], ["after"])
    assert verify(pipe.store).wrong == []


def test_a_message_on_its_way_under_the_chat_alone_is_kept_out_too(pipe: Pipeline) -> None:
    """Given a session known by id and chat, when it is forgotten, then an item that names only the chat is too."""
    pipe.say("one", session="mine", provider="telegram", chat_id="7")
    pipe.settle()
    pipe.say("secret", session=None, provider="telegram", chat_id="7")
    assert pipe.forget("mine")
    assert pipe.ingest().forgotten == 1
    assert_nothing_left(pipe)


def test_dead_letters_of_a_forgotten_session_go_with_it(pipe: Pipeline) -> None:
    """Given letters that name the session by id, by chat, or only in a payload at fault, then all of them go."""
    pipe.say({"content": "one", "sequence": 1}, session="mine", provider="telegram", chat_id="7")
    pipe.ingest()
    pipe.say({"content": "secret", "sequence": 1}, session=None, provider="telegram", chat_id="7")
    for number, change in enumerate(({"role": "wizard"}, {"importance": 7}, {"v": 99})):
        (payload,) = turns({"id": f"bad{number}", "content": "secret"}, session="mine")
        pipe.smuggle(as_json(payload, **change), item_id=f"bad{number}")
    pipe.say({"content": "secret", "sequence": 1}, session="mine")
    pipe.ingest()
    assert len(pipe.dead_letters()) == 5
    pipe.forget("mine")
    assert_nothing_left(pipe)


def test_a_payload_at_fault_that_comes_after_forgetting_leaves_no_dead_letter(pipe: Pipeline) -> None:
    """Given a payload that can never be stored, when its session is forgotten first, then its text is kept nowhere."""
    (payload,) = turns({"id": "bad", "content": "secret"})
    pipe.smuggle(as_json(payload, role="wizard"), item_id="bad")
    pipe.forget()
    report = pipe.ingest()
    assert (report.forgotten, report.dead) == (1, 0)
    assert_nothing_left(pipe)


def test_a_row_set_aside_while_its_session_is_forgotten_leaves_no_dead_letter(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a row that killed its worker thrice, when it is buried just after, then nothing is left."""
    pipe.say("secret")
    pipe.ingest()
    for _ in range(3):
        with pipe.store.writing() as tx:
            tx.work.claim("chunk", now=pipe.now(), lease_seconds=1, limit=1)
        pipe.advance(2)
    monkeypatch.setattr(chunking, "crash_error", after(pipe.forget, chunking.crash_error))
    pipe.chunk()
    assert_nothing_left(pipe)


def test_a_replayed_letter_of_a_session_forgotten_meanwhile_is_not_found(pipe: Pipeline) -> None:
    """Given a letter that went with its session, when it is replayed, then there is none."""
    pipe.say({"content": "one", "sequence": 1})
    pipe.ingest()
    pipe.say({"content": "secret", "sequence": 1})
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    pipe.forget()
    with pytest.raises(NotFound):
        replay(pipe.store, pipe.inbox, letter.id)
    assert_nothing_left(pipe)


def test_a_letter_that_is_being_replayed_while_its_session_is_forgotten_does_not_come_back(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a letter that was read for its replay, when its session is forgotten now, then it is stored no more."""
    pipe.say({"content": "one", "sequence": 1})
    pipe.ingest()
    pipe.say({"content": "secret", "sequence": 1})
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    accept = pipe.inbox.accept

    def forget_first(*given: object, **named: object) -> tuple[int, bool]:
        pipe.forget()
        return accept(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(pipe.inbox, "accept", forget_first)
    replay(pipe.store, pipe.inbox, letter.id)
    pipe.settle()
    assert_nothing_left(pipe)


def test_what_was_waited_for_in_vain_is_swept_away(pipe: Pipeline) -> None:
    """Given a producer that waits for a message of a session forgotten meanwhile, then its note does not stay."""
    pipe.inbox.accept(WORKSPACE, turns("secret"), reply_to="r", wait="searchable")
    pipe.ingest()
    pipe.forget()
    left = pipe.broker.ttl(f"{PREFIX}inbox:{WORKSPACE}:waiting")
    assert MAX_WAIT_SECONDS < left <= REPLY_SECONDS


def test_forgetting_twice_is_forgetting_once(pipe: Pipeline) -> None:
    """Given a forgotten session, when it is forgotten again, then it says that there was none."""
    pipe.say("secret")
    pipe.settle()
    assert (pipe.forget(), pipe.forget()) == (True, False)
    assert_nothing_left(pipe)


@pytest.mark.parametrize("dies_in", ["first drop", "second drop"])
def test_forgetting_cut_off_between_its_steps_can_be_done_again(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    """Given a process killed while it forgets, when it is asked again, then nothing is left, nor in working memory."""
    pipe.say("secret")
    pipe.settle()
    newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    drop, calls = pipe.working.drop, []

    def drop_and_die(workspace: str, sessions: Sequence[tuple[str, str]]) -> None:
        calls.append(1)
        if len(calls) == (1 if dies_in == "first drop" else 2):
            raise KeyboardInterrupt
        drop(workspace, sessions)

    with monkeypatch.context() as patch:
        patch.setattr(pipe.working, "drop", drop_and_die)
        with pytest.raises(KeyboardInterrupt):
            pipe.forget()
    assert pipe.forget() is (dies_in == "first drop")
    assert_nothing_left(pipe)


def test_a_deleted_workspace_leaves_no_file_and_no_key(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a workspace with stored and waiting messages, when it is deleted, then nothing of it is anywhere."""
    pipe.say("stored")
    pipe.settle()
    newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    pipe.say("waiting")
    assert forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    assert list((tmp_path / "data" / "workspaces").iterdir()) == []
    left = [key for key in pipe.broker.keys(f"{PREFIX}*{WORKSPACE}*") if b"wake:" not in key]
    assert left == []
    assert pipe.inbox.workspaces() == []
    assert not forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)


def test_a_reader_of_a_workspace_that_is_being_deleted_leaves_nothing_in_working_memory(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a reader that fills working memory just before the files go, then what it put there goes too."""
    pipe.say("secret")
    pipe.settle()
    delete = pipe.stores.delete_workspace

    def read_and_delete(name: str, *, when_closed: Callable[[], None]) -> bool:
        def read_and_close() -> None:
            when_closed()
            newest_messages(pipe.store, pipe.working, agent="ana", session="s")

        return delete(name, when_closed=read_and_close)

    monkeypatch.setattr(pipe.stores, "delete_workspace", read_and_delete)
    forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    assert pipe.cached() is None


@pytest.mark.sqlite("a log that another process removes")
def test_a_file_that_another_process_removes_meanwhile_does_not_stop_a_deletion(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Given a worker that folds its log away while the folder is emptied, then the folder goes all the same."""
    pipe.say("secret")
    pipe.settle()
    unlink, raced = os.unlink, []

    def gone_already(path: str, *arguments: object, **keywords: object) -> None:
        unlink(path, *arguments, **keywords)  # type: ignore[arg-type]
        if not raced:
            raced.append(path)
            raise FileNotFoundError(path)

    monkeypatch.setattr(os, "unlink", gone_already)
    assert pipe.stores.delete_workspace(WORKSPACE)
    assert raced
    assert list((tmp_path / "data" / "workspaces").iterdir()) == []


def after(first: Callable[[], object], then: Callable[..., object]) -> Callable[..., object]:
    def run(*arguments: object) -> object:
        first()
        return then(*arguments)

    return run


def test_the_moment_of_forgetting_is_the_brokers(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a host whose clock is a day behind, when it forgets, then what was accepted before is kept out."""
    monkeypatch.setattr("reverie.clock.now_micros", lambda: 1)
    pipe.say("secret")
    forgetting.forget_session(pipe.stores, pipe.store, pipe.inbox, pipe.working, agent="ana", session="s")
    assert pipe.ingest().forgotten == 1
