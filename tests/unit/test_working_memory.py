"""Working memory is what the store says, or it is empty: never out of order, never double, never the forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.pipeline.ingest import ingest_batch
from memory.sessions.sessions import newest_messages
from reverie.errors import NotFound, Unavailable
from support.pipeline import WORKSPACE, Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with a session of two messages, in working memory."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say({"content": "one", "metadata": {"a": [1]}, "tags": ["t"], "name": "Zoë"}, "two")
    pipe.ingest()
    assert recent(pipe) == ["one", "two"]
    yield pipe
    pipe.close()


def recent(pipe: Pipeline) -> list[str]:
    return [m.content for m in newest_messages(pipe.store, pipe.working, agent="ana", session="s")]


def cached(pipe: Pipeline) -> list[str] | None:
    found = pipe.cached()
    return None if found is None else [message.content for message in found]


def at(micros: int, second: int = 0) -> datetime:
    return datetime(2031, 5, 1, 9, 30, second, micros, tzinfo=UTC)


def test_new_messages_are_there_without_asking_the_store(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a session in working memory, when more is stored, then it is read without touching the database."""
    pipe.say("three")
    pipe.ingest()
    messages = newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    monkeypatch.setattr("memory.sessions.sessions._newest_stored", lambda *_: pytest.fail("the store was asked"))
    assert newest_messages(pipe.store, pipe.working, agent="ana", session="s") == messages
    assert [message.content for message in messages] == ["one", "two", "three"]


def test_what_is_cached_equals_what_is_stored(pipe: Pipeline) -> None:
    """Given messages appended one by one, when the cache is dropped and filled anew, then not a field differs."""
    pipe.say({"content": "three", "importance": 0.25, "created_at": at(500_000)}, {"role": "tool", "content": "four"})
    pipe.say({"content": "five", "created_at": at(0, 7)})
    pipe.ingest()
    appended = newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    pipe.working.drop(WORKSPACE, [("ana", "s")])
    assert newest_messages(pipe.store, pipe.working, agent="ana", session="s") == appended


def test_only_the_newest_fifty_are_kept(pipe: Pipeline) -> None:
    """Given more messages than fit, appended and filled, then the newest 50 are there in order."""
    pipe.say(*[str(number) for number in range(70)])
    pipe.ingest()
    assert recent(pipe) == [str(number) for number in range(20, 70)]
    pipe.working.drop(WORKSPACE, [("ana", "s")])
    assert recent(pipe) == [str(number) for number in range(20, 70)]


def test_a_late_arrival_is_read_where_it_was_said(pipe: Pipeline) -> None:
    """Given a message older than the newest, when it is stored, then recent messages are in the order of the store."""
    pipe.say({"content": "in between", "created_at": datetime(2020, 1, 1, tzinfo=UTC)})
    pipe.ingest()
    assert recent(pipe) == pipe.contents() == ["in between", "one", "two"]


def test_times_of_whole_seconds_are_ordered_among_fractions(pipe: Pipeline) -> None:
    """Given times written with and without a fraction, when appended, then their order is that of time, not of text."""
    for number, moment in enumerate((at(0, 1), at(1, 1), at(999_999, 1), at(0, 2), at(500_000, 2))):
        pipe.say({"content": str(number), "created_at": moment})
        pipe.ingest()
        assert cached(pipe) == pipe.contents(), "appended, not dropped"
    assert recent(pipe) == ["one", "two", "0", "1", "2", "3", "4"]


