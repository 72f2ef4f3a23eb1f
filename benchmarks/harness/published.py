"""Published figures of others, and those of simple baselines, on the same data sets with the same embedder.

A figure needs its definition: data sets, parts of them, and the meaning of @k differ between publications, and each
line states them. All in percent, with all-MiniLM-L6-v2 and no language model, unless stated otherwise.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_LOCOMO: Final = "LoCoMo, all ten conversations, categories 1 to 4"
_LONGMEMEVAL: Final = "LongMemEval-S"
# Prototypes and plain baselines, measured before Reverie's own recall was written.
_BASELINE: Final = "baseline"
_MEMINI: Final = "github.com/eleboucher/memini, bench/README.md"
_QUOTED: Final = "as quoted with the development data"


class Published(NamedTuple):
    """One figure: our corresponding measure, the system, the data set, and the source."""

    measure: str
    percent: float
    who: str
    on: str
    source: str


PUBLISHED: Final = (
    Published("locomo_any_at_5", 58.7, "FTS5 BM25 over single turns", _LOCOMO, _BASELINE),
    Published("locomo_any_at_5", 40.6, "cosine over single turns", _LOCOMO, _BASELINE),
    Published("locomo_any_at_5", 61.6, "0.7 cosine + 0.3 BM25, min-max", _LOCOMO, _BASELINE),
    Published("locomo_any_at_5", 59.7, "memini, hybrid", "LoCoMo, 1,982 questions, all categories", _MEMINI),
    Published("locomo_any_at_5", 73.0, "prototype, unfitted", _LOCOMO, _BASELINE),
    Published("locomo_any_at_10", 67.4, "FTS5 BM25 over single turns", _LOCOMO, _BASELINE),
    Published("locomo_any_at_10", 50.2, "cosine over single turns", _LOCOMO, _BASELINE),
    Published("locomo_any_at_10", 70.8, "0.7 cosine + 0.3 BM25, min-max", _LOCOMO, _BASELINE),
    Published("locomo_any_at_10", 69.9, "memini, hybrid", "LoCoMo, 1,982 questions, all categories", _MEMINI),
    Published("locomo_any_at_10", 82.7, "prototype, unfitted", _LOCOMO, _BASELINE),
    Published(
        "locomo_any_at_10",
        87.6,
        "ten retrievers fitted on these five",
        "LoCoMo, conversations 26, 30, 41-43",
        _BASELINE,
    ),
    Published("locomo_any_at_10", 84.5, "ten retrievers fitted on the other five", "LoCoMo, the other five", _BASELINE),
    Published("longmemeval_any_at_5", 98.4, "memini, hybrid", f"{_LONGMEMEVAL}, 500 questions", _MEMINI),
    Published("longmemeval_any_at_5", 98.4, "MemPalace, hybrid v4", f"{_LONGMEMEVAL}, 450 held out", _QUOTED),
    Published("longmemeval_any_at_5", 97.4, "FTS5 BM25 over whole sessions", _LONGMEMEVAL, _BASELINE),
    Published("longmemeval_any_at_5", 100.0, "prototype", f"{_LONGMEMEVAL}, 116 questions", _BASELINE),
    Published("longmemeval_any_at_5", 99.1, "best chunk's cosine alone", f"{_LONGMEMEVAL}, 116 questions", _BASELINE),
    Published("longmemeval_all_at_5", 89.2, "memweave", f"{_LONGMEMEVAL}, 424 held out", _QUOTED),
    Published("longmemeval_all_at_5", 85.9, "FTS5 BM25 over whole sessions", _LONGMEMEVAL, _BASELINE),
    Published("longmemeval_all_at_5", 93.4, "gbrain, with an API embedder", _LONGMEMEVAL, _QUOTED),
    Published("longmemeval_all_at_5", 95.5, "gbrain, with a reranker too", _LONGMEMEVAL, _QUOTED),
    Published("longmemeval_all_at_5", 94.0, "prototype", f"{_LONGMEMEVAL}, 116 questions", _BASELINE),
    Published("longmemeval_all_at_5", 92.2, "best chunk's cosine alone", f"{_LONGMEMEVAL}, 116 questions", _BASELINE),
)
