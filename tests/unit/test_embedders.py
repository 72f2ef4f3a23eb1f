"""Embedders without a real model: conformance, an HTTP endpoint that misbehaves, the file checks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import numpy as np
import pytest
from embedder_conformance import EmbedderConformance

from adapters.embedders import model_files, openai_compatible
from adapters.embedders.base import Embedder, EmbedderSpec, EmbedderUnavailable, EmbeddingRefused, HashEmbedder
from adapters.embedders.guarded import GuardedEmbedder
from adapters.embedders.local import choose_dtype
from adapters.embedders.openai_compatible import OpenAICompatibleEmbedder
from adapters.embedders.record import build_embedder
from reverie.errors import Permanent, Transient, Unavailable
from support.endpoint import Answer, Endpoint


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def rows_for(texts: list[str]) -> list[dict[str, Any]]:
    """Right vectors, not of unit length, last text first: the order is for the client to restore."""
    vectors = 3 * HashEmbedder().embed(texts)
    return [{"index": i, "embedding": vectors[i].tolist()} for i in range(len(texts))][::-1]


def answer_well(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    send(handler, json.dumps({"object": "list", "data": rows_for(question["input"])}).encode())


def status(code: int, body: bytes = b"no", **headers: str) -> Answer:
    return lambda handler, question: send(handler, body, code, **headers)


def changed(change: Callable[[list[dict[str, Any]]], object]) -> Answer:
    """A good answer, spoiled."""

    def answer(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        rows = rows_for(question["input"])
        change(rows)
        send(handler, json.dumps({"data": rows}).encode())

    return answer


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint(answer_well)
    yield made
    made.close()


@pytest.fixture
def remote(endpoint: Endpoint) -> Iterator[OpenAICompatibleEmbedder]:
    """A client of the endpoint that knows its dimension, so the first request is the test's own."""
    spec = EmbedderSpec("openai", "m", base_url=endpoint.url, dimension=64, api_key="sk-secret")
    made = OpenAICompatibleEmbedder(spec)
    yield made
    made.close()


