"""Embeds a query with the model of a store's vectors, or says why the recall is by words only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, relearn_dimension
from retrieval.request import RecallRequest
from reverie.errors import Permanent, Rejected, Unavailable
from storage.recall.generations import Generation


def query_vector(
    request: RecallRequest, text: str, generation: Generation | None, embedder: Embedder | None
) -> tuple[NDArray[np.float32] | None, str]:
    """Return the unit vector of `text`, or of the request's own vector; else None and the reason.

    Call it outside any transaction: an embedder may be slow. Raises `Rejected` for an invalid `query_embedding`.
    """
    if request.mode == "keyword" or (not text.strip() and request.query_embedding is None):
        return None, ""
    if generation is None:
        return None, f"keyword only: {_why_no_vectors(embedder)}"
    if request.query_embedding is not None:
        return _unit_vector(request.query_embedding, generation.dim), ""
    if embedder is None:
        return None, "keyword only: no embedder is configured"
    try:
        embedder.load()
        if (embedder.model, embedder.dimension) != (generation.model, generation.dim):
            relearn_dimension(embedder)
            return (
                None,
                f"keyword only: the store has vectors of {generation.model}, but the settings select {embedder.model}",
            )
        return np.asarray(embedder.embed_query(text), dtype="<f4"), ""
    except (Unavailable, Permanent) as error:
        return None, f"keyword only: {error}"


def _why_no_vectors(embedder: Embedder | None) -> str:
    """Return why a store has no vectors yet: the error of an unavailable embedder, if it has one."""
    try:
        if embedder is not None:
            embedder.load()
    except Unavailable as error:
        return str(error)
    return "nothing has a vector yet" if embedder is not None else "no embedder is configured"


def _unit_vector(values: Sequence[float], dim: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # values too large for float32 become infinite and are rejected below
        vector = np.asarray(values, dtype="<f4")
    if vector.shape != (dim,):
        raise Rejected(
            f"query_embedding has {vector.size} numbers; the store's model has {dim}", field="query_embedding"
        )
    length = float(np.linalg.norm(vector))
    if not math.isfinite(length) or length == 0.0:
        raise Rejected("query_embedding must contain finite numbers that are not all 0", field="query_embedding")
    return np.asarray(vector / length, dtype="<f4")
