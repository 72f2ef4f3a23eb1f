"""Observers that count the calls of models and webhooks for Prometheus, and the end of a process's counting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict

from adapters.broker.shared_metrics import (
    EMBEDDED_TEXTS,
    EMBEDDED_TOKENS,
    EMBEDDING_CALLS,
    MODEL_CALLS,
    MODEL_TOKENS,
    WEBHOOKS,
    SharedMetrics,
)
from adapters.embedders.guarded import EmbeddingObserver, EmbeddingPurpose
from adapters.language_models import ModelUsage
from adapters.tokens import EstimatedTokens
from reverie.errors import Unavailable
from storage.stores import Stores
from storage.upkeep.usage import Usage


def embedding_counter(metrics: SharedMetrics) -> EmbeddingObserver:
    """Return an observer of embedders. Tokens are estimated: counting them exactly would take 40 us a text."""
    tokens = EstimatedTokens()

    def observe(purpose: EmbeddingPurpose, texts: Sequence[str], succeeded: bool) -> None:
        metrics.count(EMBEDDING_CALLS, purpose, "done" if succeeded else "failed")
        if succeeded:
            metrics.count(EMBEDDED_TEXTS, purpose, amount=len(texts))
            metrics.count(EMBEDDED_TOKENS, purpose, amount=sum(tokens.count(texts)))

    return observe


def usage_recorder(stores: Stores, metrics: SharedMetrics, *, now: Callable[[], int]) -> Callable[[ModelUsage], None]:
    """Return what records a usage of the language model in the account's database, and then counts it."""

    def record(used: ModelUsage) -> None:
        stores.usage().add(Usage(**asdict(used)), now=now())
        metrics.count(MODEL_CALLS, used.purpose, "done", amount=used.calls - used.failures)
        metrics.count(MODEL_CALLS, used.purpose, "failed", amount=used.failures)
        metrics.count(MODEL_TOKENS, used.purpose, "input", amount=used.input_tokens)
        metrics.count(MODEL_TOKENS, used.purpose, "output", amount=used.output_tokens)

    return record


def webhook_counter(metrics: SharedMetrics) -> Callable[[str], None]:
    """Return what counts the outcome of an attempt to send a webhook."""
    return lambda outcome: metrics.count(WEBHOOKS, outcome)


def flush_at_end(metrics: SharedMetrics) -> None:
    """Add what a process has counted, when it ends; without a broker it is lost."""
    with contextlib.suppress(Unavailable):
        metrics.flush()