class TestHash(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> HashEmbedder:
        return HashEmbedder()


class TestModel2Vec(EmbedderConformance):
    @pytest.fixture
    def embedder(self, tmp_path: Path) -> Embedder:
        from model2vec import StaticModel
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import Whitespace

        words = ["[UNK]", "[PAD]", "one", "two", "three", "short", "hello", "the", "same", "text", "camping"]
        tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = Whitespace()
        vectors = np.random.default_rng(7).normal(size=(len(words), 16)).astype(np.float32)
        StaticModel(vectors, tokenizer).save_pretrained(str(tmp_path / "tiny"))
        embedder = build_embedder(EmbedderSpec("model2vec", str(tmp_path / "tiny")))
        assert embedder is not None
        embedder.load()
        return embedder


class TestOpenAICompatible(EmbedderConformance):
    @pytest.fixture
    def embedder(self, endpoint: Endpoint) -> Iterator[Embedder]:
        made = OpenAICompatibleEmbedder(EmbedderSpec("openai", "m", base_url=endpoint.url))
        made.load()
        yield made
        made.close()


class TestGuarded(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return GuardedEmbedder(HashEmbedder())


def test_naming_an_embedder_loads_no_library() -> None:
    code = (
        "import sys; from adapters.embedders.record import *\n"
        "for p in ('sentence-transformers', 'model2vec', 'hash', 'none'): build_embedder(EmbedderSpec(p))\n"
        "build_embedder(EmbedderSpec('openai', base_url='http://x'))\n"
        "print([m for m in ('torch', 'sentence_transformers', 'model2vec', 'httpx2') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    path = f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'client')!r}]\n"
    done = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_provider_none_is_no_embedder() -> None:
    assert build_embedder(EmbedderSpec("none")) is None


def test_errors_are_of_the_families_that_decide_what_happens_next() -> None:
    assert issubclass(EmbedderUnavailable, Unavailable)
    assert issubclass(EmbedderUnavailable, Transient)
    assert issubclass(EmbeddingRefused, Permanent)


def test_a_hash_vector_never_changes_between_releases() -> None:
    vector = HashEmbedder().embed_query("reverie")

    np.testing.assert_allclose(vector[:4], [0.185299, -0.1218491, -0.0137488, 0.1258171], atol=1e-6)


# The dtype that "auto" means.


@pytest.mark.parametrize(
    ("device", "capabilities", "expected"),
    [
        ("cpu", {"avx512_bf16": True}, "bfloat16"),
        ("cpu", {"amx_bf16": True, "avx512_bf16": False}, "bfloat16"),
        ("cpu", {"architecture": "aarch64", "bf16": True}, "bfloat16"),
        ("cpu", {"avx512_f": True, "avx512_bf16": False}, "float32"),
        ("cpu", {}, "float32"),
        ("cuda", {}, "float16"),
        ("mps", {}, "float16"),
    ],
)
def test_auto_is_half_precision_only_where_it_is_fast(
    device: str, capabilities: dict[str, object], expected: str
) -> None:
    assert choose_dtype("auto", device, capabilities) == expected
    assert choose_dtype("float32", device, capabilities) == "float32"


# The endpoint: what is sent.


def test_texts_go_in_batches_of_128_and_come_back_in_order(
    endpoint: Endpoint, remote: OpenAICompatibleEmbedder
) -> None:
    texts = [f"text {i}" for i in range(300)]

    vectors = remote.embed(texts)

    assert [len(request["input"]) for request in endpoint.requests] == [128, 128, 44]
    np.testing.assert_allclose(vectors, HashEmbedder().embed(texts), atol=1e-5)
    assert set(endpoint.keys) == {"Bearer sk-secret"}


def test_the_dimension_is_learned_by_one_probe_and_then_kept(endpoint: Endpoint) -> None:
    embedder = OpenAICompatibleEmbedder(EmbedderSpec("openai", "m", base_url=endpoint.url + "/"))

    assert embedder.dimension == 0
    embedder.load()
    embedder.load()

    assert embedder.dimension == 64
    assert len(endpoint.requests) == 1
    assert endpoint.keys == [None]
    embedder.close()


def test_an_endpoint_needs_a_url_and_a_key_that_a_header_can_carry() -> None:
    with pytest.raises(ValueError, match="base_url"):
        build_embedder(EmbedderSpec("openai"))
    with pytest.raises(ValueError, match="api_key"):
        build_embedder(EmbedderSpec("openai", base_url="http://x", api_key="sk\n"))
    assert "sk-secret" not in repr(EmbedderSpec("openai", api_key="sk-secret"))


# The endpoint: what goes wrong.


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (status(500), "answered 500"),
        (status(503), "answered 503"),
        (status(429), "answered 429"),
        (status(404), "base_url"),
        (status(401, b"bad key sk-secret"), "api_key"),
        (status(403), "api_key"),
        (status(302, Location="http://127.0.0.1:1/"), "answered 302"),
        (status(200, b'{"data": [{"index": 0, "embedding": [0.1, 0.'), "invalid JSON"),
        (status(200, b""), "invalid JSON"),
        (status(200, b"\xff" * 10_000_000), "invalid JSON"),
    ],
)
def test_what_may_pass_is_unavailable(
    endpoint: Endpoint, remote: OpenAICompatibleEmbedder, answer: Answer, says: str
) -> None:
    endpoint.answer = answer

    with pytest.raises(EmbedderUnavailable, match=says) as caught:
        remote.embed(["hello"])

    assert "sk-secret" not in str(caught.value)
    endpoint.answer = answer_well
    assert remote.embed(["hello"]).shape == (1, 64)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (status(400, b"too long"), "answered 400: too long"),
        (status(413), "answered 413"),
        (status(422), "answered 422"),
        (status(200, b'{"data": "none"}'), "unexpected JSON"),
        (status(200, b'{"data": [{"index": 0, "embedding": [null]}]}'), "unexpected JSON"),
        (changed(lambda rows: rows.pop()), "1 vectors for 2 texts"),
        (changed(lambda rows: rows.append(rows[0])), "3 vectors for 2 texts"),
        (changed(lambda rows: rows[0].update(index=7)), "wrong indexes"),
        (changed(lambda rows: rows[0].update(index=0)), "wrong indexes"),
        (changed(lambda rows: rows[0]["embedding"].pop()), "instead of 64"),
        (changed(lambda rows: [row.update(embedding=[1.0]) for row in rows]), "instead of 64"),
        (changed(lambda rows: rows[0]["embedding"].__setitem__(3, float("nan"))), "not finite"),
        (changed(lambda rows: rows[0]["embedding"].__setitem__(3, 1e300)), "not finite"),
        (changed(lambda rows: rows[0].update(embedding=[0.0] * 64)), "all zeros"),
    ],
)
def test_what_will_not_pass_is_refused(
    endpoint: Endpoint, remote: OpenAICompatibleEmbedder, answer: Answer, says: str
) -> None:
    endpoint.answer = answer

    with pytest.raises(EmbeddingRefused, match=says):
        remote.embed(["hello", "world"])


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [("7", 7, 7), ("Wed, 21 Oct 2199 07:28:00 GMT", 600, 600), ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0)],
)
def test_the_wait_that_a_limit_asks_for_is_on_the_error(
    endpoint: Endpoint, remote: OpenAICompatibleEmbedder, header: str, low: float, high: float
) -> None:
    endpoint.answer = status(429, Retry_After=header)

    with pytest.raises(EmbedderUnavailable) as caught:
        remote.embed(["hello"])

    assert caught.value.retry_after_seconds is not None
    assert low <= caught.value.retry_after_seconds <= high


