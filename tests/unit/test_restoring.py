"""A session restored: the newest that fits, in order, with tools' answers beside what was asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from adapters.tokens import EstimatedTokens
from memory.sessions.restoring import MESSAGE_OVERHEAD_TOKENS, restore_session
from reverie.errors import NotFound, Rejected
from reverie.recall.types import Restored
from reverie.sessions.types import Message
from support.pipeline import Pipeline

# A text of 40 bytes: 10 tokens by the estimate, and 14 as a message.
TEN = "x" * 40


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline for all tests here; each has a session of its own."""
    made = Pipeline(Path(tmp_path_factory.mktemp("restoring")) / "data")
    yield made
    made.close()


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """The name of this test's session."""
    return str(request.node.name)


def restore(pipe: Pipeline, session: str, budget: int, *, agent: str = "ana") -> Restored:
    return restore_session(pipe.store, EstimatedTokens(), agent=agent, session=session, token_budget=budget)


def store(pipe: Pipeline, session: str, *messages: str | dict[str, Any]) -> None:
    pipe.say(*messages, session=session)
    pipe.drain(lambda: pipe.ingest().taken)


def call(*ids: str) -> dict[str, Any]:
    """A turn that asks tools."""
    return {"role": "assistant", "content": "", "tool_calls": [{"id": i, "function": {"name": "f"}} for i in ids]}


def result(of: str, content: str = TEN) -> dict[str, Any]:
    """What a tool answered."""
    return {"role": "tool", "content": content, "tool_call_id": of, "tool_name": "f"}


def test_the_newest_messages_that_fit_come_oldest_first(pipe: Pipeline, session: str) -> None:
    """Given five messages of 14 tokens and room for 45, then the last three are restored."""
    store(pipe, session, *[f"{n}{TEN[1:]}" for n in range(5)])
    found = restore(pipe, session, 45)
    assert [m.content[0] for m in found.messages] == ["2", "3", "4"]
    assert (found.tokens, found.left_out, found.shortened) == (42, 2, 0)
    assert len(restore(pipe, session, 42).messages) == 3
    assert len(restore(pipe, session, 41).messages) == 2


def test_more_than_a_page_is_restored_where_it_fits(pipe: Pipeline, session: str) -> None:
    """Given 250 messages and room for all, then all are there, in order."""
    store(pipe, session, *[f"message {n}" for n in range(250)])
    found = restore(pipe, session, 100_000)
    assert [m.content for m in found.messages] == [f"message {n}" for n in range(250)]
    assert found.left_out == 0


