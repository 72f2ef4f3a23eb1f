"""Search items: by meaning with an exact comparison of all vectors below the namespace, or the newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from memory.items.filters import fits
from reverie.errors import Permanent, Rejected, Transient
from reverie.items.calls import Distance
from storage.items.items import OWN_MODEL, ItemRow, Items

# Items read at a time, in the order of their scores.
_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query as a vector, and whose vectors it is compared with; `degraded` says why there is none."""

    vector: NDArray[np.float32] | None = None
    model: str = ""
    distance: Distance = "cosine"
    degraded: str = ""

    def misses(self, row: ItemRow) -> bool:
        """Return whether an item is to be found by meaning, and has no vectors of the query's model."""
        return row.is_indexed and row.embedding_model != self.model and self.model != OWN_MODEL


@dataclass(frozen=True, slots=True)
class ItemSearch:
    """What is searched for below a prefix: `alive_at` leaves out what expired before it, in microseconds."""

    prefix: Sequence[str]
    conditions: dict[str, Any] = field(default_factory=dict)
    limit: int = 10
    offset: int = 0
    alive_at: int | None = None


def query_vector(
    embedder: Embedder | None, query: str, own: Sequence[float] | None, distance: Distance
) -> QueryVector | None:
    """Return a query as a vector: the caller's own, or that of the embedder; None without a query.

    Call it outside any transaction: an embedder may be slow.
    """
    if own is not None:
        return QueryVector(np.asarray(own, dtype="<f4"), OWN_MODEL, distance)
    if not query.strip():
        return None
    if embedder is None:
        return QueryVector(degraded="not searched by meaning: no embedder is configured")
    try:
        embedder.load()
        return QueryVector(np.asarray(embedder.embed_query(query), dtype="<f4"), embedder.model)
    except (Transient, Permanent) as error:
        return QueryVector(degraded=f"not searched by meaning: {error}")


def search_rows(items: Items, search: ItemSearch, query: QueryVector | None) -> list[tuple[ItemRow, float | None]]:
    """Return the items that fit, each with its score. Raises `Rejected` for a vector of another length."""
    if query is None or query.vector is None:
        if not search.conditions:
            rows = items.newest(search.prefix, alive_at=search.alive_at, limit=search.limit, offset=search.offset)
            return [(row, None) for row in rows]
        found: Iterator[tuple[ItemRow, float | None]] = (
            (row, None) for row in items.all_newest(search.prefix, alive_at=search.alive_at)
        )
    else:
        found = _by_score(items, search, query)
    fitting = (one for one in found if fits(one[0].value, search.conditions))
    return list(islice(fitting, search.offset, search.offset + search.limit))


def _by_score(items: Items, search: ItemSearch, query: QueryVector) -> Iterator[tuple[ItemRow, float | None]]:
    """Yield the items with vectors, best first, and then those without, newest first."""
    scores = _scores(items, search, query)
    ranked = sorted(scores, key=lambda row_id: (-scores[row_id], -row_id))
    for first in range(0, len(ranked), _PAGE):
        page = ranked[first : first + _PAGE]
        rows = {row.row_id: row for row in items.rows(page)}
        yield from ((rows[row_id], scores[row_id]) for row_id in page if row_id in rows)
    others = items.all_newest(search.prefix, alive_at=search.alive_at)
    yield from ((row, None) for row in others if row.row_id not in scores)


def _scores(items: Items, search: ItemSearch, query: QueryVector) -> dict[int, float]:
    """Return the best score of each item below the prefix that has vectors."""
    assert query.vector is not None
    scores: dict[int, float] = {}
    for page in items.vectors(search.prefix, model=query.model, alive_at=search.alive_at):
        blobs = [blob for _, blob in page]
        if any(len(blob) != query.vector.nbytes for blob in blobs):
            dimension = len(next(blob for blob in blobs if len(blob) != query.vector.nbytes)) // 4
            raise Rejected(
                f"query_vector has {query.vector.size} numbers; items below this namespace have vectors of {dimension}",
                field="query_vector",
            )
        matrix = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(blobs), -1)
        for (row_id, _), score in zip(page, _compared(matrix, query), strict=True):
            scores[row_id] = max(score, scores.get(row_id, -np.inf))
    return scores


def _compared(matrix: NDArray[np.float32], query: QueryVector) -> list[float]:
    """Return how similar each row is to the query: the higher, the more, whatever the distance."""
    assert query.vector is not None
    if query.distance == "l2":
        compared = -np.linalg.norm(matrix - query.vector, axis=1)
    else:
        compared = matrix @ query.vector
        if query.distance == "cosine":
            lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query.vector)
            compared = np.divide(compared, lengths, out=np.zeros_like(compared), where=lengths > 0)
    numbers: list[float] = compared.tolist()
    return numbers
