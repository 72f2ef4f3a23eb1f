"""One open store: the database of a workspace, or of the account, as a viewer sees it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.engines import StoreDatabase
from storage.opening import inode_of
from storage.pipeline.held_claims import HeldClaims
from storage.transaction import Transaction
from storage.viewer import Viewer

_serials = itertools.count(1)


def new_serial() -> int:
    """Return a number that no store of this process has had."""
    return next(_serials)


class Store:
    """The database of one workspace, or of the account.

    `serial` differs when a workspace of the same name was deleted and created again. It stays the same when the same
    file is closed and opened again, so what was read of it may be kept meanwhile.
    """

    def __init__(
        self,
        name: str,
        database: StoreDatabase,
        serial: int,
        held_claims: Callable[[Path], HeldClaims] = HeldClaims,
    ) -> None:
        """`held_claims` makes the notes of claims, given a file of this host."""
        self.name = name
        self.database = database
        self.viewer: Viewer | None = None
        self.serial = serial
        self.inode = inode_of(database.path)
        noted = database.path.with_name(f"{database.path.name}.held")
        # Claims of rows that this process has given up, and of runs whose outcome it still has to write.
        self.given_up = held_claims(noted)
        self.unsaved_runs = held_claims(noted)

    def seen_by(self, viewer: Viewer | None) -> Store:
        """Return this store as a viewer sees it; None sees everything, as jobs do."""
        seen = copy.copy(self)
        seen.viewer = viewer
        return seen

    @contextmanager
    def writing(self, *, lock_wait_seconds: float | None = None) -> Iterator[Transaction]:
        """Open a transaction that holds the write lock and commits whole or not at all.

        Raises `StoreUnavailable` when another writer holds the lock for longer than `lock_wait_seconds` (default 30).
        """
        with self.database.atomic(lock_wait_seconds=lock_wait_seconds) as connection:
            yield Transaction(connection, self.viewer)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Open a read-only transaction: a snapshot of the file, which waits for no writer."""
        with self.database.reading() as connection:
            yield Transaction(connection, self.viewer)
