"""Which conversation was that? Each retriever of the ranking of sessions decides where it should."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retrieval.query import RecallRequest
from reverie.errors import NotFound
from support.pipeline import Pipeline
from support.recalling import BagOfWords, OnDiskOnly, search_sessions

JUNE = datetime(2023, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline whose embedder knows that some words mean the same."""
    pipe = Pipeline(tmp_path / "data", embedder=BagOfWords())
    yield pipe
    pipe.close()


@pytest.mark.parametrize("how", [{}, {"mode": "keyword"}, {"mode": "vector"}])
@pytest.mark.parametrize("embedder", [True, False])
@pytest.mark.parametrize("query", ["zzz", "?!", "the", "", "  ", "😀", "x" * 100_000])
def test_a_query_that_finds_nothing_finds_no_session(
    pipe: Pipeline, how: dict[str, str], embedder: bool, query: str
) -> None:
    """Given sessions of which none has a word of the query, then there is an answer, without an error."""
    pipe.say("the harbour")
    pipe.settle()
    found = search(pipe, query, embedder=embedder, **how)
    assert len(found) <= 1
    if not query.strip() or how == {"mode": "keyword"}:
        assert found == (["s"] if query == "the" else [])


def test_an_agent_without_sessions_finds_none(pipe: Pipeline) -> None:
    pipe.say("the harbour", agent="bob")
    pipe.settle()
    assert search(pipe, "harbour") == []


def test_what_the_user_said_counts_more_than_what_was_answered(pipe: Pipeline) -> None:
    """Given the same words of a user and of an assistant, then the user's session leads."""
    pipe.say({"role": "assistant", "content": "the harbour of Porto"}, "well then", session="answered")
    pipe.say({"role": "assistant", "content": "well then"}, "the harbour of Porto", session="said")
    pipe.settle()
    for how in ({}, {"mode": "keyword"}):
        assert search(pipe, "harbour in Porto", **how) == ["said", "answered"]


def test_what_people_with_a_name_said_counts_as_what_users_said(pipe: Pipeline) -> None:
    """Given an answer of somebody who has a name, and one without, then the session with the first leads."""
    answers = {"of-a-person": {"name": "Ben"}, "of-an-assistant": {}}
    for session, name in answers.items():
        answer = {"role": "assistant", "content": "the harbour of Porto", **name}
        pipe.say({"content": "well then"}, answer, session=session)
    pipe.say({"role": "assistant", "content": "the harbour of Porto"}, "well then", session="newest")
    pipe.settle()
    for how in ({}, {"mode": "keyword"}):
        assert search(pipe, "harbour in Porto", **how)[0] == "of-a-person"


def test_where_no_user_spoke_everybody_counts(pipe: Pipeline) -> None:
    """Given only assistants, then their words are what the sessions are found by."""
    for session, content in (("a", "the harbour of Porto"), ("b", "harbour"), ("c", "violin")):
        pipe.say({"role": "assistant", "content": content}, session=session)
    pipe.settle()
    assert search(pipe, "harbour of Porto", mode="keyword") == ["a", "b"]


def test_all_that_was_said_counts_as_one_text(pipe: Pipeline) -> None:
    """Given a session that says each word of the query in another turn, then it leads before those with one word."""
    pipe.say("tomatoes", "and then", "violins", "or else", "trains", session="all")
    for word in ("tomatoes", "violins", "trains"):
        pipe.say(word, "and then", "whatever", session=word)
    pipe.settle()
    assert search(pipe, "tomatoes violins trains")[0] == "all"
    assert search(pipe, "tomatoes violins trains", mode="keyword")[0] == "all"


def test_meaning_finds_what_no_word_does(pipe: Pipeline) -> None:
    pipe.say("a vessel", session="sense")
    pipe.say("a garden", session="other")
    pipe.settle()
    assert search(pipe, "boat")[0] == "sense"
    assert search(pipe, "boat", mode="vector")[0] == "sense"
    assert search(pipe, "boat", mode="keyword") == []


