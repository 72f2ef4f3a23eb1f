"""Summarise sessions: the oldest messages are condensed and appended, and written if the session is unchanged.

Pure arithmetic decides how many messages are condensed, and how long their summary may be. The newest message always
stays, and the remaining messages start only where `Usage.valid_starts` allows it, so that no tool result is left
without its call.

A batch reads in one transaction, condenses outside of any, and writes in another by compare-and-swap, so a slow batch
never overwrites a newer one. Text, epoch, upper sequence and the marks of the covered messages are one entry of the
curation log. A batch depends only on stored rows: one that was killed is simply repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Final

import numpy as np

from memory.secrets import redact_secret_answers
from memory.sessions.condensers import Condensed, Condenser, append_lines
from memory.sessions.passages import ChunkVector
from memory.sessions.restoring import MESSAGE_OVERHEAD_TOKENS, count_tokens, valid_starts
from memory.stage import require_wanted
from reverie.counts import counted
from storage.curation import EntryDraft
from storage.pipeline.records import MessageRecord
from storage.sessions.records import SessionName
from storage.sessions.summaries import SUMMARISE, MessageSize, SummaryState, format_summary, parse_summary
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# Messages shrink to a fifth, or further if the summary has less room.
SHRINK_FACTOR: Final = 5
# The least room: one or two lines.
MIN_TOKENS: Final = 48
# Five or six lines: up to this length, a conversation shrinks only to two thirds, as it may be all small talk.
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
    those listed; they are not summarised, so estimated tokens are enough. `max_summary_tokens` limits the summary.
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
        """The numbers of oldest messages that may be condensed: the rest begins at a valid start and is never empty."""
        return [count for count in range(1, len(self.message_tokens)) if self.valid_starts[count]]

    @cached_property
    def _sums(self) -> list[int]:
        return [0, *accumulate(self.message_tokens)]


def rolling_count(usage: Usage, budget: int, rules: RollingRules) -> int:
    """Return how many of the oldest messages a rolling summary condenses; 0 if it is not due.

    Due with at least `min_turns` unsummarised messages and more tokens than `trigger_ratio` of the budget. Condenses as
    few messages as bring the total, with the new summary, to `target_ratio` of the budget; failing that, all it may.
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

    0 if they do already. If no number is enough, all that may be condensed, or none if that would save nothing.
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


# The tokens of the longest summary: every context of the session has room for it beside messages.
MAX_SUMMARY_TOKENS: Final = 2_000


