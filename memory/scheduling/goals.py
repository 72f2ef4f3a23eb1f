"""Embeds the goals of schedules, so that a run can recall without loading a model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from adapters.embedders.base import Embedder, EmbeddingRefused
from reverie.errors import Permanent, Transient
from storage.scheduling.goal_vectors import Goal
from storage.stores import Store

# Goals embedded between two transactions. A goal is a sentence: these take half a second at most.
_BATCH: Final = 50


def embed_goals(store: Store, embedder: Embedder) -> dict[str, int]:
    """Embed the goals without a vector of this model, outside of any transaction; returns counts.

    After a failure the rest is left to the next call: a run whose goal has no vector recalls by keywords. A goal that
    the embedder refuses stops no other.
    """
    counts = {"goals": 0}
    try:
        embedder.load()
        while True:
            with store.reading() as tx:
                goals = tx.goal_vectors.waiting(embedder.model, limit=_BATCH)
            vectors = _embed(goals, embedder)
            if vectors:
                with store.writing() as tx:
                    for goal, vector in vectors:
                        tx.goal_vectors.put(goal, vector, embedder.model)
            counts["goals"] += len(vectors)
            if len(vectors) < _BATCH:
                return {**counts, **({"refused": len(goals) - len(vectors)} if len(vectors) < len(goals) else {})}
    except (Transient, Permanent):
        return {**counts, "failed": 1}


def _embed(goals: Sequence[Goal], embedder: Embedder) -> list[tuple[Goal, bytes]]:
    found = []
    for goal in goals:
        with contextlib.suppress(EmbeddingRefused):
            found.append((goal, np.asarray(embedder.embed_query(goal.text), dtype="<f4").tobytes()))
    return found
