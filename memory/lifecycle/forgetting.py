"""Forget sessions, workspaces and files everywhere: in stores, in work in progress, in the inbox and in caches.

A removal from several places is noted in the account before the first of them, and the note is removed after the last.
A process that is killed in between leaves the note, and a sweep finishes the work (`finish_forgets`)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from adapters.broker.erasing import BrokerErasure
from adapters.broker.inbox import WorkerInbox
from adapters.broker.recall_log import RecallLog
from adapters.broker.working_memory import WorkingMemory
from memory.memories.agent_memories import forget_in_account
from memory.tombstones import note_forgotten
from reverie.clock import now_micros
from reverie.contract import EXTRACT_MEMORIES
from reverie.errors import NotFound, ReverieError, Transient, Unavailable
from storage.lifecycle.erasures import ForgetRecord
from storage.memories.extraction import ExtractionProgress
from storage.stores import Store, Stores

# A process that forgets something needs less than this; after this time the sweep takes over.
_TAKEN_UP_AFTER_MICROS: Final = 60 * 1_000_000
_MEMORIES_AT_ONCE: Final = 100
# A caller that forgets a large session or file waits at most this long; the sweep removes the rows that are left.
_REMOVING_SECONDS: Final = 2.0
_SWEEP_SECONDS: Final = 60.0
# A removal takes seconds, or minutes in large stores: one that fails for longer needs somebody.
LATE_MICROS: Final = 600 * 1_000_000


@dataclass(frozen=True, slots=True)
class RemovalServices:
    """What a removal works on: the stores, and their data in the broker."""

    stores: Stores
    inbox: WorkerInbox
    working: WorkingMemory
    recalls: RecallLog
    broker: BrokerErasure | None = None

    def drop_cached(self, workspace: str) -> None:
        """Drop from the caches what was read from a workspace's files, also while they were being deleted."""
        self.working.drop_workspace(workspace)
        self.recalls.forget_workspace(workspace)


def forget_session(
    stores: Stores, store: Store, inbox: WorkerInbox, working: WorkingMemory, *, agent: str, session: str
) -> bool:
    """Delete a session and all that came from it; False if the store had nothing of it. It gets a tombstone.

    Messages accepted for it until now and still in the pipeline are dropped; messages sent later under the same id
    start a new session. The broker's number separates the two, so without a broker this raises `Unavailable` before
    anything is deleted.
    """
    forgotten_at = inbox.next_number()
    with store.reading() as tx:
        present = tx.for_agent(agent).sessions.find(session)
    noted = stores.forgets().begin(
        workspace=store.name,
        agent=agent,
        session=session,
        incarnation=present.ref_code if present is not None else "",
        forgotten_at=forgotten_at.value,
        now=now_micros(),
    )
    with _note_removed_on_error(stores, noted):
        working.drop(store.name, [(agent, session)])
        found = _forget_in_store(stores, store, noted, forgotten_at.content)
    _forget_in_account(stores, noted)
    # Again, for messages that were stored and cached between the two steps.
    working.drop(store.name, [(agent, session)])
    with suppress(ReverieError):  # nobody finds the session any more: the sweep removes its rows
        if remove_forgotten(store, budget_seconds=_REMOVING_SECONDS):
            stores.forgets().end(noted.id)
    return found


@contextmanager
def _note_removed_on_error(stores: Stores, noted: ForgetRecord) -> Iterator[None]:
    """Remove the note of a removal that failed before anything was forgotten: no sweep may forget it later."""
    try:
        yield
    except ReverieError:
        stores.forgets().end(noted.id)
        raise


def _forget_in_store(stores: Stores, store: Store, noted: ForgetRecord, content: str = "") -> bool:
    """Forget a session in its store; `content` is the broker's, if the mark is new. False if there was nothing."""
    agent, session, more = noted.agent, noted.session, True
    while more:  # a memory takes a millisecond under the write lock
        with store.writing() as tx:
            more = tx.for_agent(agent).sessions.forget_some_memories(session, limit=_MEMORIES_AT_ONCE)
    with store.writing() as tx:
        tx.broker_content.follow(content)
        rows = tx.for_agent(agent)
        reminders = rows.reminders.delete_for_session(session)
        found = rows.sessions.forget(session, forgotten_at=noted.forgotten_at) or reminders > 0
        if found:
            note_forgotten(stores.data_dir, "session", [session], workspace=store.name, agent=agent)
    return found


