"""Removes duplicates: by cosine if both texts have vectors, else by their words. The better one stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.context.relevance import Candidate
from retrieval.twins import normalised

# Texts with a higher cosine count as duplicates.
MAX_COSINE: Final = 0.9


def distinct(
    ranked: Sequence[Candidate],
    vectors: Mapping[int, NDArray[np.float32]],
    *,
    limit: int,
    turns_of: str | None = None,
    max_turns: int = 0,
    known_texts: Sequence[str] = (),
    known_vectors: Sequence[NDArray[np.float32]] = (),
) -> list[Candidate]:
    """Return the first `limit` ranked candidates that duplicate neither a better one nor a known text.

    `vectors` are unit vectors by candidate number; a candidate without one is compared by its text only. A memory and
    its source message are duplicates. Of the candidates that are messages of the session `turns_of`, at most
    `max_turns` are returned.
    """
    chosen: list[Candidate] = []
    texts = {normalised(text) for text in known_texts}
    compared = list(known_vectors)
    origins: set[tuple[str, str]] = set()
    turns = 0
    for candidate in ranked:
        if len(chosen) >= limit:
            break
        is_turn = candidate.result.kind == "message" and candidate.result.session == turns_of
        if is_turn and turns >= max_turns:
            continue
        text = normalised(candidate.result.excerpt or candidate.result.text)
        vector = vectors.get(candidate.number)
        if (
            candidate.origin in origins
            or text in texts
            or (vector is not None and _closest(vector, compared) > MAX_COSINE)
        ):
            continue
        chosen.append(candidate)
        turns += is_turn
        texts.add(text)
        origins.add(candidate.origin)
        if vector is not None:
            compared.append(vector)
    return chosen


def _closest(vector: NDArray[np.float32], others: Sequence[NDArray[np.float32]]) -> float:
    """Return the highest cosine of a unit vector to any of the others; -1 without others."""
    return max((float(vector @ other) for other in others), default=-1.0)
