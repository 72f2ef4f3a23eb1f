"""Endpoints that refuse everything, or answer everything with nonsense, for a while: nothing is given up for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from adapters.calls import ModelSpec
from adapters.embedders.base import EmbedderSpec, EmbeddingRefused, HashEmbedder
from adapters.embedders.guarded import GuardedEmbedder
from adapters.embedders.openai_compatible import OpenAICompatibleEmbedder
from adapters.embedders.record import EmbedderRecord
from adapters.language_models import (
    GuardedLanguageModel,
    LanguageModelRefused,
    LanguageModelUnavailable,
    OpenAICompatibleLanguageModel,
)
from memory.pipeline import recovery
from memory.pipeline.reembedding import ReembedTarget, reembed
from support.endpoint import Answer, Endpoint, chat_endpoint, say, send
from support.pipeline import WORKSPACE, Pipeline


def rows_for(texts: list[str]) -> list[dict[str, Any]]:
    vectors = HashEmbedder().embed(texts)
    return [{"index": i, "embedding": vectors[i].tolist()} for i in range(len(texts))]


def rows(change: Callable[[list[float]], list[float]] = lambda vector: vector) -> Answer:
    """Answer with vectors, changed in some way."""

    def answer(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        found = [{**row, "embedding": change(row["embedding"])} for row in rows_for(question["input"])]
        send(json.dumps({"data": found}).encode())(handler, question)

    return answer


# What an endpoint may answer to everything for an hour.
AWAY: dict[str, Answer] = {
    **{str(code): send(b'{"error": "no"}', code) for code in (301, 400, 401, 403, 404, 413, 422, 429, 500, 503)},
    "another dimension": rows(lambda vector: vector[:8]),
    "not a number": rows(lambda vector: [float("nan"), *vector[1:]]),
    "zeros": rows(lambda vector: [0.0] * len(vector)),
    "no vectors": send(b'{"data": []}'),
    "other JSON": send(b'{"message": "maintenance"}'),
    "a page": send(b"<html>maintenance</html>"),
}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint(rows())
    yield made
    made.close()


class Clock:
    """The breaker's clock."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def embedder(endpoint: Endpoint, clock: Clock) -> Iterator[GuardedEmbedder]:
    """A guarded client of the endpoint, which learns the dimension by itself."""
    inner = OpenAICompatibleEmbedder(EmbedderSpec("openai", "m", base_url=endpoint.url))
    yield GuardedEmbedder(inner, clock=clock)
    inner.close()


@pytest.fixture
def pipe(tmp_path: Path, embedder: GuardedEmbedder) -> Iterator[Pipeline]:
    """A pipeline with one message that has a vector, and four that wait for theirs."""
    pipe = Pipeline(tmp_path / "data", embedder=embedder)
    pipe.say("zanzibar zero")
    pipe.settle()
    pipe.say(*(f"zanzibar {number}" for number in range(1, 5)))
    pipe.ingest()
    pipe.chunk()
    yield pipe
    pipe.close()


def pass_hour(pipe: Pipeline, clock: Clock, *, steps: int = 12) -> None:
    """Run the stage again and again, as sweeps do."""
    for _ in range(steps):
        report = pipe.embed()
        assert (report.done, report.buried) == (0, 0)
        pipe.advance(330)
        clock.seconds += 330


def all_found(pipe: Pipeline) -> bool:
    pipe.settle()
    return len(pipe.recall("zanzibar", mode="vector", limit=100).results) == 5


@pytest.mark.parametrize("away", AWAY.values(), ids=AWAY)
def test_an_endpoint_that_answers_nothing_useful_for_an_hour_leaves_no_dead_letter(
    pipe: Pipeline, endpoint: Endpoint, clock: Clock, away: Answer
) -> None:
    """Given each kind of refusal, when the endpoint works again, then every chunk gets its vector by itself."""
    endpoint.answer = away
    asked = len(endpoint.requests)
    pass_hour(pipe, clock)
    assert len(endpoint.requests) - asked <= 3 * 12, "each try costs a batch, a known text and no halving"
    assert pipe.dead_letters() == []
    assert pipe.count("chunks", "embedded_at IS NULL") == 4
    assert "keyword only" in pipe.recall("zanzibar").degraded
    endpoint.answer = rows()
    pipe.advance(330)
    clock.seconds += 330
    assert all_found(pipe)
    assert pipe.recall("zanzibar").degraded == ""