def max_summary_tokens(limit: int, budget: int) -> int:
    """Return the tokens that a summary may have if it shares a budget with messages."""
    return max(1, min(limit, budget // SUMMARY_SHARE))


def new_part_tokens(summary_tokens: int, condensed_tokens: int, limit: int) -> int:
    """Return the tokens to append for `condensed_tokens`: a fifth, within the free room or half the limit."""
    target = max(MIN_TOKENS, condensed_tokens // SHRINK_FACTOR, min(SHORT_TOKENS, condensed_tokens * 2 // 3))
    return max(1, min(target, max(limit - summary_tokens, limit // 2)))


def summary_tokens_after(summary_tokens: int, condensed_tokens: int, limit: int) -> int:
    """Return the expected tokens of the summary once messages of `condensed_tokens` are in it."""
    return min(limit, summary_tokens + new_part_tokens(summary_tokens, condensed_tokens, limit))


# One batch reads and condenses at most this much; the next batch continues.
STEP_MESSAGES: Final = 2_000
STEP_BYTES: Final = 1024 * 1024
_BYTES_PER_TOKEN: Final = 4

# How many of the oldest messages to condense, 0 for none, and the reason for the curation log.
Decision = tuple[int, str]
Decide = Callable[[Usage], Decision]
Writing = Callable[[], AbstractContextManager[Transaction]]


@dataclass(frozen=True, slots=True)
class SummaryRules:
    """The token budget of a session, when it is summarised, and how long a summary may be."""

    budget_tokens: int
    rolling: RollingRules
    compaction: CompactionRules | None
    max_summary_tokens: int

    @property
    def summary_limit(self) -> int:
        """The tokens of a summary that fits into the budget."""
        return max_summary_tokens(self.max_summary_tokens, self.budget_tokens)

    @property
    def min_due_tokens(self) -> float:
        """The tokens below which nothing is due for a session."""
        reserve = self.compaction.reserve_tokens if self.compaction else 0
        return min(self.rolling.trigger_ratio * self.budget_tokens, self.budget_tokens - reserve)

    def decide(self, usage: Usage) -> Decision:
        """Return the due kind of summary: a compaction, else a rolling summary."""
        if self.compaction is not None:
            compacted = compaction_count(usage, self.budget_tokens, self.compaction)
            if compacted:
                return compacted, "compaction"
        return rolling_count(usage, self.budget_tokens, self.rolling), "rolling summary"


@dataclass(frozen=True, slots=True)
class DueSummary:
    """The oldest messages of a session that are to be condensed now, and the state they were read in."""

    state: SummaryState
    messages: Sequence[MessageRecord]
    tokens: int
    usage: Usage
    reason: str


class _StaleSummary(Exception):
    """Rolls back the transaction of a batch whose session has changed."""


def due_summary(
    store: Store, condenser: Condenser, decide: Decide, name: SessionName, *, summary_limit: int
) -> DueSummary | None:
    """Return the part of a session to condense, or None. Raises `NotFound`.

    `summary_limit` is the tokens that its summary may have. Reads a bounded part of the session, the oldest first.
    """
    with store.reading_as(name.agent) as rows:
        state = rows.summaries.state(name.session)
        sizes = rows.summaries.unsummarised(state.row_id)
        batch = _first_batch(sizes)
        messages = rows.messages.by_rows([size.row_id for size in batch])
    newer = sizes[len(batch) :]
    usage = Usage(
        message_tokens=count_tokens(messages, condenser.counter),
        valid_starts=valid_starts(messages),
        summary_tokens=condenser.counter.count([state.text])[0],
        max_summary_tokens=summary_limit,
        newer=len(newer),
        newer_tokens=sum(size.size_bytes // _BYTES_PER_TOKEN + MESSAGE_OVERHEAD_TOKENS for size in newer),
    )
    count, reason = decide(usage)
    if not count:
        return None
    if condenser.max_tokens is not None:
        count = limit_count(usage, count, condenser.max_tokens)
    return DueSummary(state, messages[:count], usage.oldest_tokens(count), usage, reason)


def may_exceed(store: Store, name: SessionName, *, tokens: float) -> bool:
    """Return whether a session may use more than `tokens`: a token has at least one byte. Raises `NotFound`."""
    with store.reading_as(name.agent) as rows:
        state = rows.summaries.state(name.session)
        sizes = rows.summaries.unsummarised(state.row_id)
    return sum(size.size_bytes + MESSAGE_OVERHEAD_TOKENS + 1 for size in sizes) + len(state.text.encode()) > tokens


def was_undone(store: Store, name: SessionName) -> bool:
    """Return whether a summary was undone and no message came since: then it is not made again. Raises `NotFound`."""
    with store.reading() as tx:
        summaries = tx.for_agent(name.agent).summaries
        state = summaries.state(name.session)
        return state.undone_at > 0 and summaries.newest_stored_at(state.row_id) <= state.undone_at


def condense(
    store: Store, condenser: Condenser, due: DueSummary, writing: Writing, *, job: str, now: int
) -> int | None:
    """Condense the due messages and write the summary; return how many messages it covers anew.

    None if the session has changed since it was read: then nothing was written. Raises `NotCondensed`, and `Withdrawn`
    if it was forgotten before a language model was asked.
    """
    state, limit = due.state, due.usage.max_summary_tokens
    room = new_part_tokens(due.usage.summary_tokens, due.tokens, limit)
    with store.reading() as tx:
        rows = tx.for_agent(state.agent)
        vectors = _vectors(tx, rows, due.messages)
        before = rows.messages.preceding_texts([message.row_id for message in due.messages[:1]])
    messages = redact_secret_answers(due.messages, "".join(before.values()))
    covered = [message.row_id for message in messages]
    condenser = replace(condenser, check=partial(require_wanted, store, "messages", covered))
    condensed = condenser.condense(messages, vectors, room)
    lines = append_lines(parse_summary(state.text), condensed.lines, limit, condenser.counter)
    try:
        with (
            writing() as tx,
            tx.curation.entry(
                EntryDraft(_log_text(due, condensed), session=state.session),
                job=job,
                agent=state.agent,
                action=SUMMARISE,
                at=now,
            ),
        ):
            if not tx.for_agent(state.agent).summaries.write(state, format_summary(lines), covered, now=now):
                raise _StaleSummary
    except _StaleSummary:
        return None
    return len(covered)


def _log_text(due: DueSummary, condensed: Condensed) -> str:
    instead = f", for {condensed.model_error}" if condensed.model_error else ""
    size = f"{counted(len(due.messages), 'message')} of {counted(due.tokens, 'token')}"
    return f"{due.reason}: {size}, by {condensed.author}{instead}"


def _first_batch(sizes: Sequence[MessageSize]) -> Sequence[MessageSize]:
    """Return the oldest messages that one batch reads; at least one."""
    count, room = 0, STEP_BYTES
    for size in sizes[:STEP_MESSAGES]:
        room -= size.size_bytes
        if room < 0 and count:
            break
        count += 1
    return sizes[:count]


def _vectors(
    tx: Transaction, rows: AgentRepositories, messages: Sequence[MessageRecord]
) -> Mapping[int, Sequence[ChunkVector]]:
    """Return the vectors that the pipeline made for these messages: centrality needs no further model call."""
    generation = tx.index.active("vector")
    if generation is None:
        return {}
    found: dict[int, list[ChunkVector]] = {}
    wanted = [message.row_id for message in messages]
    for row, text, blob in rows.summaries.vectors(wanted, generation.model, generation.dim):
        found.setdefault(row, []).append((text, np.frombuffer(blob, dtype="<f4")))
    return found
