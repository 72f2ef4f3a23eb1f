"""Memories in a context: each in its own tier, faded once at its rate, never twice, and from every workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.tokens import EstimatedTokens
from retrieval.context.select import ContextRequest
from retrieval.context.write import BuiltContext, build_context
from retrieval.query import RecallRequest
from retrieval.recaller import RecallOutcome
from reverie.clock import from_micros
from reverie.errors import NotFound
from reverie.recall.calls import ContextRanking
from storage.memories.records import RATES
from support.pipeline import Pipeline
from support.recalling import BagOfWords, find
from support.remembered import MORNING, keep, settle

HOUR = 3_600_000_000


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace in which one thing was said, in a session of a channel, and one in another session."""
    pipe = Pipeline(tmp_path / "data", embedder=BagOfWords())
    pipe.say({"content": "hello there", "id": "hello", "created_at": from_micros(MORNING).isoformat()}, channel="trips")
    pipe.say("soup again", session="far", channel="food")
    settle(pipe)
    yield pipe
    pipe.close()


def context(
    pipe: Pipeline,
    query: str,
    *,
    now: int = MORNING + HOUR,
    channel: str | None = None,
    most: int = 10,
    ranking: ContextRanking = "recall",
) -> BuiltContext:
    """The context of session `s` of ana's an hour later."""
    request = ContextRequest(
        agent="ana",
        session="s",
        query=query,
        channel=channel,
        recency_window=10,
        max_messages=20,
        max_memories=most,
        rates=RATES["standard"],
        now=now,
        ranking=ranking,
    )
    account = pipe.stores.account_store()

    def search(request: RecallRequest) -> RecallOutcome:
        return find(pipe.store, pipe.embedder, request, indexes=pipe.indexes, account=account, now=now)

    return build_context(pipe.store, search, EstimatedTokens(), request, room=10_000, refiner=None, account=account)


def tiers_of(built: BuiltContext) -> dict[str, str]:
    """What is told of memories, by their text, and in which tier."""
    return {memory.text: memory.tier for memory in built.memories if memory.kind == "memory"}


def test_each_memory_stands_in_its_own_tier_and_says_what_it_is(pipe: Pipeline) -> None:
    """Given memories of every tier and their likes from elsewhere, then those that hold here are told, the narrowest
    scope first, each with its kind and date."""
    keep(pipe, "1", "a boat for two", tier="conversation", session="s", kind="task")
    keep(pipe, "2", "the boat leaves from Porto", tier="channel", channel="trips")
    keep(pipe, "3", "The home harbour of the boat is Lisbon (profile)", category="profile", key="harbour", kind="fact")
    keep(pipe, "4", "prefers the boat", tier="account", kind="preference")
    keep(pipe, "5", "a boat of another conversation", tier="conversation", session="far")
    keep(pipe, "6", "a boat of another channel", tier="channel", channel="food")
    settle(pipe)
    built = context(pipe, "boat")
    assert tiers_of(built) == {
        "a boat for two": "conversation",
        "the boat leaves from Porto": "channel",
        "The home harbour of the boat is Lisbon (profile)": "workspace",
        "prefers the boat": "account",
    }
    lines = [
        line
        for line in built.text.partition("## Recent")[0].splitlines()
        if "boat" in line or line.startswith(("### ", "1 May"))
    ]
    assert lines == [
        "### From this conversation",
        "1 May 2026:",
        "- task: a boat for two (agent)",
        "### From this channel",
        "1 May 2026:",
        "- event: the boat leaves from Porto (agent)",
        "### From this workspace",
        "1 May 2026:",
        "- fact: The home harbour of the boat is Lisbon (profile) (agent)",
        "### From every workspace",
        "1 May 2026:",
        "- preference: prefers the boat (agent)",
    ]
    stores = [hit.store for hit in built.hits]
    assert stores.count("@account") == 1
    assert stores[-1] == "@account"


def test_another_channel_at_hand_shows_its_own_memories(pipe: Pipeline) -> None:
    """Given a context that is asked for a channel other than the session's, then the memories of that one are told."""
    keep(pipe, "1", "the boat leaves from Porto", tier="channel", channel="trips")
    keep(pipe, "2", "fish from the boat", tier="channel", channel="food")
    settle(pipe)
    assert tiers_of(context(pipe, "boat")) == {"the boat leaves from Porto": "channel"}
    assert tiers_of(context(pipe, "boat", channel="food")) == {"fish from the boat": "channel"}


