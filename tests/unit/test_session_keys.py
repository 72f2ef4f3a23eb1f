"""A session is named by its id, or by provider and chat id: no two sessions of an agent share either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.sessions.lifecycle import start_session
from reverie.contract import chat_key
from reverie.errors import Conflict
from reverie.sessions.calls import StartSession
from support.pipeline import Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """An empty workspace with its inbox."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def _chats(pipe: Pipeline) -> dict[str, tuple[str | None, str | None]]:
    with pipe.store.reading() as tx:
        return {session.id: (session.provider, session.chat_id) for session in tx.for_agent("ana").sessions.list()}


def test_no_two_chats_have_the_same_key() -> None:
    """Given names with separators and escapes in any place, then each pair has a key of its own."""
    names = ["a", "b", "a:b", "b:c", ":", "a%3Ab", "%", "%25", "a:", ":a", "a%", "a%3A"]
    keys = {chat_key(provider, chat_id) for provider in names for chat_id in names}
    assert len(keys) == len(names) ** 2
    assert chat_key("slack", "C1/x:2") == "slack:C1/x:2"


def test_a_colon_in_provider_or_chat_id_tells_sessions_apart(pipe: Pipeline) -> None:
    """Given two chats that differ in where the colon lies, then each has a session of its own."""
    pipe.say("one", session=None, provider="a:b", chat_id="c")
    pipe.say("two", session=None, provider="a", chat_id="b:c")
    pipe.ingest()
    pipe.say("three", session=None, provider="a:b", chat_id="c")
    pipe.ingest()
    assert _chats(pipe) == {"a%3Ab:c": ("a:b", "c"), "a:b:c": ("a", "b:c")}
    assert (pipe.contents("a%3Ab:c"), pipe.contents("a:b:c")) == (["one", "three"], ["two"])


def test_a_session_with_the_name_of_a_chat_is_not_that_chat_if_it_has_another(pipe: Pipeline) -> None:
    """Given a session of chat y whose id reads like chat b of a, when b is named alone, then it is another session."""
    pipe.say("one", session="a:b", provider="x", chat_id="y")
    pipe.ingest()
    pipe.say("two", session=None, provider="a", chat_id="b")
    pipe.ingest()
    pipe.say("three", session=None, provider="a", chat_id="b")
    pipe.ingest()
    assert _chats(pipe) == {"a:b": ("x", "y"), "a:b~2": ("a", "b")}
    assert (pipe.contents("a:b"), pipe.contents("a:b~2")) == (["one"], ["two", "three"])


def test_a_session_without_a_chat_stays_without_that_of_its_name(pipe: Pipeline) -> None:
    """Given a session named like a chat before the chat was known, then the chat gets another one."""
    pipe.say("one", session="a:b")
    pipe.ingest()
    pipe.say("two", session=None, provider="a", chat_id="b")
    pipe.ingest()
    assert _chats(pipe) == {"a:b": (None, None), "a:b~2": ("a", "b")}


def test_a_chat_stays_with_the_session_that_had_it_first(pipe: Pipeline) -> None:
    """Given the chat of a session named with another one, then messages go where they belong, and the chat stays."""
    pipe.say("one", session="first", provider="tg", chat_id="9")
    pipe.ingest()
    pipe.say("two", session="second", provider="tg", chat_id="9")
    pipe.say("three", session=None, provider="tg", chat_id="9")
    pipe.say("four", session="first", provider="slack", chat_id="1")
    pipe.ingest()
    assert _chats(pipe) == {"first": ("tg", "9"), "second": (None, None)}
    assert (pipe.contents("first"), pipe.contents("second")) == (["one", "three", "four"], ["two"])


def test_a_chat_that_two_sessions_name_in_one_batch_is_that_of_the_first(pipe: Pipeline) -> None:
    """Given both in one batch, then one of them has the chat, and all messages are stored."""
    pipe.say("one", session="first", provider="tg", chat_id="9")
    pipe.say("two", session="second", provider="tg", chat_id="9")
    assert pipe.ingest().stored == 2
    assert _chats(pipe) == {"first": ("tg", "9"), "second": (None, None)}


def test_a_session_cannot_be_started_with_the_chat_of_another(pipe: Pipeline) -> None:
    """Given a chat that a session has, then starting another with it is a conflict; other agents have their own."""
    call = StartSession("first", provider="tg", chat_id="9")
    start_session(pipe.store, call, agent="ana", now=1)
    start_session(pipe.store, call, agent="ana", now=2)
    with pytest.raises(Conflict, match="chat '9' of 'tg' is session 'first'"):
        start_session(pipe.store, StartSession("second", provider="tg", chat_id="9"), agent="ana", now=3)
    start_session(pipe.store, StartSession("second", provider="tg", chat_id="9"), agent="lif", now=4)
    assert _chats(pipe) == {"first": ("tg", "9")}


def test_forgetting_a_chat_keeps_out_none_of_a_session_with_its_name(pipe: Pipeline) -> None:
    """Given two sessions of which one has the key of the other's chat as its id, then each is forgotten by itself."""
    pipe.say("one", session="a:b", provider="x", chat_id="y")
    pipe.say("two", session="mine", provider="a", chat_id="b")
    pipe.ingest()
    pipe.say("three", session="a:b")
    pipe.say("four", session=None, provider="a", chat_id="b")
    assert pipe.forget("mine")
    assert pipe.ingest().forgotten == 1
    assert _chats(pipe) == {"a:b": ("x", "y")}
    assert pipe.contents("a:b") == ["one", "three"]
