"""A database says which embedder made its vectors; it must not say who gets the texts, let alone the key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from adapters.calls import origin_of
from adapters.embedders.base import EmbedderSpec, EmbedderUnavailable
from adapters.embedders.guarded import GuardedEmbedder
from adapters.embedders.openai_compatible import OpenAICompatibleEmbedder
from adapters.embedders.record import EmbedderRecord
from support.endpoint import Endpoint, send
from support.pipeline import Pipeline
from worker.runtime import StoreEmbedders


def vector(request: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Answer as an embedder does."""
    rows = [{"index": number, "embedding": [1.0, 0.0]} for number, _ in enumerate(question["input"])]
    send(json.dumps({"data": rows}).encode())(request, question)


@pytest.fixture
def ours() -> Iterator[Endpoint]:
    made = Endpoint(vector)
    yield made
    made.close()


@pytest.fixture
def theirs() -> Iterator[Endpoint]:
    made = Endpoint(vector)
    yield made
    made.close()


def store_of(tmp_path: Path, url: str) -> Pipeline:
    """A store whose active vectors are recorded to be made by an endpoint at a URL."""
    pipe = Pipeline(tmp_path / "data")
    written = EmbedderRecord(provider="openai", model="other", dimension=2, base_url=url).encode()
    with pipe.store.writing() as tx:
        tx.index.create("vector", now=1, model="other", dim=2, embedder=written, active=True)
    return pipe


def embedders(ours: Endpoint, **more: Any) -> tuple[StoreEmbedders, GuardedEmbedder]:
    spec = EmbedderSpec("openai", "ours", base_url=ours.url, api_key="sk-secret", dimension=2, **more)
    configured = GuardedEmbedder(OpenAICompatibleEmbedder(spec))
    return StoreEmbedders(spec, configured), configured


def test_an_endpoint_that_only_a_database_names_is_never_called(
    tmp_path: Path, ours: Endpoint, theirs: Endpoint
) -> None:
    """Given a store that names a hostile URL, then the configured embedder is chosen, and nobody calls that URL."""
    pipe = store_of(tmp_path, theirs.url)
    chosen, configured = embedders(ours)
    found = chosen.for_store(pipe.store)
    assert found is configured
    found.embed_query("where does she live?")
    assert (len(ours.requests), theirs.requests) == (1, [])
    pipe.close()


def test_an_endpoint_that_the_operator_names_too_is_called_without_the_key(
    tmp_path: Path, ours: Endpoint, theirs: Endpoint
) -> None:
    """Given the URL among the further ones of the settings, then it makes the vectors of that store and gets no key."""
    pipe = store_of(tmp_path, theirs.url)
    chosen, configured = embedders(ours, other_urls=(theirs.url,))
    found = chosen.for_store(pipe.store)
    assert found is not None
    assert found is not configured
    found.embed_query("where does she live?")
    assert (len(theirs.requests), theirs.keys, ours.requests) == (1, [None], [])
    pipe.close()


def test_another_model_at_the_configured_origin_gets_the_key(tmp_path: Path, ours: Endpoint) -> None:
    """Given a record of another model of the same endpoint, then that is asked, with the key."""
    pipe = store_of(tmp_path, ours.url)
    found = embedders(ours)[0].for_store(pipe.store)
    assert found is not None
    found.embed_query("where does she live?")
    assert ours.requests[0]["model"] == "other"
    assert ours.keys == ["Bearer sk-secret"]
    pipe.close()


def test_a_redirect_is_not_followed(ours: Endpoint, theirs: Endpoint) -> None:
    """Given an endpoint that redirects elsewhere, then the call fails there, and the target gets nothing."""

    def redirect(request: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        request.send_response(307)
        request.send_header("Location", f"{theirs.url}/embeddings")
        request.send_header("Content-Length", "0")
        request.end_headers()

    ours.answer = redirect
    _, configured = embedders(ours)
    with pytest.raises(EmbedderUnavailable, match="answered 307"):
        configured.embed_query("where does she live?")
    assert theirs.requests == []


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example/v1", ("https", "a.example", 443)),
        ("https://A.example:443/", ("https", "a.example", 443)),
        ("http://a.example/v1", ("http", "a.example", 80)),
        ("https://a.example@b.example/v1", ("https", "b.example", 443)),
        ("https://a.example.b.example/v1", ("https", "a.example.b.example", 443)),
        ("file:///etc/passwd", None),
        ("https://a.example:99999/", None),
        ("https://[::1", None),
        ("", None),
        (None, None),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str | None, origin: tuple[str, str, int] | None) -> None:
    """Given a URL, then its origin has the port that is meant, and the host that a client would call."""
    assert origin_of(url) == origin
