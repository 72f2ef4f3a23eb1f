"""What a recall is confined to, session, channel, scope and tags: inside the search, whichever way it ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from retrieval.query import RecallRequest, chunk_filter
from retrieval.ranking.parsing import match_expression
from reverie.errors import NotFound, Rejected
from storage.transaction import Transaction
from storage.viewer import Viewer
from support.pipeline import Pipeline
from support.recalling import BagOfWords, OnDiskOnly
from support.work import plan_of

pytestmark = pytest.mark.slow

WAYS = [{}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "weighted"}, {"fusion": "rrf"}]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """One match each in two sessions of a channel, one outside, in a file and with a tag; 200 better ones elsewhere."""
    pipe = Pipeline(tmp_path / "data", embedder=BagOfWords())
    pipe.say(*[f"violin strings {number}" for number in range(200)], session="crowd", channel="noise")
    pipe.say("a violin at home in one", session="one", channel="music")
    pipe.say("a violin at home in two", session="two", channel="music")
    pipe.say("a violin at home in none", session="none")
    pipe.say({"content": "a violin with a tag", "tags": ["old", "wood"]}, session="none")
    pipe.say({"content": "a violin with half of it", "tags": ["wood"]}, session="two")
    pipe.hand_in("file:///a", "a violin in a file", session="one", tags=["paper"])
    pipe.hand_in("file:///b", "a violin in a file of no session")
    pipe.say(*[f"violin strings {number}" for number in range(20)], session="one", channel="music", agent="bob")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.for_agent("ana").channels.ensure("empty", now=pipe.now())
    yield pipe
    pipe.close()


CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"session": "one"}, ["at home in one", "in a file"]),
    ({"channel": "music"}, ["at home in one", "at home in two", "in a file", "with half of it"]),
    ({"session": "one", "channel": "music"}, ["at home in one", "in a file"]),
    ({"session": "one", "channel": "noise"}, []),
    ({"channel": "empty"}, []),
    ({"session": "one", "scope": "conversation"}, ["at home in one", "in a file"]),
    ({"session": "one", "scope": "channel"}, ["at home in one", "at home in two", "in a file", "with half of it"]),
    ({"session": "none", "scope": "channel"}, ["at home in none", "with a tag"]),
    ({"channel": "music", "scope": "channel"}, ["at home in one", "at home in two", "in a file", "with half of it"]),
    ({"tags": ("wood",)}, ["with a tag", "with half of it"]),
    ({"tags": ("wood", "old")}, ["with a tag"]),
    ({"tags": ("wood", "wood")}, ["with a tag", "with half of it"]),
    ({"tags": ("paper",)}, ["in a file"]),
    ({"tags": ("unheard",)}, []),
    ({"tags": ("wood",), "session": "two"}, ["with half of it"]),
    ({"tags": ("wood",), "channel": "music", "scope": "workspace"}, ["with half of it"]),
]


@pytest.mark.parametrize("on_disk", [False, True])
def test_only_what_passes_is_found_and_all_of_it(pipe: Pipeline, on_disk: bool) -> None:
    """Given 200 better matches outside of a filter, then what passes it is found, from memory as from disk."""
    if on_disk:
        pipe.indexes = OnDiskOnly()
    for (narrow, found), way in product(CASES, WAYS):
        texts = sorted(
            memory.text.removeprefix("a violin ") for memory in pipe.recall("violin strings", **narrow, **way)
        )
        assert texts == sorted(found), (narrow, way)


@pytest.mark.sqlite("reads its query plans")
def test_a_filter_applies_to_what_the_full_text_finds(pipe: Pipeline) -> None:
    """Given a filter and a user, then FTS5 evaluates the words once, not again for each chunk that passes."""
    for narrow, user in product([{}, *(case[0] for case in CASES)], (None, "kate")):
        request = RecallRequest(query="violin strings", agent="ana", **narrow)

        def search(tx: Transaction, request: RecallRequest = request) -> None:
            tx.index.search_text(match_expression(request.query), chunk_filter(tx.for_agent("ana"), request), 10)

        plan = plan_of(pipe.store.seen_by(Viewer(user)), search)
        # The plan of an FTS5 table names the constraints that it is given: M is the words, = a rowid.
        assert "VIRTUAL TABLE INDEX 0:M1" in plan, (narrow, user)


@pytest.mark.parametrize("scope", ["workspace", "account"])
def test_a_wide_scope_looks_beyond_the_session(pipe: Pipeline, scope: str) -> None:
    found = pipe.recall("violin strings", session="one", scope=scope, limit=100)
    assert len(found) == 100
    assert {memory.session for memory in found} >= {"crowd"}


def test_what_surrounds_a_result_need_not_pass_the_filter(pipe: Pipeline) -> None:
    """Given a tagged turn beside a question of its session, when tags are asked for, then the question still counts."""
    pipe.say("Which orchestra was it?", {"content": "The one in Porto", "tags": ["trip"]}, session="far")
    pipe.say({"content": "The second one in Porto", "tags": ["trip"]}, session="away")
    pipe.settle()
    assert [memory.session for memory in pipe.recall("orchestra", tags=("trip",))] == ["far", "away"]


def test_sessions_and_tags_that_go_leave_the_filter_empty(pipe: Pipeline) -> None:
    """Given a session that is forgotten, then it is unknown, and nothing of it is under its channel or tags."""
    pipe.recall("violin")
    pipe.forget("two")
    assert [memory.text for memory in pipe.recall("violin", tags=("wood",))] == ["a violin with a tag"]
    assert {memory.session for memory in pipe.recall("violin", channel="music")} == {"one"}
    with pytest.raises(NotFound):
        pipe.recall("violin", session="two")


@pytest.mark.parametrize("narrow", [{}, {"session": "one"}, {"scope": "channel"}, {"tags": ("wood",)}])
def test_a_channel_that_does_not_exist_is_named(pipe: Pipeline, narrow: dict[str, Any]) -> None:
    """Given a channel that no session, memory or description has, then it is unknown, as a session would be."""
    pipe.say("a violin of bob", session="bob", channel="unheard", agent="bob")
    pipe.settle()
    with pytest.raises(NotFound, match="agent ana has no channel 'unheard'") as caught:
        pipe.recall("violin", channel="unheard", **narrow)
    assert caught.value.field == "channel"


def test_the_default_channel_always_exists(pipe: Pipeline) -> None:
    """Given agents that have stored nothing, or nothing in the default channel, then it can be searched."""
    assert pipe.recall("violin", channel="general", agent="bob").results == []
    assert pipe.recall("violin", channel="general", agent="nobody").results == []


def test_what_cannot_be_asked_is_rejected_by_name(pipe: Pipeline) -> None:
    requests: list[tuple[dict[str, Any], str]] = [
        ({"scope": "conversation"}, "scope"),
        ({"scope": "channel"}, "scope"),
        ({"scope": "galaxy"}, "scope"),
        ({"mode": "psychic"}, "mode"),
        ({"fusion": "cold"}, "fusion"),
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"vector_weight": 1.1}, "vector_weight"),
        ({"fts_weight": -0.1}, "fts_weight"),
        ({"fts_weight": float("nan")}, "fts_weight"),
        ({"vector_weight": 0.5, "fts_weight": 0.6}, "vector_weight"),
    ]
    for request, field in requests:
        with pytest.raises(Rejected) as caught:
            pipe.recall("violin", **request)
        assert caught.value.field == field, request
