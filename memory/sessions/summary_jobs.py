"""The jobs that summarise: sessions over their token budget, and conversations that are over.

And the summary of one session on demand, for an agent whose context window is full.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapters.tokens import TokenCounter
from memory.conversion import convert
from memory.jobs import JobRun
from memory.sessions.condensers import Condenser, NotCondensed
from memory.sessions.summaries import (
    Decide,
    Decision,
    SummaryRules,
    Usage,
    condense,
    count_to_reach,
    due_summary,
    max_summary_tokens,
    may_exceed,
    was_undone,
)
from reverie import contract
from reverie.clock import HOUR_MICROS
from reverie.counts import counted
from reverie.errors import NotFound, Rejected
from reverie.sessions.types import Compacted, SessionSummary
from storage.sessions.records import SessionName
from storage.stores import Store

# The job name in the curation log for a compaction on demand.
MANUAL_COMPACTION: Final = "compact"
# A smaller budget has no room for a useful summary.
MIN_BUDGET_TOKENS: Final = 256
# Message rows scanned at once for their sessions, and sessions read at once.
_MESSAGES_PER_PAGE: Final = 20_000
_SESSIONS_PER_PAGE: Final = 200
# Job progress: the last message row scanned. Other items are sessions to be tried again.
_SCANNED_TO: Final = "messages"
# Job progress: the row of the session after which a run ran out of time; 0 if it came to the end.
_STOPPED_AFTER: Final = "stopped after"
_BUDGET_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One run of a summary job on one store."""

    run: JobRun
    condenser: Condenser
    rules: SummaryRules

    def summarise(self, name: SessionName, decide: Decide) -> bool:
        """Summarise a session until nothing is due; False if it has to be tried again."""
        counts, store = self.run.counts, self.run.store
        try:
            if was_undone(store, name):
                return True
            while not self.run.time_is_up:
                due = due_summary(store, self.condenser, decide, name, summary_limit=self.rules.summary_limit)
                if due is None:
                    return True
                if self.run.dry_run:
                    counts["due"] += 1
                    counts["messages"] += len(due.messages)
                    self.run.plan(
                        name.agent, "summarise", f"session {name.session}", counted(len(due.messages), "message")
                    )
                    return True
                self.run.renew_lease()
                condensed = condense(store, self.condenser, due, self.run.writing, job=self.run.job, now=self.run.now)
                counts["stale" if condensed is None else "summaries"] += 1
                counts["messages"] += condensed or 0
        except NotFound:  # forgotten in the meantime
            return True
        except NotCondensed:
            counts["not_condensed"] += 1
        return False


def summarize_sessions(run: JobRun, condenser: Condenser, rules: SummaryRules) -> None:
    """Summarise the sessions over their budget among those with messages since the last run.

    A session that the language model did not condense is tried again by the next run.
    """
    sweep = _Sweep(run, condenser, rules)
    with run.store.reading() as tx:
        items = [item for item in tx.leases.items(run.job) if item != _SCANNED_TO]
        scanned_to = tx.leases.progress(run.job, _SCANNED_TO)
    retries = [item for item in items if run.agent in (None, json.loads(item)[0])]
    for item in run.until_deadline(retries, remaining="not_reached"):
        if sweep.summarise(SessionName(*json.loads(item)), rules.decide) and not run.dry_run:
            with run.writing() as tx:
                tx.leases.drop(run.job, item)
    while not run.time_is_up:
        with run.store.reading() as tx:
            names, newest = tx.summaries.sessions_with_messages(scanned_to, limit=_MESSAGES_PER_PAGE)
        if newest == scanned_to or not _summarise_page(sweep, names):
            return
        # A run for one agent leaves the messages of the others to the next run.
        if not run.dry_run and run.agent is None:
            with run.writing() as tx:
                tx.leases.advance(run.job, _SCANNED_TO, after=scanned_to, to=newest, now=run.now)
        scanned_to = newest


def has_new(store: Store) -> bool:
    """Return whether there are messages that `summarize_sessions` has not scanned, or sessions to be tried again."""
    with store.reading() as tx:
        scanned_to = tx.leases.progress(contract.SUMMARIZE_SESSIONS, _SCANNED_TO)
        return bool(
            any(item != _SCANNED_TO for item in tx.leases.items(contract.SUMMARIZE_SESSIONS))
            or tx.summaries.sessions_with_messages(scanned_to, limit=1)[0]
        )


