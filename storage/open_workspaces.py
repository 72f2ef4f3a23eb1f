"""The workspaces that one process keeps open.

Invariants: opening or migrating one store makes only the callers of that store wait; the connections of all stores
together stay below a share of the files that the process may open.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from reverie.errors import NotFound, StoreUnavailable
from storage.driver import inode_of
from storage.store import Store, new_serial

if TYPE_CHECKING:
    from storage.engine import Database
    from storage.lifecycle.withdrawn import BeingErased

# Each connection to a database with a write-ahead log opens two files, and each store a third one.
_FILES_PER_CONNECTION: Final = 3
# For sockets, logs, the model's files, and connections beyond those that are counted.
_OTHER_FILES: Final = 256
_MIN_CONNECTIONS: Final = 16
# An idle connection takes 1 MB: a process keeps at most 300 MB of them.
MAX_KEPT_CONNECTIONS: Final = 300
# Counting the connections of all stores takes some 100 µs.
_COUNT_SECONDS: Final = 1.0

Opener: TypeAlias = "Callable[[Path], Database]"


def max_connections() -> int:
    """Return how many connections this process may keep, by its limit of open files (`ulimit -n`)."""
    try:
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return MAX_KEPT_CONNECTIONS
    except ImportError:  # not a Unix
        files = 512
    return min(MAX_KEPT_CONNECTIONS, max(_MIN_CONNECTIONS, (files - _OTHER_FILES) // _FILES_PER_CONNECTION))


class OpenWorkspaces:
    """Opens workspaces when they are first used, and closes the least recently used ones. Thread-safe.

    `patience_seconds` limits how long a caller waits for a store that is being opened; the opening itself goes on. None
    sets no limit. `connections` is how many the stores may keep together, by default as many as the process may have.
    """

    def __init__(
        self,
        opener: Opener,
        *,
        patience_seconds: float | None = None,
        connections: int | None = None,
        being_erased: Callable[[str], Sequence[BeingErased]] = lambda _: (),
    ) -> None:
        self._opener = opener
        self._being_erased = being_erased
        self._patience_seconds = patience_seconds
        self._max_connections = max_connections() if connections is None else connections
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Store] = OrderedDict()
        # By name: the future of an opening, and when it began.
        self._opening: dict[str, tuple[Future[Store], float]] = {}
        # By name: the inode and the identity of the file that was opened last, and the serial of its store.
        self._known: dict[str, tuple[int | None, int, int]] = {}
        self._counted_at = 0.0

    def __contains__(self, name: object) -> bool:
        """Return whether a workspace is open."""
        return name in self._open

    def names(self) -> list[str]:
        """Return the names of the open workspaces, the least recently used first."""
        with self._lock:
            return list(self._open)

    def get(self, name: str, path: Path, *, create: bool) -> Store:
        """Return the store of a workspace, opened if needed.

        Raises `NotFound` when it does not exist and `create` is false, `StoreUnavailable` when opening it takes longer
        than callers wait, and what the opener raises.
        """
        inode, replaced = inode_of(path), None
        with self._lock:
            store = self._open.get(name)
            if store is not None and store.inode != inode:  # perhaps created since `inode` was read
                inode = inode_of(path)
            if store is not None and store.inode == inode:
                self._open.move_to_end(name)
                closing = self._surplus(keep=name)
            else:
                closing = []
                if store is not None:  # deleted, and perhaps created again, by another process
                    replaced, store = self._open.pop(name), None
                (opening, since), is_mine = self._begin(name, exists=inode is not None, create=create)
        for other in [*closing, *([replaced] if replaced is not None else [])]:
            other.database.close()
        if store is not None:
            return store
        if is_mine:
            self._start(name, path, opening)
        return self._opened(name, opening, since)

    def close(self, name: str) -> None:
        """Close a workspace; nothing happens when it is not open."""
        with self._lock:
            store = self._open.pop(name, None)
        if store is not None:
            store.database.close()

    def forget(self, name: str) -> None:
        """Close a workspace that is about to be deleted: a later workspace of its name gets another serial."""
        self.close(name)
        with self._lock:
            self._known.pop(name, None)

    def close_all(self) -> None:
        """Close every workspace, one that is being opened as soon as it is open."""
        with self._lock:
            stores = list(self._open.values())
            self._open.clear()
            for opening, _ in self._opening.values():
                opening.add_done_callback(self._close_opened)
        for store in stores:
            store.database.close()

    def _close_opened(self, opening: Future[Store]) -> None:
        if opening.exception() is None:
            self.close(opening.result().name)

    def _begin(self, name: str, *, exists: bool, create: bool) -> tuple[tuple[Future[Store], float], bool]:
        """Return the opening of a store, and whether the caller is the one to start it. Called with the lock held."""
        opening = self._opening.get(name)
        if opening is not None:
            return opening, False
        if not exists and not create:
            raise NotFound(f"there is no workspace {name!r}", field="workspace")
        opening = self._opening[name] = (Future(), time.monotonic())
        return opening, True

    def _start(self, name: str, path: Path, opening: Future[Store]) -> None:
        """Open a store: in this thread if every caller waits for it anyway."""
        if self._patience_seconds is None:
            self._open_one(name, path, opening)
        else:
            work = (name, path, opening)
            thread = threading.Thread(target=self._open_one, args=work, name=f"open-{name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more threads now
                with self._lock:
                    self._opening.pop(name, None)
                opening.set_exception(StoreUnavailable(f"workspace {name!r} cannot be opened now: {error}"))

    def _opened(self, name: str, opening: Future[Store], since: float) -> Store:
        """Wait for an opening; once it takes longer than `patience_seconds`, nobody waits for it any more."""
        patience = self._patience_seconds
        try:
            return opening.result(None if patience is None else max(0.0, since + patience - time.monotonic()))
        except TimeoutError:
            raise StoreUnavailable(
                f"workspace {name!r} is being opened, which takes longer than {patience:g} s (a migration, or a slow"
                " disk): try again in a moment"
            ) from None

    def _open_one(self, name: str, path: Path, opening: Future[Store]) -> None:
        from storage.opening import identity_of

        closing: list[Store] = []
        try:
            database = self._opener(path)
            identity = identity_of(database)
            with self._lock:
                serial = self._serial(name, inode_of(path), identity)
                store = Store(name, database, serial, being_erased=partial(self._being_erased, name))
                self._open[name] = store
                closing = self._surplus(keep=name, now=True)
                del self._opening[name]
        except BaseException as error:  # noqa: BLE001 - the boundary of the thread: all callers get the error
            with self._lock:
                self._opening.pop(name, None)
            opening.set_exception(error)
            return
        opening.set_result(store)
        for other in closing:
            other.database.close()

    def _serial(self, name: str, inode: int | None, identity: int) -> int:
        known = self._known.get(name)
        if identity and known is not None and known[:2] == (inode, identity):
            return known[2]
        serial = new_serial()
        self._known[name] = (inode, identity, serial)
        return serial

    def _surplus(self, *, keep: str, now: bool = False) -> list[Store]:
        """Take out the least recently used stores until few enough connections are left; return them to be closed.

        Called with the lock held. Closing may checkpoint a log, so it is done without the lock.
        """
        moment = time.monotonic()
        if not now and moment - self._counted_at < _COUNT_SECONDS:
            return []
        self._counted_at = moment
        total = sum(store.database.connections for store in self._open.values())
        closing = []
        for name in list(self._open):
            if total <= self._max_connections:
                break
            if name != keep:
                store = self._open.pop(name)
                total -= store.database.connections
                closing.append(store)
        return closing
