"""The states of a session (active, idle, archived), and what happens when a session ends.

A session that ends is first read once more for memories; then its conversation-tier memories are cleared and its state
changes, in one transaction unless they are many; then the agent's memory files are committed. A process may be killed
between two of these steps: repeating them gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from memory.idle_stores import DueJob, IdleStores, run_where_due
from memory.jobs import ORDINARY_RUN, JobRun, RunOptions
from memory.sessions.sessions import session_of
from reverie import contract
from reverie.clock import HOUR_MICROS
from reverie.errors import Conflict, NotFound, StoreUnavailable
from reverie.sessions.calls import StartSession
from reverie.sessions.types import Session
from storage.curation import EntryDraft
from storage.sessions.records import SessionName, SessionRecord
from storage.sessions.sessions import CLEAR, CLOSE
from storage.stores import Store, Stores
from storage.transaction import Transaction

# The job name in the curation log for a session that a call ended.
CALL_JOB: Final = "reverie.close_session"
# Sessions that one run ends in a store; the rest is left to the next run, minutes later.
MAX_SESSIONS: Final = 500
# Memories cleared in one transaction, so that nobody waits for the write lock for long: 50 ms on a busy machine.
_CLEARED_AT_ONCE: Final = 50
# The highest count of a dry run.
_COUNTED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SessionEndHooks:
    """Hooks of the end of a session: `extract` before it (store, agent, session), `publish` after it (store, agent).

    Neither runs inside a transaction. The next run of the job finishes what a hook leaves undone.
    """

    extract: Callable[[Store, str, str], object]
    publish: Callable[[Store, str], object]


def start_session(store: Store, call: StartSession, *, agent: str, now: int) -> Session:
    """Create a session before its first message, or reopen an idle one; an active one stays active.

    Fields of the call fill in what is not known of the session yet. Raises `Rejected`, and `Conflict` for an archived
    session and for the chat of another one.
    """
    with store.writing_as(agent) as rows:
        if call.provider and call.chat_id:
            owner = rows.sessions.id_by_chat(call.provider, call.chat_id)
            if owner not in (None, call.session):
                raise Conflict(
                    f"chat {call.chat_id!r} of {call.provider!r} is session {owner!r}: leave it out", field="chat_id"
                )
        found = rows.sessions.ensure(
            call.session, now=now, user=call.user, provider=call.provider, chat_id=call.chat_id, channel=call.channel
        )
        if found.status == "archived":
            raise Conflict(f"session {call.session!r} is archived: it cannot be started again", field="session")
        if call.metadata:
            rows.sessions.set_metadata(found.row_id, {**found.metadata, **call.metadata})
        rows.sessions.touch(found.row_id, now=now, last_sequence=found.last_sequence)
        return session_of(rows, call.session)


def idle_session(store: Store, hooks: SessionEndHooks, *, agent: str, session: str, now: int) -> Session:
    """End an active session. Raises `NotFound`, and `Conflict` for one that is not active."""
    return _close(store, hooks, SessionName(agent, session), "idle", now=now, force=False)


def archive_session(
    store: Store, hooks: SessionEndHooks, *, agent: str, session: str, now: int, force: bool = False
) -> Session:
    """Archive an idle session; with `force` also an active one. Raises `NotFound` and `Conflict`."""
    return _close(store, hooks, SessionName(agent, session), "archived", now=now, force=force)


def session_by_ref(store: Store, *, agent: str, ref_code: str) -> Session:
    """Return the session with this reference code. Raises `NotFound`."""
    with store.reading_as(agent) as rows:
        found = rows.sessions.id_by_ref_code(ref_code)
        if found is None:
            raise NotFound(f"agent {agent} has no session with reference code {ref_code!r}", field="ref_code")
        return session_of(rows, found)


def close_idle_sessions(
    stores: Stores,
    hooks: SessionEndHooks,
    *,
    now: int,
    idle_hours: float,
    idle_stores: IdleStores | None = None,
    options: RunOptions = ORDINARY_RUN,
) -> dict[str, Any]:
    """End the sessions without messages for `idle_hours` and clear their conversation memories; return counts.

    `idle_stores` remembers the workspaces in which none is due.
    """
    silence = int(idle_hours * HOUR_MICROS)

    def due_at(store: Store) -> int | None:
        with store.reading() as tx:
            if tx.leases.items(contract.CLOSE_IDLE_SESSIONS):  # ended, but the memory files are not committed yet
                return now
            since = tx.session_lifecycles.oldest_change()
        return None if since is None else since + silence + 1

    return run_where_due(
        stores,
        DueJob(contract.CLOSE_IDLE_SESSIONS, lambda run: _close_inactive(run, hooks, now - silence), due_at),
        now=now,
        idle_stores=idle_stores,
        options=options,
    )


def _close_inactive(run: JobRun, hooks: SessionEndHooks, before: int) -> None:
    with run.store.reading() as tx:
        inactive = tx.session_lifecycles.inactive(before=before, limit=MAX_SESSIONS, agent=run.agent)
        leftovers = tx.session_lifecycles.with_leftover_memories(before=before, limit=MAX_SESSIONS, agent=run.agent)
    for number, name in enumerate(inactive):
        if run.time_is_up:
            run.counts["not_reached"] += len(inactive) - number
            break
        if run.dry_run:
            run.counts["closed"] += 1
            run.plan(name.agent, "close", f"session {name.session}", "it had no message for long")
            continue
        hooks.extract(run.store, name.agent, name.session)
        _end_inactive(run, name, before)
    for name in leftovers:
        if run.time_is_up:
            break
        _clear_leftovers(run, name)
    if not run.dry_run:
        _publish(run, hooks)


def _publish(run: JobRun, hooks: SessionEndHooks) -> None:
    """Commit the files of agents whose sessions ended, in this run or in one that was killed before its commits.

    A commit that fails does not delay the others, and is tried again by the next run.
    """
    with run.store.reading() as tx:
        agents = run.chosen(tx.leases.items(run.job))
    first_error: StoreUnavailable | None = None
    for agent in agents:
        run.renew_lease()
        try:
            hooks.publish(run.store, agent)
        except StoreUnavailable as error:
            first_error = first_error or error
            continue
        with run.writing() as tx:
            tx.leases.drop(run.job, agent)
    if first_error is not None:
        raise first_error


def _end_inactive(run: JobRun, name: SessionName, before: int) -> None:
    """End a session unless it got a message, ended or was forgotten since the job found it."""
    with run.writing() as tx:
        found = tx.for_agent(name.agent).sessions.find(name.session)
        if found is None or found.status != "active" or found.updated_at >= before:
            return
        hours = (run.now - found.updated_at) / HOUR_MICROS
        cleared = _end(tx, found, "idle", job=run.job, why=f"it had no message for {hours:.1f} hours", now=run.now)
        _note_unpublished(tx, name.agent, run.now)
    run.counts["closed"] += 1
    run.counts["cleared"] += cleared + _clear_rest(run.writing, name, job=run.job, now=run.now)


def _clear_leftovers(run: JobRun, name: SessionName) -> None:
    """Clear conversation memories that were stored after the session had ended."""
    if run.dry_run:
        with run.store.reading_as(name.agent) as rows:
            session_row = rows.sessions.get(name.session).row_id
            run.counts["cleared"] += len(rows.session_lifecycle.clearable(session_row, limit=_COUNTED))
        return
    run.counts["cleared"] += _clear_rest(run.writing, name, job=run.job, now=run.now)


def _close(store: Store, hooks: SessionEndHooks, name: SessionName, status: str, *, now: int, force: bool) -> Session:
    with store.reading() as tx:
        _check_transition(tx.for_agent(name.agent).sessions.get(name.session), status, force)
    hooks.extract(store, name.agent, name.session)
    with store.writing() as tx:
        rows = tx.for_agent(name.agent)
        found = rows.sessions.get(name.session)
        _check_transition(found, status, force)  # another call may have been faster
        _end(tx, found, status, job=CALL_JOB, why=f"a call made it {status}", now=now)
        closed = session_of(rows, name.session)
        _note_unpublished(tx, name.agent, now)
    _clear_rest(store.writing, name, job=CALL_JOB, now=now)
    hooks.publish(store, name.agent)
    with store.writing() as tx:
        tx.leases.drop(contract.CLOSE_IDLE_SESSIONS, name.agent)
    return closed


def _note_unpublished(tx: Transaction, agent: str, now: int) -> None:
    """Make the job commit the agent's files, in case this process dies before it does."""
    tx.leases.advance(contract.CLOSE_IDLE_SESSIONS, agent, after=0, to=1, now=now)


