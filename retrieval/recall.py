"""Recall: from a query to what was said, best first, by words, by meaning, or by both.

Each leg searches within one agent's chunks; the legs are fused, ties go to the newer, and several chunks of one
message or file count as one result. When meaning is not to be had (no embedder, no vectors), words answer alone
and the answer says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from retrieval.fusion import DEFAULT_FTS_WEIGHT, DEFAULT_VECTOR_WEIGHT, Fused, Fusion, LegName, fuse
from retrieval.lexical import match_expression
from reverie.clock import from_micros
from reverie.errors import Permanent, Rejected, Unavailable
from reverie.types import Explanation, Leg, Memory, Recollection
from storage.index import ChunkFilter
from storage.records import FoundText, Hit
from storage.stores import Store, Transaction

Mode = Literal["keyword", "vector", "hybrid"]

MAX_LIMIT: Final = 100
MAX_QUERY_CHARACTERS: Final = 100_000
# How many candidates each leg brings: enough that min-max has a floor and one message's chunks do not fill it.
_CANDIDATES_A_RESULT: Final = 10
_FEWEST_CANDIDATES: Final = 100


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What to look for, where, and how. Checked by `check`."""

    query: str
    agent: str
    session: str | None = None
    tags: tuple[str, ...] = ()
    mode: Mode = "hybrid"
    limit: int = 5
    query_embedding: Sequence[float] | None = None
    fusion: Fusion = "weighted"
    vector_weight: float = DEFAULT_VECTOR_WEIGHT
    fts_weight: float = DEFAULT_FTS_WEIGHT
    explain: bool = False

    def check(self) -> None:
        """Raise `Rejected`, naming the field, for what cannot be searched."""
        if len(self.query) > MAX_QUERY_CHARACTERS:
            raise Rejected(
                f"query has {len(self.query):,} characters; the limit is {MAX_QUERY_CHARACTERS:,}", field="query"
            )
        if self.mode not in ("keyword", "vector", "hybrid"):
            raise Rejected(f"mode {self.mode!r} is none of keyword, vector, hybrid", field="mode")
        if self.fusion not in ("weighted", "rrf"):
            raise Rejected(f"fusion {self.fusion!r} is none of weighted, rrf", field="fusion")
        if not 1 <= self.limit <= MAX_LIMIT:
            raise Rejected(f"limit is {self.limit}; it must lie in 1 to {MAX_LIMIT}", field="limit")
        for name in ("vector_weight", "fts_weight"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and 0.0 <= weight <= 1.0):
                raise Rejected(f"{name} is {weight}; it must lie in [0, 1]", field=name)
        if self.vector_weight + self.fts_weight == 0:
            raise Rejected("vector_weight and fts_weight are both 0", field="vector_weight")


def recall(store: Store, embedder: Embedder | None, request: RecallRequest) -> Recollection:
    """The best matches for a query among what one agent holds.

    Raises `Rejected` for a request at fault and `NotFound` for an unknown session; an empty query finds nothing.
    """
    request.check()
    vector, degraded = query_vector(store, embedder, request)
    with store.reading() as tx:
        results = _results(tx, request, ranked_chunks(tx, request, vector))
    return Recollection(results=results, mode=request.mode, degraded=degraded)


def ranked_chunks(tx: Transaction, request: RecallRequest, vector: NDArray[np.float32] | None) -> list[Fused]:
    """The chunks that both legs found, best first; ties go to the newer, then to the higher id.

    Without a vector the words answer alone, whatever the mode. Raises `NotFound` for an unknown session.
    """
    within = _filter(tx, request)
    depth = max(_FEWEST_CANDIDATES, request.limit * _CANDIDATES_A_RESULT)
    legs: dict[LegName, list[Hit]] = {}
    if request.mode != "vector" or vector is None:
        match = match_expression(request.query)
        legs["keyword"] = tx.index.search_text(match, within, depth) if match else []
    if vector is not None:
        legs["vector"] = tx.index.search_vectors(vector.tobytes(), within, depth)
    fused = fuse(legs, fusion=request.fusion, weights=_weights(request))
    said = tx.for_agent(request.agent).found.created_at([item.chunk_id for item in fused])
    return sorted(fused, key=lambda item: (-item.score, -said.get(item.chunk_id, 0), -item.chunk_id))


