"""Fused scores, checked against numbers worked out by hand; and questions in any form, against FTS5 itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from retrieval.ranking.fusion import fuse
from retrieval.ranking.parsing import MAX_WORDS, match_expression, searched_words
from reverie.errors import Rejected
from storage.index.chunk_filter import ChunkFilter
from storage.index.search_index import Hit
from storage.recall.words import words_of
from support.pipeline import Pipeline

VECTOR = [Hit(1, 0.9), Hit(2, 0.7), Hit(3, 0.5)]
KEYWORD = [Hit(2, 8.0), Hit(4, 6.0), Hit(1, 4.0)]


def scores(fusion: Literal["weighted", "rrf"], **more: object) -> dict[int, float]:
    return {item.chunk_id: item.score for item in fuse({"vector": VECTOR, "keyword": KEYWORD}, fusion=fusion, **more)}  # type: ignore[arg-type]


def test_the_weighted_sum_is_seven_tenths_meaning_and_three_tenths_words() -> None:
    """Given min-max scores vector 1, .5, 0 and keyword 1, .5, 0, then .7 and .3 of them."""
    assert scores("weighted") == pytest.approx({1: 0.7, 2: 0.7 * 0.5 + 0.3, 3: 0.0, 4: 0.3 * 0.5})


def test_given_weights_win() -> None:
    """Given weights of .2 and .8, then those count."""
    weighted = scores("weighted", weights={"vector": 0.2, "keyword": 0.8})
    assert weighted == pytest.approx({1: 0.2, 2: 0.9, 3: 0.0, 4: 0.4})


def test_reciprocal_ranks_are_added_with_sixty() -> None:
    """Given ranks, then 1/(60 + rank) of each retriever, whatever the scores."""
    assert scores("rrf") == pytest.approx({1: 1 / 61 + 1 / 63, 2: 1 / 62 + 1 / 61, 3: 1 / 63, 4: 1 / 62})


def test_a_leg_whose_scores_are_all_equal_gives_each_the_best() -> None:
    """Given one hit, or equal hits, then there is no spread to divide by, and each counts as 1."""
    fused = fuse({"vector": [Hit(1, 0.4)], "keyword": [Hit(2, 3.0), Hit(3, 3.0)]})
    assert {item.chunk_id: item.score for item in fused} == pytest.approx({1: 0.7, 2: 0.3, 3: 0.3})


def test_what_each_leg_said_is_kept_for_the_explanation() -> None:
    """Given a chunk that both retrievers found, then rank, raw and normalised score of each are there."""
    (item,) = (item for item in fuse({"vector": VECTOR, "keyword": KEYWORD}) if item.chunk_id == 2)
    assert (item.retriever_scores["vector"].rank, item.retriever_scores["vector"].score) == (2, 0.7)
    assert item.retriever_scores["vector"].normalised == pytest.approx(0.5)
    assert (item.retriever_scores["keyword"].rank, item.retriever_scores["keyword"].normalised) == (1, 1.0)


def test_no_retriever_and_empty_lists_find_nothing() -> None:
    """Given nothing found, then nothing is fused."""
    assert fuse({}) == fuse({"vector": [], "keyword": []}) == []


@given(st.lists(st.floats(-1e6, 1e6), max_size=30), st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_every_score_lies_between_nothing_and_all(vector: list[float], keyword: list[float]) -> None:
    """Given any scores, then weighted ones lie in [0, 1], and each chunk of each retriever comes out once."""
    hits_by_retriever = {
        "vector": [Hit(number, score) for number, score in enumerate(sorted(vector, reverse=True))],
        "keyword": [Hit(10 + number, score) for number, score in enumerate(sorted(keyword, reverse=True))],
    }
    fused = fuse(hits_by_retriever)  # type: ignore[arg-type]
    assert len({item.chunk_id for item in fused}) == len(fused)
    assert {item.chunk_id for item in fused} == {hit.chunk_id for hits in hits_by_retriever.values() for hit in hits}
    assert all(-1e-9 <= item.score <= 1 + 1e-9 for item in fused)


SAID = ("newer: same words", "AND OR NOT NEAR text", "older: same words", 'she said "a-b" (c) * ^ : +')


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A few messages, two of them with the same words at different times."""
    pipe = Pipeline(tmp_path_factory.mktemp("lexical") / "data")
    older, newer = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2))
    pipe.say({"content": SAID[0], "id": "b", "created_at": newer, "name": None}, SAID[1])
    pipe.say({"content": SAID[2], "id": "a", "created_at": older}, SAID[3])
    pipe.settle()
    yield pipe
    pipe.close()