def forget_workspace(services: RemovalServices, workspace: str) -> bool:
    """Delete a workspace with its files and everything that is queued for it; False if there was none.

    The embedded broker's file is also rewritten without it; if that fails, the sweep does it.

    A message that is accepted meanwhile is either deleted with it or stored in a new workspace of this name, never
    lost: the inbox is emptied while nobody can write the old files. It gets no tombstone: a backup may bring back what
    was deleted by mistake. An erasure of it is for good.

    Raises `Unavailable` without a broker, before anything is deleted, and `StoreUnavailable`.
    """
    stores = services.stores
    services.inbox.stats(workspace)
    noted = stores.forgets().begin(workspace=workspace, incarnation=stores.file_of(workspace), now=now_micros())
    with _note_removed_on_error(stores, noted):
        found = _delete_files(services, workspace)
    _forget_rest(services, noted)
    with suppress(Unavailable):
        _clear_broker(services, noted)
        stores.forgets().end(noted.id)
    return found


def _delete_files(services: RemovalServices, workspace: str) -> bool:
    def drop() -> None:
        services.inbox.forget_workspace(workspace)
        services.drop_cached(workspace)

    return services.stores.delete_workspace(workspace, when_closed=drop)


def _forget_rest(services: RemovalServices, record: ForgetRecord) -> None:
    """Forget what is not in a workspace's own files: its memories in the account, and what was cached meanwhile."""
    _forget_in_account(services.stores, record)
    services.drop_cached(record.workspace)


def _clear_broker(services: RemovalServices, record: ForgetRecord) -> None:
    if services.broker is not None:
        services.broker.clear_workspace(record.workspace)


class _InUse(Transient):
    """A workspace was used after its erasure was requested: it stays, without what was erased."""


def delete_unused(services: RemovalServices, workspace: str) -> bool:
    """Remove a workspace's files and return True, unless something has been stored or accepted there since.

    This is checked again under a lock that keeps writers out, so that nothing new is deleted with the files.
    """

    def is_in_use() -> bool:
        with services.stores.workspace(workspace, create=False).reading() as tx:
            return bool(tx.kept_out.agents()) or services.inbox.stats(workspace).size > 0

    def drop() -> None:
        if is_in_use():
            raise _InUse(f"workspace {workspace!r} was used meanwhile")
        services.drop_cached(workspace)

    with suppress(NotFound, _InUse):
        return not is_in_use() and services.stores.delete_workspace(workspace, when_closed=drop)
    return False


def finish_forgets(services: RemovalServices, *, now: int) -> dict[str, Any]:
    """Finish removals whose process was killed; return counts. `now` is in microseconds.

    A removal that cannot be finished now is left to the next sweep, and does not hold up the others. The errors of
    those that were asked for more than ten minutes ago are returned as `late_forgets`.
    """
    counts, deadline = Counter[str](), time.monotonic() + _SWEEP_SECONDS
    late: dict[str, str] = {}
    if removed := services.stores.remove_deleted():
        counts["folders_removed"] = removed
    for record in services.stores.forgets().open(before=now - _TAKEN_UP_AFTER_MICROS, now=now):
        finished = False
        try:
            finished = _finish(services, record, deadline)
        except ReverieError as error:
            if record.requested_at < now - LATE_MICROS:
                late[f"forget {record.id}"] = str(error)
        if finished:
            services.stores.forgets().end(record.id)
        counts["forgets_finished" if finished else "forgets_waiting"] += 1
    return {**counts, **({"late_forgets": late} if late else {})}