def _check_transition(session: SessionRecord, status: str, force: bool) -> None:
    """Raise `Conflict` unless a session can change from its state to `status`."""
    if session.status == "active" and status == "archived" and not force:
        raise Conflict(
            f"session {session.id!r} is active: let it go idle first, or archive it with force", field="session"
        )
    if session.status == status or session.status == "archived":
        raise Conflict(f"session {session.id!r} is {session.status}: it cannot become {status}", field="session")


def _end(tx: Transaction, session: SessionRecord, status: str, *, job: str, why: str, now: int) -> int:
    """Clear a session and set its state, both logged; return how many memories were cleared."""
    cleared = _clear(tx, session, job=job, why=why, now=now)
    draft = EntryDraft(why, session=session.id)
    with tx.curation.entry(draft, job=job, agent=session.agent, action=CLOSE, at=now):
        ended_at = session.ended_at if session.ended_at is not None else now
        tx.for_agent(session.agent).session_lifecycle.set_status(session.row_id, status, ended_at=ended_at)
    return cleared


def _clear_rest(
    writing: Callable[[], AbstractContextManager[Transaction]], name: SessionName, *, job: str, now: int
) -> int:
    """Clear the conversation memories that an ended session still has, in bounded steps; return how many."""
    total = 0
    while True:
        with writing() as tx:
            found = tx.for_agent(name.agent).sessions.find(name.session)
            if found is None or found.status == "active":
                return total
            cleared = _clear(tx, found, job=job, why="its conversation is over", now=now)
        total += cleared
        if not cleared:
            return total


def _clear(tx: Transaction, session: SessionRecord, *, job: str, why: str, now: int) -> int:
    """Delete some of a session's conversation memories, logged; return how many."""
    rows = tx.for_agent(session.agent)
    clearable = rows.session_lifecycle.clearable(session.row_id, limit=_CLEARED_AT_ONCE)
    if not clearable:
        return 0
    draft = EntryDraft(why, session=session.id)
    with tx.curation.entry(draft, job=job, agent=session.agent, action=CLEAR, at=now):
        rows.memories.detach_superseded(clearable)
        return rows.memories.delete(clearable)