def _summarise_page(sweep: _Sweep, names: list[SessionName]) -> bool:
    """Summarise the due ones of these sessions; False if the time was not enough for all."""
    run = sweep.run
    for name in names:
        if run.agent not in (None, name.agent):
            continue
        if run.time_is_up:
            return False
        run.counts["looked_at"] += 1
        try:
            may_be_due = may_exceed(run.store, name, tokens=sweep.rules.min_due_tokens)
        except NotFound:
            continue
        if not may_be_due or sweep.summarise(name, sweep.rules.decide):
            continue
        if run.time_is_up:
            return False
        if not run.dry_run:
            with run.writing() as tx:
                tx.leases.advance(run.job, json.dumps(name), after=0, to=1, now=run.now)
    return True


def consolidate_conversations(run: JobRun, condenser: Condenser, rules: SummaryRules, *, after_hours: float) -> None:
    """Summarise every conversation that is over: ended, or without messages for `after_hours`.

    If the time is not enough for all, the next run continues where this one stopped, so a session that the language
    model does not condense does not delay the others.
    """
    sweep = _Sweep(run, condenser, rules)
    before = run.now - int(after_hours * HOUR_MICROS)
    with run.store.reading() as tx:
        start = tx.leases.progress(run.job, _STOPPED_AFTER) if run.agent is None else 0
    for row, name in _ended_sessions(run, before=before, after=start):
        if run.agent not in (None, name.agent):
            continue
        if run.time_is_up:
            _record_stop(run, start, row - 1)
            return
        run.counts["looked_at"] += 1
        sweep.summarise(name, _condense_all)
    _record_stop(run, start, 0)


def next_over(store: Store, *, now: int, after_hours: float) -> float:
    """Return when a conversation of a store is over at the latest if nobody writes, in microseconds; infinity if all
    are, or have a summary.
    """
    with store.reading() as tx:
        still_open = tx.summaries.inactive_unsummarised(before=now + 1, after=0, limit=1)
    return now + after_hours * HOUR_MICROS if still_open else math.inf


def _ended_sessions(run: JobRun, *, before: int, after: int) -> Iterator[tuple[int, SessionName]]:
    while True:
        with run.store.reading() as tx:
            page = tx.summaries.inactive_unsummarised(before=before, after=after, limit=_SESSIONS_PER_PAGE)
        if not page:
            return
        yield from page
        after = page[-1][0]


def _record_stop(run: JobRun, start: int, stopped_after: int) -> None:
    if stopped_after != start and not run.dry_run and run.agent is None:
        with run.writing() as tx:
            tx.leases.advance(run.job, _STOPPED_AFTER, after=start, to=stopped_after, now=run.now)


def compact_session(
    store: Store,
    condenser: Condenser,
    rules: SummaryRules,
    *,
    agent: str,
    session: str,
    token_budget: int | None,
    now: int,
) -> Compacted:
    """Condense the oldest messages of a session now, until it uses at most `token_budget`.

    Without a budget, until it uses the target share of the configured one. The newest message stays, with the exchange
    it belongs to. Raises `NotFound`, `Rejected` for a budget that is too small, and `NotCondensed`.
    """
    if token_budget is not None and token_budget < MIN_BUDGET_TOKENS:
        raise Rejected(f"token_budget is {token_budget}; it must be at least {MIN_BUDGET_TOKENS}", field="token_budget")
    target = int(rules.rolling.target_ratio * rules.budget_tokens) if token_budget is None else token_budget
    limit = max_summary_tokens(rules.max_summary_tokens, token_budget or rules.budget_tokens)
    deadline = time.monotonic() + _BUDGET_SECONDS
    condensed = 0
    while time.monotonic() < deadline:
        due = due_summary(
            store,
            condenser,
            lambda usage: (count_to_reach(usage, target), "asked for"),
            SessionName(agent, session),
            summary_limit=limit,
        )
        if due is None:
            break
        condensed += condense(store, condenser, due, store.writing, job=MANUAL_COMPACTION, now=now) or 0
    return Compacted(condensed=condensed, summary=read_summary(store, condenser.counter, agent=agent, session=session))


def read_summary(store: Store, counter: TokenCounter, *, agent: str, session: str) -> SessionSummary:
    """Return a session's summary and how many messages it covers. Raises `NotFound`."""
    with store.reading() as tx:
        summaries = tx.for_agent(agent).summaries
        state = summaries.state(session)
        coverage = summaries.coverage(state.row_id)
    tokens = counter.count([state.text])[0]
    return convert(state, SessionSummary, tokens=tokens, covers=coverage.covered, uncovered=coverage.uncovered)


def _condense_all(usage: Usage) -> Decision:
    return len(usage.message_tokens), "the conversation is over"
