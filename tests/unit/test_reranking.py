"""A reranker orders the best results of a recall; without its scores the own order stays, and the response says why."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from adapters.calls import ModelSpec
from adapters.rerankers import GuardedReranker, RerankEndpoint, RerankerUnavailable
from cli.recall import _explained
from retrieval.query import RecallRequest
from retrieval.recaller import RecallOutcome, Reranking
from reverie.recall.types import Explanation
from storage.memories.records import NewMemory
from support.command_line import CommandLine
from support.endpoint import chat_endpoint, send
from support.pipeline import Pipeline
from support.recalling import find, search_sessions
from support.reranking import scores
from support.scripted import ScriptedReranker

_QUERY = "ships in the harbour"


def _longest_first(_query: str, text: str) -> float:
    return float(len(text))


def _shortest_first(_query: str, text: str) -> float:
    return -float(len(text))


def _raise(error: Exception) -> Callable[[str, str], float]:
    def score(_query: str, _text: str) -> float:
        raise error

    return score


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace with twelve messages about ships, each of another length."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say(*(f"The harbour has {number} ships{' of oak' * number}." for number in range(12)))
    pipe.settle()
    yield pipe
    pipe.close()


def _recall(
    pipe: Pipeline, score: Callable[[str, str], float] | None, *, candidates: int = 50, query: str = _QUERY, **more: Any
) -> RecallOutcome:
    """Recall with a reranker that scores by `score`; None: without one."""
    reranking = None if score is None else Reranking(GuardedReranker(ScriptedReranker(score)), candidates)
    request = RecallRequest(query=query, agent="ana", **more)
    return find(pipe.store, pipe.embedder, request, indexes=pipe.indexes, reranking=reranking)


def _texts(outcome: RecallOutcome) -> list[str]:
    return [result.text for result in outcome.response]


@pytest.mark.parametrize("limit", [1, 3, 12])
def test_results_are_in_the_order_of_their_scores(pipe: Pipeline, limit: int) -> None:
    """Given a reranker, then the best by its scores among all candidates are returned, however few are asked for."""
    everything = _texts(_recall(pipe, None, limit=100))
    assert len(everything) == 12
    outcome = _recall(pipe, _longest_first, limit=limit)
    assert _texts(outcome) == sorted(everything, key=len, reverse=True)[:limit]
    assert outcome.response.degraded == ""


def test_what_is_not_scored_follows_in_its_old_order(pipe: Pipeline) -> None:
    """Given fewer candidates than results, then the others follow as they were ranked."""
    own = _texts(_recall(pipe, None, limit=10))
    found = _texts(_recall(pipe, _shortest_first, candidates=4, limit=10))
    assert found == [*sorted(own[:4], key=len), *own[4:]]


def test_equal_scores_keep_the_own_order(pipe: Pipeline) -> None:
    """Given a reranker that cannot tell the texts apart, then nothing changes."""
    assert _texts(_recall(pipe, lambda _query, _text: 0.5, limit=10)) == _texts(_recall(pipe, None, limit=10))


def test_relevance_and_hits_stay_with_their_results(pipe: Pipeline) -> None:
    """Given a new order, then each result keeps its relevance, and the recorded hits are those of the results."""
    own = {result.id: result.relevance for result in _recall(pipe, None, limit=12).response}
    outcome = _recall(pipe, _longest_first, limit=5)
    assert {result.id: result.relevance for result in outcome.response}.items() <= own.items()
    with pipe.store.reading() as tx:
        texts = tx.for_agent("ana").chunk_sources.texts([hit.chunk_id for hit in outcome.hits])
    assert [texts[hit.chunk_id].id for hit in outcome.hits] == [result.id for result in outcome.response]


def test_a_floor_is_one_of_relevance(pipe: Pipeline) -> None:
    """Given a `min_score`, then what is below it is neither scored nor returned, whatever its score would be."""
    pipe.say("The weather was grey for the whole of that long week, and nothing else is known of it.", session="t")
    pipe.settle()
    own = [result.relevance for result in _recall(pipe, None, limit=20).response]
    assert min(own) < max(own)
    asked: list[str] = []

    def score(_query: str, text: str) -> float:
        asked.append(text)
        return float(len(text))

    found = _recall(pipe, score, limit=20, min_score=(min(own) + max(own)) / 2).response
    assert len(found) == own.count(max(own)) == len(asked)
    assert {result.relevance for result in found} == {max(own)}


def test_explain_shows_the_score(pipe: Pipeline) -> None:
    """Given `explain`, then what was scored has the reranker's score beside those of the retrievers."""
    found = _recall(pipe, _longest_first, candidates=3, limit=5, explain=True).response
    shown = [result.explanation.reranker for result in found if result.explanation]
    assert shown[:3] == [float(len(result.text)) for result in found.results[:3]]
    assert shown[3:] == [None, None]
    assert all(result.explanation and result.explanation.keyword for result in found)


