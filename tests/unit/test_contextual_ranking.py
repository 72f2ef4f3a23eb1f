"""The default ranking: each retriever decides where it should, filters work inside it, and no question breaks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.embedders.base import normalised
from retrieval.index.agent_index import K1, REACH, AgentIndex, B, Floats, IndexSnapshot, Neighbourhood
from retrieval.ranking import retrievers
from retrieval.ranking.fusion import Ranking
from retrieval.ranking.parsing import without_names
from reverie.errors import Rejected
from reverie.recall.types import RecallResult
from storage.index.forward import ForwardRow
from storage.recall.words import hash_of
from support.pipeline import Pipeline
from support.recalling import BagOfWords

pytestmark = pytest.mark.slow


class Dense(BagOfWords):
    """With numbers of both signs all over, as a model gives them."""

    def embed(self, texts: Sequence[str]) -> Floats:
        """Vectors of texts, shape (n, 200)."""
        directions = np.random.default_rng(1).standard_normal((self.dimension, self.dimension)).astype(np.float32)
        return normalised(super().embed(texts) @ directions, source=self.model)


JUNE = datetime(2023, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline whose embedder knows that some words mean the same."""
    pipe = Pipeline(tmp_path / "data", embedder=BagOfWords())
    yield pipe
    pipe.close()


def test_the_turn_that_answers_is_found_by_its_question(pipe: Pipeline) -> None:
    """Given an answer that shares no word with its question, when that is asked again, then the answer comes right
    after the question itself, before every other turn, and found by words."""
    question, answer = "When did you move to Lisbon?", "Yes, last Tuesday!"
    pipe.say("We had soup.", question, answer, "The soup was cold.", "It rained.", "The bread was stale.")
    pipe.settle()
    for query in (question, "move to Lisbon"):
        assert texts(pipe, query, limit=2) == [question, answer]
    for mode in ("hybrid", "keyword"):
        (found, *_) = [memory for memory in explained(pipe, "Lisbon", mode=mode) if memory.text == answer]
        assert retriever_score(found, "keyword").score > 0.1


def test_what_is_said_around_decides_between_two_that_say_the_same(pipe: Pipeline) -> None:
    """Given the same sentence in two conversations, then the one that stands beside what is asked for leads."""
    pipe.say("My sister plays the violin.", "It was lovely.", "She practises daily.", session="music")
    pipe.say("The train was late.", "It was lovely.", "We had tickets.", session="travel")
    pipe.settle()
    for wanted, query in (("music", "lovely violin"), ("travel", "lovely train")):
        found = [memory for memory in pipe.recall(query, limit=10) if memory.text == "It was lovely."]
        assert found[0].session == wanted
        only_words = [memory for memory in keyword_only(pipe, query) if memory.text == "It was lovely."]
        assert only_words[0].session == wanted


def test_who_is_named_decides(pipe: Pipeline) -> None:
    """Given two who say the same, when one is named, then what that one said leads, and the name is no word."""
    pipe.say({"content": "I like sailing", "name": "Ada"}, {"content": "I like sailing", "name": "Ben"})
    pipe.settle()
    for name in ("Ada", "Ben"):
        (first, second) = explained(pipe, f"What does {name} like?")
        assert (first.name, retriever_score(first, "speaker").score, retriever_score(second, "speaker").score) == (
            name,
            1.0,
            0.0,
        )


def test_a_query_of_a_name_alone_finds_what_that_one_said(pipe: Pipeline) -> None:
    """Given a query without another word, and no embedder, then all that this one said is found, and no more."""
    pipe.say({"content": "I like sailing", "name": "Ada"}, {"content": "I like tea", "name": "Ben"}, "and I?")
    pipe.settle()
    assert [memory.name for memory in keyword_only(pipe, "Ada")] == ["Ada"]
    assert next(iter(pipe.recall("Ada"))).name == "Ada"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("soup in june", 0),
        ("soup in May", 1),
        ("soup on 2023-04-02", 2),
        ("soup yesterday", 0),
        ("soup 2 months ago", 2),
    ],
)
def test_the_time_that_a_query_speaks_of_decides(pipe: Pipeline, query: str, wanted: int) -> None:
    """Given the same said on three days, then the day that is meant leads, counted from the newest message."""
    days = [JUNE, JUNE - timedelta(days=20), JUNE - timedelta(days=60)]
    ids = pipe.say(*[{"content": f"soup {place}", "created_at": when} for place, when in enumerate(days)])
    pipe.say({"content": "hello", "created_at": JUNE + timedelta(days=1)})
    pipe.settle()
    assert next(iter(pipe.recall(query))).id == ids[wanted]
    assert next(iter(keyword_only(pipe, query))).id == ids[wanted]


