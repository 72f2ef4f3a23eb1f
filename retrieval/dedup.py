"""Of things that say the same, the better one stays (R8): by cosine where both have vectors, by their words else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.scopes import Candidate
from storage.recall.words import with_few_marks

SAME: Final = 0.9

_BETWEEN_WORDS = re.compile(r"[\W_]+")


def distinct(
    ranked: Sequence[Candidate],
    vectors: Mapping[int, NDArray[np.float32]],
    *,
    limit: int,
    known_texts: Sequence[str] = (),
    known_vectors: Sequence[NDArray[np.float32]] = (),
) -> list[Candidate]:
    """The first `limit` of ranked candidates of which none says what a better one, or something known, says.

    `vectors` are unit vectors by the candidates' numbers; one without is compared by its text alone. A memory and the
    message that it came from say the same.
    """
    kept: list[Candidate] = []
    texts = {normalised(text) for text in known_texts}
    near = list(known_vectors)
    things: set[tuple[str, str]] = set()
    for candidate in ranked:
        if len(kept) >= limit:
            break
        text = normalised(candidate.memory.excerpt or candidate.memory.text)
        vector = vectors.get(candidate.number)
        if candidate.thing in things or text in texts or (vector is not None and _closest(vector, near) > SAME):
            continue
        kept.append(candidate)
        texts.add(text)
        things.add(candidate.thing)
        if vector is not None:
            near.append(vector)
    return kept


def normalised(text: str) -> str:
    """A text without what does not change what it says: case, blanks, punctuation. One of signs alone stays."""
    folded = unicodedata.normalize("NFKC", with_few_marks(text)).casefold()
    return _BETWEEN_WORDS.sub(" ", folded).strip() or " ".join(folded.split())


def _closest(vector: NDArray[np.float32], others: Sequence[NDArray[np.float32]]) -> float:
    """The highest cosine of a unit vector to any of the others; -1 where there are none."""
    return max((float(vector @ other) for other in others), default=-1.0)