def test_the_passage_that_was_found_is_scored(pipe: Pipeline) -> None:
    """Given a long message, then the reranker gets the chunk that was found, and the query of the call."""
    filler = "Nothing happened on this grey and quiet day. " * 60
    pipe.say({"content": f"{filler}A zeppelin landed. {filler}", "name": "Ben"}, session="t")
    pipe.settle()
    scripted = ScriptedReranker(_longest_first)
    request = RecallRequest(query="zeppelin " + "x" * 5_000, agent="ana", limit=5)
    find(pipe.store, pipe.embedder, request, reranking=Reranking(GuardedReranker(scripted), 50))
    ((query, texts),) = scripted.asked
    assert query.startswith("zeppelin")
    assert len(query) == 2_000
    (found,) = [text for text in texts if "zeppelin" in text]
    assert found.startswith("Ben: ")
    assert len(found) < 800


@pytest.mark.parametrize(
    "more",
    [
        {"rerank": False},
        {"mode": "keyword"},
        {"mode": "vector"},
        {"fusion": "weighted"},
        {"fusion": "rrf"},
        {"query": "  ", "query_embedding": [1.0, *[0.0] * 255]},
    ],
)
def test_other_rankings_are_left_alone(pipe: Pipeline, more: dict[str, Any]) -> None:
    """Given the switch, a ranking that was asked for by name, or no query in words, then no reranker is called."""
    if "query_embedding" in more:
        more = {**more, "query_embedding": [1.0, *[0.0] * (pipe.embedder.dimension - 1)]}
    error = RerankerUnavailable("must not be called")
    outcome = _recall(pipe, _raise(error), limit=5, **more)
    assert _texts(outcome) == _texts(_recall(pipe, None, limit=5, **more))
    assert outcome.response.degraded == ""


def test_a_search_of_sessions_is_left_alone(pipe: Pipeline) -> None:
    """Given a reranker, then a search of sessions does not call it."""
    error = RerankerUnavailable("must not be called")
    reranking = Reranking(GuardedReranker(ScriptedReranker(_raise(error))), 50)
    request = RecallRequest(query=_QUERY, agent="ana", limit=5)
    found = search_sessions(pipe.store, pipe.embedder, request, reranking=reranking)
    assert [one.session for one in found] == ["s"]
    assert found.degraded == ""


def test_a_dead_reranker_leaves_the_own_order_and_costs_one_call(pipe: Pipeline) -> None:
    """Given a reranker that is down, then recalls return what they would without it, say why, and call it once."""
    calls = []

    def fail(_query: str, _text: str) -> float:
        calls.append(1)
        raise RerankerUnavailable("connection refused")

    reranking = Reranking(GuardedReranker(ScriptedReranker(fail), clock=lambda: 100.0), 50)
    request = RecallRequest(query=_QUERY, agent="ana", limit=5)
    outcomes = [find(pipe.store, pipe.embedder, request, reranking=reranking) for _ in range(3)]
    own = _texts(_recall(pipe, None, limit=5))
    assert [_texts(outcome) for outcome in outcomes] == [own] * 3
    assert outcomes[0].response.degraded == "not reranked: connection refused"
    assert all("connection refused" in outcome.response.degraded for outcome in outcomes)
    assert len(calls) == 1


def test_both_reasons_are_told(pipe: Pipeline) -> None:
    """Given neither an embedder nor a reranker that answers, then `degraded` tells both."""
    reranking = Reranking(GuardedReranker(ScriptedReranker(_raise(RerankerUnavailable("down")))), 50)
    request = RecallRequest(query=_QUERY, agent="ana", limit=5)
    degraded = find(pipe.store, None, request, reranking=reranking).response.degraded
    assert degraded == "keyword only: no embedder is configured; not reranked: down"