def test_messages_at_both_ends_of_the_calendar_are_no_obstacle(pipe: Pipeline) -> None:
    """Given messages of the first and of the very last moment there is, then every way to ask finds them."""
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    pipe.say({"content": "soup first", "created_at": first}, {"content": "soup last", "created_at": last})
    pipe.settle()
    for query in ("soup", "soup yesterday", "soup in may", "soup last week", "soup last year"):
        assert len(pipe.recall(query)) == 2
    assert len(pipe.recall("soup last year", explain=True)) == 2


def test_the_window_ends_with_the_session_and_with_the_file(pipe: Pipeline) -> None:
    """Given neighbours by number that belong elsewhere, then nothing of them counts around a chunk."""
    pipe.say("violin strings")
    pipe.say("nothing here", session="t")
    pipe.hand_in("file:///a", "nothing there", session="s")
    pipe.settle()
    by_text = {memory.text: memory for memory in explained(pipe, "violin strings")}
    for text in ("nothing here", "nothing there"):
        assert retriever_score(by_text[text], "keyword_around").score == 0
        assert retriever_score(by_text[text], "vector_around").score == retriever_score(by_text[text], "vector").score


def test_neighbours_within_reach_count_and_none_beyond(pipe: Pipeline) -> None:
    """Given a word said once among many turns, then it counts for 8 turns to both sides."""
    pipe.say(*[f"turn {number}" if number != 20 else "violin" for number in range(41)])
    pipe.settle()
    near = {
        memory.text
        for memory in explained(pipe, "violin", limit=100)
        if retriever_score(memory, "keyword_around").score > 0
    }
    assert near == {f"turn {number}" for number in range(20 - REACH, 21 + REACH) if number != 20} | {"violin"}


def test_ties_go_to_the_newer(pipe: Pipeline) -> None:
    """Given the same said in many sessions, when some are asked for, then the newest come, the newest first."""
    for number in range(30):
        pipe.say({"content": "soup", "created_at": JUNE + timedelta(days=(number * 7) % 30)}, session=f"s{number}")
    pipe.settle()
    for how in ({}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "weighted"}, {"fusion": "rrf"}):
        days = [
            (memory.created_at - JUNE).days for memory in pipe.recall("soup", limit=5, separate_duplicates=True, **how)
        ]
        assert days == [29, 28, 27, 26, 25], how


@pytest.mark.parametrize(
    "query",
    [
        "zzz",
        "the and of",
        "?!",
        "😀",
        "東京",
        "\u0301" * 50,
        "a\x00b",
        "NEAR(a b) OR *",
        "may",
        "x" * 100_000,
        "soup " * 20_000,
    ],
)
def test_no_query_is_too_odd(pipe: Pipeline, query: str) -> None:
    """Given anything at all, then every way to ask answers, with and without an embedder, by words or by sense."""
    pipe.say("soup", "the garden", "東京都 is far")
    pipe.settle()
    for how in ({}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "rrf"}, {"explain": True}):
        assert len(pipe.recall(query, **how)) <= 3
    assert len(keyword_only(pipe, "zzz")) == 0
    assert [memory.text for memory in keyword_only(pipe, "東京")] == ["東京都 is far"]


def test_an_empty_query_finds_nothing_and_a_huge_one_is_rejected(pipe: Pipeline) -> None:
    pipe.say("soup")
    pipe.settle()
    assert [len(pipe.recall(query)) for query in ("", " ", "\n")] == [0, 0, 0]
    with pytest.raises(Rejected, match="query"):
        pipe.recall("x" * 100_001)


def test_a_lone_surrogate_in_a_query_does_not_break_the_words(pipe: Pipeline) -> None:
    """Given a text that is no Unicode, when it gets this far, then words answer."""
    pipe.say("soup")
    pipe.settle()
    assert [memory.text for memory in keyword_only(pipe, "soup \ud800")] == ["soup"]


def test_an_agent_without_anything_is_told_so(pipe: Pipeline) -> None:
    pipe.say("soup", agent="bob")
    pipe.settle()
    assert len(pipe.recall("soup yesterday in may", explain=True)) == 0


