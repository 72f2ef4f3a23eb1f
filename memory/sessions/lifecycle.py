"""The life of a session: active, idle, archived (M13); and what happens when it ends (the "persist" phase of B6).

A session that ends is read once more for memories; then what served its conversation alone is cleared and its state
changes, in one transaction; then the agent's memory files are committed. Killed between two of these steps and tried
again, it comes to the same end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memory.idle_stores import DueJob, IdleStores, run_where_due
from memory.jobs import JobRun
from memory.sessions.sessions import to_session
from reverie import contract
from reverie.errors import Conflict, NotFound, StoreUnavailable
from reverie.sessions.checks import check_session_metadata
from reverie.types import Session
from storage.sessions.lifecycle import CLEAR, CLOSE
from storage.sessions.records import SessionRecord
from storage.stores import Store, Stores
from storage.transaction import AgentRepositories, Transaction

# Who the log says did it, where a call did and no job.
BY_CALL: Final = "reverie.close_session"
# Sessions ended in one run of the job on one store; the others are for the next one, minutes later.
MOST_AT_ONCE: Final = 500
_HOUR_MICROS: Final = 3_600 * 1_000_000


@dataclass(frozen=True, slots=True)
class SessionEndHooks:
    """What is done around the end of a session: `extract` before it (agent, session), `publish` after it (agent).

    Neither is called inside a transaction. What either leaves undone is made good by the next job of its kind.
    """

    extract: Callable[[Store, str, str], object]
    publish: Callable[[Store, str], object]


def start_session(
    store: Store,
    *,
    agent: str,
    session: str,
    now: int,
    user: str | None = None,
    provider: str | None = None,
    chat_id: str | None = None,
    channel: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Session:
    """Make a session before its first message, or open an idle one again; an active one is left as it is.

    What is given fills in what was not known of it. Raises `Rejected`, and `Conflict` for an archived one.
    """
    noted = check_session_metadata(metadata)
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        found = rows.sessions.ensure(session, now=now, user=user, provider=provider, chat_id=chat_id, channel=channel)
        if found.status == "archived":
            raise Conflict(f"session {session!r} is archived: it cannot be started again", field="session")
        if noted:
            rows.sessions.set_metadata(found.row_id, {**found.metadata, **noted})
        rows.sessions.touch(found.row_id, now=now, last_sequence=found.last_sequence)
        return to_session(rows.sessions.get(session))


def idle_session(store: Store, ending: SessionEndHooks, *, agent: str, session: str, now: int) -> Session:
    """End an active session. Raises `NotFound`, and `Conflict` for one that is not active."""
    return _close(store, ending, "idle", agent=agent, session=session, now=now, force=False)


def archive_session(
    store: Store, ending: SessionEndHooks, *, agent: str, session: str, now: int, force: bool = False
) -> Session:
    """Put an idle session aside; with `force` an active one, too. Raises `NotFound` and `Conflict`."""
    return _close(store, ending, "archived", agent=agent, session=session, now=now, force=force)


def session_of_ref(store: Store, *, agent: str, ref_code: str) -> Session:
    """The session with this reference code. Raises `NotFound`."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        found = rows.sessions.id_by_ref_code(ref_code)
        if found is None:
            raise NotFound(f"agent {agent} has no session with reference code {ref_code!r}", field="ref_code")
        return to_session(rows.sessions.get(found))