def test_without_vectors_words_are_reranked(pipe: Pipeline) -> None:
    """Given no embedder, then what is found by words is ordered by the reranker."""
    reranking = Reranking(GuardedReranker(ScriptedReranker(_longest_first)), 50)
    request = RecallRequest(query=_QUERY, agent="ana", limit=5)
    found = find(pipe.store, None, request, reranking=reranking)
    assert _texts(found) == sorted(_texts(found), key=len, reverse=True)
    assert found.response.degraded == "keyword only: no embedder is configured"


def test_one_result_is_not_sent(pipe: Pipeline) -> None:
    """Given one candidate or none, then there is nothing to order and no call."""
    error = RerankerUnavailable("must not be called")
    with pipe.store.writing() as tx:
        tx.for_agent("bob").memories.add(NewMemory(id="m", content="A ship.", created_at=1), now=1)
    pipe.settle()
    reranking = Reranking(GuardedReranker(ScriptedReranker(_raise(error))), 50)
    for agent, count in (("bob", 1), ("nobody", 0)):
        found = find(pipe.store, pipe.embedder, RecallRequest(query="ship", agent=agent), reranking=reranking).response
        assert (len(found), found.degraded) == (count, "")


def test_no_transaction_is_open_during_the_call(pipe: Pipeline) -> None:
    """Given a slow reranker, then no connection of the store, nor of the account's, is in use while it is called."""
    account = pipe.stores.account_store()
    with account.writing() as tx:
        tx.for_agent("ana").memories.add(NewMemory(id="m", content="A ship.", created_at=1), now=1)
    in_use: list[int] = []

    def score(_query: str, text: str) -> float:
        in_use.append(held["now"])
        return float(len(text))

    held = {"now": 0, "most": 0}

    def take(*_: object) -> None:
        held["now"] += 1
        held["most"] = max(held.values())

    def give(*_: object) -> None:
        held["now"] -= 1

    for store in (pipe.store, account):
        event.listen(store.database.engine, "checkout", take)
        event.listen(store.database.engine, "checkin", give)
    reranking = Reranking(GuardedReranker(ScriptedReranker(score)), 50)
    request = RecallRequest(query=_QUERY, agent="ana")
    find(pipe.store, pipe.embedder, request, account=account, reranking=reranking)
    assert held["most"] >= 1
    assert in_use
    assert set(in_use) == {0}


def test_an_endpoint_that_repeats_the_texts_does_not_put_them_into_the_reason(pipe: Pipeline) -> None:
    """Given a real endpoint that scores other documents, or refuses with the texts, then the own order stays."""
    own = _texts(_recall(pipe, None, limit=5))
    with chat_endpoint(send(scores((0, 1.0), (77, 2.0)))) as endpoint:
        remote = RerankEndpoint(ModelSpec(endpoint.url, "m", api_key="sk-secret", timeout_seconds=10))
        reranking = Reranking(GuardedReranker(remote), 50)
        request = RecallRequest(query=_QUERY, agent="ana", limit=5)
        for answer in (endpoint.answer, send(b'{"input": "The harbour has ships"}', 422), send(b"sk-secret", 500)):
            endpoint.answer = answer
            outcome = find(pipe.store, pipe.embedder, request, reranking=reranking)
            assert _texts(outcome) == own
            assert outcome.response.degraded.startswith("not reranked: http://127.0.0.1:")
            assert "harbour" not in outcome.response.degraded + reranking.reranker.last_error
            assert "sk-secret" not in outcome.response.degraded + reranking.reranker.last_error
        remote.close()


def test_the_command_line_shows_the_score_for_people() -> None:
    """Given an explanation with a reranker's score, then the line ends with it."""
    assert _explained(Explanation(score=0.5, reranker=-2.34567)) == "score 0.500: -; reranker -2.346"


def test_the_status_shows_a_reranker_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a reranker in the settings, then the status has a line about it, without the key; else it has none."""
    monkeypatch.chdir(tmp_path)
    Path(".reverie").mkdir()
    reverie = CommandLine(monkeypatch, capsys)
    assert "Reranker" not in reverie("status").out
    monkeypatch.setenv("REVERIE_RERANKER_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("REVERIE_RERANKER_MODEL", "small")
    monkeypatch.setenv("REVERIE_RERANKER_API_KEY", "sk-secret")
    shown = reverie("status").out
    assert "\nReranker  small: up\n" in shown
    assert "sk-secret" not in shown


def test_no_http_client_is_loaded_for_a_recall() -> None:
    """Given a fresh interpreter, when it loads all that a recall needs, then no HTTP client is among it."""
    code = "import sys, retrieval.recaller, worker.runtime; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"httpx2", "httpx", "requests"} & set(done.stdout.split())