def test_ties_go_to_the_newer(pipe: Pipeline) -> None:
    """Given two messages that match equally well, then the one said later comes first, whatever their ids."""
    assert [memory.id for memory in pipe.recall("same words", mode="keyword", limit=2)] == ["b", "a"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("a AND b OR NOT c NEAR(d, 3)", '"a" OR "and" OR "b" OR "or" OR "not" OR "c" OR "near" OR "d" OR "3"'),
        ('she said "a-b"', '"she" OR "said" OR "a" OR "b"'),
        ("text: x* ^y +z {t} : - (", '"text" OR "x" OR "y" OR "z" OR "t"'),
        ("Same SAME same", '"same"'),
        ("The Pixel's screen isn\u2019t O'Brien's", '"the" OR "pixel" OR "screen" OR "isn" OR "o" OR "brien"'),
        ("nul\x00byte", '"nul" OR "byte"'),
        ("Grüße 漢字 Ωμέγα", '"grüße" OR "漢字" OR "ωμέγα"'),
        ("?!… ''\"\"", ""),
        ("", ""),
        ("\ud800", ""),
    ],
)
def test_a_question_becomes_quoted_words_joined_by_or(query: str, words: str) -> None:
    """Given operators, quotes, columns or nothing, then no operator of the user's reaches FTS5."""
    assert match_expression(query) == words


def test_a_long_question_is_cut_to_its_first_words() -> None:
    """Given 100 KB of different words, then the expression stays small; given one word of 100 KB, it stays whole."""
    assert match_expression(" ".join(f"w{number}" for number in range(20_000))).count(" OR ") == MAX_WORDS - 1
    assert len(match_expression("x" * 100_000)) == 100_002


@given(st.text(max_size=400))
@example("\x00")
@example("_ __ ___")
@example("x" * 100_000)
@example('"' * 1_000)
@example("NEAR(" * 500)
@example("same OR text")
@example("\u0345\u200d\U000e0001 a")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_question_makes_full_text_search_raise(pipe: Pipeline, query: str) -> None:
    """Given any text at all, then FTS5 takes its expression, and what shares a word with it is found, nothing else."""
    match = match_expression(query)
    if match:
        with pipe.store.reading() as tx:
            tx.index.search_text(match, ChunkFilter("ana"), 10)
    words = set(list(dict.fromkeys(searched_words(query)))[:MAX_WORDS])
    found = {memory.text for memory in pipe.recall(query, mode="keyword", limit=100)}
    assert found == {text for text in SAID if words & set(words_of(text))}


@pytest.mark.parametrize("word", ["AND", "OR", "NOT", "NEAR", "near(", '"text"', "text:", "-text", "a-b"])
def test_words_that_are_operators_elsewhere_find_what_was_said(pipe: Pipeline, word: str) -> None:
    """Given an operator as a word, then it is looked for as a word."""
    assert len(pipe.recall(word, mode="keyword")) >= 1


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"mode": "magic"}, "mode"),
        ({"fusion": "cold"}, "fusion"),
        ({"vector_weight": float("nan")}, "vector_weight"),
        ({"vector_weight": 0, "fts_weight": 0}, "vector_weight"),
        ({"query_embedding": [1.0]}, "query_embedding"),
        ({"query_embedding": [0.0] * 64}, "query_embedding"),
        ({"query_embedding": [float("nan")] * 64}, "query_embedding"),
    ],
)
def test_a_request_at_fault_names_its_field(pipe: Pipeline, request_: dict[str, object], field: str) -> None:
    """Given a request out of range, then it is rejected before anything is searched."""
    with pytest.raises(Rejected) as error:
        pipe.recall("same", **request_)
    assert error.value.field == field
    with pytest.raises(Rejected, match="100,000"):
        pipe.recall("x" * 100_001)


def test_a_given_embedding_takes_the_place_of_the_embedder(pipe: Pipeline) -> None:
    """Given the vector of a message, of any length, then that message is the nearest."""
    vector = pipe.embedder.embed_query("older: same words") * 7
    assert pipe.recall("", mode="vector", query_embedding=vector.tolist(), limit=1).results[0].id == "a"