def test_the_time_that_is_meant_decides_between_equals(pipe: Pipeline) -> None:
    """Given the same said in two months, then the month in the query decides; without one, the newer leads."""
    pipe.say({"content": "the harbour", "created_at": JUNE}, session="june")
    pipe.say({"content": "the harbour", "created_at": JUNE + timedelta(days=31)}, session="july")
    pipe.settle()
    assert search(pipe, "harbour in june")[0] == "june"
    assert search(pipe, "harbour") == ["july", "june"]


def test_a_file_counts_for_its_session_and_one_without_counts_for_none(pipe: Pipeline) -> None:
    """Given files in a session and in none, then the first is found as its session, the other not at all."""
    pipe.say("hello", session="has")
    pipe.say("hello there", session="plain")
    pipe.hand_in("file:///a", "the harbour of Porto", session="has")
    pipe.hand_in("file:///b", "the harbour of Porto")
    pipe.settle()
    for how in ({}, {"mode": "keyword"}, {"mode": "vector"}):
        found = search_sessions(pipe.store, pipe.embedder, request("harbour of Porto", **how), indexes=pipe.indexes)
        assert (found.results[0].session, found.results[0].excerpt) == ("has", "the harbour of Porto")
    assert search(pipe, "harbour", mode="keyword") == ["has"]


def test_only_files_of_no_session_are_no_session(pipe: Pipeline) -> None:
    pipe.hand_in("file:///b", "the harbour of Porto")
    pipe.settle()
    for how in ({}, {"mode": "keyword"}, {"mode": "vector"}):
        assert search(pipe, "harbour", **how) == []


def test_tags_and_channels_confine_what_is_searched(pipe: Pipeline) -> None:
    """Given better matches outside, when a tag, a channel or a session is asked for, then only theirs are found."""
    for number in range(40):
        pipe.say("harbour harbour", session=f"n{number}")
    pipe.say({"content": "a harbour, once", "tags": ["trip"]}, "harbour", session="tagged", channel="sea")
    pipe.settle()
    for narrow in ({"tags": ("trip",)}, {"channel": "sea"}, {"session": "tagged"}):
        for how in ({}, {"mode": "keyword"}, {"mode": "vector"}):
            assert search(pipe, "harbour", **narrow, **how) == ["tagged"]
    assert search(pipe, "harbour", tags=("unheard",)) == []
    with pytest.raises(NotFound):
        search(pipe, "harbour", session="unheard")


def test_a_given_vector_is_enough(pipe: Pipeline) -> None:
    """Given no text but a vector, as a list or as numbers of numpy, then the nearest session is found."""
    pipe.say("a vessel", session="sense")
    pipe.say("a garden", session="other")
    pipe.settle()
    vector = BagOfWords().embed_query("boat")
    for given in (vector, vector.tolist(), tuple(vector.tolist())):
        assert search(pipe, "", query_embedding=given)[0] == "sense"


def test_a_forgotten_session_is_not_found(pipe: Pipeline) -> None:
    for number in range(30):
        pipe.say("the harbour", session=f"s{number}")
    pipe.settle()
    assert len(search(pipe, "harbour", limit=100)) == 30
    pipe.forget("s7")
    found = search(pipe, "harbour", limit=100)
    assert len(found) == 29
    assert "s7" not in found


def test_disk_answers_while_the_index_is_made(pipe: Pipeline) -> None:
    """Given no index in memory yet, then sessions are found from the indexes on disk, and the answer says so."""
    pipe.say("the harbour", session="a")
    pipe.say("the violin", session="b")
    pipe.settle()
    indexes = OnDiskOnly()
    for how in ({}, {"mode": "keyword"}, {"mode": "vector"}):
        found = search_sessions(pipe.store, pipe.embedder, request("harbour", **how), indexes=indexes)
        assert found.results[0].session == "a"


def request(query: str, **more: Any) -> RecallRequest:
    return RecallRequest(query=query, agent="ana", **more)


def search(pipe: Pipeline, query: str, *, embedder: bool = True, **more: Any) -> list[str]:
    found = search_sessions(
        pipe.store, pipe.embedder if embedder else None, request(query, **more), indexes=pipe.indexes
    )
    return [session.session for session in found.results]
