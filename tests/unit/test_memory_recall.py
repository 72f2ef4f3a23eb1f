"""Recall of memories beside what was said: what is seen from where, what is one thing, and that conversations keep
their ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retrieval.query import RecallRequest
from retrieval.ranking import retrievers
from reverie.errors import Rejected
from reverie.recall.types import FoundSession
from support.pipeline import Pipeline
from support.recalling import BagOfWords, OnDiskOnly, find, search_sessions
from support.remembered import MORNING, ids, keep, over_both, settle

pytestmark = pytest.mark.slow

WAYS = [{}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "weighted"}, {"fusion": "rrf"}]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """An empty workspace."""
    pipe = Pipeline(tmp_path / "data", embedder=BagOfWords())
    yield pipe
    pipe.close()


@pytest.fixture
def tiers(pipe: Pipeline) -> Pipeline:
    """A memory of each tier, of this place and of others, a note about a user, and a message in each session."""
    for session, channel in (("one", "music"), ("two", "music"), ("far", "noise"), ("none", None)):
        pipe.say(f"a violin said in {session}", session=session, channel=channel)
    settle(pipe)
    with pipe.store.writing() as tx:
        tx.for_agent("ana").sessions.ensure("memory:kate", now=MORNING)
        tx.for_agent("ana").channels.ensure("empty", now=MORNING)
    keep(pipe, "conversation one", "a violin", tier="conversation", session="one")
    keep(pipe, "conversation two", "a violin", tier="conversation", session="two")
    keep(pipe, "channel music", "a violin", tier="channel", channel="music", session="two")
    keep(pipe, "channel noise", "a violin", tier="channel", channel="noise")
    keep(pipe, "channel general", "a violin", tier="channel")
    keep(pipe, "workspace", "a violin", session="one")
    keep(pipe, "note", "a violin", kind="note", note_id="note", owner_user_id="kate", session="memory:kate")
    keep(pipe, "account", "a violin", tier="account", kind="preference")
    settle(pipe)
    return pipe


EVERYWHERE = ["workspace", "note"]
SEEN: list[tuple[dict[str, Any], list[str]]] = [
    (
        {},
        [
            "conversation one",
            "conversation two",
            "channel music",
            "channel noise",
            "channel general",
            *EVERYWHERE,
            "account",
        ],
    ),
    (
        {"scope": "workspace"},
        ["conversation one", "conversation two", "channel music", "channel noise", "channel general", *EVERYWHERE],
    ),
    ({"session": "one"}, ["conversation one"]),
    ({"session": "one", "scope": "conversation"}, ["conversation one"]),
    ({"session": "memory:kate"}, ["note"]),
    ({"session": "one", "scope": "channel"}, ["conversation one", "channel music"]),
    ({"session": "none", "scope": "channel"}, ["channel general"]),
    ({"channel": "music"}, ["conversation one", "conversation two", "channel music"]),
    ({"channel": "noise"}, ["channel noise"]),
    ({"channel": "empty"}, []),
    ({"session": "one", "channel": "noise"}, []),
    ({"session": "one", "channel": "noise", "scope": "workspace"}, ["conversation one", "channel noise"]),
    ({"session": "one", "scope": "workspace"}, ["conversation one", "channel music", *EVERYWHERE]),
    ({"session": "far", "scope": "workspace"}, ["channel noise", *EVERYWHERE]),
    ({"session": "none", "scope": "workspace"}, ["channel general", *EVERYWHERE]),
    ({"session": "one", "scope": "account"}, ["conversation one", "channel music", *EVERYWHERE, "account"]),
    (
        {"session": "one", "scope": "account", "visible_channel": "noise"},
        ["conversation one", "channel noise", *EVERYWHERE, "account"],
    ),
    ({"scope": "account", "channel": "noise"}, ["channel noise"]),
]


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_is_seen_depends_on_the_tier_and_on_where_one_looks_from(tiers: Pipeline, on_disk: bool) -> None:
    """Given a memory of each tier, then each scope shows what holds there, from memory as from disk, in every mode."""
    if on_disk:
        tiers.indexes = OnDiskOnly()
    for (place, seen), way in product(SEEN, WAYS):
        asked = {"limit": 50, "kinds": ("memory",), "separate_duplicates": True, **place, **way}
        assert sorted(ids(over_both(tiers, "violin", user="kate", **asked))) == sorted(seen), (place, way)
        without_user = [one for one in seen if one != "note"]  # the note is Kate's
        assert sorted(ids(over_both(tiers, "violin", **asked))) == sorted(without_user), (place, way)


@pytest.mark.parametrize("way", WAYS)
def test_messages_of_a_scope_are_as_before(tiers: Pipeline, way: dict[str, Any]) -> None:
    """Given memories of all tiers, then a session shows its own messages, and a scope beyond it all of them."""
    own = over_both(tiers, "violin", session="one", kinds=("message",), **way)
    wide = over_both(tiers, "violin", session="one", scope="account", kinds=("message",), limit=50, **way)
    assert [result.text for result in own.response] == ["a violin said in one"]
    assert len(wide.hits) == 4


def test_nothing_of_another_agent_is_seen(tiers: Pipeline) -> None:
    """Given memories in both stores, then another agent finds none, and her own ones alone."""
    assert ids(over_both(tiers, "violin", agent="bob", limit=50)) == []
    keep(tiers, "hers", "a violin of bob's", agent="bob", tier="account", kind="preference")
    settle(tiers)
    assert ids(over_both(tiers, "violin", agent="bob", limit=50)) == ["hers"]
    assert "hers" not in ids(over_both(tiers, "violin", limit=50))


def test_a_memory_says_what_it_is(pipe: Pipeline) -> None:
    """Given a memory with tags from a session, then its result has tier, tags, session and source."""
    (message,) = pipe.say("I moved to Lisbon")
    settle(pipe)
    keep(pipe, "m", "Lives in Lisbon", session="s", source_message=message, tags=("home",), kind="fact", confidence=0.9)
    settle(pipe)
    (result,) = over_both(pipe, "Lisbon", kinds=("memory",), explain=True).response.results
    assert (result.kind, result.id, result.text, result.tier) == ("memory", "m", "Lives in Lisbon", "workspace")
    assert (result.tags, result.session, result.source_message, result.role) == (["home"], "s", message, None)
    assert result.explanation is not None
    assert result.explanation.keyword is not None
    assert over_both(pipe, "Lisbon", kinds=("memory",), tags=("away",)).hits == ()
    assert ids(over_both(pipe, "Lisbon", kinds=("memory",), tags=("home",))) == ["m"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_kinds_are_told_apart_inside_the_search(pipe: Pipeline, on_disk: bool) -> None:
    """Given 150 better messages, then memories or files alone are found when asked for, in every mode."""
    pipe.say(*[f"violin strings {number}" for number in range(150)])
    pipe.hand_in("file:///a", "a violin in a file")
    settle(pipe)
    keep(pipe, "m", "a violin in a memory")
    settle(pipe)
    if on_disk:
        pipe.indexes = OnDiskOnly()
    for way in WAYS:
        assert ids(over_both(pipe, "violin strings", kinds=("memory",), **way)) == ["m"], way
        two = over_both(pipe, "violin strings", kinds=("memory", "file"), **way).response
        assert sorted(result.kind for result in two) == ["file", "memory"], way
        assert {r.kind for r in over_both(pipe, "violin strings", kinds=("message",), limit=100, **way).response} == {
            "message"
        }
    with pytest.raises(Rejected, match="'dream'; it must be one of message, file, memory"):
        pipe.recall("violin", kinds=("dream",))


def test_what_has_expired_or_was_superseded_is_not_shown(pipe: Pipeline) -> None:
    """Given memories of which one expires, one has expired and one was replaced, then those that stand are found."""
    now = pipe.now()
    for number in range(30):  # more than a recall reads at once
        keep(pipe, f"old {number}", "tea with milk", expires_at=now - 1)
    keep(pipe, "soon", "tea with milk and sugar, for now", expires_at=now + 3_600_000_000)
    keep(pipe, "forever", "tea with a biscuit")
    old = keep(pipe, "replaced", "tea without milk")
    settle(pipe)
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana").memories
        rows.supersede(old.row_id, by=rows.get("forever").row_id, now=now)
    for way in WAYS:
        assert sorted(ids(over_both(pipe, "tea with milk", **way))) == ["forever", "soon"], way
    later = RecallRequest(query="tea with milk", agent="ana")
    assert ids(find(pipe.store, pipe.embedder, later, now=now + 7_200_000_000)) == ["forever"]


SAID = [
    "Which tram goes to the harbour?",
    "The 28 goes down to the harbour",
    "I had soup at the harbour last week",
    "My cat sleeps on the sofa all day",
    "The boat to the island leaves at nine",
    "Kate: I sail every Sunday",
]
QUERIES = [
    "harbour",
    "which boat sails to the island",
    "what does Kate do",
    "where did I go last week",
    "soup cat boat",
]


@pytest.mark.parametrize("way", WAYS)
def test_memories_change_neither_ranks_nor_scores_of_what_was_said(pipe: Pipeline, way: dict[str, Any]) -> None:
    """Given a conversation, when memories come, then its messages alone are ranked and scored as before to the last
    bit, and in the default ranking they stand in the same order among the memories."""
    pipe.say(*SAID)
    settle(pipe)

    def ranked(query: str, **more: Any) -> list[tuple[str, Any]]:
        found = over_both(pipe, query, limit=100, explain=True, **more, **way).response
        return [(result.id, result.explanation) for result in found if result.kind == "message"]

    before = {query: ranked(query) for query in QUERIES}
    for number, text in enumerate(("harbour harbour boat", "Kate sails on Sunday", "a long week of soup and cats")):
        keep(pipe, f"m{number}", text, created_at=pipe.now())
        keep(pipe, f"a{number}", text + " everywhere", created_at=pipe.now(), tier="account")
    settle(pipe)
    for query in QUERIES:
        assert ranked(query, kinds=("message",)) == before[query]
        if not way:
            assert [found[0] for found in ranked(query)] == [found[0] for found in before[query]]


def test_a_better_memory_stands_above_the_best_message(pipe: Pipeline) -> None:
    """Given messages of which none fits well, then the memory that does leads, and all scores are on one scale."""
    pipe.say("we spoke of the harbour", "the island is far", "soup again")
    keep(pipe, "m", "the ferry to the island leaves the harbour at nine")
    settle(pipe)
    found = over_both(pipe, "when does the ferry to the island leave the harbour", explain=True)
    scores = [result.explanation.score for result in found.response if result.explanation is not None]
    assert ids(found)[0] == "m"
    assert scores == sorted(scores, reverse=True)
    for result in found.response:
        explanation = result.explanation
        assert explanation is not None
        shares = [
            one.normalised
            for one in (explanation.keyword, explanation.keyword_around, explanation.vector, explanation.vector_around)
            if one
        ]
        assert sum(shares) == pytest.approx(explanation.score, abs=1e-5)
        assert all(0.0 <= share <= 1.0 for share in shares)


def test_a_memory_that_speaks_of_somebody_is_preferred_when_she_is_named(pipe: Pipeline) -> None:
    """Given a speaker's name in a question, then a memory about her stands above one about somebody else."""
    pipe.say({"content": "hello", "name": "Kate"}, {"content": "hello", "name": "Otto"})
    keep(pipe, "otto", "Otto likes tea from Ceylon")
    keep(pipe, "kate", "Kate likes tea from Ceylon")
    settle(pipe)
    assert ids(over_both(pipe, "What tea does Kate like?", kinds=("memory",))) == ["kate", "otto"]
    assert ids(over_both(pipe, "What tea does Otto like?", kinds=("memory",))) == ["otto", "kate"]


