"""From the inbox into the database: exactly once, with every field, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.tokens import EstimatedTokens
from memory.conversion import convert
from memory.pipeline.ingest import BATCH_ITEMS, IngestServices, ingest_batch
from reverie.clock import to_micros
from reverie.errors import NotFound
from reverie.sessions.types import Message
from support.pipeline import WORKSPACE, Pipeline, turns


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def at(second: int) -> datetime:
    return datetime(2026, 5, 1, 9, 30, second, tzinfo=UTC)


def test_every_field_of_a_message_comes_out_as_it_went_in(pipe: Pipeline) -> None:
    """Given a message with all fields, when stored, then each is as it was given, and a time is exact."""
    calls = [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "x"}'}}]
    given = {
        "id": "my-own-key",
        "role": "tool",
        "content": 'naïve 漢字 👩‍👩‍👧 "quoted" \\ back\nline',
        "name": "Zoë",
        "tool_call_id": "c0",
        "tool_name": "find",
        "tool_calls": calls,
        "token_count": 17,
        "importance": 0.91,
        "metadata": {"nested": {"list": [1, 2.5, None, True, "é"]}},
        "tags": [" Food ", "trip", "food"],
        "sequence": 41,
        "created_at": datetime(2026, 5, 1, 9, 30, 0, 123_457, tzinfo=UTC),
    }
    pipe.say(given, user="uma", provider="telegram", chat_id="77", channel="general")
    pipe.ingest()
    (stored,) = pipe.messages()
    assert (stored.id, stored.agent, stored.session, stored.sequence) == ("my-own-key", "ana", "s", 41)
    for field in ("role", "content", "name", "tool_call_id", "tool_name", "tool_calls", "token_count", "importance"):
        assert getattr(stored, field) == given[field], field
    assert (stored.metadata, stored.tags) == (given["metadata"], ["food", "trip"])
    assert stored.created_at == to_micros(given["created_at"])  # type: ignore[arg-type]
    assert (stored.consolidated_at, stored.embedding_error, stored.chunked_at) == (None, None, None)
    shown = convert(stored, Message)
    assert (shown.created_at, shown.metadata, shown.tool_calls) == (given["created_at"], given["metadata"], calls)
    with pipe.store.reading() as tx:
        session = tx.for_agent("ana").sessions.get("s")
    assert (session.user, session.provider, session.chat_id, session.channel) == ("uma", "telegram", "77", "general")
    assert (session.last_sequence, session.messages, session.status) == (41, 1, "active")


def test_what_is_left_out_has_its_default(pipe: Pipeline) -> None:
    """Given a bare message, when stored, then the rest is empty, and it has an id, a time and a sequence."""
    began = pipe.now()
    pipe.say("hello")
    pipe.ingest()
    (stored,) = pipe.messages()
    assert (stored.name, stored.tool_calls, stored.tags, stored.metadata, stored.token_count) == (
        None,
        [],
        [],
        {},
        None,
    )
    assert stored.id
    assert stored.sequence == 1
    assert began <= stored.created_at <= pipe.now()


@pytest.mark.parametrize(("role", "importance"), [("user", 0.5), ("assistant", 0.5), ("tool", 0.3), ("system", 0.1)])
def test_importance_follows_the_role_unless_it_is_given(pipe: Pipeline, role: str, importance: float) -> None:
    """Given a role, then its default counts; given an importance, 0 included, then that one."""
    pipe.say(
        {"role": role, "content": "default"},
        {"role": role, "content": "given", "importance": 0.8},
        {"role": role, "content": "nothing", "importance": 0.0},
    )
    pipe.ingest()
    assert [message.importance for message in pipe.messages()] == [importance, 0.8, 0.0]


FIRST: dict[str, Any] = {"id": "x", "content": "first", "metadata": {"a": 1, "b": [2.5]}, "tags": ["one"]}


@pytest.mark.parametrize("stored_between", [True, False])
def test_a_second_delivery_with_the_same_content_changes_nothing(pipe: Pipeline, stored_between: bool) -> None:
    """Given a message that is sent again, with its fields in another order, then it is stored once."""
    pipe.say({**FIRST, "created_at": "2026-05-01T09:30:00Z"})
    if stored_between:
        pipe.settle()
    pipe.say({**FIRST, "metadata": {"b": [2.5], "a": 1}})
    assert pipe.waiting_in_inbox() == 1
    pipe.settle()
    assert (pipe.contents(), pipe.dead_letters()) == (["first"], [])


@pytest.mark.parametrize("stored_between", [True, False])
@pytest.mark.parametrize(
    "other",
    [
        {"content": "second"},
        {"role": "assistant"},
        {"name": "Bo"},
        {"tags": ["two"]},
        {"metadata": {"a": 1, "b": [2.5, 3]}},
        {"tool_calls": [{"id": "t"}]},
        {"original": "{}"},
        {"where": {"user": "bo"}},
        {"where": {"user": "ann", "visibility": "shared"}},
    ],
    ids=lambda other: next(iter(other)) if "where" not in other else str(other["where"]),
)
def test_another_content_under_one_id_is_kept_as_a_conflict(
    pipe: Pipeline, other: dict[str, Any], stored_between: bool
) -> None:
    """Given an id that its session has, when it comes with anything else, then the first stays and the second is a
    dead letter that says so; a third is another one."""
    where = other.get("where", {"user": "ann"})
    pipe.say(FIRST, user="ann")
    if stored_between:
        pipe.settle()
    pipe.say({**FIRST, **{name: value for name, value in other.items() if name != "where"}}, **where)
    pipe.say({**FIRST, "content": "third"}, user="ann")
    pipe.settle()
    assert pipe.contents() == ["first"]
    assert len(pipe.dead_letters()) == 2
    for letter in pipe.dead_letters():
        assert (letter.error_type, letter.session, letter.item_id) == ("Conflict", "s", "x")
        assert "'x' of session 's' is stored already and says something else" in letter.error
    assert len({letter.payload for letter in pipe.dead_letters()}) == 2


@pytest.mark.parametrize("stored_between", [True, False])
def test_one_id_in_two_sessions_is_two_messages(pipe: Pipeline, stored_between: bool) -> None:
    """Given chats that number their messages by chat, then each message is stored, read and found in its own."""
    pipe.say({"id": "1", "content": "Ann has a cat"}, session="s")
    if stored_between:
        pipe.settle()
    pipe.say({"id": "1", "content": "Bo has a dog"}, session="t")
    pipe.settle()
    assert (pipe.contents(session="s"), pipe.contents(session="t")) == (["Ann has a cat"], ["Bo has a dog"])
    assert (pipe.found("cat"), pipe.found("dog")) == (["Ann has a cat"], ["Bo has a dog"])
    assert pipe.dead_letters() == []


def test_the_same_id_of_two_agents_is_two_messages(pipe: Pipeline) -> None:
    """Given an idempotency key that two agents use, then it is unique for each agent, not for all."""
    pipe.say({"id": "x", "content": "ana's"}, agent="ana")
    pipe.say({"id": "x", "content": "bob's"}, agent="bob")
    pipe.ingest()
    assert (pipe.contents(agent="ana"), pipe.contents(agent="bob")) == (["ana's"], ["bob's"])


def test_two_workers_that_hold_the_same_items_store_them_once(pipe: Pipeline) -> None:
    """Given items that three workers hold, each having lost its lease, when all commit at once, each is there once."""
    ids = pipe.say(*[f"message {number}" for number in range(200)])
    workers = []
    for _ in range(3):
        worker = copy(pipe.inbox)
        taken = pipe.inbox.take(WORKSPACE, limit=500)
        worker.take = lambda *_, held=taken, **__: held  # type: ignore[method-assign]
        worker.begin = lambda *_: True  # type: ignore[method-assign]  # each began before it lost its lease
        workers.append(worker)
        pipe.lose_worker()

    with ThreadPoolExecutor(3) as pool:
        reports = list(
            pool.map(
                lambda inbox: ingest_batch(IngestServices(inbox, pipe.working), pipe.store, now=pipe.now()), workers
            )
        )
    pipe.settle()
    assert [report.taken for report in reports] == [200, 200, 200]
    assert sum(report.stored for report in reports) == 200
    assert [message.id for message in pipe.messages()] == ids
    assert [message.sequence for message in pipe.messages()] == list(range(1, 201))
    assert pipe.dead_letters() == []


def test_a_batch_is_bounded_and_the_rest_stays(pipe: Pipeline) -> None:
    """Given more than a batch, when ingested once, then the oldest are stored and the others still wait."""
    pipe.say(*[f"message {number}" for number in range(BATCH_ITEMS + 7)])
    assert pipe.ingest().stored == BATCH_ITEMS
    assert pipe.waiting_in_inbox() == 7
    assert pipe.ingest().stored == 7
    assert pipe.ingest().taken == 0
    assert pipe.inbox.workspaces() == []


def test_a_session_is_made_on_its_first_message_and_touched_by_the_next(pipe: Pipeline) -> None:
    """Given a first message, then the session starts; given a second, then only its last activity moves."""
    pipe.say("one")
    pipe.ingest()
    with pipe.store.reading() as tx:
        first = tx.for_agent("ana").sessions.get("s")
    pipe.advance(60)
    pipe.say("two", channel="news", user="late")
    pipe.ingest()
    with pipe.store.reading() as tx:
        second = tx.for_agent("ana").sessions.get("s")
    assert (second.row_id, second.ref_code, second.started_at) == (first.row_id, first.ref_code, first.started_at)
    assert second.updated_at >= first.updated_at + 60_000_000
    assert (second.messages, second.last_sequence, second.user, second.channel) == (2, 2, "late", "news")


def test_a_session_is_found_by_provider_and_chat_id_alone(pipe: Pipeline) -> None:
    """Given a session under the caller's id, when its chat is named alone, then it is the same session."""
    pipe.say("one", session="mine", provider="telegram", chat_id="7")
    pipe.ingest()
    pipe.say("two", session=None, provider="telegram", chat_id="7")
    pipe.ingest()
    pipe.say("elsewhere", session=None, provider="slack", chat_id="7")
    pipe.ingest()
    assert pipe.contents("mine") == ["one", "two"]
    assert pipe.contents("slack:7") == ["elsewhere"]


