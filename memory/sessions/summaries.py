"""Summarise sessions: the oldest messages are condensed and appended, and written if the session is unchanged.

A batch reads in one transaction, condenses outside of any, and writes in another by compare-and-swap, so a slow batch
never overwrites a newer one. Text, epoch, upper sequence and the marks of the covered messages are one entry of the
curation log. A batch depends only on stored rows: one that was killed is simply repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np

from memory.memories.secret_answers import redact_secret_answers
from memory.sessions import summary_plan
from memory.sessions.condensers import Condensed, Condenser, append_lines
from memory.sessions.exchanges import MESSAGE_OVERHEAD_TOKENS, count_tokens, valid_starts
from memory.sessions.passages import ChunkVector
from memory.sessions.summary_plan import CompactionRules, RollingRules, Usage
from reverie.counts import counted
from storage.pipeline.records import MessageRecord
from storage.sessions.records import SessionName
from storage.sessions.summaries import SUMMARISE, MessageSize, SummaryState
from storage.sessions.summary_text import format_summary, parse_summary
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction
from storage.upkeep.curation import EntryDraft

# What one batch reads and condenses at most; the next one continues.
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
        return summary_plan.max_summary_tokens(self.max_summary_tokens, self.budget_tokens)

    @property
    def min_due_tokens(self) -> float:
        """The tokens below which nothing is due for a session."""
        reserve = self.compaction.reserve_tokens if self.compaction else 0
        return min(self.rolling.trigger_ratio * self.budget_tokens, self.budget_tokens - reserve)

    def decide(self, usage: Usage) -> Decision:
        """Return what is due: a compaction, else a rolling summary."""
        if self.compaction is not None:
            compacted = summary_plan.compaction_count(usage, self.budget_tokens, self.compaction)
            if compacted:
                return compacted, "compaction"
        return summary_plan.rolling_count(usage, self.budget_tokens, self.rolling), "rolling summary"


@dataclass(frozen=True, slots=True)
class DueSummary:
    """The oldest messages of a session that are to be condensed now, and the state they were read in."""

    state: SummaryState
    messages: Sequence[MessageRecord]
    tokens: int
    usage: Usage
    reason: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """How many messages a batch condensed; `stale` if the session had changed and nothing was written."""

    messages: int = 0
    stale: bool = False


class _StaleSummary(Exception):
    """Rolls back the transaction of a batch whose session has changed."""


def due_summary(
    store: Store, condenser: Condenser, decide: Decide, name: SessionName, *, summary_limit: int
) -> DueSummary | None:
    """Return what is to be condensed in a session, or None. Raises `NotFound`.

    `summary_limit` is the tokens that its summary may have. Reads a bounded part of the session, the oldest first.
    """
    with store.reading() as tx:
        rows = tx.for_agent(name.agent)
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
        count = summary_plan.limit_count(usage, count, condenser.max_tokens)
    return DueSummary(state, messages[:count], usage.oldest_tokens(count), usage, reason)


def may_exceed(store: Store, name: SessionName, *, tokens: float) -> bool:
    """Return whether a session may use more than `tokens`: a token has at least one byte. Raises `NotFound`."""
    with store.reading() as tx:
        rows = tx.for_agent(name.agent)
        state = rows.summaries.state(name.session)
        sizes = rows.summaries.unsummarised(state.row_id)
    return sum(size.size_bytes + MESSAGE_OVERHEAD_TOKENS + 1 for size in sizes) + len(state.text.encode()) > tokens


def was_undone(store: Store, name: SessionName) -> bool:
    """Return whether a summary was undone and no message came since: it is not made again. Raises `NotFound`."""
    with store.reading() as tx:
        summaries = tx.for_agent(name.agent).summaries
        state = summaries.state(name.session)
        return state.undone_at > 0 and summaries.newest_stored_at(state.row_id) <= state.undone_at


def condense(
    store: Store, condenser: Condenser, due: DueSummary, writing: Writing, *, job: str, now: int
) -> StepResult:
    """Condense what is due and write it if the session is still as it was read. Raises `NotCondensed`."""
    state, limit = due.state, due.usage.max_summary_tokens
    room = summary_plan.new_part_tokens(due.usage.summary_tokens, due.tokens, limit)
    with store.reading() as tx:
        rows = tx.for_agent(state.agent)
        vectors = _vectors(tx, rows, due.messages)
        before = rows.messages.preceding_texts([message.id for message in due.messages[:1]])
    messages = redact_secret_answers(due.messages, "".join(before.values()))
    condensed = condenser.condense(messages, vectors, room)
    lines = append_lines(parse_summary(state.text), condensed.lines, limit, condenser.counter)
    covered = [message.row_id for message in due.messages]
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
        return StepResult(stale=True)
    return StepResult(messages=len(covered))


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
    """Return the vectors that the pipeline gave these messages: centrality needs no further model call."""
    generation = tx.index.active("vector")
    if generation is None:
        return {}
    found: dict[int, list[ChunkVector]] = {}
    wanted = [message.row_id for message in messages]
    for row, text, blob in rows.summaries.vectors(wanted, generation.model, generation.dim):
        found.setdefault(row, []).append((text, np.frombuffer(blob, dtype="<f4")))
    return found
