"""How much of what a store holds is written in another script than Latin, estimated from a sample of its chunks.

The share of texts, not of letters: a Chinese text has a third of the letters of its translation.
"""

from __future__ import annotations

from typing import Any, Final

# Evenly spaced by id: 0.4 ms for 64 chunks of 640 characters. The estimate is within 12 points, 19 times of 20.
_SAMPLED: Final = 64
_SAMPLE: Final = """
    WITH RECURSIVE
        span (low, high) AS (SELECT min(id), max(id) FROM chunks),
        place (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM place WHERE number + 1 < :sampled)
    SELECT text FROM chunks WHERE id IN (
        SELECT (SELECT min(id) FROM chunks WHERE id >= low + (high - low) * number / (:sampled - 1)) FROM place, span
    )
"""
# Latin ends with U+024F; U+1E00 to U+1EFF are Latin letters with marks, as in Vietnamese.
_LATIN_END: Final = 0x24F
_MORE_LATIN: Final = range(0x1E00, 0x1F00)


def share_outside_latin(raw: Any) -> float:
    """Return the share of sampled chunks, 0 to 1, most of whose letters are not Latin; 0 if none has letters."""
    judged = [
        judge
        for (text,) in raw.execute(_SAMPLE, {"sampled": _SAMPLED})
        if (judge := is_outside_latin(text)) is not None
    ]
    return sum(judged) / len(judged) if judged else 0.0


def is_outside_latin(text: str) -> bool | None:
    """Return whether more than half of a text's letters are not Latin; None for a text without letters."""
    if text.isascii():
        return False if any(map(str.isalpha, text)) else None
    letters = [ord(letter) for letter in text if letter.isalpha()]
    others = sum(code > _LATIN_END and code not in _MORE_LATIN for code in letters)
    return 2 * others > len(letters) if letters else None