def test_a_chat_named_in_the_same_batch_as_its_session_is_that_session(pipe: Pipeline) -> None:
    """Given both forms in one batch, when stored, then how they were batched makes no difference."""
    pipe.say("one", session="mine", provider="telegram", chat_id="7")
    pipe.say("two", session=None, provider="telegram", chat_id="7")
    assert pipe.ingest().stored == 2
    assert pipe.contents("mine") == ["one", "two"]
    assert pipe.contents("telegram:7") == []


def test_sequences_go_on_from_the_highest_and_a_given_one_counts(pipe: Pipeline) -> None:
    """Given a caller who numbers one message 10, then what came before and after is numbered around it."""
    pipe.say("a", {"content": "b", "sequence": 10}, "c", {"content": "d", "sequence": 4}, "e")
    pipe.ingest()
    assert {m.content: m.sequence for m in pipe.messages()} == {"a": 1, "b": 10, "c": 11, "d": 4, "e": 12}


def test_a_sequence_that_is_taken_becomes_a_dead_letter_and_the_rest_is_stored(pipe: Pipeline) -> None:
    """Given a sequence in the store and one twice in the batch, then the later ones are set aside by name."""
    pipe.say({"content": "a", "sequence": 1})
    pipe.ingest()
    pipe.say(
        {"content": "clash", "sequence": 1}, {"content": "b", "sequence": 2}, {"content": "again", "sequence": 2}, "c"
    )
    report = pipe.ingest()
    assert (report.stored, report.dead) == (2, 2)
    assert pipe.contents() == ["a", "b", "c"]
    errors = [letter.error for letter in pipe.dead_letters()]
    assert errors == [f"sequence {n} of session 's' is taken by another message" for n in (2, 1)]


