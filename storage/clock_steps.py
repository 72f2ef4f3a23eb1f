"""Conditions on times in a store that were written while the clock was ahead, before it was set right."""

from __future__ import annotations

from typing import Final

# Clocks are corrected in smaller steps: a time further in the future was written while the clock was wrong.
CLOCK_TOLERANCE_MICROS: Final = 60_000_000


def is_over(column: str, *, longest_seconds: int) -> str:
    """Return the condition that a lease or pause has ended, or that its end is further ahead than it can last.

    NULL has ended, too. The column and the parameter `:clock` are microseconds.
    """
    return f"(coalesce({column}, 0) <= :clock OR {column} > :clock + {longest_seconds * 1_000_000})"


# A pause after a failed push is at most an hour. A pause that began in the future is over: it was written before the
# clock was set back, and could last as long as that step.
PUSH_PAUSE_OVER: Final = (
    f"({is_over('not_before', longest_seconds=3_700)} OR paused_at > :clock + {CLOCK_TOLERANCE_MICROS})"
)
