"""Which of a session's oldest messages become summary, and how long that summary may be (B3, B4). Pure arithmetic.

Whatever is decided, the newest message stays, and no answer of a tool stays behind without its question: what is left
begins only where `beginnings` allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

# What was said shrinks to a fifth, unless the room for the summary is smaller than that.
SHRINK: Final = 5
# A line or two: less says nothing.
LEAST_TOKENS: Final = 48
# Five or six lines: a short conversation shrinks less, to two thirds if it has no more than small talk to lose.
SHORT_TOKENS: Final = 160
# Of a small budget a summary takes a quarter: what `restore` and `context` give it.
SUMMARY_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class RollingNumbers:
    """When a rolling summary is due, and what it leaves (B3)."""

    min_turns: int = 4
    trigger_ratio: float = 0.8
    target_ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class CompactionNumbers:
    """When compaction is due, and what it leaves (B4)."""

    reserve_tokens: int = 16_384
    keep_recent_tokens: int = 20_000


@dataclass(frozen=True)
class Usage:
    """The tokens of a session: its summary, and its unsummarised messages, oldest first.

    `beginnings` says at which of them a conversation may begin. `newer` and `newer_tokens` are those after the ones
    listed, which nobody has counted one by one: they stay. `summary_most` is what the summary may have.
    """

    costs: Sequence[int]
    beginnings: Sequence[bool]
    summary_tokens: int
    summary_most: int
    newer: int = 0
    newer_tokens: int = 0

    @property
    def messages(self) -> int:
        """How many messages are not yet summarised."""
        return len(self.costs) + self.newer

    @property
    def in_use(self) -> int:
        """The tokens of everything."""
        return self.summary_tokens + self._sums[-1] + self.newer_tokens

    def after(self, condensed: int) -> int:
        """What would be in use with the `condensed` oldest messages, one at least, in the summary."""
        tokens = self._sums[condensed]
        summary = summary_tokens_after(self.summary_tokens, tokens, self.summary_most)
        return self._sums[-1] - tokens + self.newer_tokens + summary

    @cached_property
    def _sums(self) -> list[int]:
        return [0, *accumulate(self.costs)]


def rolling(usage: Usage, budget: int, numbers: RollingNumbers) -> int:
    """How many of the oldest messages a rolling summary condenses; 0 when it is not due.

    Due with at least `min_turns` unsummarised messages and more in use than `trigger_ratio` of the budget. As few as
    bring it to `target_ratio` of the budget, what the summary will take counted; where none do, as many as may go.
    """
    if usage.messages < numbers.min_turns or usage.in_use <= numbers.trigger_ratio * budget:
        return 0
    return down_to(usage, numbers.target_ratio * budget)


def compaction(usage: Usage, budget: int, numbers: CompactionNumbers) -> int:
    """How many of the oldest messages a compaction condenses; 0 when it is not due.

    Due with more in use than the budget less the reserve. A message that reaches into the newest `keep_recent_tokens`
    stays whole.
    """
    if usage.in_use <= budget - numbers.reserve_tokens:
        return 0
    newer = usage.newer_tokens
    place = len(usage.costs)
    while place and newer < numbers.keep_recent_tokens:
        place -= 1
        newer += usage.costs[place]
    return next((cut for cut in reversed(_cuts(usage)) if cut <= place), 0)


def down_to(usage: Usage, tokens: float) -> int:
    """The fewest oldest messages whose condensing leaves at most so many tokens in use.

    0 where that is so already; as many as may go where no number of them reaches it, and none where their summary
    would be longer than they are.
    """
    if usage.in_use <= tokens:
        return 0
    cuts = _cuts(usage)
    enough = next((cut for cut in cuts if usage.after(cut) <= tokens), None)
    if enough is not None:
        return enough
    return cuts[-1] if cuts and usage.after(cuts[-1]) < usage.in_use else 0


def everything(usage: Usage) -> int:
    """How many messages go when a conversation is over (B1): all that were looked at one by one."""
    return len(usage.costs)


def within(usage: Usage, wanted: int, tokens: int) -> int:
    """Of the `wanted` oldest messages as many as have at most so many tokens, none torn; one exchange at least."""
    sums = [0, *accumulate(usage.costs)]
    if sums[wanted] <= tokens:
        return wanted
    cuts = [cut for cut in _cuts(usage) if cut < wanted] or [wanted]
    return next((cut for cut in reversed(cuts) if sums[cut] <= tokens), cuts[0])


def summary_most(most: int, budget: int) -> int:
    """The tokens that a summary may have beside messages that are to fit into a budget with it."""
    return max(1, min(most, budget // SUMMARY_SHARE))


def new_part_tokens(summary_tokens: int, condensed_tokens: int, most: int) -> int:
    """The tokens of what is appended for messages of so many tokens: a fifth, within what is free or half of all."""
    wanted = max(LEAST_TOKENS, condensed_tokens // SHRINK, min(SHORT_TOKENS, condensed_tokens * 2 // 3))
    return max(1, min(wanted, max(most - summary_tokens, most // 2)))


def summary_tokens_after(summary_tokens: int, condensed_tokens: int, most: int) -> int:
    """What the summary is expected to have once messages of so many tokens are in it."""
    return min(most, summary_tokens + new_part_tokens(summary_tokens, condensed_tokens, most))


def _cuts(usage: Usage) -> list[int]:
    """How many of the oldest messages may go: up to where a conversation may begin, never all of them."""
    return [place for place in range(1, len(usage.costs)) if usage.beginnings[place]]