def test_a_batch_in_which_nothing_can_be_stored_is_settled_and_makes_no_session(pipe: Pipeline) -> None:
    """Given only a clash, when ingested, then it is a dead letter at once, and the inbox is empty."""
    pipe.say({"content": "a", "sequence": 1})
    pipe.ingest()
    pipe.say({"content": "clash", "sequence": 1})
    assert pipe.ingest().dead == 1
    assert pipe.waiting_in_inbox() == 0
    assert [letter.error_type for letter in pipe.dead_letters()] == ["Conflict"]


def test_strict_order_refuses_what_comes_after_its_successor(pipe: Pipeline) -> None:
    """Given a caller who asked for strict order, when a lower number comes later, then it is a dead letter."""
    pipe.say({"content": "a", "sequence": 5}, strict=True)
    pipe.ingest()
    pipe.say({"content": "late", "sequence": 3}, {"content": "b", "sequence": 6}, "c", strict=True)
    pipe.ingest()
    assert pipe.contents() == ["a", "b", "c"]
    (letter,) = pipe.dead_letters()
    assert letter.error == "sequence 3 of session 's' comes after 5: out of order"


def test_a_late_arrival_is_stored_and_read_where_it_was_said(pipe: Pipeline) -> None:
    """Given messages stored out of order, when read, then by created_at, then id, whatever the sequence."""
    pipe.say({"content": "third", "created_at": at(3)}, {"content": "first", "created_at": at(1)})
    pipe.ingest()
    pipe.say(
        {"content": "second b", "created_at": at(2), "id": "b"}, {"content": "second a", "created_at": at(2), "id": "a"}
    )
    pipe.ingest()
    assert pipe.contents() == ["first", "second a", "second b", "third"]
    with pipe.store.reading() as tx:
        rows = tx.for_agent("ana")
        row = rows.sessions.get("s").row_id
        assert [m.content for m in rows.messages.in_session(row, limit=2, newest=True)] == ["second b", "third"]
        assert [m.content for m in rows.messages.in_session(row, limit=2, offset=1)] == ["second a", "second b"]


