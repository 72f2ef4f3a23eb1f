"""What fits into a number of tokens, in an order of what matters most.

Whatever does not fit ends the list: nothing that matters less takes its place. So what is dropped first is always
what stands last: memories of the lowest rank, then relevant turns, important ones, the oldest of the recent ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reverie.errors import Rejected

# The smallest document: what it is, one heading, and some words of the newest turn.
FEWEST_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class Fitted:
    """How many of the first items stay, and to how many tokens the last of them has to be cut, if it has to."""

    kept: int
    cut_last_to: int | None = None


def room_of(token_budget: int, *, buffer: int) -> int:
    """The tokens that a text may take. Raises `Rejected`, naming the field, for a budget that leaves too few."""
    if token_budget <= 0:
        raise Rejected(f"token_budget is {token_budget}; it must be a whole number above 0", field="token_budget")
    if token_budget - buffer < FEWEST_TOKENS:
        raise Rejected(
            f"token_budget is {token_budget:,}, of which system_prompt_buffer takes {buffer:,}:"
            f" it must be at least {buffer + FEWEST_TOKENS:,}",
            field="token_budget",
        )
    return token_budget - buffer


def fit(costs: Iterable[int], room: int, *, cuttable: int) -> Fitted:
    """How many of these items fit one after another; `costs` is read no further than that.

    The first stays in any case. Of the first `cuttable` ones, one that by itself is larger than the whole room is cut
    to what is left; as the last one, and where that is worth a line.
    """
    used = kept = 0
    for cost in costs:
        left = room - used
        if cost > left:
            cut = kept == 0 or (kept < cuttable and cost > room and left >= FEWEST_TOKENS)
            return Fitted(kept + 1, left) if cut else Fitted(kept)
        used += cost
        kept += 1
    return Fitted(kept)
