"""One open store: the database of a workspace, or of the account, as a viewer sees it."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.driver import inode_of
from storage.engines import StoreDatabase
from storage.pipeline.held_claims import HeldClaims
from storage.rows import execute
from storage.viewer import Viewer

if TYPE_CHECKING:
    from storage.lifecycle.withdrawn import BeingErased, Table
    from storage.transaction import AgentRepositories, Transaction

_serials = itertools.count(1)
_SESSION: Final = "SELECT user_id, is_group FROM sessions WHERE agent_id = :agent AND id = :session"


def new_serial() -> int:
    """Return a number that no store in this process had before."""
    return next(_serials)


class Store:
    """The database of one workspace, or of the account.

    `serial` differs when a workspace of the same name was deleted and created again. It stays the same when the same
    file is closed and opened again, so data read from it may be cached meanwhile.
    """

    def __init__(
        self,
        name: str,
        database: StoreDatabase,
        serial: int,
        held_claims: Callable[[Path], HeldClaims] = HeldClaims,
        being_erased: Callable[[], Sequence[BeingErased]] = list,
    ) -> None:
        """`held_claims` makes the notes of claims from the path of a file on this host.

        `being_erased` returns the scopes of unfinished erasures in this store.
        """
        from storage.transaction import Transaction  # with all repositories, which only an open store needs

        self._transaction = Transaction
        self.name = name
        self.database = database
        self.viewer: Viewer | None = None
        self.serial = serial
        self.inode = inode_of(database.path)
        self._being_erased = being_erased
        noted = database.path.with_name(f"{database.path.name}.held")
        # Claims that this process has given up, and claims of runs whose outcome it still has to write.
        self.given_up = held_claims(noted)
        self.unsaved_runs = held_claims(noted)
        # Leases of jobs that run in this process.
        self.job_leases = held_claims(noted)

    def seen_by(self, viewer: Viewer | None) -> Store:
        """Return this store as a viewer sees it; None sees everything, as jobs do."""
        seen = copy.copy(self)
        seen.viewer = viewer
        return seen

    def withdrawn(self, table: Table, keys: Collection[Any]) -> set[Any]:
        """Return the rows among these that must not be used any more: gone, forgotten, or being erased.

        Call it before work on rows begins, and again before each call by which their content leaves the process.
        """
        if self.inode is not None and inode_of(self.database.path) != self.inode:
            return set(keys)  # the workspace was deleted: this process still has its file open
        erasing = self._being_erased()
        with self.reading() as tx:
            return tx.withdrawn.among(table, keys, erasing)

    @contextmanager
    def writing(
        self, *, lock_wait_seconds: float | None = None, keeps_schedules: bool = False
    ) -> Iterator[Transaction]:
        """Open a transaction that holds the write lock and commits whole or not at all.

        With `keeps_schedules`, it makes and changes no schedules, runs, reminders or notifications: their jobs do not
        look at the store because of it. When messages arrived in many workspaces, these looks took as much time as the
        stages of the pipeline.

        Raises `StoreUnavailable` when another writer holds the lock for longer than `lock_wait_seconds` (default 30).
        """
        with self.database.atomic(lock_wait_seconds=lock_wait_seconds, keeps_schedules=keeps_schedules) as connection:
            yield self._transaction(connection, self.viewer)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Open a read-only transaction: a snapshot of the file, which waits for no writer."""
        began = time.monotonic()
        with self.database.reading() as connection:
            yield self._transaction(connection, self.viewer, began)

    @contextmanager
    def writing_as(self, agent: str) -> Iterator[AgentRepositories]:
        """Open a transaction as `writing` does, on the rows of one agent."""
        with self.writing() as tx:
            yield tx.for_agent(agent)

    @contextmanager
    def reading_as(self, agent: str) -> Iterator[AgentRepositories]:
        """Open a transaction as `reading` does, on the rows of one agent."""
        with self.reading() as tx:
            yield tx.for_agent(agent)


def viewer_of(store: Store | None, agent: str, *, user: str | None, session: str | None) -> Viewer:
    """Return the viewer of a call: its `user`, else the users of its `session`; `store` is None if it is missing.

    A session of several users sees what all of them see: its own rows, and rows without an owner.
    """
    if user is not None or session is None or store is None:
        return Viewer(user)
    with store.reading() as tx:
        found = execute(tx.connection, _SESSION, agent=agent, session=session).one_or_none()
    if found is None:
        return Viewer()
    return Viewer(group=session) if found.is_group else Viewer(found.user_id)
