"""Removes duplicates: by cosine if both texts have vectors, else by their words. The better one stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.context.relevance import Candidate
from retrieval.twins import normalised
from storage.recall.sameness import contradicts, statement

# Texts with a higher cosine count as duplicates.
MAX_COSINE: Final = 0.9
_FIRST_VECTORS: Final = 64


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
    its source message are duplicates; two memories that seem to contradict each other are none. Of the candidates that
    are messages of the session `turns_of`, at most `max_turns` are returned.
    """
    chosen: list[Candidate] = []
    texts = {normalised(text) for text in known_texts}
    compared = _Compared(known_vectors)
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
        if candidate.origin in origins or text in texts or (vector is not None and compared.is_near(candidate, vector)):
            continue
        chosen.append(candidate)
        turns += is_turn
        texts.add(text)
        origins.add(candidate.origin)
        if vector is not None:
            compared.add(candidate, vector)
    return chosen


class _Compared:
    """The unit vectors that candidates are compared with, in one array: known ones and those of chosen candidates."""

    def __init__(self, known: Sequence[NDArray[np.float32]]) -> None:
        self._vectors = np.array(known, dtype=np.float32)
        self._candidates: list[Candidate | None] = [None] * len(known)

    def add(self, candidate: Candidate, vector: NDArray[np.float32]) -> None:
        """Compare later candidates with this one, too."""
        count = len(self._candidates)
        if count == len(self._vectors):
            grown = np.empty((max(_FIRST_VECTORS, 2 * count), len(vector)), dtype=np.float32)
            grown[:count] = self._vectors.reshape(count, len(vector))
            self._vectors = grown
        self._vectors[count] = vector
        self._candidates.append(candidate)

    def is_near(self, candidate: Candidate, vector: NDArray[np.float32]) -> bool:
        """Return whether a unit vector is near another one that does not belong to a contradiction."""
        count = len(self._candidates)
        if not count:
            return False
        near = np.flatnonzero(self._vectors[:count] @ vector > MAX_COSINE)
        others = (self._candidates[place] for place in near)
        return any(other is None or not are_at_odds(candidate, other) for other in others)


def are_at_odds(one: Candidate, other: Candidate) -> bool:
    """Return whether two memories with nearly the same vector seem to contradict each other.

    The values of two categories or keys never do.
    """
    if one.result.kind != "memory" or other.result.kind != "memory" or (one.keyed and other.keyed):
        return False
    return contradicts(statement(one.result.text), statement(other.result.text))
