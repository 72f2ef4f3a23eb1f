"""Measure how much of the exact result a recall finds: against every canonical vector, and against the whole ranking.

The measured recall uses approximations (vector codes, a preselection in large indexes). The exact result uses none:
cosines of the canonical float32 vectors with numpy, and for the hybrid ranking those cosines with every chunk scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from benchmarks.harness.timed import Asked
from retrieval.index.agent_index import IndexSnapshot
from retrieval.index.cache import AgentIndexes
from retrieval.index.codes import Floats, Rows, VectorCodes
from retrieval.ranking import contextual
from retrieval.ranking.names import without_names
from retrieval.request import RecallRequest
from reverie.recall.calls import Mode
from storage.stores import Store
from worker.runtime import Runtime

DEPTH: Final = 10
_MODES: Final[tuple[Mode, Mode]] = ("vector", "hybrid")
# Two orders of summing float32 differ by less: results this close to the last one count as equally near.
_ROUNDING: Final = 1e-5


class Exactness(msgspec.Struct, frozen=True, kw_only=True):
    """recall@10 of the exact result, averaged over the questions, for vector search and for the default ranking."""

    vector: float
    hybrid: float
    questions: int


class _OneAgent(NamedTuple):
    """Data for the exact results of one agent; row i of `vectors` belongs to row i of the snapshot."""

    snapshot: IndexSnapshot
    vectors: Floats


class _ExactCosines(VectorCodes):
    """The cosines of the canonical vectors instead of those of their codes."""

    def __init__(self, vectors: Floats) -> None:
        super().__init__(vectors.shape[1])
        self._vectors = vectors

    def cosines(self, query: Floats, rows: Rows | slice) -> Floats:
        """Return the exact cosine of each row to a unit query vector."""
        found: Floats = (self._vectors @ query)[rows]
        return found


def compare_with_exact(runtime: Runtime, workspace: str, questions: Sequence[Asked]) -> Exactness:
    """Recall each question by vector and by the default ranking, and compare the first ten with the exact ones."""
    vector: list[float] = []
    hybrid: list[float] = []
    store, embedder = runtime.store(workspace), runtime.embedder
    assert embedder is not None, "exact results need an embedder"
    for agent, of_agent in groupby(sorted(questions), key=lambda question: question.agent):
        agent_data = _load(store, runtime.indexes, agent)
        for question in of_agent:
            by_meaning, by_default = (_found(runtime, workspace, question, mode) for mode in _MODES)
            vector.append(_vector_recall(agent_data, question, embedder, by_meaning))
            hybrid.append(_hybrid_recall(agent_data, question, embedder, by_default))
    return Exactness(vector=fmean(vector), hybrid=fmean(hybrid), questions=len(vector))


def _load(store: Store, indexes: AgentIndexes, agent: str) -> _OneAgent:
    with store.reading() as tx:
        snapshot = indexes.snapshot(store, tx, agent)
        generation = tx.index.active("vector")
        if snapshot is None or generation is None:
            raise RuntimeError(f"the index of {agent} is not in memory: warm it up first")
        vectors = np.zeros((len(snapshot.chunk_ids), generation.dim), np.float32)
        order = np.argsort(snapshot.chunk_ids)
        for ids, blob in tx.for_agent(agent).forward.vectors(generation.model, generation.dim):
            rows = order[np.searchsorted(snapshot.chunk_ids, ids, sorter=order)]
            vectors[rows] = np.frombuffer(blob, "<f4").reshape(len(ids), generation.dim)
    return _OneAgent(snapshot, vectors)


def _found(runtime: Runtime, workspace: str, question: Asked, mode: Mode) -> list[int]:
    request = RecallRequest(query=question.text, agent=question.agent, mode=mode, limit=DEPTH)
    return [hit.chunk_id for hit in runtime.recaller.recall(workspace, request).hits]


def _vector_recall(agent_data: _OneAgent, question: Asked, embedder: Embedder, found: Sequence[int]) -> float:
    cosines = agent_data.vectors @ np.asarray(embedder.embed_query(question.text), "<f4")
    return _share(agent_data.snapshot.chunk_ids, np.where(agent_data.snapshot.alive, cosines, -1.0), found)


def _hybrid_recall(agent_data: _OneAgent, question: Asked, embedder: Embedder, found: Sequence[int]) -> float:
    snapshot = replace(agent_data.snapshot, codes=_ExactCosines(agent_data.vectors))
    query = without_names(question.text, snapshot.names)
    vector = np.asarray(embedder.embed_query(query.text), "<f4")
    ranking = contextual.rank(snapshot, query, vector, exhaustive=True, model=embedder.model)
    return _share(ranking.chunk_ids, ranking.scores, found)


def _share(chunk_ids: NDArray[np.int64], scores: Floats, found: Sequence[int]) -> float:
    """Return the share of the best ten that was found; results that score as high as the tenth count too."""
    depth = min(DEPTH, len(scores))
    last = np.partition(scores, len(scores) - depth)[len(scores) - depth]
    good = set(chunk_ids[scores >= last - _ROUNDING].tolist())
    return len(good.intersection(found[:depth])) / depth