@pytest.mark.parametrize("way", WAYS)
def test_a_memory_and_its_message_are_one_result(pipe: Pipeline, way: dict[str, Any]) -> None:
    """Given a memory that was made from a message, then the message is shown once, for both."""
    source, other = pipe.say("well, the thing is that we moved house, to Lisbon of all places", "Lisbon is warm")
    settle(pipe)
    keep(pipe, "copy", "moved to Lisbon", source_message=source)
    keep(pipe, "again", "moved house to Lisbon", source_message=source, tier="account", kind="preference")
    settle(pipe)
    found = over_both(pipe, "moved to Lisbon", **way)
    assert ids(found) == [source, other]
    assert {(hit.store, hit.score <= 1) for hit in found.folded} == {("ws", True), ("@account", True)}
    assert Counter(hit.store for hit in (*found.hits, *found.folded)) == {"ws": 3, "@account": 1}
    alone = over_both(pipe, "moved to Lisbon", kinds=("memory",), **way)
    assert sorted(ids(alone)) == ["again", "copy"]
    assert alone.folded == ()
    assert set(ids(over_both(pipe, "moved to Lisbon", separate_memories=True, **way))) == {
        source,
        other,
        "copy",
        "again",
    }


def test_a_memory_does_not_lift_its_message(pipe: Pipeline) -> None:
    """Given a memory that fits better than any message, then the messages stand as they would without it."""
    message_ids = pipe.say("we have moved, far to the south", "Lisbon is warm", "a tram runs in Lisbon")
    settle(pipe)
    before = ids(over_both(pipe, "moved to Lisbon"))
    keep(pipe, "copy", "moved to Lisbon", source_message=message_ids[2])
    settle(pipe)
    assert ids(over_both(pipe, "moved to Lisbon")) == before
    assert ids(over_both(pipe, "moved to Lisbon", limit=1)) == before[:1]