def close_idle_sessions(
    stores: Stores,
    ending: SessionEndHooks,
    *,
    now: int,
    idle_hours: float,
    idle_stores: IdleStores | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """End the sessions in which nothing was said for so long, and clear what they left; returns counts.

    `idle_stores` remembers the workspaces in which none is due.
    """
    silence = int(idle_hours * _HOUR_MICROS)

    def due_at(store: Store) -> int | None:
        with store.reading() as tx:
            if tx.leases.items(contract.CLOSE_IDLE_SESSIONS):  # ended, and its files not committed yet
                return now
            since = tx.session_lifecycles.oldest_change()
        return None if since is None else since + silence + 1

    return run_where_due(
        stores,
        DueJob(contract.CLOSE_IDLE_SESSIONS, lambda run: _close_silent(run, ending, now - silence), due_at),
        now=now,
        idle_stores=idle_stores,
        dry_run=dry_run,
    )


def _close_silent(run: JobRun, ending: SessionEndHooks, before: int) -> None:
    with run.store.reading() as tx:
        silent = tx.session_lifecycles.inactive(before=before, limit=MOST_AT_ONCE)
        left = tx.session_lifecycles.with_leftover_memories(before=before, limit=MOST_AT_ONCE)
    for place, name in enumerate(silent):
        if run.time_is_up:
            run.counts["not_reached"] += len(silent) - place
            break
        if run.dry_run:
            run.counts["closed"] += 1
            continue
        ending.extract(run.store, name.agent, name.session)
        _end_silent(run, name.agent, name.session, before)
    for name in left:
        if run.time_is_up:
            break
        _clear_left(run, name.agent, name.session)
    if not run.dry_run:
        _publish(run, ending)


def _publish(run: JobRun, ending: SessionEndHooks) -> None:
    """Commit the files of those whose sessions have ended, in this run or in one that was killed before its commits.

    One that fails holds up no other, and is tried again by the next run.
    """
    with run.store.reading() as tx:
        agents = tx.leases.items(run.job)
    failed: StoreUnavailable | None = None
    for agent in agents:
        run.renew_lease()
        try:
            ending.publish(run.store, agent)
        except StoreUnavailable as error:
            failed = failed or error
            continue
        with run.writing() as tx:
            tx.leases.drop(run.job, agent)
    if failed is not None:
        raise failed


def _end_silent(run: JobRun, agent: str, session: str, before: int) -> None:
    """End a session unless somebody has spoken in it, or it has ended or was forgotten, since it was found."""
    with run.writing() as tx:
        found = tx.for_agent(agent).sessions.find(session)
        if found is None or found.status != "active" or found.updated_at >= before:
            return
        hours = (run.now - found.updated_at) / _HOUR_MICROS
        cleared = _end(tx, found, "idle", job=run.job, why=f"nothing was said for {hours:.1f} hours", now=run.now)
        _note_unpublished(tx, agent, run.now)
    run.counts["closed"] += 1
    run.counts["cleared"] += cleared


def _clear_left(run: JobRun, agent: str, session: str) -> None:
    """Clear what was remembered for a conversation after it had ended."""
    if run.dry_run:
        with run.store.reading() as tx:
            rows = tx.for_agent(agent)
            run.counts["cleared"] += len(rows.session_lifecycle.clearable(rows.sessions.get(session).row_id))
        return
    with run.writing() as tx:
        found = tx.for_agent(agent).sessions.find(session)
        if found is not None and found.status != "active":
            run.counts["cleared"] += _clear(tx, found, job=run.job, why="its conversation is over", now=run.now)


def _close(
    store: Store, ending: SessionEndHooks, status: str, *, agent: str, session: str, now: int, force: bool
) -> Session:
    with store.reading() as tx:
        _check_step(tx.for_agent(agent).sessions.get(session), status, force)
    ending.extract(store, agent, session)
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        found = rows.sessions.get(session)
        _check_step(found, status, force)  # another call may have been quicker
        _end(tx, found, status, job=BY_CALL, why=f"it was asked to be {status}", now=now)
        closed = to_session(rows.sessions.get(session))
        _note_unpublished(tx, agent, now)
    ending.publish(store, agent)
    with store.writing() as tx:
        tx.leases.drop(contract.CLOSE_IDLE_SESSIONS, agent)
    return closed


def _note_unpublished(tx: Transaction, agent: str, now: int) -> None:
    """Have the job commit an agent's files, should this process not come to it."""
    tx.leases.advance(contract.CLOSE_IDLE_SESSIONS, agent, after=0, to=1, now=now)


def _check_step(session: SessionRecord, status: str, force: bool) -> None:
    """Raise `Conflict` unless a session can go from the state it is in to this one."""
    if session.status == "active" and status == "archived" and not force:
        raise Conflict(
            f"session {session.id!r} is active: let it go idle first, or archive it with force", field="session"
        )
    if session.status == status or session.status == "archived":
        raise Conflict(f"session {session.id!r} is {session.status}: it cannot be made {status}", field="session")


def _end(tx: Transaction, session: SessionRecord, status: str, *, job: str, why: str, now: int) -> int:
    """Clear a session and set its state, logged; returns how many memories were cleared."""
    cleared = _clear(tx, session, job=job, why=why, now=now)
    with tx.curation.entry(job=job, agent=session.agent, action=CLOSE, why=why, session=session.id, at=now):
        ended_at = session.ended_at if session.ended_at is not None else now
        _rows(tx, session).session_lifecycle.set_status(session.row_id, status, ended_at=ended_at)
    return cleared


def _clear(tx: Transaction, session: SessionRecord, *, job: str, why: str, now: int) -> int:
    rows = _rows(tx, session)
    clearable = rows.session_lifecycle.clearable(session.row_id)
    if not clearable:
        return 0
    with tx.curation.entry(job=job, agent=session.agent, action=CLEAR, why=why, session=session.id, at=now):
        rows.memories.detach_superseded(clearable)
        return rows.memories.delete(clearable)


def _rows(tx: Transaction, session: SessionRecord) -> AgentRepositories:
    return tx.for_agent(session.agent)
