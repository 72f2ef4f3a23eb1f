"""What a context tells of the past of a memory, and of what contradicts it: a few words behind its text, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.context.dedup import MAX_COSINE, are_at_odds
from retrieval.context.neutral import label
from retrieval.context.relevance import Candidate
from retrieval.twins import normalised
from reverie.clock import from_micros, to_micros
from storage.recall.past import Said

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SHOWN_CHARACTERS: Final = 120


def date_of(micros: int) -> str:
    """Return a date such as "8 May 2023": half the tokens of the form in figures."""
    day = from_micros(micros)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def with_histories(
    candidates: Sequence[Candidate],
    histories: Mapping[int, Sequence[Said]],
    vectors: Mapping[int, NDArray[np.float32]],
) -> list[Candidate]:
    """Return candidates with what is told of their past. `histories` and `vectors` are by the candidate's number."""
    pasts = {number: past_of(said) for number, said in histories.items()}
    for number, other in _at_odds(candidates, vectors).items():
        pasts[number] = "; ".join(filter(None, (pasts.get(number), f"may contradict that of {date_of(other)}")))
    return [replace(one, past=pasts[one.number]) if pasts.get(one.number) else one for one in candidates]


def past_of(said: Sequence[Said]) -> str:
    """Return since when a memory holds and what held before, from its history, the newest first; empty without one."""
    if not said:
        return ""
    current, since = said[0], said[0].created_at
    for earlier in said[1:]:
        if normalised(_words(earlier)) == normalised(_words(current)):
            since = earlier.created_at
        elif earlier.created_at == current.created_at:
            return f"at the same time also said: {_words(earlier)}"
        else:
            return f"since {date_of(since)}; before that {_words(earlier)}"
    return ""


def _words(said: Said) -> str:
    return label(said.value or said.content, max_characters=_SHOWN_CHARACTERS).rstrip(".")


def _at_odds(candidates: Sequence[Candidate], vectors: Mapping[int, NDArray[np.float32]]) -> dict[int, int]:
    """Return, for memories that another one seems to contradict, the time of that: once for each pair, at the newer."""
    memories = [one for one in candidates if one.result.kind == "memory" and one.number in vectors]
    memories.sort(key=lambda one: (one.result.created_at, one.number))
    found: dict[int, int] = {}
    for position, newer in enumerate(memories):
        for older in memories[:position]:
            near = float(vectors[newer.number] @ vectors[older.number]) > MAX_COSINE
            if near and are_at_odds(newer, older):
                found[newer.number] = to_micros(older.result.created_at)
    return found
