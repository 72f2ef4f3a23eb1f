"""Rerankers behind one Protocol. They are optional: without one, a recall keeps the order of its own ranking."""

from __future__ import annotations

from adapters.rerankers.base import Reranker, RerankerSpec, RerankerUnavailable, RerankRefused
from adapters.rerankers.endpoint import RerankEndpoint
from adapters.rerankers.guarded import GuardedReranker
from adapters.rerankers.scripted import ScriptedReranker

__all__ = [
    "GuardedReranker",
    "RerankEndpoint",
    "RerankRefused",
    "Reranker",
    "RerankerSpec",
    "RerankerUnavailable",
    "ScriptedReranker",
]