def test_weights_shift_between_words_and_meaning(pipe: Pipeline) -> None:
    """Given one that has the word and one that means it, then the weight of the words decides which one leads."""
    pipe.say("a boat", session="word")
    pipe.say("ship ship ship", session="sense")
    pipe.settle()
    query = "my old wide boat"
    assert next(iter(pipe.recall(query, vector_weight=0.0))).session == "word"
    assert next(iter(pipe.recall(query, vector_weight=1.0))).session == "sense"
    assert next(iter(pipe.recall(query, fts_weight=1.0))).session == "word"
    (first, *_) = explained(pipe, query, vector_weight=0.0)
    assert first.explanation is not None
    assert first.explanation.score == pytest.approx(2 * retriever_score(first, "keyword").normalised)


def test_scores_explain_themselves(pipe: Pipeline) -> None:
    """Given an explained recall, then each score is the sum of its retrievers, and ranks count what is better."""
    pipe.say(*[{"content": f"soup {'of tomatoes ' * (n % 5)} {n}", "name": ("Ada", "Ben")[n % 2]} for n in range(30)])
    pipe.settle()
    found = explained(pipe, "What soup of tomatoes has Ada today?", limit=30)
    weights = retrievers.WEIGHTS
    for name in ("keyword", "keyword_around", "vector", "vector_around", "speaker"):
        scores = [retriever_score(memory, name) for memory in found]
        assert [one.rank for one in scores] == [1 + sum(other.score > one.score for other in scores) for one in scores]
        # The words around a chunk count as far as they are not its own.
        best = pytest.approx(1.0 if name != "keyword_around" else 0.93, abs=0.005)
        assert max(one.normalised for one in scores) == best
    for memory in found:
        assert memory.explanation is not None
        parts = ((name, getattr(memory.explanation, name)) for name in weights)
        assert memory.explanation.score == pytest.approx(sum(weights[n] * one.normalised for n, one in parts if one))
    assert all(memory.explanation is None for memory in pipe.recall("soup"))


def test_candidates_of_a_large_index_hold_what_looking_at_all_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an index too large to score whole, then the first of an exhaustive ranking are among its first."""
    pipe, chance = Pipeline(tmp_path / "data", embedder=Dense()), np.random.default_rng(1)
    vocabulary = [f"word{number}" for number in range(300)]
    for session in range(20):
        messages = [" ".join(chance.choice(vocabulary, 8)) for _ in range(50)]
        pipe.say(*messages, session=f"s{session}")
    pipe.settle()
    snapshot = snapshot_of(pipe)
    pipe.close()
    with monkeypatch.context() as patched:
        patched.setattr(retrievers, "SCORED_WHOLE", 100)
        patched.setattr(retrievers, "NEAREST_SEEDS", 60)
        patched.setattr(retrievers, "KEYWORD_SEEDS", 30)
        agreed = 0
        for _ in range(30):
            query = " ".join(chance.choice(vocabulary, 4))
            quick, whole = ranked(snapshot, query), ranked(snapshot, query, exhaustive=True)
            assert len(quick.rows) < len(whole.rows) == 1_000
            agreed += quick.best(1)[0].chunk_id == whole.best(1)[0].chunk_id
    assert agreed >= 27


def test_candidates_obey_the_filter_before_they_are_chosen(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given 200 better matches elsewhere, when a large index is asked for one session, then its match is found."""
    pipe.say(*[f"violin strings {number}" for number in range(200)], session="elsewhere")
    pipe.say("one violin in an orchestra", session="here")
    pipe.settle()
    monkeypatch.setattr(retrievers, "SCORED_WHOLE", 10)
    monkeypatch.setattr(retrievers, "NEAREST_SEEDS", 5)
    monkeypatch.setattr(retrievers, "KEYWORD_SEEDS", 5)
    assert texts(pipe, "violin strings", session="here") == ["one violin in an orchestra"]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6)), max_size=30),
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True),
)
def test_bm25_is_the_plain_formula(chunks: list[tuple[int, list[str]]], query: list[str]) -> None:
    """Given chunks in three sessions, then own and surrounding scores are those of a naive computation."""
    snapshot = made_of(chunks)
    words = [hash_of(word) for word in query]
    texts = [chunk_words for _, chunk_words in chunks]
    assert retrievers.own_scores(snapshot, words).tolist() == pytest.approx(
        naive(texts, query, texts, lambda n: n), abs=1e-4
    )
    near = Neighbourhood(snapshot)
    around = [
        [
            word
            for other in range(len(near.rows))
            if abs(other - place) <= REACH and snapshot.threads[near.rows[other]] == snapshot.threads[row]
            for word in texts[near.rows[other]]
        ]
        for place, row in enumerate(near.rows)
    ]
    chance = lambda n: len(chunks) * (1 - (1 - n / len(chunks)) ** (2 * REACH + 1))  # noqa: E731
    expected = naive(around, query, texts, chance)
    assert retrievers.surrounding_scores(snapshot, near, words).tolist() == pytest.approx(expected, abs=1e-4)