def _finish(services: RemovalServices, record: ForgetRecord, deadline: float) -> bool:
    """Finish one removal; return whether nothing is left of it."""
    stores, working = services.stores, services.working
    if not record.session:
        if record.incarnation and stores.file_of(record.workspace) == record.incarnation:
            _delete_files(services, record.workspace)
        _forget_rest(services, record)
        _clear_broker(services, record)
        return True
    working.drop(record.workspace, [(record.agent, record.session)])
    store: Store | None = None
    with suppress(NotFound):  # then the workspace is gone, and the session with it
        store = stores.workspace(record.workspace, create=False)
        if not _is_forgotten(store, record):
            _forget_in_store(stores, store, record)
    _forget_in_account(stores, record)
    working.drop(record.workspace, [(record.agent, record.session)])
    return store is None or remove_forgotten(store, budget_seconds=max(0.0, deadline - time.monotonic()))


def _is_forgotten(store: Store, record: ForgetRecord) -> bool:
    """Return whether the store's part is done: then a session of this id was begun after the removal."""
    with store.reading() as tx:
        sessions = tx.for_agent(record.agent).sessions
        present = sessions.find(record.session)
        if record.incarnation and (present is None or present.ref_code != record.incarnation):
            return True
        return sessions.forgotten_at(record.session) >= record.forgotten_at


def _forget_in_account(stores: Stores, record: ForgetRecord) -> None:
    """Forget the account's memories of a session or workspace, and extract once more from a new one of the same name.

    The statements of the new one may not have been stored, because the forgotten memories already had them.
    """

    def existing(ref_codes: Collection[str]) -> set[str]:
        """Return the given sessions that the workspace has now: they began after the forgotten ones."""
        with suppress(NotFound), stores.workspace(record.workspace, create=False).reading() as tx:
            return tx.forgotten_sessions.not_forgotten(ref_codes)
        return set()

    account, agent, session = stores.account_store(), record.agent or None, record.session or None
    if not forget_in_account(account, agent=agent, workspace=record.workspace, session=session, existing=existing):
        return
    with suppress(NotFound), stores.workspace(record.workspace, create=False).writing() as tx:
        progress = ExtractionProgress(tx.connection, EXTRACT_MEMORIES)
        if session is None:
            progress.read_everything_again()
        elif (present := tx.for_agent(record.agent).sessions.find(session)) is not None:
            progress.read_again(present.ref_code, after=0, now=now_micros())


# A pause between two steps lets other writers get the lock: they try it every 3 ms.
_PAUSE_SECONDS: Final = 0.01


def forget_file(stores: Stores, store: Store, inbox: WorkerInbox, *, agent: str, file_id: str) -> bool:
    """Delete a file with its chunks, vectors, full text and dead letters; False if the store did not have it.

    It gets a tombstone.

    Deliveries accepted until now and still in the pipeline are dropped; the same source can be handed in again later.
    The broker's number separates the two, so without a broker this raises `Unavailable` before anything is deleted.
    """
    forgotten_at = inbox.next_number()
    with store.writing() as tx:
        tx.broker_content.follow(forgotten_at.content)
        found = tx.for_agent(agent).files.forget(file_id, forgotten_at=forgotten_at.value)
        if found:
            note_forgotten(stores.data_dir, "file", [file_id], workspace=store.name, agent=agent)
    with suppress(ReverieError):  # nobody finds the file any more: the stage that cuts files removes its rows
        remove_forgotten(store, budget_seconds=_REMOVING_SECONDS)
    return found


def remove_forgotten(store: Store, *, budget_seconds: float) -> bool:
    """Remove the rows of files and sessions that were set aside, in short steps; return whether all are removed.

    No recall finds these rows meanwhile, and a writer waits for one step at most.
    """
    deadline = time.monotonic() + budget_seconds
    with store.reading() as tx:
        more = tx.forgotten_files.any() or tx.forgotten_sessions.any()
    while more and time.monotonic() < deadline:
        with store.writing() as tx:
            more = tx.forgotten_files.remove_any() or tx.forgotten_sessions.remove_step()
        time.sleep(_PAUSE_SECONDS)
    return not more