def test_a_tools_answer_is_never_first_without_its_call(pipe: Pipeline, session: str) -> None:
    """Given room that would begin with an answer of a tool, then it begins after the exchange."""
    store(pipe, session, TEN, call("a", "b"), result("a"), result("b"), TEN, TEN)
    whole = restore(pipe, session, 1_000)
    assert [m.role for m in whole.messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    for budget in range(28, whole.tokens):
        roles = [m.role for m in restore(pipe, session, budget).messages]
        assert roles in (["user", "user"], ["assistant", "tool", "tool", "user", "user"]), budget


def test_a_late_answer_keeps_all_since_its_call(pipe: Pipeline, session: str) -> None:
    """Given an answer that came after another turn, then a tail that holds it begins at its call or after it."""
    store(pipe, session, TEN, call("a"), TEN, result("a"), TEN)
    for budget in range(14, 100):
        roles = [m.role for m in restore(pipe, session, budget).messages]
        assert roles in (
            ["user"],
            ["assistant", "user", "tool", "user"],
            ["user", "assistant", "user", "tool", "user"],
        ), budget


def test_an_answer_without_a_call_is_never_first(pipe: Pipeline, session: str) -> None:
    """Given answers that nothing asked for, then they do not begin what is restored."""
    store(pipe, session, result("gone"), result("gone too"), TEN)
    assert [m.role for m in restore(pipe, session, 1_000).messages] == ["user"]


def test_the_newest_exchange_is_cut_where_it_does_not_fit(pipe: Pipeline, session: str) -> None:
    """Given a call with an endless answer, then the call is whole, the answer cut, and it is told."""
    store(pipe, session, TEN, call("a"), result("a", "word " * 5_000))
    found = restore(pipe, session, 200)
    asked, answered = found.messages
    assert asked.tool_calls
    assert answered.content.endswith("word…")
    assert (found.shortened, found.left_out) == (1, 1)
    assert 180 < found.tokens <= 200


def test_a_single_message_too_large_is_cut_at_a_word(pipe: Pipeline, session: str) -> None:
    """Given a newest message beyond the budget, then its beginning is restored."""
    store(pipe, session, TEN, "words " * 1_000)
    found = restore(pipe, session, 50)
    assert [m.content[-6:] for m in found.messages] == ["words…"]
    assert found.tokens <= 50


def test_the_summary_comes_with_it_and_counts(pipe: Pipeline, session: str) -> None:
    """Given a rolling summary of 10 tokens, then it is there, and 31 tokens have room for one message beside it."""
    store(pipe, session, TEN, TEN)
    with pipe.store.writing() as tx:
        tx.connection.execute(
            text("UPDATE sessions SET summary_text = :summary WHERE id = :id"), {"summary": TEN, "id": session}
        )
    found = restore(pipe, session, 51)
    assert (found.summary, found.tokens, found.left_out) == (TEN, 38, 0)
    assert restore(pipe, session, 20).summary != TEN  # a quarter at most
    assert restore(pipe, session, 20).tokens <= 20


def test_a_session_is_found_for_its_agent_alone(pipe: Pipeline, session: str) -> None:
    """Given another agent, or a name that is none, then there is no such session."""
    store(pipe, session, TEN)
    with pytest.raises(NotFound):
        restore(pipe, session, 100, agent="bob")
    with pytest.raises(NotFound):
        restore(pipe, "nowhere", 100)


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_below_one_is_rejected(pipe: Pipeline, budget: int) -> None:
    """Given no room at all, then the field is named."""
    with pytest.raises(Rejected, match="token_budget"):
        restore(pipe, "nowhere", budget)


STEPS = st.lists(
    st.one_of(
        st.just({"role": "user", "content": TEN}),
        st.lists(st.sampled_from("abcd"), min_size=1, max_size=3).map(lambda ids: call(*ids)),
        st.sampled_from("abcdz").map(result),
        st.integers(1, 400).map(lambda n: {"role": "assistant", "content": "word " * n}),
    ),
    min_size=1,
    max_size=12,
)


# An id that is used again after its result.
@example(messages=[call("a"), {"role": "user", "content": TEN}, result("a"), call("a")], budget=41)
@given(messages=STEPS, budget=st.integers(1, 400))
@settings(max_examples=60)
def test_whatever_was_said_the_budget_is_kept_and_no_answer_comes_first(
    pipe: Pipeline, messages: list[dict[str, Any]], budget: int
) -> None:
    """Given any conversation, then what is restored fits, is its end, and begins with no answer of a tool."""
    name = f"p{pipe.now()}"
    store(pipe, name, *[dict(item) for item in messages])
    found = restore(pipe, name, budget)
    assert found.tokens <= budget
    assert not found.messages or found.messages[0].role != "tool"
    kept = [m.id for m in found.messages]
    assert kept == [m.id for m in pipe.messages(name)][len(messages) - len(kept) :]
    assert found.left_out == len(messages) - len(kept)
    assert all(_asked_within(found.messages, m) for m in found.messages if m.role == "tool" and _asked(pipe, name, m))


def _asked(pipe: Pipeline, name: str, answer: Message) -> bool:
    """Whether a call of the session before this answer has its id."""
    earlier = [m for m in pipe.messages(name) if m.sequence < answer.sequence]
    return any(c["id"] == answer.tool_call_id for m in earlier for c in m.tool_calls)


def _asked_within(messages: list[Message], answer: Message) -> bool:
    before = [m for m in messages if m.sequence < answer.sequence]
    return any(c["id"] == answer.tool_call_id for m in before for c in m.tool_calls)


def test_the_tokens_round_a_message_are_what_the_tests_take_them_for() -> None:
    """Given the constant, then a message of ten tokens counts fourteen."""
    assert MESSAGE_OVERHEAD_TOKENS == 4