def test_what_another_agent_stores_changes_no_score_by_a_bit(pipe: Pipeline) -> None:
    """Given an explained answer, when another agent stores the same words 2,000 times, then it is the same answer."""
    pipe.say(*[{"content": f"violin {'harbour ' * (n % 4)}{n}", "name": "Ada"} for n in range(20)])
    pipe.settle()
    asks = [{}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "weighted"}, {"fusion": "rrf"}]
    before = [pipe.recall("Ada's violin in the harbour", explain=True, limit=20, **how) for how in asks]
    for start in (0, 1_000):
        messages = [{"content": f"violin harbour {start + n}", "name": "Violin"} for n in range(1_000)]
        pipe.say(*messages, agent="bob")
    pipe.settle()
    assert [pipe.recall("Ada's violin in the harbour", explain=True, limit=20, **how) for how in asks] == before
    kept, pipe.indexes = pipe.indexes, type(pipe.indexes)()
    assert [pipe.recall("Ada's violin in the harbour", explain=True, limit=20, **how) for how in asks] == before
    assert kept is not pipe.indexes


def naive(documents: list[list[str]], query: list[str], chunks: list[list[str]], with_word: Any) -> list[float]:
    """BM25 word by word; `with_word` makes the number of documents that hold a word of that of chunks."""
    mean = max(sum(map(len, documents)) / max(len(documents), 1), 1.0)
    scores = [0.0] * len(documents)
    for word in query:
        holding = sum(word in document for document in chunks)
        if not holding:
            continue
        weight = retrievers.idf(with_word(holding), len(chunks))
        for place, document in enumerate(documents):
            often = document.count(word)
            scores[place] += weight * often * (K1 + 1) / (often + K1 * (1 - B + B * len(document) / mean))
    return scores


def made_of(chunks: list[tuple[int, list[str]]]) -> IndexSnapshot:
    """A snapshot of chunks given by session and words."""

    class Rows:
        def position(self) -> int:
            return 0

        def count(self) -> int:
            return len(chunks)

        def rows(self) -> Iterator[list[ForwardRow]]:
            made = [
                ForwardRow(n + 1, session, n, n, "user", None, np.array([*map(hash_of, chunk_words)], "<u4").tobytes())
                for n, (session, chunk_words) in enumerate(chunks)
            ]
            if made:
                yield made

    snapshot = AgentIndex(None).current(Rows())  # type: ignore[arg-type]
    assert snapshot is not None
    return snapshot


def ranked(snapshot: IndexSnapshot, query: str, **more: Any) -> Ranking:
    vector = Dense().embed_query(query)
    return retrievers.rank(snapshot, without_names(query, snapshot.names), vector, **more)


def snapshot_of(pipe: Pipeline) -> IndexSnapshot:
    with pipe.store.reading() as tx:
        snapshot = pipe.indexes.snapshot(pipe.store, tx, "ana")
    assert snapshot is not None
    return snapshot


def explained(pipe: Pipeline, query: str, **more: Any) -> list[RecallResult]:
    return pipe.recall(query, explain=True, **{"limit": 50, **more}).results


def keyword_only(pipe: Pipeline, query: str) -> list[RecallResult]:
    """The default ranking without an embedder."""
    embedder, pipe.embedder = pipe.embedder, None  # type: ignore[assignment]
    try:
        return pipe.recall(query, limit=50).results
    finally:
        pipe.embedder = embedder


def retriever_score(memory: RecallResult, name: str) -> Any:
    assert memory.explanation is not None
    return getattr(memory.explanation, name)


def texts(pipe: Pipeline, query: str, **more: Any) -> list[str]:
    return [memory.text for memory in pipe.recall(query, **more)]
