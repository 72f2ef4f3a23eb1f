"""Searches in the tables of PostgreSQL's indexes, which answer while the index of a large agent is being built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.embedders.base import HashEmbedder
from retrieval.index.cache import AgentIndexes
from storage.index.chunk_filter import ChunkFilter
from support.failing_server import pipeline_on
from support.pipeline import Pipeline
from support.postgres import TestServer

QUERY = "a note on zanzibar"


@pytest.fixture
def pipe(server: TestServer, database: str, tmp_path: Path) -> Iterator[Pipeline]:
    """Five notes of Ana in turn in two sessions, and of Bob, who said the last."""
    with pipeline_on(server.url(database), tmp_path) as made:
        for number in range(5):
            for agent in ("ana", "bob"):
                made.say(f"{QUERY} {number}", agent=agent, session=f"s{number % 2}")
                made.settle()
        yield made


@pytest.mark.parametrize(("max_searched", "found"), [(2, [3, 4]), (5, [0, 1, 2, 3, 4]), (50_000, [0, 1, 2, 3, 4])])
def test_a_search_compares_the_newest_chunks_of_the_agent(pipe: Pipeline, max_searched: int, found: list[int]) -> None:
    assert _searched(pipe, ChunkFilter("ana"), max_searched=max_searched) == (found, found)


@pytest.mark.parametrize(("max_searched", "found"), [(1, [3]), (2, [1, 3]), (50_000, [1, 3])])
def test_a_filter_applies_before_the_newest_are_taken(pipe: Pipeline, max_searched: int, found: list[int]) -> None:
    with pipe.store.reading() as tx:
        session = tx.for_agent("ana").sessions.get("s1").row_id
    assert _searched(pipe, ChunkFilter("ana", (session,)), max_searched=max_searched) == (found, found)


def test_an_agent_without_chunks_finds_nothing(pipe: Pipeline) -> None:
    assert _searched(pipe, ChunkFilter("mallory"), max_searched=2) == ([], [])


def test_an_answer_from_the_newest_chunks_says_so(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentIndexes, "snapshot", lambda *_: None)  # as while it is being built
    assert pipe.recall(QUERY).degraded.startswith("plain ranking of the newest 50,000 chunks: ")


def _searched(pipe: Pipeline, chunks: ChunkFilter, *, max_searched: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the notes that a search by words finds, and of those that one by meaning finds."""
    vector = HashEmbedder().embed_query(QUERY).tobytes()
    with pipe.store.reading() as tx:
        tx.index.max_searched = max_searched
        words = tx.index.search_text("zanzibar", chunks, 10)
        nearest = tx.index.search_vectors(vector, chunks, 10)
        number_of = {
            chunk_id: int(text[-1]) for chunk_id, text in tx.connection.exec_driver_sql("SELECT id, text FROM chunks")
        }
    by_words, by_meaning = ([number_of[hit.chunk_id] for hit in hits] for hits in (words, nearest))
    return sorted(by_words), sorted(by_meaning)
