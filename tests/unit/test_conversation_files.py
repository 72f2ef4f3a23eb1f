"""Files of messages for `reverie ingest`: what they name is kept, and what is not known is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from reverie.errors import Rejected
from reverie.pipeline.calls import IngestMessages
from reverie.pipeline.conversation_files import SESSION_FIELDS, ingest_calls, read_items
from reverie.pipeline.submission import SessionInput
from reverie.sessions.types import Message, Session, SessionExport

_AT = datetime(2026, 5, 1, tzinfo=UTC)
_HELLO: dict[str, Any] = {"role": "user", "content": "hello"}
_WHERE = {"user": "kate", "channel": "trips", "provider": "tg", "chat_id": "9"}


def _calls(*items: Any, batch_size: int = 500, **defaults: Any) -> list[IngestMessages]:
    read = read_items(msgspec.json.encode(items), name="file")
    return ingest_calls(read, defaults=defaults, batch_size=batch_size)


def test_a_conversation_keeps_all_that_it_names() -> None:
    """Given user, channel, provider and chat id beside the session, then the call has all of them."""
    assert _calls({"session": "z1", **_WHERE, "messages": [_HELLO]}) == [
        IngestMessages(session="z1", messages=[_HELLO], **_WHERE)
    ]


def test_a_message_may_name_its_session_itself() -> None:
    """Given a message with the fields of its session, then they are those of the call and not of the message."""
    assert _calls({"session": "z1", **_WHERE, **_HELLO}) == [IngestMessages(session="z1", messages=[_HELLO], **_WHERE)]


def test_a_chat_names_the_session() -> None:
    """Given provider and chat id without a session, then a default session is not used instead."""
    where = {"provider": "tg", "chat_id": "9"}
    assert _calls({**where, **_HELLO}, session="other") == [IngestMessages(messages=[_HELLO], **where)]


def test_every_field_of_the_call_about_the_session_can_be_in_a_file() -> None:
    """Given the declared call, then a file names exactly what the server checks of a session."""
    assert set(SESSION_FIELDS) == set(SessionInput.__struct_fields__)


def test_options_stand_in_for_what_an_item_does_not_name() -> None:
    """Given defaults, then an item's own fields win."""
    calls = _calls({"user": "kate", **_HELLO}, _HELLO, session="s", user="lif", channel=None)
    assert calls == [
        IngestMessages(session="s", user="kate", messages=[_HELLO]),
        IngestMessages(session="s", user="lif", messages=[_HELLO]),
    ]


def test_messages_of_one_session_go_together_in_batches() -> None:
    """Given five messages of one session and one of another, then no batch has more than two, in their order."""
    calls = _calls({"session": "a", "messages": [_HELLO] * 5}, {"session": "b", **_HELLO}, batch_size=2)
    assert [(call.session, len(call.messages)) for call in calls] == [("a", 2), ("a", 2), ("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (
            {"session": "s", "usr": "kate", "messages": [_HELLO]},
            "conversation 0: unknown key 'usr': did you mean user?",
        ),
        ({"session": "s", "usr": "kate", **_HELLO}, "message 0: unknown key 'usr': did you mean user?"),
        (
            {"session": "s", "messages": [_HELLO, {"role": "user", "contents": "x"}]},
            "conversation 0, message 1: unknown key 'contents': did you mean content?",
        ),
        ({"session": "s", "wait": "stored", "messages": [_HELLO]}, "conversation 0: unknown key 'wait': known are "),
        ({"session": {"id": "s", "chat": "9"}, "messages": []}, "conversation 0, session: unknown key 'chat': "),
        (_HELLO, "message 0 names no session: give one with --session"),
        (
            {"provider": "tg", **_HELLO},
            "message 0 names no session: give one with --session, or --provider and --chat-id",
        ),
        ({"session": "s", "provider": "tg", **_HELLO}, "message 0: provider and chat_id go together"),
        ({"session": 4, **_HELLO}, "message 0: session must be a text, not a whole number"),
    ],
)
def test_a_file_with_a_mistake_is_refused_as_a_whole(item: Any, error: str) -> None:
    """Given a key that is misspelt, or no session, then the place and the nearest key are named."""
    with pytest.raises(Rejected) as raised:
        _calls(item)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize("before", ["", '{"session": "s", "role": "user", "content": "x"}\n'], ids=["JSON", "JSONL"])
def test_a_file_with_a_key_twice_is_refused(before: str) -> None:
    with pytest.raises(Rejected, match="has the key 'content' twice in one object"):
        read_items((before + '{"role": "user", "content": "x", "content": "y"}').encode(), name="file")


def test_an_exported_session_can_be_ingested_again() -> None:
    """Given what `export_session` returns, then its messages and the fields of its session are kept."""
    message = Message(id="m1", session="z1", sequence=3, role="user", content="hello", created_at=_AT, token_count=1)
    session = Session(
        id="z1", ref_code="x", status="active", started_at=_AT, updated_at=_AT, messages=1, last_sequence=3, **_WHERE
    )
    (call,) = _calls(msgspec.to_builtins(SessionExport(session=session, messages=[message])))
    assert (call.session, {name: getattr(call, name) for name in _WHERE}) == ("z1", _WHERE)
    (sent,) = call.messages
    assert sent.keys() == {"id", "sequence", "role", "content", "created_at", "token_count"}
    assert (sent["id"], sent["sequence"], sent["content"]) == ("m1", 3, "hello")
