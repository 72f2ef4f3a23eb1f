"""Decide how many of a session's oldest messages become summary, and how long that summary may be. Pure arithmetic.

The newest message always stays, and no tool result is left without its call: what remains starts only where
`Usage.valid_starts` allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

# Messages shrink to a fifth, unless there is less room than that for the summary.
SHRINK_FACTOR: Final = 5
# A line or two: less says nothing.
MIN_TOKENS: Final = 48
# Five or six lines. A short conversation shrinks less, to two thirds: it may have nothing but small talk to lose.
SHORT_TOKENS: Final = 160
# A summary takes at most a quarter of a small budget: the share that `restore` and `context` give it.
SUMMARY_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class RollingRules:
    """When a rolling summary is due, and to which share of the budget it reduces a session."""

    min_turns: int = 4
    trigger_ratio: float = 0.8
    target_ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """When compaction is due (less than the reserve is free), and how many of the newest tokens it keeps."""

    reserve_tokens: int = 16_384
    keep_recent_tokens: int = 20_000


@dataclass(frozen=True)
class Usage:
    """The tokens of a session: its summary, and its unsummarised messages, oldest first.

    `valid_starts` says at which of them a conversation may start. `newer` and `newer_tokens` count the messages after
    those listed, whose tokens are only estimated: they stay. `max_summary_tokens` is the limit of the summary.
    """

    message_tokens: Sequence[int]
    valid_starts: Sequence[bool]
    summary_tokens: int
    max_summary_tokens: int
    newer: int = 0
    newer_tokens: int = 0

    @property
    def messages(self) -> int:
        """How many messages are not summarised yet."""
        return len(self.message_tokens) + self.newer

    @property
    def total_tokens(self) -> int:
        """The tokens of the summary and all messages."""
        return self.summary_tokens + self._sums[-1] + self.newer_tokens

    def tokens_after(self, condensed: int) -> int:
        """Return the total once the `condensed` oldest messages, at least one, are in the summary."""
        tokens = self._sums[condensed]
        summary = summary_tokens_after(self.summary_tokens, tokens, self.max_summary_tokens)
        return self._sums[-1] - tokens + self.newer_tokens + summary

    def oldest_tokens(self, count: int) -> int:
        """Return the tokens of the `count` oldest messages."""
        return self._sums[count]

    @cached_property
    def allowed_counts(self) -> list[int]:
        """How many of the oldest messages may go: up to each valid start, never all of them."""
        return [count for count in range(1, len(self.message_tokens)) if self.valid_starts[count]]

    @cached_property
    def _sums(self) -> list[int]:
        return [0, *accumulate(self.message_tokens)]


def rolling_count(usage: Usage, budget: int, rules: RollingRules) -> int:
    """Return how many of the oldest messages a rolling summary condenses; 0 if it is not due.

    Due with at least `min_turns` unsummarised messages and more tokens than `trigger_ratio` of the budget. Condenses as
    few messages as bring the total, with the new summary, to `target_ratio` of the budget; if none do, all it may.
    """
    if usage.messages < rules.min_turns or usage.total_tokens <= rules.trigger_ratio * budget:
        return 0
    return count_to_reach(usage, rules.target_ratio * budget)


def compaction_count(usage: Usage, budget: int, rules: CompactionRules) -> int:
    """Return how many of the oldest messages a compaction condenses; 0 if it is not due.

    Due when the total exceeds the budget less the reserve. A message that is partly among the newest
    `keep_recent_tokens` is kept whole.
    """
    if usage.total_tokens <= budget - rules.reserve_tokens:
        return 0
    kept_tokens = usage.newer_tokens
    kept_from = len(usage.message_tokens)
    while kept_from and kept_tokens < rules.keep_recent_tokens:
        kept_from -= 1
        kept_tokens += usage.message_tokens[kept_from]
    return next((cut for cut in reversed(usage.allowed_counts) if cut <= kept_from), 0)


def count_to_reach(usage: Usage, tokens: float) -> int:
    """Return the fewest oldest messages to condense so that at most `tokens` remain in use.

    0 if that is already so. If no number reaches it, as many as may go, or none if their summary would be longer than
    they are.
    """
    if usage.total_tokens <= tokens:
        return 0
    enough = next((cut for cut in usage.allowed_counts if usage.tokens_after(cut) <= tokens), None)
    if enough is not None:
        return enough
    return (
        usage.allowed_counts[-1]
        if usage.allowed_counts and usage.tokens_after(usage.allowed_counts[-1]) < usage.total_tokens
        else 0
    )


def limit_count(usage: Usage, count: int, tokens: int) -> int:
    """Reduce a count of oldest messages to at most `tokens`, without splitting an exchange; one exchange at least."""
    if usage.oldest_tokens(count) <= tokens:
        return count
    cuts = [cut for cut in usage.allowed_counts if cut < count] or [count]
    return next((cut for cut in reversed(cuts) if usage.oldest_tokens(cut) <= tokens), cuts[0])


def max_summary_tokens(limit: int, budget: int) -> int:
    """Return the tokens that a summary may have next to messages that share a budget with it."""
    return max(1, min(limit, budget // SUMMARY_SHARE))


def new_part_tokens(summary_tokens: int, condensed_tokens: int, limit: int) -> int:
    """Return the tokens to append for `condensed_tokens`: a fifth, within the free room or half the limit."""
    target = max(MIN_TOKENS, condensed_tokens // SHRINK_FACTOR, min(SHORT_TOKENS, condensed_tokens * 2 // 3))
    return max(1, min(target, max(limit - summary_tokens, limit // 2)))


def summary_tokens_after(summary_tokens: int, condensed_tokens: int, limit: int) -> int:
    """Return the expected tokens of the summary once messages of `condensed_tokens` are in it."""
    return min(limit, summary_tokens + new_part_tokens(summary_tokens, condensed_tokens, limit))
