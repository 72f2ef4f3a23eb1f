"""What can never be stored is set aside with its error, one item at a time, while the rest of its batch is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.pipeline.dead_letters import drop, replay
from reverie.errors import Conflict, NotFound
from support.pipeline import PREFIX, WORKSPACE, Pipeline, as_json, turns

DEEP = b'{"type":"message","metadata":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with a good message on either side of whatever comes."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("good before")
    yield pipe
    pipe.close()


def payload(**changes: object) -> bytes:
    return as_json(turns({"id": "bad", "content": "bad"})[0], **changes)


@pytest.mark.parametrize(
    ("garbage", "error"),
    [
        (b"", "cannot be read"),
        (b"not json", "cannot be read"),
        (b'{"type":"message","id":"bad"', "cannot be read"),
        (b"[1, 2, 3]", "cannot be read"),
        (b"\xff\xfe\xfd", "cannot be read"),
        (payload()[:-2] + b'\xff"}', "cannot be read"),
        (DEEP, "cannot be read"),
        (payload(metadata={"a": None}).replace(b"null", b"[" * 40 + b"]" * 40), "nested more than 32 levels"),
        (payload(agent="mallory"), "differ from those it was accepted under"),
        (payload(id="another"), "differ from those it was accepted under"),
        (payload(v=2), "newer than 1: upgrade the workers"),
        (payload(content="a\x00b"), "NUL character"),
        (payload(role="wizard"), "cannot be read: Invalid enum value 'wizard'"),
        (payload(content=7), "cannot be read: Expected `str`"),
        (payload(content=""), "content is empty"),
        (payload(content="x" * (1024 * 1024 + 1)), "the limit is 1,048,576"),
        (payload(content="\\ud800").replace(b"\\\\", b"\\"), "cannot be read"),
        (payload(importance=1.5), "importance is 1.5"),
        (payload(sequence=0), "sequence must be a whole number from 1"),
        (payload(sequence=2**70), "sequence must be a whole number from 1"),
        (payload(created_at=2**62), "created_at is outside"),
        (payload(tags=["Not Trimmed "]), "tags must be trimmed"),
        (payload(session=""), "session must be a text that is not blank"),
        (payload(type="spell"), "cannot be read: Invalid value 'spell'"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[:30],
)
def test_garbage_becomes_one_dead_letter_and_the_rest_is_stored(pipe: Pipeline, garbage: bytes, error: str) -> None:
    """Given something in the inbox that cannot be stored, when ingested, then the good ones around it are."""
    pipe.smuggle(garbage, item_id="bad")
    pipe.say("good after")
    report = pipe.ingest()
    assert (report.taken, report.stored, report.dead) == (3, 2, 1)
    assert pipe.contents() == ["good before", "good after"]
    (letter,) = pipe.dead_letters()
    assert error in letter.error
    assert (letter.agent, letter.item_id, letter.stage, letter.payload) == ("ana", "bad", "ingest", garbage)
    assert pipe.waiting_in_inbox() == 0


@pytest.mark.parametrize("stamp", [b"", b"garbage ", b"0 ", b"-5 ", b"9" * 5_000 + b" ", b"9" * 20 + b" ", b"\xff "])
def test_a_value_without_our_time_is_set_aside_and_holds_up_nobody(pipe: Pipeline, stamp: bytes) -> None:
    """Given a whole payload that was not put there by Reverie, when ingested, then it is not lost in silence."""
    pipe.smuggle(payload(), item_id="bad", stamp=stamp)
    pipe.inbox.take(WORKSPACE, limit=10)
    pipe.lose_worker()  # a worker that died with it must not make it a stone in everybody's way
    report = pipe.ingest()
    assert (report.stored, report.dead, report.forgotten) == (1, 1, 0)
    assert "not put into the inbox by Reverie" in pipe.dead_letters()[0].error
    assert pipe.waiting_in_inbox() == 0


@pytest.mark.parametrize("field", [b"no separator", b"\xff\xfe\x1fx", b"\x1f", b"a\x1fb\x1fc"])
def test_a_field_that_names_no_agent_is_set_aside_too(pipe: Pipeline, field: bytes) -> None:
    """Given an item under a name of another form, when ingested, then it is a dead letter and leaves the inbox."""
    pipe.broker.hset(f"{PREFIX}inbox:{WORKSPACE}", field, b"1 {}")
    pipe.broker.zadd(f"{PREFIX}inbox:{WORKSPACE}:due", {field: 1})
    report = pipe.ingest()
    assert (report.stored, report.dead) == (1, 1)
    assert pipe.waiting_in_inbox() == 0


def test_the_dead_letters_of_one_agent_are_not_shown_to_another(pipe: Pipeline) -> None:
    """Given garbage of two agents, when one lists, reads or drops, then it meets its own alone."""
    pipe.smuggle(b"nonsense", item_id="bad", agent="ana")
    pipe.smuggle(b"nonsense", item_id="bad", agent="bob")
    pipe.ingest()
    theirs = next(letter.id for letter in pipe.dead_letters() if letter.agent == "bob")
    with pipe.store.reading() as tx:
        assert [letter.agent for letter in tx.for_agent("ana").dead_letters.list()] == ["ana"]
        assert tx.for_agent("ana").dead_letters.count() == 1
        assert tx.dead_letters.count() == 2
    with pytest.raises(NotFound):
        replay(pipe.store, pipe.inbox, theirs, agent="ana")
    with pytest.raises(NotFound):
        drop(pipe.store, theirs, agent="ana")
    assert len(pipe.dead_letters()) == 2


def test_a_dead_letter_whose_cause_is_gone_is_stored_when_it_is_replayed(pipe: Pipeline) -> None:
    """Given a clash of sequences, when the other session is gone and the letter is replayed, then it is stored."""
    pipe.settle()
    pipe.say({"content": "clash", "sequence": 1}, session="s")
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("DELETE FROM messages")
    replay(pipe.store, pipe.inbox, letter.id)
    assert (pipe.dead_letters(), pipe.waiting_in_inbox()) == ([letter], 1)
    pipe.ingest()
    assert (pipe.contents(), pipe.dead_letters()) == (["clash"], [])


def test_a_dead_letter_that_fails_again_comes_back_once(pipe: Pipeline) -> None:
    """Given a cause that is still there, when replayed twice, then there is one letter, with its newest error."""
    pipe.settle()
    pipe.say({"content": "clash", "sequence": 1})
    pipe.ingest()
    for _ in range(2):
        (letter,) = pipe.dead_letters()
        replay(pipe.store, pipe.inbox, letter.id)
        pipe.ingest()
    assert [letter.error_type for letter in pipe.dead_letters()] == ["Conflict"]


def test_a_letter_that_fails_again_before_its_replay_has_ended_is_kept(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a worker that takes a replayed item at once and fails with it again, then its letter is still there."""
    pipe.say({"content": "one", "sequence": 5}, {"content": "two", "sequence": 5})
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    clear_notification = pipe.inbox.clear_notification

    def and_a_worker_comes(task: str, workspace: str) -> None:
        clear_notification(task, workspace)
        pipe.ingest()

    monkeypatch.setattr(pipe.inbox, "clear_notification", and_a_worker_comes)
    replay(pipe.store, pipe.inbox, letter.id)
    assert pipe.waiting_in_inbox() == 0
    assert [kept.item_id for kept in pipe.dead_letters()] == [letter.item_id]