def test_a_memory_stands_for_itself_where_its_message_may_not_be_shown(pipe: Pipeline) -> None:
    """Given a memory with a tag that its message has not, or a message that is gone, then the memory is shown."""
    (source,) = pipe.say("we moved to Lisbon")
    settle(pipe)
    keep(pipe, "tagged", "moved to Lisbon", source_message=source, tags=("home",))
    keep(pipe, "orphan", "sailed to Lisbon", source_message="long gone")
    settle(pipe)
    assert ids(over_both(pipe, "Lisbon", tags=("home",))) == ["tagged"]
    assert set(ids(over_both(pipe, "Lisbon"))) == {source, "orphan"}


def test_words_do_alone_while_nothing_has_a_vector(pipe: Pipeline) -> None:
    """Given memories that are cut and not embedded, then words find them, and the answer says so."""
    pipe.say("the harbour")
    keep(pipe, "m", "the harbour is closed")
    keep(pipe, "a", "prefers the harbour", tier="account", kind="preference")
    settle(pipe, vectors=False)
    found = over_both(pipe, "harbour", limit=10)
    assert set(ids(found)) >= {"m", "a"}
    assert len(found.hits) == 3
    assert "nothing has a vector yet" in found.response.degraded


def test_session_search_counts_notes_in_their_session_and_no_other_memory(pipe: Pipeline) -> None:
    """Given two sessions, when memories of one of them come, then the search for sessions answers as before; a note is
    found in its session."""
    pipe.say("I bought a violin", "it has old strings", session="one")
    pipe.say("the violin broke", session="two")
    settle(pipe)
    request = RecallRequest(query="violin strings", agent="ana")

    def found() -> list[FoundSession]:
        # The relevance counts how common a word is in everything that is stored, memories too.
        return [replace(one, relevance=0) for one in search_sessions(pipe.store, pipe.embedder, request)]

    before = found()
    assert len(before) == 2
    keep(pipe, "m", "violin strings", session="two", tier="conversation")
    keep(pipe, "n", "violin strings violin strings", session="two")
    settle(pipe)
    assert found() == before
    on_disk = search_sessions(pipe.store, pipe.embedder, request, indexes=OnDiskOnly())
    assert {found.excerpt for found in on_disk.results} <= {
        "I bought a violin",
        "it has old strings",
        "the violin broke",
    }
    with pipe.store.writing() as tx:
        tx.for_agent("ana").sessions.ensure("memory:kate", now=MORNING)
    keep(pipe, "note", "kate restores harpsichords", kind="note", note_id="note", session="memory:kate")
    settle(pipe)
    noted = RecallRequest(query="harpsichords", agent="ana", limit=1)
    for indexes in (None, OnDiskOnly()):
        found = search_sessions(pipe.store, pipe.embedder, noted, indexes=indexes)
        assert [(s.session, s.excerpt) for s in found.results] == [("memory:kate", "kate restores harpsichords")]


def test_memories_take_no_place_of_what_was_said_where_a_first_look_decides(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an index too large to score all of it, when many memories fit better, then messages stand in the order that
    they had, and the best memories are found."""
    monkeypatch.setattr(retrievers, "SCORED_WHOLE", 20)
    monkeypatch.setattr(retrievers, "KEYWORD_SEEDS", 6)
    monkeypatch.setattr(retrievers, "NEAREST_SEEDS", 6)
    pipe.say(*[f"the harbour on day {number}, w{number}" if number % 7 == 0 else f"w{number}" for number in range(120)])
    settle(pipe)

    def messages() -> list[str]:
        found = over_both(pipe, "harbour boat", limit=100).response
        return [result.id for result in found if result.kind == "message"]

    before = messages()
    for number in range(40):
        keep(pipe, f"m{number}", f"harbour boat number {number}")
    settle(pipe)
    after = messages()  # fewer, of a hundred results
    assert after == before[: len(after)]
    assert len(after) >= 40
    assert len(ids(over_both(pipe, "harbour boat", kinds=("memory",), limit=10))) == 10
