"""Rerankers: one conformance suite for the endpoint, the fake and the guarded one, and an endpoint that misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
from reranker_conformance import RerankerConformance, shared_words

from adapters.calls import BoundedCalls, ModelSpec
from adapters.rerankers import (
    MAX_REFUSALS,
    MAX_RESPONSE_BYTES,
    GuardedReranker,
    RerankEndpoint,
    RerankerUnavailable,
    RerankRefused,
)
from support.endpoint import Answer, Endpoint, chat_endpoint, send
from support.misbehaving import half_a_body, redirect_to, reset, trickle
from support.reranking import score_by, scores
from support.scripted import ScriptedReranker

_KEY = "sk-secret"
_QUERY = "where is the sea"
_TEXTS = ["the sea is here", "a secret of Ana", "the grey ship"]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint that scores by shared words until told otherwise."""
    with chat_endpoint(score_by(shared_words)) as made:
        yield made


@pytest.fixture
def remote(endpoint: Endpoint) -> Iterator[RerankEndpoint]:
    """A client of that endpoint, with a key and a model."""
    made = RerankEndpoint(ModelSpec(endpoint.url, "m", api_key=_KEY, timeout_seconds=10))
    yield made
    made.close()


@pytest.fixture
def hasty(endpoint: Endpoint) -> Iterator[RerankEndpoint]:
    """A client that does not wait long."""
    made = RerankEndpoint(ModelSpec(endpoint.url, "m", api_key=_KEY, timeout_seconds=0.3))
    yield made
    made.close()


class TestRemote(RerankerConformance):
    @pytest.fixture
    def reranker(self, remote: RerankEndpoint) -> RerankEndpoint:
        """The real one, over loopback, in Cohere's form."""
        return remote


class TestRemoteWithoutModel(RerankerConformance):
    @pytest.fixture
    def reranker(self, endpoint: Endpoint) -> Iterator[RerankEndpoint]:
        """The real one, in the form of text-embeddings-inference."""
        made = RerankEndpoint(ModelSpec(endpoint.url, timeout_seconds=10))
        yield made
        made.close()


class TestScripted(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> ScriptedReranker:
        """The fake."""
        return ScriptedReranker(shared_words)


class TestGuarded(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> GuardedReranker:
        """The fake behind a breaker."""
        return GuardedReranker(ScriptedReranker(shared_words))


def test_the_request_has_the_form_of_cohere(endpoint: Endpoint, remote: RerankEndpoint) -> None:
    """Given a model, then the request names it, and asks for the scores of all documents."""
    remote.rerank(_QUERY, _TEXTS)
    assert endpoint.requests == [{"model": "m", "query": _QUERY, "documents": _TEXTS, "top_n": 3}]
    assert endpoint.keys == [f"Bearer {_KEY}"]


def test_without_a_model_it_has_the_form_of_text_embeddings_inference(endpoint: Endpoint) -> None:
    """Given no model, then the texts are sent under that server's names, and are cut by it if they are too long."""
    made = RerankEndpoint(ModelSpec(f"{endpoint.url}/rerank/", timeout_seconds=10))
    assert made.name == f"{endpoint.url}/rerank"
    made.rerank(_QUERY, _TEXTS)
    made.close()
    assert endpoint.requests == [{"query": _QUERY, "texts": _TEXTS, "truncate": True}]
    assert endpoint.keys == [None]


@pytest.mark.parametrize("status", [302, 401, 403, 404, 424, 429, 500, 503])
def test_what_may_pass_is_unavailable(endpoint: Endpoint, remote: RerankEndpoint, status: int) -> None:
    """Given an endpoint that fails and repeats what it got, then the error has the status, but no text and no key."""
    endpoint.answer = send(f'{{"error": "key {_KEY}", "input": "{_TEXTS[1]}"}}'.encode(), status, Retry_After="7")
    with pytest.raises(RerankerUnavailable) as caught:
        remote.rerank(_QUERY, _TEXTS)
    assert str(status) in str(caught.value)
    assert caught.value.retry_after_seconds == 7
    assert not [secret for secret in (_KEY, *_TEXTS, _QUERY) if secret in str(caught.value)]


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_request_is_refused_for_good(endpoint: Endpoint, remote: RerankEndpoint, status: int) -> None:
    """Given a refusal that repeats the texts, then it is a permanent error that says what to change, without a text."""
    endpoint.answer = send(f'{{"detail": [{{"input": "{_TEXTS[1]}"}}]}}'.encode(), status)
    with pytest.raises(RerankRefused, match="limits that allow as many texts") as caught:
        remote.rerank(_QUERY, _TEXTS)
    assert _TEXTS[1] not in str(caught.value)


@pytest.mark.parametrize("answer", [reset, half_a_body, redirect_to("http://127.0.0.1:9/"), send(b"<html>hello")])
def test_no_answer_is_unavailable(endpoint: Endpoint, remote: RerankEndpoint, answer: Answer) -> None:
    """Given an answer that is cut off, redirected or a web page, then the reranker is unavailable."""
    endpoint.answer = answer
    with pytest.raises(RerankerUnavailable):
        remote.rerank(_QUERY, _TEXTS)


def test_nobody_listening_is_unavailable() -> None:
    """Given a port that nobody listens to, then the error says what to check."""
    with chat_endpoint(score_by(shared_words)) as gone:
        url = gone.url
    made = RerankEndpoint(ModelSpec(url, timeout_seconds=10))
    with pytest.raises(RerankerUnavailable, match="reranker_base_url"):
        made.rerank(_QUERY, _TEXTS)


@pytest.mark.parametrize(
    "body",
    [
        scores((0, 1.0), (1, 0.5)),
        scores((0, 1.0), (1, 0.5), (1, 0.4)),
        scores((0, 1.0), (1, 0.5), (3, 0.4)),
        scores((0, 1.0), (1, 0.5), (-1, 0.4)),
        scores((0, 1.0), (1, 0.5), (2, 0.4), (3, 0.3)),
        scores((0, 1.0), (1, 0.5), (2, 0.4), (0, 1.0)),
        scores((0, 1.0), (1, 0.5), (10**30, 0.4)),
        scores((0, 1.0), (1, 0.5), (2, None)),
        scores((0, 1.0), (1, 0.5), (2, "high")),
        scores((0, 1.0), (1, 0.5), (2, True)),
        scores((0, 1.0), (1, 0.5), (2, 0.4), field="similarity"),
        scores((0, 1.0), (1, 0.5), (2, 12345)).replace(b"12345", b"1e999"),
        scores(),
        b"[]",
        b"{}",
        b"null",
        b'"fine"',
        b'{"results": {"0": 1.0}}',
    ],
)
def test_an_answer_without_one_score_for_each_text_is_refused(
    endpoint: Endpoint, remote: RerankEndpoint, body: bytes
) -> None:
    """Given indices or scores that are missing, twice, out of range, infinite or no numbers, then none is used."""
    endpoint.answer = send(body)
    with pytest.raises(RerankRefused):
        remote.rerank(_QUERY, _TEXTS)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 100_000, scores((0, float("nan")), (1, 0.5), (2, 0.4))])