def test_a_letter_that_is_replayed_twice_is_stored_once(pipe: Pipeline) -> None:
    """Given a replay that was cut off, whose payload is in the inbox, when replayed again, then it is stored once."""
    pipe.settle()
    pipe.say({"content": "clash", "sequence": 1})
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    replay(pipe.store, pipe.inbox, letter.id)
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("DELETE FROM messages")
    replay(pipe.store, pipe.inbox, letter.id)
    pipe.settle()
    assert pipe.contents() == ["clash"]
    assert pipe.dead_letters() == []


@pytest.mark.parametrize(
    ("garbage", "error"),
    [
        (b"nonsense", "cannot be read"),
        (payload(v=2, news="only version 2 knows this"), "upgrade this one first"),
        (payload(agent="mallory"), "contains a message of agent 'mallory'"),
    ],
    ids=["unreadable", "newer", "another agent's"],
)
def test_what_cannot_be_replayed_says_why_and_stays(pipe: Pipeline, garbage: bytes, error: str) -> None:
    """Given a letter that a replay would lose, spoil or hand to another agent, then it stays until it is dropped."""
    pipe.smuggle(garbage, item_id="bad")
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    with pytest.raises(Conflict, match=error):
        replay(pipe.store, pipe.inbox, letter.id)
    assert pipe.dead_letters() == [letter]
    assert pipe.waiting_in_inbox() == 0
    assert drop(pipe.store, letter.id) == letter
    assert pipe.dead_letters() == []
    with pytest.raises(NotFound):
        drop(pipe.store, letter.id)
