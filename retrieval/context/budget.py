"""Fits items, most important first, into a token budget.

Of the conversation, the first item that does not fit ends the list, so the last are dropped first: relevant turns,
important turns, and the oldest of the recent turns. What is remembered from elsewhere fills the rest: an item that does
not fit is skipped, and smaller ones of a lower rank may still fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reverie.errors import Rejected
from reverie.recall.calls import MAX_RESULTS

# The smallest document: title and note, one heading, and some words of the newest turn.
MIN_TOKENS: Final = 64
# Hardly any item has fewer tokens: a date, a speaker and a few words.
_SHORT_ITEM_TOKENS: Final = 16
# A line has some 40 tokens: this is twice as many results as fit, because some are duplicates or too long for the rest.
_TOKENS_OF_RESULT: Final = 20
_LEAST_RESULTS: Final = 25


@dataclass(frozen=True, slots=True)
class Fitted:
    """How many of the first items fit, and the tokens to which the last of them must be cut, if it must."""

    count: int
    cut_last_to: int | None = None


def room_of(token_budget: int, *, buffer: int) -> int:
    """Return the tokens that a document may have. Raises `Rejected`, naming the field, if they are too few."""
    if token_budget <= 0:
        raise Rejected(f"token_budget is {token_budget}; it must be a whole number above 0", field="token_budget")
    if token_budget - buffer < MIN_TOKENS:
        raise Rejected(
            f"token_budget is {token_budget:,}, of which system_prompt_buffer takes {buffer:,}:"
            f" it must be at least {buffer + MIN_TOKENS:,}",
            field="token_budget",
        )
    return token_budget - buffer


def results_for(tokens: int | None) -> int:
    """Return how many results to recall for this many tokens of them; None for no limit."""
    if tokens is None:
        return MAX_RESULTS
    return min(MAX_RESULTS, max(_LEAST_RESULTS, tokens // _TOKENS_OF_RESULT))


@dataclass(frozen=True, slots=True)
class Cost:
    """The tokens of an item, and those of the line of its day, which the items of that day share."""

    tokens: int
    day: tuple[str, str] = ("", "")
    day_tokens: int = 0


def fill(costs: Iterable[Cost], room: int) -> list[int]:
    """Return the positions of the items that fit into `room` tokens, each taken if it fits into what is left.

    `costs` are read until less is left than a short item needs.
    """
    chosen: list[int] = []
    days: set[tuple[str, str]] = set()
    for position, cost in enumerate(costs):
        tokens = cost.tokens + (0 if cost.day in days else cost.day_tokens)
        if tokens <= room:
            chosen.append(position)
            days.add(cost.day)
            room -= tokens
        if room < _SHORT_ITEM_TOKENS:
            break
    return chosen


def fit(costs: Iterable[int], room: int, *, cuttable: int) -> Fitted:
    """Return how many items fit into `room` tokens; `costs` are their tokens, read no further than needed.

    The first item is always included. One of the first `cuttable` items that is larger than the whole room is included
    as the last, cut to the tokens that are left, if these are at least `MIN_TOKENS`.
    """
    used = count = 0
    for cost in costs:
        left = room - used
        if cost > left:
            cut = count == 0 or (count < cuttable and cost > room and left >= MIN_TOKENS)
            return Fitted(count + 1, left) if cut else Fitted(count)
        used += cost
        count += 1
    return Fitted(count)