def test_what_is_no_json_is_unavailable(endpoint: Endpoint, remote: RerankEndpoint, body: bytes) -> None:
    """Given bytes that are not JSON, among them the literal NaN, then the reranker is unavailable."""
    endpoint.answer = send(body)
    with pytest.raises((RerankerUnavailable, RerankRefused)):
        remote.rerank(_QUERY, _TEXTS)


def test_a_huge_answer_is_not_read(endpoint: Endpoint, remote: RerankEndpoint) -> None:
    """Given an answer of 50 MB, then it is refused after a few."""
    endpoint.answer = send(b" " * 50_000_000)
    with pytest.raises(RerankRefused, match=f"more than {MAX_RESPONSE_BYTES} bytes"):
        remote.rerank(_QUERY, _TEXTS)


@pytest.mark.parametrize("how", ["never", "trickle"])
def test_an_endpoint_that_hangs_is_given_up(endpoint: Endpoint, hasty: RerankEndpoint, how: str) -> None:
    """Given an endpoint that never answers, or a byte at a time, then the call ends while the endpoint goes on."""
    endpoint.answer = endpoint.never if how == "never" else trickle
    with pytest.raises(RerankerUnavailable, match=r"did not answer within 0\.3 s"):
        hasty.rerank(_QUERY, _TEXTS)


def test_a_call_that_never_returns_is_given_up() -> None:
    """Given a call that waits for what never comes, such as a name, then the caller goes on when the time is up."""
    never = threading.Event()
    with pytest.raises(TimeoutError):
        BoundedCalls("test").call(never.wait, timeout_seconds=0.01)
    never.set()


def test_what_a_bounded_call_raises_is_raised() -> None:
    """Given a call that fails, then its error is raised in the caller's thread."""

    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        BoundedCalls("test").call(fail, timeout_seconds=10)


class _Failing:
    """A reranker that raises what `failure` has; `calls` counts."""

    name = "failing"

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.calls = 0

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return [0.0 for _ in texts]


def test_a_dead_reranker_is_not_called_again_until_its_wait_is_over() -> None:
    """Given a failure, then calls fail at once until the wait is over, and a success closes the breaker."""
    now, inner = [100.0], _Failing()
    guarded = GuardedReranker(inner, clock=lambda: now[0])
    inner.failure = RerankerUnavailable("connection refused")
    for _ in range(10):
        with pytest.raises(RerankerUnavailable, match="connection refused"):
            guarded.rerank(_QUERY, _TEXTS)
    assert (inner.calls, guarded.state, guarded.is_ready) == (1, "down", False)
    assert guarded.last_error == "connection refused"
    now[0] += 1
    inner.failure = None
    assert guarded.is_ready
    assert guarded.rerank(_QUERY, _TEXTS) == [0.0, 0.0, 0.0]
    assert (guarded.state, guarded.last_error) == ("up", "")


def test_refusals_in_a_row_count_as_an_outage() -> None:
    """Given unusable answers, then one alone does not stop the calls, and five in a row do, until one succeeds."""
    now, inner = [100.0], _Failing()
    guarded = GuardedReranker(inner, clock=lambda: now[0])
    inner.failure = RerankRefused("scores for other texts")
    for _ in range(MAX_REFUSALS - 1):
        with pytest.raises(RerankRefused):
            guarded.rerank(_QUERY, _TEXTS)
    assert (guarded.state, guarded.last_error) == ("up", "scores for other texts")
    with pytest.raises(RerankerUnavailable, match="scores for other texts"):
        guarded.rerank(_QUERY, _TEXTS)
    assert guarded.state == "down"
    now[0] += 1
    inner.failure = None
    guarded.rerank(_QUERY, _TEXTS)
    inner.failure = RerankRefused("one odd text")
    with pytest.raises(RerankRefused):
        guarded.rerank(_QUERY, _TEXTS)
    assert guarded.state == "up"