@pytest.mark.parametrize("away", AWAY.values(), ids=AWAY)
def test_a_worker_that_starts_meanwhile_recovers_too(
    pipe: Pipeline, endpoint: Endpoint, clock: Clock, monkeypatch: pytest.MonkeyPatch, away: Answer
) -> None:
    """Given a process that does not know the dimension yet, when it learns a wrong one, then it asks again later."""
    monkeypatch.setattr("adapters.embedders.openai_compatible.RELEARN_SECONDS", -1.0)
    endpoint.answer = away
    fresh = OpenAICompatibleEmbedder(EmbedderSpec("openai", "m", base_url=endpoint.url))
    pipe.embedder = GuardedEmbedder(fresh, clock=clock)
    pass_hour(pipe, clock, steps=3)
    assert "keyword only" in pipe.recall("zanzibar").degraded
    endpoint.answer = rows()
    clock.seconds += 330
    pipe.embed()
    pipe.advance(330)
    assert all_found(pipe)
    assert pipe.dead_letters() == []
    fresh.close()


def test_a_text_that_alone_is_refused_is_set_aside_as_before(pipe: Pipeline, endpoint: Endpoint) -> None:
    """Given an endpoint that refuses one text, then that one is a dead letter and the others have vectors."""
    endpoint.answer = picky("zanzibar 3")
    pipe.embed()
    (letter,) = pipe.dead_letters()
    assert (letter.stage, letter.error_type) == ("embed", "EmbeddingRefused")
    assert pipe.count("chunks", "embedded_at IS NULL") == 1


def picky(refused: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        well = refused not in " ".join(question["input"])
        (rows() if well else send(b"refused", 400))(handler, question)

    return answer


@pytest.mark.parametrize("way", ["reembed", "backfill"])
def test_what_was_set_aside_is_taken_up_again(pipe: Pipeline, endpoint: Endpoint, clock: Clock, way: str) -> None:
    """Given a dead letter of a refused text, when it is embedded again by hand, then it has a vector and no letter."""
    endpoint.answer = picky("zanzibar 3")
    pipe.embed()
    assert len(pipe.dead_letters()) == 1
    endpoint.answer = rows()
    if way == "reembed":
        record = EmbedderRecord(provider="openai", model="m", dimension=64, base_url=endpoint.url)
        reembed(pipe.store, ReembedTarget(pipe.embedder, record), now=pipe.now)
    else:
        counts = recovery.backfill(pipe.stores, embed=lambda _: pipe.embed().counts(), take_up_refused=True)
        assert counts == {"done": 1, "taken_up": 1}
    assert pipe.dead_letters() == []
    assert all_found(pipe)
    assert WORKSPACE in pipe.stores.names()


@pytest.fixture
def chat(clock: Clock) -> Iterator[tuple[Endpoint, GuardedLanguageModel]]:
    """A language model behind an endpoint."""
    with chat_endpoint(say("hello")) as endpoint:
        model = OpenAICompatibleLanguageModel(ModelSpec(endpoint.url, "m"))
        yield endpoint, GuardedLanguageModel(model, clock=clock)
        model.close()


@pytest.mark.parametrize("away", [send(b"no", 400), send(b"no", 422), send(b"{}"), send(b"<html>")])
def test_a_language_model_that_refuses_every_prompt_is_away(
    chat: tuple[Endpoint, GuardedLanguageModel], clock: Clock, away: Answer
) -> None:
    """Given a model that refuses again, and a known prompt, too, then it is down until it answers."""
    endpoint, model = chat
    endpoint.answer = away
    with pytest.raises((LanguageModelRefused, LanguageModelUnavailable)):
        model.complete("s", "one prompt may be at fault", 10, purpose="schedule")
    clock.seconds += 60
    with pytest.raises(LanguageModelUnavailable):
        model.complete("s", "p", 10, purpose="schedule")
    assert model.state == "down"
    endpoint.answer = say("hello")
    clock.seconds += 60
    assert model.complete("s", "p", 10, purpose="schedule").text == "hello"
    assert model.state == "up"


def test_a_prompt_that_alone_is_refused_is_refused(chat: tuple[Endpoint, GuardedLanguageModel]) -> None:
    """Given a model that refuses one prompt, then it is up, and the known prompt is not sent each time."""
    endpoint, model = chat

    def answer(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        bad = "forbidden" in json.dumps(question)
        (send(b"refused", 400) if bad else say("hello"))(handler, question)

    endpoint.answer = answer
    for _ in range(3):
        with pytest.raises(LanguageModelRefused):
            model.complete("s", "forbidden", 10, purpose="schedule")
    assert model.state == "up"
    assert sum("Say hello." in json.dumps(question) for question in endpoint.requests) == 1


def test_a_guarded_embedder_that_refuses_one_text_stays_up(endpoint: Endpoint, embedder: GuardedEmbedder) -> None:
    """Given a refusal of one text, then recall by vectors goes on."""
    endpoint.answer = picky("zanzibar 3")
    with pytest.raises(EmbeddingRefused):
        embedder.embed(["zanzibar 3"])
    assert embedder.state == "up"