def query_vector(
    store: Store, embedder: Embedder | None, request: RecallRequest
) -> tuple[NDArray[np.float32] | None, str]:
    """The query as a vector of the store's model, or why words must do alone."""
    if request.mode == "keyword" or (not request.query.strip() and request.query_embedding is None):
        return None, ""
    with store.reading() as tx:
        generation = tx.index.active("vector")
    if generation is None:
        return None, f"keyword only: {_why_no_vectors(embedder)}"
    if request.query_embedding is not None:
        return _given_vector(request.query_embedding, generation.dim), ""
    if embedder is None:
        return None, "keyword only: no embedder is configured"
    try:
        embedder.load()
        if (embedder.model, embedder.dimension) != (generation.model, generation.dim):
            return (
                None,
                f"keyword only: the store holds vectors of {generation.model}, the settings name {embedder.model}",
            )
        return np.asarray(embedder.embed_query(request.query), dtype="<f4"), ""
    except (Unavailable, Permanent) as error:
        return None, f"keyword only: {error}"


def _why_no_vectors(embedder: Embedder | None) -> str:
    """What keeps a store without vectors, where the embedder knows it."""
    try:
        if embedder is not None:
            embedder.load()
    except Unavailable as error:
        return str(error)
    return "nothing has a vector yet" if embedder is not None else "no embedder is configured"


def _given_vector(values: Sequence[float], dim: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what is too large for a float32 becomes infinite, and is refused below
        vector = np.asarray(values, dtype="<f4")
    if vector.shape != (dim,):
        raise Rejected(
            f"query_embedding has {vector.size} numbers; the store's model has {dim}", field="query_embedding"
        )
    length = float(np.linalg.norm(vector))
    if not math.isfinite(length) or length == 0.0:
        raise Rejected("query_embedding must hold finite numbers that are not all 0", field="query_embedding")
    return np.asarray(vector / length, dtype="<f4")


def _filter(tx: Transaction, request: RecallRequest) -> ChunkFilter:
    session_row = None
    if request.session is not None:
        session_row = tx.for_agent(request.agent).sessions.get(request.session).row_id
    return ChunkFilter(request.agent, session_row, request.tags)


def _weights(request: RecallRequest) -> Mapping[LegName, float]:
    return {"vector": request.vector_weight, "keyword": request.fts_weight}


def _results(tx: Transaction, request: RecallRequest, ranked: Sequence[Fused]) -> list[Memory]:
    """One result for each message or file among ranked chunks."""
    found = tx.for_agent(request.agent).found
    results: dict[tuple[str, str], Memory] = {}
    # Several chunks of one source become one result, so a few more than asked for are read.
    for start in range(0, len(ranked), 2 * request.limit):
        batch = ranked[start : start + 2 * request.limit]
        texts = found.texts([item.chunk_id for item in batch])
        for item in batch:
            text = texts.get(item.chunk_id)
            if text is not None and len(results) < request.limit:
                results.setdefault((text.kind, text.id), _memory(text, item, request.explain))
        if len(results) >= request.limit:
            break
    return list(results.values())


def _memory(text: FoundText, item: Fused, explain: bool) -> Memory:
    return Memory(
        id=text.id,
        kind="file" if text.kind == "file" else "message",
        text=text.text,
        created_at=from_micros(text.created_at),
        session=text.session,
        role=text.role,
        name=text.name,
        tags=list(text.tags),
        excerpt=text.chunk_text if text.chunk_text != text.text else None,
        explanation=_explanation(item) if explain else None,
    )


def _explanation(item: Fused) -> Explanation:
    legs = {name: Leg(rank=s.rank, score=s.score, normalised=s.normalised) for name, s in item.legs.items()}
    return Explanation(score=item.score, keyword=legs.get("keyword"), vector=legs.get("vector"))