def test_a_channel_that_is_searched_instead_is_named_and_the_sessions_own_stays(pipe: Pipeline) -> None:
    """Given another channel than the session's, then the document names both, and whose each memory is."""
    keep(pipe, "1", "fish from the boat", tier="channel", channel="food")
    settle(pipe)
    lines = context(pipe, "boat", channel="food").text.splitlines()
    assert lines[lines.index("- session: s") + 1 :][:2] == ["- channel: trips", "- searched channel: food"]
    assert "### From channel food" in lines
    assert "### From this channel" not in lines
    own = context(pipe, "boat", channel="trips").text
    assert own == context(pipe, "boat").text
    assert "searched channel" not in own


def test_a_context_from_a_channel_that_does_not_exist_is_refused(pipe: Pipeline) -> None:
    """Given a channel that nothing names, then it is unknown, with a query or without."""
    for query in ("boat", ""):
        with pytest.raises(NotFound, match="agent ana has no channel 'unheard'"):
            context(pipe, query, channel="unheard")
    assert context(pipe, "boat", channel="general").messages


def test_a_memory_fades_at_the_rate_of_its_tier_from_when_it_was_last_recalled(pipe: Pipeline) -> None:
    """Given memories that fit alike and the ranking `decay`, then at first the important one leads, later that of the
    widest tier, and one that was recalled an hour ago leads them all."""
    keep(pipe, "w", "the boat is white", created_at=MORNING)
    keep(pipe, "a", "that boat is white", tier="account", created_at=MORNING)
    keep(pipe, "i", "this boat is white", importance=0.9, created_at=MORNING)
    settle(pipe)
    later = MORNING + 8 * 7 * 24 * HOUR

    def best(now: int) -> list[str]:
        return [memory.id for memory in context(pipe, "boat white", now=now, most=1, ranking="decay").memories]

    assert best(MORNING + HOUR) == ["i"]
    # What is left after 1,344 hours: 0.9 x 0.998 ** h is 0.06, 0.5 x 0.999 ** h is 0.13.
    assert best(later) == ["a"]
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana").memories
        rows.change(rows.get("w").row_id, now=MORNING, accessed_at=later - HOUR, access_count=3)
    assert best(later) == ["w"]


def test_a_memory_of_a_turn_that_is_told_is_not_told_again(pipe: Pipeline) -> None:
    """Given memories made from a recent turn and from one elsewhere, then the first is left out, and of the other and
    its message one is told."""
    (elsewhere,) = pipe.say("we sailed the old boat round the island", session="far")
    settle(pipe)
    keep(pipe, "here", "said hello to the boat", source_message="hello", session="s")
    keep(pipe, "there", "sailed round the island by boat", source_message=elsewhere, session="far", importance=0.9)
    settle(pipe)
    built = context(pipe, "boat island hello", now=pipe.now())
    assert [(memory.kind, memory.id) for memory in built.memories if "boat" in memory.text] in (
        [("memory", "there")],
        [("message", elsewhere)],
    )
    assert "said hello to the boat" not in built.text


def test_what_has_expired_is_not_told(pipe: Pipeline) -> None:
    keep(pipe, "1", "the boat leaves at nine", expires_at=MORNING + HOUR)
    keep(pipe, "2", "the boat leaves from Porto", expires_at=MORNING + HOUR + 1)
    settle(pipe)
    assert tiers_of(context(pipe, "boat")) == {"the boat leaves from Porto": "workspace"}


def test_the_same_in_the_account_and_here_is_told_once(pipe: Pipeline) -> None:
    """Given a memory that both stores hold, then its better copy is told, by words as by vectors."""
    keep(pipe, "w", "prefers the boat to the bus")
    keep(pipe, "a", "Prefers the boat to the bus.", tier="account", kind="preference")
    settle(pipe)
    assert len(tiers_of(context(pipe, "boat"))) == 1


@pytest.mark.parametrize("vectors", [True, False])
def test_it_is_the_same_document_each_time(pipe: Pipeline, vectors: bool) -> None:
    for number in range(12):
        keep(pipe, f"w{number}", f"boat number {number}", tier="account" if number % 2 else "workspace")
    settle(pipe, vectors=vectors)
    first: Any = context(pipe, "boat")
    assert first.text == context(pipe, "boat").text
    assert len(first.memories) == 10
