"""What models and webhooks do is counted by its outcome, for the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import fakeredis
import numpy as np
import pytest

from adapters.broker.shared_metrics import (
    EMBEDDED_TEXTS,
    EMBEDDED_TOKENS,
    EMBEDDING_CALLS,
    MODEL_CALLS,
    MODEL_TOKENS,
    WEBHOOKS,
    SharedMetric,
    SharedMetrics,
)
from adapters.embedders.base import EmbedderUnavailable, HashEmbedder
from adapters.embedders.guarded import GuardedEmbedder
from adapters.language_models import ModelUsage
from adapters.webhooks.sender import CountedWebhookSender, WebhookAnswer, WebhookFailed, WebhookRefused
from storage.stores import Stores
from worker.runtime import embedding_counter, usage_recorder


@pytest.fixture
def metrics() -> SharedMetrics:
    return SharedMetrics(fakeredis.FakeRedis(server=fakeredis.FakeServer()), prefix="t:")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.close()


def counted(metrics: SharedMetrics, metric: SharedMetric) -> dict[tuple[str, ...], float]:
    metrics.flush()
    return {sample.labels: sample.value for sample in metrics.read()[metric]}


class Receivers:
    """A sender whose receivers answer, or do not, as their URLs say."""

    def post(self, url: str, **_: object) -> WebhookAnswer:
        if url == "silent":
            raise WebhookFailed("no answer", passing=True)
        if url == "private":
            raise WebhookRefused("not allowed")
        return WebhookAnswer(int(url))


def test_webhooks_are_counted_by_outcome(metrics: SharedMetrics) -> None:
    """Given answers of all kinds, then each outcome is counted once, and callers get what they got before."""
    sender = CountedWebhookSender(Receivers(), partial(metrics.count, WEBHOOKS))
    for url in ("200", "503", "404", "410", "silent", "private"):
        try:
            answer = sender.post(url, message_id="m", body={}, timeout_seconds=1, now=datetime.now(UTC))
        except (WebhookFailed, WebhookRefused):
            assert not url.isdecimal()
        else:
            assert answer.status == int(url)
    outcomes = ("delivered", "retry", "failed", "gone", "unanswered", "not_allowed")
    assert counted(metrics, WEBHOOKS) == {(outcome,): 1.0 for outcome in outcomes}


def test_embeddings_are_counted_by_purpose(metrics: SharedMetrics) -> None:
    """Given texts, a query and a failure, then calls, texts and tokens are counted, of the failure only the call."""
    embedder = GuardedEmbedder(HashEmbedder(), observe=embedding_counter(metrics))
    embedder.embed(["eight by", "tes each"])
    embedder.embed_query("four")

    class Away(HashEmbedder):
        def embed_query(self, text: str) -> np.ndarray:
            raise EmbedderUnavailable("away")

    away = GuardedEmbedder(Away(), observe=embedding_counter(metrics), clock=lambda: 0.0)
    for _ in range(2):  # the second is stopped by the breaker, and never reaches the model
        with pytest.raises(EmbedderUnavailable):
            away.embed_query("four")

    assert counted(metrics, EMBEDDING_CALLS) == {("store", "done"): 1, ("query", "done"): 1, ("query", "failed"): 1}
    assert counted(metrics, EMBEDDED_TEXTS) == {("store",): 2, ("query",): 1}
    assert counted(metrics, EMBEDDED_TOKENS) == {("store",): 4, ("query",): 1}


def test_usage_of_the_language_model_is_counted_once_it_is_stored(metrics: SharedMetrics, stores: Stores) -> None:
    """Given a usage, then its calls, failures and tokens are counted, and it is in the database."""
    record = usage_recorder(stores, metrics, now=lambda: 1_000_000)
    record(ModelUsage("m", "extraction", calls=3, failures=1, input_tokens=50, output_tokens=7))

    assert counted(metrics, MODEL_CALLS) == {("extraction", "done"): 2, ("extraction", "failed"): 1}
    assert counted(metrics, MODEL_TOKENS) == {("extraction", "input"): 50, ("extraction", "output"): 7}
    assert [use.calls for use in stores.usage().last_days(1, now=1_000_000)] == [3]