def test_a_reader_who_fills_between_commit_and_append_makes_nothing_double(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a reader who fills from the store just before the worker appends, then no message is there twice."""
    append = pipe.working.append

    def fill_first(*arguments: object, **keywords: object) -> None:
        pipe.working.drop(WORKSPACE, [("ana", "elsewhere")])
        pipe.broker.delete(*pipe.broker.keys("test:working:*"))
        assert recent(pipe) == ["one", "two", "three"]
        append(*arguments, **keywords)  # type: ignore[arg-type]

    pipe.say("three")
    monkeypatch.setattr(pipe.working, "append", fill_first)
    pipe.ingest()
    assert recent(pipe) == ["one", "two", "three"]


def test_a_slow_reader_does_not_put_back_what_was_forgotten(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a reader who read the store before the session was forgotten, when it fills, then nothing is kept."""
    fill = pipe.working.fill
    pipe.working.drop(WORKSPACE, [("ana", "s")])

    def forget_first(*arguments: object, **keywords: object) -> None:
        pipe.forget()
        fill(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(pipe.working, "fill", forget_first)
    assert recent(pipe) == ["one", "two"], "what it read is what there was"
    assert pipe.cached() is None
    with pytest.raises(NotFound):
        recent(pipe)


def test_a_reader_who_read_before_the_commit_does_not_leave_out_the_message(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given no list, and a reader between the store and its fill when a message is stored, then nothing is filled."""
    fill = pipe.working.fill
    pipe.broker.delete(*pipe.broker.keys("test:working*"))

    def store_first(*arguments: object, **keywords: object) -> None:
        pipe.say("three")
        pipe.ingest()
        fill(*arguments, **keywords)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(pipe.working, "fill", store_first)
        assert recent(pipe) == ["one", "two"], "what it read is what there was"
    assert pipe.cached() is None
    assert recent(pipe) == ["one", "two", "three"]


def test_a_reader_that_was_stopped_for_long_fills_nothing(pipe: Pipeline) -> None:
    """Given a reader who reads the store and fills after the change of the list has been forgotten, then in vain."""
    pipe.broker.delete(*pipe.broker.keys("test:working*"))
    epoch = pipe.working.epoch(WORKSPACE, "ana", "s")
    messages = newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    pipe.broker.delete(*pipe.broker.keys("test:working*"))
    pipe.working.fill(WORKSPACE, "ana", "s", messages, epoch=epoch._replace(read_at_seconds=epoch[1] - 61))
    assert pipe.cached() is None
    pipe.working.fill(WORKSPACE, "ana", "s", messages, epoch=epoch)
    assert cached(pipe) == ["one", "two"]


def test_a_slow_reader_does_not_take_away_what_was_appended(pipe: Pipeline) -> None:
    """Given two readers who read the store, when the first fills, a message is appended, and the second fills, then
    the message is still there."""
    pipe.broker.delete(*pipe.broker.keys("test:working*"))
    epoch = pipe.working.epoch(WORKSPACE, "ana", "s")
    messages = newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    pipe.say("three")
    pipe.ingest()
    assert cached(pipe) == ["one", "two", "three"]
    pipe.working.fill(WORKSPACE, "ana", "s", messages, epoch=epoch)
    assert cached(pipe) == ["one", "two", "three"]


def test_a_slow_reader_does_not_put_back_a_workspace_that_was_deleted(pipe: Pipeline) -> None:
    """Given a reader who read the store before its workspace was deleted, when it fills, then nothing is kept."""
    pipe.broker.delete(*pipe.broker.keys("test:working*"))
    epoch = pipe.working.epoch(WORKSPACE, "ana", "s")
    messages = newest_messages(pipe.store, pipe.working, agent="ana", session="s")
    pipe.working.drop_workspace(WORKSPACE)
    pipe.working.fill(WORKSPACE, "ana", "s", messages, epoch=epoch)
    assert pipe.cached() is None


def test_a_slow_worker_does_not_put_back_what_was_forgotten(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a worker held up before it appends, when the session is forgotten and begun anew, then the old is gone."""
    append = pipe.working.append

    def forget_first(*arguments: object, **keywords: object) -> None:
        monkeypatch.setattr(pipe.working, "append", append)
        pipe.forget()
        pipe.lose_worker()
        pipe.say("a new beginning")
        pipe.ingest()
        assert recent(pipe) == ["a new beginning"]
        append(*arguments, **keywords)  # type: ignore[arg-type]

    pipe.say("secret")
    monkeypatch.setattr(pipe.working, "append", forget_first)
    ingest_batch(pipe.ingest_services, pipe.store, now=pipe.now())
    assert recent(pipe) == ["a new beginning"]


def test_without_a_broker_the_store_answers(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a broker that is away, when recent messages are read, then they come from the store."""

    def away(*_: object) -> None:
        raise Unavailable("no broker")

    monkeypatch.setattr(pipe.working, "read", away)
    assert recent(pipe) == ["one", "two"]


def test_working_memory_of_one_agent_is_not_anothers(pipe: Pipeline) -> None:
    """Given two agents with one session name, then each reads its own."""
    pipe.say("bob's", agent="bob")
    pipe.ingest()
    found = newest_messages(pipe.store, pipe.working, agent="bob", session="s")
    assert [message.content for message in found] == ["bob's"]
    assert recent(pipe) == ["one", "two"]
    pipe.working.drop_workspace(WORKSPACE)
    assert pipe.cached() is None
    assert pipe.cached(agent="bob") is None


def test_no_key_names_an_agent_session_or_user(pipe: Pipeline) -> None:
    """Given working memory that was filled, appended to and dropped, then ids that callers choose are in no key."""
    pipe.say("hello", agent="friday", session="kate")
    pipe.ingest()
    pipe.say("again", agent="friday", session="kate")
    pipe.ingest()
    newest_messages(pipe.store, pipe.working, agent="friday", session="kate")
    for _ in range(2):
        keys = b" ".join(pipe.broker.keys("*"))
        assert b"working" in keys
        assert b"kate" not in keys
        assert b"friday" not in keys
        pipe.working.drop(WORKSPACE, [("friday", "kate")])
