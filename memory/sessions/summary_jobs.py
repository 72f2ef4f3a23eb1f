"""The jobs that summarise: sessions that outgrow their budget (B3, B4), conversations that are over (B1).

And one session on demand, for an agent whose window is full.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapters.tokens import TokenCounter
from memory.jobs import JobRun
from memory.sessions import summary_plan
from memory.sessions.condensers import Condenser, NotCondensed
from memory.sessions.summaries import Decide, Decision, SummaryNumbers, condense, could_be_due, due_in, was_undone
from memory.sessions.summary_plan import Usage
from reverie import contract
from reverie.errors import NotFound, Rejected
from reverie.types import Compacted, SessionSummary
from storage.sessions.records import SessionName
from storage.stores import Store

COMPACT_BY_HAND: Final = "compact"
# A budget below this holds no summary that says anything.
FEWEST_TOKENS: Final = 256
_HOUR_MICROS: Final = 3_600 * 1_000_000
# Rows of messages that are looked through at once for their sessions, and sessions at once.
_MESSAGES_AT_ONCE: Final = 20_000
_SESSIONS_AT_ONCE: Final = 200
# How far the messages were looked through; other items are sessions that could not be summarised and are tried again.
_LOOKED_TO: Final = "messages"
# The row of the session after which a run had no more time; 0 where it came to the end.
_STOPPED_AFTER: Final = "stopped after"
_BUDGET_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class _Sweep:
    """What the sessions of one run have in common."""

    run: JobRun
    condenser: Condenser
    numbers: SummaryNumbers

    def session(self, name: SessionName, decide: Decide) -> bool:
        """Summarise a session as far as is due; False where it has to be tried again."""
        counts, store = self.run.counts, self.run.store
        try:
            if was_undone(store, agent=name.agent, session=name.session):
                return True
            while not self.run.time_is_up:
                due = due_in(
                    store,
                    self.condenser,
                    decide,
                    agent=name.agent,
                    session=name.session,
                    most=self.numbers.summary_most,
                )
                if due is None:
                    return True
                if self.run.dry_run:
                    counts["due"] += 1
                    counts["messages"] += len(due.messages)
                    return True
                self.run.renew_lease()
                step = condense(store, self.condenser, due, self.run.writing, job=self.run.job, now=self.run.now)
                counts["stale" if step.stale else "summaries"] += 1
                counts["messages"] += step.messages
        except NotFound:  # forgotten meanwhile
            return True
        except NotCondensed:
            counts["not_condensed"] += 1
        return False


def summarize_sessions(run: JobRun, condenser: Condenser, numbers: SummaryNumbers) -> None:
    """Summarise the sessions that outgrew their budget, out of those in which something was said since the last run.

    One that the language model did not condense is tried again with the next run.
    """
    sweep = _Sweep(run, condenser, numbers)
    with run.store.reading() as tx:
        again = [item for item in tx.leases.items(run.job) if item != _LOOKED_TO]
        looked_to = tx.leases.progress(run.job, _LOOKED_TO)
    for item in run.until_deadline(again, remaining="not_reached"):
        if sweep.session(SessionName(*json.loads(item)), numbers.decide) and not run.dry_run:
            with run.writing() as tx:
                tx.leases.drop(run.job, item)
    while not run.time_is_up:
        with run.store.reading() as tx:
            names, newest = tx.summaries.sessions_with_messages(looked_to, limit=_MESSAGES_AT_ONCE)
        if newest == looked_to or not _look_at(sweep, names):
            return
        if not run.dry_run:
            with run.writing() as tx:
                tx.leases.advance(run.job, _LOOKED_TO, after=looked_to, to=newest, now=run.now)
        looked_to = newest


def has_new(store: Store) -> bool:
    """Whether something was said since `summarize_sessions` came to its end, or a session is to be tried again."""
    with store.reading() as tx:
        looked_to = tx.leases.progress(contract.SUMMARIZE_SESSIONS, _LOOKED_TO)
        return bool(
            any(item != _LOOKED_TO for item in tx.leases.items(contract.SUMMARIZE_SESSIONS))
            or tx.summaries.sessions_with_messages(looked_to, limit=1)[0]
        )


def _look_at(sweep: _Sweep, names: list[SessionName]) -> bool:
    """Summarise those of these sessions that need it; False where the time did not suffice for all."""
    run, numbers = sweep.run, sweep.numbers
    least = min(
        numbers.rolling.trigger_ratio * numbers.budget_tokens,
        numbers.budget_tokens - numbers.compaction.reserve_tokens if numbers.compaction else numbers.budget_tokens,
    )
    for name in names:
        if run.time_is_up:
            return False
        run.counts["looked_at"] += 1
        try:
            worth_it = could_be_due(run.store, agent=name.agent, session=name.session, tokens=least)
        except NotFound:
            continue
        if not worth_it or sweep.session(name, numbers.decide):
            continue
        if run.time_is_up:
            return False
        if not run.dry_run:
            with run.writing() as tx:
                tx.leases.advance(run.job, json.dumps(name), after=0, to=1, now=run.now)
    return True


def consolidate_conversations(
    run: JobRun, condenser: Condenser, numbers: SummaryNumbers, *, after_hours: float
) -> None:
    """Make a summary of every conversation that is over: ended, or with nothing said for so many hours (B1).

    Where the time does not suffice for all, the next run goes on where this one stopped: those that the language model
    did not condense hold up no other.
    """
    sweep = _Sweep(run, condenser, numbers)
    before = run.now - int(after_hours * _HOUR_MICROS)
    with run.store.reading() as tx:
        begun = tx.leases.progress(run.job, _STOPPED_AFTER)
    for row, name in _over(run, before=before, after=begun):
        if run.time_is_up:
            _note_stop(run, begun, row - 1)
            return
        run.counts["looked_at"] += 1
        sweep.session(name, _everything)
    _note_stop(run, begun, 0)


def _over(run: JobRun, *, before: int, after: int) -> Iterator[tuple[int, SessionName]]:
    while True:
        with run.store.reading() as tx:
            page = tx.summaries.inactive_unsummarised(before=before, after=after, limit=_SESSIONS_AT_ONCE)
        if not page:
            return
        yield from page
        after = page[-1][0]


def _note_stop(run: JobRun, begun: int, stopped_after: int) -> None:
    if stopped_after != begun and not run.dry_run:
        with run.writing() as tx:
            tx.leases.advance(run.job, _STOPPED_AFTER, after=begun, to=stopped_after, now=run.now)


def compact_session(
    store: Store,
    condenser: Condenser,
    numbers: SummaryNumbers,
    *,
    agent: str,
    session: str,
    token_budget: int | None,
    now: int,
) -> Compacted:
    """Condense the oldest messages of a session now, until it takes at most so many tokens.

    Without a budget, until the part of the settings' budget at which a rolling summary stops. The newest message stays,
    and what belongs to it. Raises `NotFound`, `Rejected` for a budget too small, and `NotCondensed`.
    """
    if token_budget is not None and token_budget < FEWEST_TOKENS:
        raise Rejected(f"token_budget is {token_budget}; it must be at least {FEWEST_TOKENS}", field="token_budget")
    target = int(numbers.rolling.target_ratio * numbers.budget_tokens) if token_budget is None else token_budget
    most = summary_plan.summary_most(numbers.summary_most_tokens, token_budget or numbers.budget_tokens)
    deadline = time.monotonic() + _BUDGET_SECONDS
    condensed = 0
    while time.monotonic() < deadline:
        due = due_in(
            store,
            condenser,
            lambda usage: (summary_plan.down_to(usage, target), "asked for"),
            agent=agent,
            session=session,
            most=most,
        )
        if due is None:
            break
        condensed += condense(store, condenser, due, store.writing, job=COMPACT_BY_HAND, now=now).messages
    return Compacted(condensed=condensed, summary=read_summary(store, condenser.counter, agent=agent, session=session))


def read_summary(store: Store, counter: TokenCounter, *, agent: str, session: str) -> SessionSummary:
    """A session's summary and what it covers. Raises `NotFound`."""
    with store.reading() as tx:
        summaries = tx.for_agent(agent).summaries
        state = summaries.state(session)
        coverage = summaries.coverage(state.row_id)
    return SessionSummary(
        session=session,
        text=state.text,
        tokens=counter.count([state.text])[0],
        epoch=state.epoch,
        upper_sequence=state.upper_sequence,
        covers=coverage.covered,
        uncovered=coverage.uncovered,
    )


def _everything(usage: Usage) -> Decision:
    return summary_plan.everything(usage), "the conversation is over"
