"""The two halves of an index in memory, held against the plainest way to the same answer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.index.agent_index import Floats, Postings, VectorCodes

words = st.one_of(st.integers(0, 5), st.sampled_from([2**31, 2**32 - 1]))
batches = st.lists(st.lists(st.lists(words, max_size=8), max_size=6), max_size=8)


@settings(max_examples=200)
@given(batches)
def test_a_word_has_the_rows_that_hold_it_and_how_often(given_batches: list[list[list[int]]]) -> None:
    """Given rows added in any batches, then each word's postings are those of a plain count, ascending by row."""
    postings, rows = Postings(), []
    for batch in given_batches:
        before = postings
        held = lookup(before, 1)
        postings = added(postings, len(rows), batch)
        rows += batch
        assert lookup(before, 1) == held  # what a reader has does not change
    counted = [Counter(row) for row in rows]
    for word in {0, 1, 2, 5, 6, 2**31, 2**32 - 1}:
        expected = {row: count[word] for row, count in enumerate(counted) if count[word]}
        assert lookup(postings, word) == expected
        assert list(lookup(postings, word)) == sorted(expected)


def test_a_word_that_stands_more_than_255_times_counts_255_times() -> None:
    """Given a word 256 and 1,000 times in a row, then its count stays in one byte, and does not start again at 0."""
    postings = added(added(Postings(), 0, [[7] * 256, [7] * 1_000]), 2, [[7] * 255])
    assert lookup(postings, 7) == {0: 255, 1: 255, 2: 255}


def test_a_thousand_rows_one_by_one_make_a_handful_of_segments() -> None:
    """Given an index that grows row by row, then a word is still looked up in few places."""
    postings = Postings()
    for row in range(1_000):
        postings = added(postings, row, [[1, row]])
        assert len(postings.segments) <= 11
    assert len(lookup(postings, 1)) == 1_000
    assert postings.nbytes > 8_000


def test_rows_without_words_are_rows_all_the_same() -> None:
    postings = added(added(Postings(), 0, [[], []]), 2, [[], [3], []])
    assert lookup(postings, 3) == {3: 1}
    assert lookup(Postings(), 3) == {}


@pytest.mark.parametrize("dim", [1, 7, 63, 64, 65, 100, 384])
def test_cosines_are_those_of_the_vectors_to_a_few_thousandths(dim: int) -> None:
    """Given random unit vectors put in parts and out of order, then cosines of codes are near the exact ones."""
    vectors, query = unit(3_000, dim, seed=dim), unit(1, dim, seed=99)[0]
    codes = coded(vectors)
    exact = vectors @ query
    picked = np.array([2_999, 0, 1_024, 1_023, 5])
    assert np.abs(codes.cosines(query, slice(0, 3_000)) - exact).max() < 0.01
    assert np.abs(codes.cosines(query, picked) - exact[picked]).max() < 0.01
    assert codes.cosines(query, np.empty(0, np.int64)).tolist() == []


def test_a_row_without_a_vector_has_a_cosine_of_0() -> None:
    codes = VectorCodes(10)
    codes.reserve(3)
    codes.put(np.array([1]), np.zeros((1, 10), np.float32))
    assert codes.cosines(unit(1, 10)[0], slice(0, 3)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dim", [10, 64, 100, 384])
def test_the_nearest_is_among_the_nearest_by_signs(dim: int) -> None:
    """Given 2,000 random vectors, then a generous number by signs holds the exact nearest, of those allowed alone."""
    vectors = unit(2_000, dim, seed=1)
    codes = coded(vectors)
    among = np.arange(2_000) % 3 == 0
    for seed in range(20):
        query = unit(1, dim, seed=1_000 + seed)[0]
        found = codes.nearest(query, among, 400)
        assert len(found) >= 400
        assert among[found].all()
        exact = np.where(among, vectors @ query, -2)
        assert int(np.argmax(exact)) in found


def test_more_wanted_than_there_are_gives_all_and_none_allowed_gives_none() -> None:
    """Given 50 rows of which some are allowed, then never another, however many are wanted."""
    codes, query = coded(unit(50, 65)), unit(1, 65, seed=2)[0]
    some = np.arange(50) % 2 == 0
    assert codes.nearest(query, some, 1_000).tolist() == np.flatnonzero(some).tolist()
    assert codes.nearest(query, np.zeros(50, np.bool_), 10).tolist() == []
    assert codes.nearest(query, np.zeros(0, np.bool_), 10).tolist() == []
    assert codes.nearest(-query, np.ones(3, np.bool_), 10).tolist() == [0, 1, 2]


def test_the_very_opposite_is_found_when_it_is_all_there_is() -> None:
    """Given one vector all of whose signs differ, then it is as far as can be and still found."""
    vector = unit(1, 64, seed=3)
    assert coded(vector).nearest(-vector[0], np.ones(1, np.bool_), 1).tolist() == [0]


def test_room_is_made_without_changing_what_is_there() -> None:
    """Given codes, when they grow, then the rows that were there stay; a copy goes its own way."""
    codes, query = coded(unit(10, 65)), unit(1, 65, seed=2)[0]
    before = codes.cosines(query, slice(0, 10)).tolist()
    other = codes.copy()
    codes.reserve(5)
    codes.reserve(2_000)
    codes.put(np.array([1_999]), query[None])
    other.put(np.array([0]), query[None])
    assert codes.cosines(query, slice(0, 10)).tolist() == before
    assert codes.cosines(query, np.array([1_999]))[0] == pytest.approx(1.0, abs=0.01)
    assert other.cosines(query, slice(0, 10)).tolist()[1:] == before[1:]
    assert codes.nbytes > other.nbytes > 0


def added(postings: Postings, first: int, rows: list[list[int]]) -> Postings:
    flat = np.array([word for row in rows for word in row], np.uint32)
    return postings.with_rows(first, flat, np.array([len(row) for row in rows], np.int64))


def lookup(postings: Postings, word: int) -> dict[int, int]:
    rows, counts = postings.of(word)
    return dict(zip(rows.tolist(), counts.tolist(), strict=True))


def unit(rows: int, dim: int, *, seed: int = 0) -> Floats:
    found = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    vectors: Floats = found / np.linalg.norm(found, axis=1, keepdims=True)
    return vectors


def coded(vectors: Floats) -> VectorCodes:
    """Codes of vectors, put in three parts, the last rows first."""
    codes = VectorCodes(vectors.shape[1])
    codes.reserve(len(vectors))
    for part in reversed(np.array_split(np.arange(len(vectors)), 3)):
        if len(part):
            codes.put(part, vectors[part])
    return codes
