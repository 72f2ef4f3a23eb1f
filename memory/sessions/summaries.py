"""Summaries of sessions: the oldest messages condensed, appended, and written if nothing happened meanwhile (B3, B4).

A step reads in one transaction, condenses outside of any, and writes in another by compare-and-swap: a slow one never
takes the place of a newer one. Text, epoch, upper sequence and the marks of the messages covered are one entry of the
curation log. A step depends on nothing but the rows, so one that was killed is simply made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np

from memory.memories.secret_answers import redact_secret_answers
from memory.sessions import summary_plan
from memory.sessions.condensers import Condensed, Condenser, appended
from memory.sessions.exchanges import MESSAGE_TOKENS, beginnings, costs
from memory.sessions.passages import ChunkVector
from memory.sessions.summary_plan import CompactionNumbers, RollingNumbers, Usage
from storage.pipeline.records import MessageRecord
from storage.sessions.summaries import SUMMARISE, MessageSize, SummaryState
from storage.sessions.summary_text import format_summary, parse_summary
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# What one step looks at, and condenses, at most: more is for the next one.
STEP_MESSAGES: Final = 2_000
STEP_BYTES: Final = 1024 * 1024
_BYTES_A_TOKEN: Final = 4

# How many of the oldest messages go, and why; 0 when none.
Decision = tuple[int, str]
Decide = Callable[[Usage], Decision]
Writing = Callable[[], AbstractContextManager[Transaction]]


@dataclass(frozen=True, slots=True)
class SummaryNumbers:
    """The numbers of the settings: the budget of a session, when it is summarised, and how long a summary may be."""

    budget_tokens: int
    rolling: RollingNumbers
    compaction: CompactionNumbers | None
    summary_most_tokens: int

    @property
    def summary_most(self) -> int:
        """The tokens of a summary, as they fit into the budget."""
        return summary_plan.summary_most(self.summary_most_tokens, self.budget_tokens)

    def decide(self, usage: Usage) -> Decision:
        """What is due: a compaction, else a rolling summary."""
        compacted = summary_plan.compaction(usage, self.budget_tokens, self.compaction) if self.compaction else 0
        if compacted:
            return compacted, "compaction"
        return summary_plan.rolling(usage, self.budget_tokens, self.rolling), "rolling summary"


@dataclass(frozen=True, slots=True)
class Due:
    """A session of which so many of the oldest messages are to be condensed now."""

    state: SummaryState
    messages: Sequence[MessageRecord]
    tokens: int
    usage: Usage
    why: str


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did: how many messages it condensed, or that something happened meanwhile and nothing is changed."""

    messages: int = 0
    stale: bool = False


class _Stale(Exception):
    """Ends the transaction of a step that came too late."""


def due_in(store: Store, condenser: Condenser, decide: Decide, *, agent: str, session: str, most: int) -> Due | None:
    """What is to be condensed in a session, or None. Raises `NotFound`.

    `most` are the tokens that its summary may have. Reads a bounded part of the session, the oldest first.
    """
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        state = rows.summaries.state(session)
        sizes = rows.summaries.unsummarised(state.row_id)
        first = _first(sizes)
        messages = rows.messages.of_rows([size.row_id for size in first])
    usage = _usage(condenser, state, messages, sizes[len(first) :], most)
    wanted, why = decide(usage)
    if not wanted:
        return None
    if condenser.most_tokens is not None:
        wanted = summary_plan.within(usage, wanted, condenser.most_tokens)
    return Due(state, messages[:wanted], sum(usage.costs[:wanted]), usage, why)


def could_be_due(store: Store, *, agent: str, session: str, tokens: float) -> bool:
    """Whether a session may have more in use than so many tokens: a token has a byte at least. Raises `NotFound`."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        state = rows.summaries.state(session)
        sizes = rows.summaries.unsummarised(state.row_id)
    return sum(size.size_bytes + MESSAGE_TOKENS + 1 for size in sizes) + len(state.text.encode()) > tokens


def was_undone(store: Store, *, agent: str, session: str) -> bool:
    """Whether a person undid a summary and nothing was said since: it is not made again. Raises `NotFound`."""
    with store.reading() as tx:
        summaries = tx.for_agent(agent).summaries
        state = summaries.state(session)
        return state.undone_at > 0 and summaries.newest_stored_at(state.row_id) <= state.undone_at


def condense(store: Store, condenser: Condenser, due: Due, writing: Writing, *, job: str, now: int) -> Step:
    """Condense what is due and write it, if the session is still as it was read. Raises `NotCondensed`."""
    state, most = due.state, due.usage.summary_most
    room = summary_plan.new_part_tokens(due.usage.summary_tokens, due.tokens, most)
    with store.reading() as tx:
        rows = tx.for_agent(state.agent)
        vectors = _vectors(tx, rows, due.messages)
        before = rows.messages.just_before([message.id for message in due.messages[:1]])
    said = redact_secret_answers(due.messages, "".join(before.values()))
    condensed = condenser.condense(said, vectors, room)
    lines = appended(parse_summary(state.text), condensed.lines, most, condenser.counter)
    covered = [message.row_id for message in due.messages]
    try:
        with (
            writing() as tx,
            tx.curation.entry(
                job=job,
                agent=state.agent,
                action=SUMMARISE,
                why=_why(due, condensed),
                at=now,
                session=state.session,
            ),
        ):
            if not tx.for_agent(state.agent).summaries.write(state, format_summary(lines), covered, now=now):
                raise _Stale
    except _Stale:
        return Step(stale=True)
    return Step(messages=len(covered))


def _why(due: Due, condensed: Condensed) -> str:
    instead = f", for {condensed.why}" if condensed.why else ""
    return f"{due.why}: {len(due.messages)} messages of {due.tokens:,} tokens, by {condensed.by}{instead}"


def _first(sizes: Sequence[MessageSize]) -> Sequence[MessageSize]:
    """The oldest messages, as many as one step looks at; one in any case."""
    count, room = 0, STEP_BYTES
    for size in sizes[:STEP_MESSAGES]:
        room -= size.size_bytes
        if room < 0 and count:
            break
        count += 1
    return sizes[:count]


def _usage(
    condenser: Condenser,
    state: SummaryState,
    messages: Sequence[MessageRecord],
    newer: Sequence[MessageSize],
    most: int,
) -> Usage:
    (summary,) = condenser.counter.count([state.text])
    return Usage(
        costs=costs(messages, condenser.counter),
        beginnings=beginnings(messages),
        summary_tokens=summary,
        summary_most=most,
        newer=len(newer),
        newer_tokens=sum(size.size_bytes // _BYTES_A_TOKEN + MESSAGE_TOKENS for size in newer),
    )


def _vectors(
    tx: Transaction, rows: AgentRepositories, messages: Sequence[MessageRecord]
) -> Mapping[int, Sequence[ChunkVector]]:
    """The vectors that the pipeline gave these messages: no model is needed to know what is central."""
    generation = tx.index.active("vector")
    if generation is None:
        return {}
    found: dict[int, list[ChunkVector]] = {}
    for row, text, blob in rows.summaries.vectors([message.row_id for message in messages], generation.model):
        found.setdefault(row, []).append((text, np.frombuffer(blob, dtype="<f4")))
    return found