def test_a_session_of_another_agent_cannot_be_read(pipe: Pipeline) -> None:
    """Given a session row of one agent, when another reads by that row, then there is nothing."""
    pipe.say("secret", agent="bob")
    pipe.ingest()
    with pipe.store.reading() as tx:
        row = tx.for_agent("bob").sessions.get("s").row_id
        assert tx.for_agent("ana").messages.in_session(row, limit=10) == []
        with pytest.raises(NotFound, match="agent ana has no session 's'"):
            tx.for_agent("ana").sessions.get("s")


def test_the_trace_of_the_call_stays_with_the_message(pipe: Pipeline) -> None:
    """Given a trace id, when stored, then the row has it and the report names it."""
    pipe.inbox.accept(WORKSPACE, turns("hello"))
    report = pipe.ingest()
    assert report.traces == {"t"}
    assert pipe.messages()[0].trace == "t"
    assert json.loads(json.dumps(report.counts()))["stored"] == 1


@pytest.mark.parametrize("together", [True, False])
def test_a_chat_never_enters_a_session_that_has_its_name(pipe: Pipeline, together: bool) -> None:
    """Given a session with the name of a chat that did not say so, then the chat gets a session of its own."""
    pipe.say("Ann's words", session="slack:42", user="ann")
    if not together:
        pipe.ingest()
    for text in ("Bo's words", "more"):
        pipe.say(text, session=None, provider="slack", chat_id="42", user="bo")
        if not together:
            pipe.ingest()
    pipe.ingest()
    assert (pipe.contents("slack:42"), pipe.contents("slack:42~2")) == (["Ann's words"], ["Bo's words", "more"])


def test_tool_calls_alone_have_tokens(pipe: Pipeline) -> None:
    """Given a message that only calls a tool, then its tokens are counted, as a model reads the call."""
    pipe.say({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather"}}]}, {"content": "hi"})
    ingest_batch(IngestServices(pipe.inbox, pipe.working, EstimatedTokens()), pipe.store, now=pipe.now())
    calls, text = pipe.messages()
    assert (calls.token_count or 0) > (text.token_count or 0) > 0
