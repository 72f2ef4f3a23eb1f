"""Extract memories from what users say about themselves, from each session once it has been silent for a while.

The job works store by store; the end of a session extracts from that session at once. How a session is read, and what
is committed together, is in `extraction_reading`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from memory.idle_stores import DueJob, IdleStores, run_where_due
from memory.jobs import ALL_DATA, JobRun, JobScope
from memory.memories.extraction_reading import Extractor, SessionReader
from memory.memories.extraction_window import ExtractionRules, Positions, progress_of
from memory.stage import MAX_CRASHES, WorkerCrashed
from reverie import contract
from reverie.counts import counted
from storage.clock_steps import CLOCK_TOLERANCE_MICROS
from storage.memories.extraction import EXTRACT_STAGE, RECHECK_MICROS, ExtractionProgress, WaitingSession
from storage.pipeline.records import NewDeadLetter
from storage.stores import Store, Stores
from storage.transaction import Transaction

# The sweep runs several times a minute: what one run does not reach, the next one does.
BUDGET_SECONDS: Final = 120.0
# Most sessions of a run are read without asking a model; the rest are left to the next run.
MAX_SESSIONS: Final = 1_000
# A session that is never silent is read after this many times the silence.
NEVER_SILENT: Final = 10

# Sessions that are read between two commits. A commit for each would only make other writers wait.
_GROUP_SESSIONS: Final = 50
_SECOND: Final = 1_000_000


def extract_memories(
    stores: Stores,
    extractor: Extractor,
    *,
    now: int,
    idle_stores: IdleStores | None = None,
    dry_run: bool = False,
    scope: JobScope = ALL_DATA,
) -> dict[str, Any]:
    """Extract from every session that is due; return the counts of each workspace and the totals.

    `idle_stores` remembers the workspaces in which no session waits.
    """

    def due_at(store: Store) -> int | None:
        with store.reading() as tx:
            if progress_of(tx).oldest_waiting(now=now) is None:
                return None
            # Where none is due yet, the next sweep checks again.
            return now if _due_sessions(tx, extractor.rules, now, scope.agent) else now + 1

    return run_where_due(
        stores,
        DueJob(contract.EXTRACT_MEMORIES, lambda run: extract_due(run, extractor), due_at),
        now=now,
        idle_stores=idle_stores,
        budget_seconds=BUDGET_SECONDS,
        dry_run=dry_run,
        scope=scope,
    )


def extract_due(run: JobRun, extractor: Extractor) -> None:
    """Read every session of a store that is due, until the time of the run is up."""
    with run.store.reading() as tx:
        due = _due_sessions(tx, extractor.rules, run.now, run.agent)
    positions = Positions(
        run.writing,
        run.counts,
        run.now,
        on_found=lambda agent, session, content: run.plan(agent, "extract", f"session {session}", content),
    )
    with run.store.reading() as tx:
        deaths = progress_of(tx).deaths()
    reached = 0
    for group in _groups(due, deaths):
        if run.time_is_up:
            break
        reached += _read_group(run, extractor, group, positions, deaths.get(group[0].ref_code, 0))
    if reached < len(due):
        run.counts["not_reached"] += len(due) - reached
    if not run.dry_run:
        positions.save()
        _move_watermark(run)


def _groups(due: Sequence[WaitingSession], deaths: Mapping[str, int]) -> Iterator[list[WaitingSession]]:
    """Yield sessions to be read together; last and one by one those in which a reader died, the fewest times first."""
    unsuspected = [session for session in due if session.ref_code not in deaths]
    for start in range(0, len(unsuspected), _GROUP_SESSIONS):
        yield unsuspected[start : start + _GROUP_SESSIONS]
    suspects = [session for session in due if session.ref_code in deaths]
    yield from ([session] for session in sorted(suspects, key=lambda session: deaths[session.ref_code]))


def _read_group(
    run: JobRun, extractor: Extractor, group: Sequence[WaitingSession], positions: Positions, deaths: int
) -> int:
    """Read sessions of which the readers have died this often; return how many were reached.

    That they are being read is noted, so that one that kills its worker is found: after three deaths, the last two of
    them alone, it is set aside, and what is said in it later is read.
    """
    if deaths >= MAX_CRASHES and not run.dry_run:
        _set_aside(run, group[0], deaths)
        return 1
    if not run.dry_run:
        with run.writing() as tx:
            progress_of(tx).begin(group, now=run.now)
    reached = 0
    for session in group:
        if run.time_is_up:
            break
        SessionReader(run.store, extractor, session, positions, run.dry_run).read(lambda: run.time_is_up)
        reached += 1
    if not run.dry_run:
        positions.save(ended=group)
    return reached


def _set_aside(run: JobRun, session: WaitingSession, deaths: int) -> None:
    """Skip the messages of a session that kills its reader; a replay of the dead letter reads them again."""
    letter = NewDeadLetter(
        agent=session.agent,
        session=session.id,
        stage=EXTRACT_STAGE,
        item_id=f"{session.ref_code} {session.position}",
        payload=None,
        error_type=WorkerCrashed.__name__,
        error=f"the worker died {counted(deaths, 'time')} while it looked for memories in session {session.id!r}, in"
        f" messages {session.position + 1} to {session.last_sequence}",
        attempts=deaths,
    )
    with run.writing() as tx:
        progress = progress_of(tx)
        if progress.advance(session, to=session.last_sequence, now=run.now):
            tx.dead_letters.add([letter], now=run.now)
            run.counts["set_aside"] += 1
        progress.end([session])


def extract_session(
    store: Store, extractor: Extractor, *, agent: str, session: str, now: int, dry_run: bool = False
) -> Counter[str]:
    """Read one session to its end without waiting for silence, as when it is closed; return counts.

    Needs no lease: findings are committed together with the session's position, so of two readers one commits.
    """
    counts: Counter[str] = Counter()
    with store.reading() as tx:
        waiting = progress_of(tx).waiting_session(agent, session)
    if waiting is not None:
        positions = Positions(store.writing, counts, now)
        SessionReader(store, extractor, waiting, positions, dry_run).read(lambda: False)
        positions.save()
    return counts


def _due_sessions(tx: Transaction, rules: ExtractionRules, now: int, agent: str | None) -> list[WaitingSession]:
    progress = progress_of(tx)
    waiting = progress.waiting(now=now, limit=MAX_SESSIONS, agent=agent)
    return [session for session in waiting if _is_due(progress, session, rules, now)]


def _is_due(progress: ExtractionProgress, session: WaitingSession, rules: ExtractionRules, now: int) -> bool:
    silence = int(rules.debounce_seconds * _SECOND)
    # One that was written in the future was written before the clock was set back.
    if now - session.updated_at >= silence or session.updated_at > now + max(silence, CLOCK_TOLERANCE_MICROS):
        return True
    return now - progress.first_waiting_since(session) >= NEVER_SILENT * silence


def _move_watermark(run: JobRun) -> None:
    """Move the watermark up to the session that has waited longest; rarely, because it is a commit."""
    with run.store.reading() as tx:
        oldest, watermark = progress_of(tx).oldest_waiting(now=run.now), progress_of(tx).watermark(run.now)
    up_to = min(run.now, run.now if oldest is None else oldest) - RECHECK_MICROS
    if up_to - watermark > RECHECK_MICROS:
        with run.writing() as tx:
            progress_of(tx).set_watermark(up_to=up_to, now=run.now)
