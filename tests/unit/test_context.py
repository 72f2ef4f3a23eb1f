"""`context` over a real store: which turns and memories it chooses, whose, and what it does without vectors."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import text

from adapters.embedders.base import EmbedderUnavailable
from adapters.tokens import EstimatedTokens
from retrieval.context.write import BuiltContext, build_context
from reverie.errors import NotFound, Rejected
from storage.recall.chunk_sources import ChunkSource, ChunkSources
from support.contexts import context_request
from support.curating import remember
from support.pipeline import Pipeline
from support.recalling import find

CANARY = "zanzibar"
START = datetime(2026, 5, 1, 9, tzinfo=UTC)


class Planned:
    """An embedder whose texts say what their vectors are: `@0.8 ...` has this cosine to any query."""

    model = "planned"
    dimension = 64
    device = "cpu"
    dtype = "float32"
    down = False

    def load(self) -> None:
        """Nothing to load."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors that differ from each other in all but their cosine to a query."""
        return np.stack([self._vector(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The first axis, whatever was asked."""
        if self.down:
            raise EmbedderUnavailable("the model is down")
        return np.eye(1, self.dimension, dtype=np.float32)[0]

    def _vector(self, text: str) -> NDArray[np.float32]:
        cosine = float(text.partition("@")[2].split(" ")[0]) if "@" in text else 0.0
        other = np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dimension)
        other[0] = 0
        vector = np.sqrt(1 - cosine**2) * other / np.linalg.norm(other)
        vector[0] = cosine
        return vector.astype(np.float32)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace."""
    made = Pipeline(tmp_path / "data", embedder=Planned())
    yield made
    made.close()


def turns(pipe: Pipeline, *contents: str | dict[str, Any], session: str = "s", **where: Any) -> list[str]:
    """Say these, a minute apart, after all that the session holds."""
    messages = [{"content": c} if isinstance(c, str) else c for c in contents]
    before = len(pipe.messages(session, agent=where.get("agent", "ana")))
    for number, item in enumerate(messages, start=before):
        item.setdefault("created_at", (START + timedelta(minutes=number)).isoformat())
    ids = pipe.say(*messages, session=session, **where)
    pipe.settle()
    return ids


def context(pipe: Pipeline, query: str | None = "what?", *, room: int = 10_000, **changes: Any) -> BuiltContext:
    """The context of session `s` of ana's."""
    request = context_request(query, **{"now": pipe.now(), **changes})

    def search(request: Any) -> Any:
        return find(pipe.store, pipe.embedder, request)

    return build_context(pipe.store, search, EstimatedTokens(), request, room=room, refiner=None)


def contents_of(built: BuiltContext) -> list[str]:
    return [message.content for message in built.messages]


def remembered(built: BuiltContext) -> list[tuple[str, str]]:
    return [(memory.tier, memory.text) for memory in built.memories]


@pytest.mark.parametrize(("most", "expected"), [(10, 0), (12, 2), (40, 20)])
def test_the_limit_of_messages_holds_over_the_whole_document(pipe: Pipeline, most: int, expected: int) -> None:
    """Given thirty turns that fit the query a little, then of those beyond the recent ones only as many are remembered
    as the limit leaves room for, and others come from elsewhere."""
    turns(pipe, *(f"turn {number} @0.5 x" for number in range(30)))
    turns(pipe, *(f"elsewhere {number} @0.4 x" for number in range(5)), session="other")
    built = context(pipe, max_messages=most, max_memories=30)
    same = [memory for memory in built.memories if memory.kind == "message" and memory.session == "s"]
    assert (len(built.messages), len(same)) == (10, expected)
    assert len(built.memories) == expected + 5


@pytest.mark.parametrize("most", [1, 3])
def test_a_limit_below_the_recent_turns_holds_too(pipe: Pipeline, most: int) -> None:
    """Given a limit smaller than the window, then the newest turns alone are in the document, and nothing else of the
    session: neither important and relevant turns nor what is remembered of it."""
    turns(pipe, {"content": "important @0.9 x", "importance": 0.9}, *(f"turn {number} @0.8 x" for number in range(12)))
    turns(pipe, "elsewhere @0.4 x", session="other")
    built = context(pipe, max_messages=most, max_memories=30)
    assert contents_of(built) == [f"turn {number} @0.8 x" for number in range(12 - most, 12)]
    assert remembered(built) == [("workspace", "elsewhere @0.4 x")]
    assert built.text.count("turn ") == most


def test_recent_important_and_relevant_turns_come_in_the_order_in_which_they_were_said(pipe: Pipeline) -> None:
    """Given 30 turns, two of them important and three near the query, then these and the last ten are told."""
    contents = [f"turn {n} @0.1 x" for n in range(30)]
    contents[3], contents[5], contents[7] = "a @0.7 x", "b @0.64 x", "c @0.9 x"
    turns(pipe, *[{"content": text, "importance": 0.8 if n in (4, 12) else 0.5} for n, text in enumerate(contents)])
    built = context(pipe)
    assert contents_of(built) == [contents[n] for n in (3, 4, 7, 12, *range(20, 30))]
    assert built.degraded == ""
    headings = [line for line in built.text.splitlines() if line.startswith("## ")]
    assert headings[-3:] == ["## Flagged as important", "## Said before on this subject", "## Recent turns"]


def test_at_most_five_relevant_turns_are_told_the_nearest_ones(pipe: Pipeline) -> None:
    """Given eight turns above .65, then the five with the highest cosine are told."""
    turns(pipe, *[f"n{n} @0.{n} x" for n in (66, 91, 70, 85, 95, 68, 80, 75)], *[f"turn {n}" for n in range(10)])
    assert contents_of(context(pipe))[:5] == [f"n{n} @0.{n} x" for n in (91, 85, 95, 80, 75)]


def test_without_a_model_the_best_matches_by_words_are_told_and_it_says_so(pipe: Pipeline) -> None:
    """Given an embedder that is down, then relevant turns are those found by words, and `degraded` says why."""
    turns(pipe, "the harbour is far @0.0 x", "nothing of it @0.9 x", *[f"turn {n}" for n in range(10)])
    pipe.embedder.down = True  # type: ignore[attr-defined]
    built = context(pipe, "where is the harbour")
    assert contents_of(built)[:-10] == ["the harbour is far @0.0 x"]
    assert "the model is down" in built.degraded


def test_without_a_query_the_newest_turn_of_a_user_is_it(pipe: Pipeline) -> None:
    """Given a session that ends with answers, then what the user said last is looked up."""
    turns(pipe, "about violins", {"content": "an answer", "role": "assistant"})
    turns(pipe, "violins need strings", session="other")
    built = context(pipe, None)
    assert built.query == "about violins"
    assert remembered(built) == [("workspace", "violins need strings")]
    assert context(pipe, "  ").query == "about violins"


def test_without_any_turn_of_a_user_nothing_is_looked_up(pipe: Pipeline) -> None:
    """Given a session of an assistant alone, then its turns are told, and why there is nothing else."""
    turns(pipe, {"content": "hello", "role": "assistant"})
    turns(pipe, "hello elsewhere", session="other")
    built = context(pipe, None)
    assert (contents_of(built), built.memories) == (["hello"], [])
    assert "no query" in built.degraded


def test_memories_widen_from_the_conversation_over_the_channel_to_the_workspace(pipe: Pipeline) -> None:
    """Given matches in the session, its channel, another one and a file, then each has the narrowest tier."""
    turns(pipe, "far back: rowing @0.6 x", *[f"turn {n}" for n in range(10)], channel="boats")
    turns(pipe, "rowing in the channel @0.5 x", session="a", channel="boats")
    turns(pipe, "rowing elsewhere @0.4 x", session="b", channel="trains")
    turns(pipe, "rowing nowhere @0.3 x", session="c")
    pipe.hand_in("file:///row.txt", "a file on rowing @0.2 x")
    pipe.settle()
    tiers = {text: tier for tier, text in remembered(context(pipe, "rowing", max_memories=5))}
    assert tiers == {
        "far back: rowing @0.6 x": "conversation",
        "rowing in the channel @0.5 x": "channel",
        "rowing elsewhere @0.4 x": "workspace",
        "rowing nowhere @0.3 x": "workspace",
        "a file on rowing @0.2 x": "workspace",
    }
    order = [tier for tier, _ in remembered(context(pipe, "rowing", max_memories=5))]
    assert order == ["conversation", "channel", "workspace", "workspace", "workspace"]
    other = remembered(context(pipe, "rowing", max_memories=5, channel="trains"))
    assert ("channel", "rowing elsewhere @0.4 x") in other


def test_what_is_told_as_a_turn_is_not_told_as_a_memory(pipe: Pipeline) -> None:
    """Given matches that are recent turns, and the same words in another session, then they come once."""
    turns(pipe, "we went rowing @0.9 x")
    turns(pipe, "We went rowing: @0.9 x", "rowing is fun @0.3 y", session="other")
    built = context(pipe, "rowing")
    assert contents_of(built) == ["we went rowing @0.9 x"]
    assert remembered(built) == [("workspace", "rowing is fun @0.3 y")]


def test_what_was_recalled_often_and_lately_comes_before_what_was_not(pipe: Pipeline) -> None:
    """Given two like matches of the same age, when one was found before, then `decay` chooses that one."""
    turns(pipe, "turn")
    (often,) = turns(pipe, "rowing one @0.5 x", session="a", channel="x")
    turns(pipe, "rowing two @0.5 y", session="b", channel="x")
    with pipe.store.writing() as tx:
        tx.connection.execute(
            text("UPDATE chunks SET access_count = 5, accessed_at = :now WHERE text LIKE 'rowing one%'"),
            {"now": pipe.now()},
        )
    built = context(pipe, "rowing", max_memories=1, ranking="decay")
    assert [memory.id for memory in built.memories] == [often]


def test_what_fits_best_comes_first_however_old_and_seldom_recalled(pipe: Pipeline) -> None:
    """Given a match of years ago that fits better than one that was recalled often today, then it is chosen."""
    turns(pipe, "turn")
    (best,) = turns(
        pipe, {"content": "rowing one @0.9 x", "created_at": "2019-05-01T09:00:00Z"}, session="a", channel="x"
    )
    turns(pipe, "rowing two @0.5 y", session="b", channel="x")
    with pipe.store.writing() as tx:
        sql = "UPDATE chunks SET access_count = 50, accessed_at = :now WHERE text LIKE 'rowing two%'"
        tx.connection.execute(text(sql), {"now": pipe.now()})
    assert [memory.id for memory in context(pipe, "rowing", max_memories=1).memories] == [best]


def test_a_context_is_filled_if_the_best_result_fits_and_empty_if_not_even_that_does(pipe: Pipeline) -> None:
    """Given one match that fits well and others that hardly do, then all are there if the best is good enough, each
    below a floor of the call is left out, and if the best is not good enough, there is nothing, and it is said."""
    turns(pipe, "turn")
    turns(pipe, "first @0.9 x", "second @0.1 x", session="other")
    best, other = (memory.relevance for memory in pipe.recall("what?", limit=2))
    assert other < best
    assert len(context(pipe, min_best=best - 0.001).memories) == 2
    assert [memory.text for memory in context(pipe, min_score=best - 0.001).memories] == ["first @0.9 x"]
    nothing = context(pipe, min_best=best + 0.001)
    assert nothing.memories == []
    assert "Nothing else that is stored fits the query." in nothing.text


@pytest.mark.parametrize("question", ["What do you know about me?", "Tell me about myself.", "Who am I?"])
def test_a_question_for_all_that_is_known_of_the_user_has_no_floor(pipe: Pipeline, question: str) -> None:
    """Given a question that has no word in common with what is known, then it is told, with memories first."""
    turns(pipe, "turn")
    turns(pipe, "I row @0.1 x", session="other")
    remember(pipe, "m", "User is vegetarian.")
    pipe.settle()
    found = [one.id for one in context(pipe, question, min_best=0.9).memories]
    assert (found[0], len(found)) == ("m", 2)
    assert not context(pipe, "walrus", min_best=0.9).memories


def test_who_said_it_decides_what_ranks_first_but_not_what_is_left_out(pipe: Pipeline) -> None:
    """Given a query that names a speaker, then what another one said is told too, although its relevance is low."""
    turns(pipe, "turn")
    pipe.say({"content": "first @0.9 x", "name": "Ann"}, {"content": "second @0.5 x", "name": "Ben"}, session="other")
    pipe.settle()
    best, other = pipe.recall("what of Ann?", limit=2)
    assert other.relevance < best.relevance / 20
    told = context(pipe, "what of Ann?", min_best=0.01).memories
    assert {memory.name for memory in told} == {"Ann", "Ben"}


def test_what_has_hardly_anything_in_common_with_the_query_is_left_out(pipe: Pipeline) -> None:
    """Given a weak match and one that is none, then only the first is told, though the second is not much weaker."""
    turns(pipe, "turn")
    turns(pipe, "first @0.5 x", "second @0.01 x", session="other")
    best, other = (memory.relevance for memory in pipe.recall("what?", limit=2))
    assert other > best / 20
    assert [memory.text for memory in context(pipe, min_best=0.01).memories] == ["first @0.5 x"]


def test_a_context_takes_what_fits_into_the_tokens_for_memories(pipe: Pipeline) -> None:
    """Given matches of which the second is too long, then it is skipped for shorter ones that rank lower, and they
    stand in the order in which they were said."""
    turns(pipe, "turn")
    turns(pipe, "first @0.9 x", "second @0.8 x " + "long " * 100, "third @0.7 x", "fourth @0.6 x", session="other")
    built = context(pipe, memory_tokens=60)
    assert [memory.text for memory in built.memories] == ["first @0.9 x", "third @0.7 x", "fourth @0.6 x"]
    assert built.left_out.memories == 1
    assert context(pipe, memory_tokens=0).memories == []
    assert len(context(pipe).memories) == 4


def test_another_agents_words_never_appear(pipe: Pipeline) -> None:
    """Given the same session, channel and words of another agent, then nothing of it is told, in any part."""
    turns(pipe, f"{CANARY} {CANARY} of bob @0.9 x", agent="bob", channel="c")
    turns(pipe, f"{CANARY} of bob @0.8 x", agent="bob", session="other", channel="c")
    pipe.hand_in("file:///bob.txt", f"{CANARY} of bob in a file", agent="bob")
    turns(pipe, {"content": f"what of {CANARY}?", "importance": 0.9}, channel="c")
    for query in (None, CANARY, "of bob"):
        built = context(pipe, query)
        assert contents_of(built) == [f"what of {CANARY}?"]
        assert "of bob" not in built.text
        assert built.memories == []
    with pytest.raises(NotFound):
        context(pipe, session="other")
    with pytest.raises(NotFound):
        context(pipe, agent="mallory")


def test_a_session_that_was_forgotten_is_in_nobodys_context(pipe: Pipeline) -> None:
    """Given a session that was told as memory, when it is forgotten, then it is told no more."""
    turns(pipe, "turn")
    turns(pipe, f"{CANARY} @0.9 x", session="other")
    assert CANARY in context(pipe, CANARY).text
    pipe.forget("other")
    assert CANARY not in context(pipe, CANARY).text


def test_the_summary_of_the_session_is_told(pipe: Pipeline) -> None:
    """Given a rolling summary, then it stands before what is remembered."""
    turns(pipe, "turn")
    with pipe.store.writing() as tx:
        tx.connection.execute(text("UPDATE sessions SET summary_text = 'They met in May.' WHERE id = 's'"))
    assert "## Summary of what was said before\n\n> They met in May.\n" in context(pipe).text


def test_a_query_beyond_the_limit_is_rejected_and_a_turn_beyond_it_is_not(pipe: Pipeline) -> None:
    """Given 200,000 characters, then as a query they are refused by name, as the newest turn they serve as one."""
    turns(pipe, "long " * 40_000)
    with pytest.raises(Rejected, match="query"):
        context(pipe, "long " * 40_000)
    built = context(pipe, None)
    assert len(built.query) <= 2_000
    assert built.left_out.shortened == 1
    assert built.tokens <= 10_000


def test_the_same_question_gives_the_same_document(pipe: Pipeline) -> None:
    """Given one store and one moment, when asked twice, then the documents are equal."""
    turns(pipe, *[f"rowing {n} @0.{n} x" for n in range(10, 40)])
    turns(pipe, *[f"rowing there {n} @0.{n} x" for n in range(10, 40)], session="other")
    assert context(pipe, "rowing", now=pipe.now()).text == context(pipe, "rowing", now=pipe.now()).text


@pytest.mark.parametrize(("chunks_of_each", "expected"), [(1, 125), (2, 250)])
def test_no_more_texts_are_read_than_there_can_be_results(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, chunks_of_each: int, expected: int
) -> None:
    """Given far more messages than results, then further texts are read only if some of the first belong together."""
    sentences = 30 * chunks_of_each
    turns(pipe, *(f"@0.5 {number} again, " * sentences for number in range(260)), session="other")
    turns(pipe, "hello")
    read: list[int] = []
    texts = ChunkSources.texts

    def noted(self: ChunkSources, chunk_ids: Sequence[int], **options: Any) -> dict[int, ChunkSource]:
        read.extend(chunk_ids)
        return texts(self, chunk_ids, **options)

    monkeypatch.setattr(ChunkSources, "texts", noted)
    assert context(pipe, max_memories=100, room=100_000).memories
    assert len(read) == expected