def test_a_wait_that_makes_no_sense_is_no_wait(endpoint: Endpoint, remote: OpenAICompatibleEmbedder) -> None:
    endpoint.answer = status(429, Retry_After="soon")

    with pytest.raises(EmbedderUnavailable) as caught:
        remote.embed(["hello"])

    assert caught.value.retry_after_seconds is None


@pytest.mark.parametrize("dripping", [False, True])
def test_a_slow_endpoint_is_given_up(endpoint: Endpoint, dripping: bool) -> None:
    def answer(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        if dripping:
            handler.send_response(200)
            handler.end_headers()
        while not endpoint.over.wait(0.02):
            if dripping:
                handler.wfile.write(b" ")

    endpoint.answer = answer
    spec = EmbedderSpec("openai", "m", base_url=endpoint.url, dimension=64, timeout_seconds=0.2)
    embedder = OpenAICompatibleEmbedder(spec)

    with pytest.raises(EmbedderUnavailable, match=r"within 0\.2 s"):
        embedder.embed(["hello"])

    embedder.close()


def test_an_answer_without_end_is_refused(
    endpoint: Endpoint, remote: OpenAICompatibleEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_compatible, "MAX_RESPONSE_BYTES", 100_000)
    endpoint.answer = status(200, b" " * 1_000_000)

    with pytest.raises(EmbeddingRefused, match="more than 100000 bytes"):
        remote.embed(["hello"])


def test_nobody_listening_is_unavailable(endpoint: Endpoint, remote: OpenAICompatibleEmbedder) -> None:
    endpoint.close()

    with pytest.raises(EmbedderUnavailable, match="Check base_url"):
        remote.embed(["hello"])


@pytest.mark.parametrize("url", ["ftp://x", "no scheme", "http://[", "http://127.0.0.1:99999"])
def test_a_url_that_is_none_is_unavailable(url: str) -> None:
    embedder = OpenAICompatibleEmbedder(EmbedderSpec("openai", "m", base_url=url, dimension=64))

    with pytest.raises(EmbedderUnavailable, match="base_url"):
        embedder.embed(["hello"])

    embedder.close()


# Model files.


def test_weights_with_another_hash_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"tampered")
    monkeypatch.setattr(model_files, "_bundled_folder", lambda: tmp_path)
    embedder = build_embedder(EmbedderSpec())
    assert embedder is not None

    with pytest.raises(EmbedderUnavailable, match=r"model\.safetensors is damaged.*Reinstall the package"):
        embedder.load()


def test_weights_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "_bundled_folder", lambda: tmp_path)

    with pytest.raises(EmbedderUnavailable, match=r"cannot read .*model\.safetensors.*Reinstall"):
        model_files.find_sentence_transformer("all-MiniLM-L6-v2")


@pytest.mark.parametrize("provider", ["sentence-transformers", "model2vec"])
def test_a_hub_that_does_not_answer_is_unavailable_at_once(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cache(name: str, **options: object) -> str:
        assert options == {"local_files_only": True}, "no download before the hub has answered"
        raise FileNotFoundError(name)

    def no_hub(self: object, name: str, **options: object) -> None:
        raise httpx2.ConnectError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_cache)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", no_hub)
    embedder = build_embedder(EmbedderSpec(provider, "nobody/nothing"))
    assert embedder is not None

    with pytest.raises(EmbedderUnavailable, match=r"'nobody/nothing'.*use the folder"):
        embedder.load()


def test_a_folder_that_is_no_model2vec_model_is_unavailable(tmp_path: Path) -> None:
    embedder = build_embedder(EmbedderSpec("model2vec", str(tmp_path)))
    assert embedder is not None

    with pytest.raises(EmbedderUnavailable, match="could not read"):
        embedder.load()


@pytest.mark.parametrize(
    ("alias", "name"),
    [("potion_8m", "minishlab/potion-base-8M"), ("potion_32m", "minishlab/potion-base-32M")],
)
def test_potion_has_short_names(alias: str, name: str) -> None:
    embedder = build_embedder(EmbedderSpec("model2vec", alias))

    assert embedder is not None
    assert embedder.model == name
