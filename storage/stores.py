"""The databases of a data folder: one for each workspace and one for the account, opened when first used.

A workspace that cannot be opened (corrupt, newer schema) is an error for that workspace alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from reverie.calls import Resource
from reverie.checks import check_workspace, is_workspace_name
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, ReverieError, StoreUnavailable, StoreUnusable
from storage.driver import cannot_read, inode_of, is_locked
from storage.engines import Connection, StoreDatabase
from storage.known_stores import KnownStores, WorkspaceNames
from storage.lifecycle.erasures import Erasures, Forgets
from storage.migrations import ACCOUNT_FILE, Kind
from storage.open_workspaces import OpenWorkspaces
from storage.pipeline.samples import PipelineSamples
from storage.pipeline.work import Stage, WorkQueue
from storage.status import AgentCounts, StoreCounts, agents_of, counts_of, reading_file, reading_nothing
from storage.store import Store as Store
from storage.store import new_serial
from storage.trust.audit import AuditLog
from storage.trust.quotas import QuotaRecord, Quotas, Tenants, stored_amounts
from storage.trust.tokens import Tokens
from storage.upkeep.jobs import JobRuns, UsageLog
from storage.viewer import LOCAL_TENANT
from storage.written import KeptReads, Written, WrittenStores

if TYPE_CHECKING:
    from storage.engine import Database
    from storage.lifecycle.withdrawn import BeingErased

_R = TypeVar("_R")

# File times advance in timer ticks, so a file written this recently may be written again without a new time.
_SETTLED_NANOSECONDS: Final = 2_000_000_000
# A worker that closes a database may recreate its log while the folder is being emptied: it does so once or twice.
_REMOVE_ATTEMPTS: Final = 5
# The folder of deleted workspaces whose files are not removed yet.
_DELETED: Final = "deleted"


class FileStamp(NamedTuple):
    """Sizes and times of a database file and its log: at least one changes with every write."""

    size: int
    modified_ns: int
    log_size: int
    log_modified_ns: int

    @property
    def written_ns(self) -> int:
        """Return when either file was last written, in nanoseconds."""
        return max(self.modified_ns, self.log_modified_ns)

    @property
    def is_of_file(self) -> bool:
        """Return whether the sizes are those of files on this host."""
        return True

    def is_settled(self, now: int) -> bool:
        """Return whether an equal stamp later on will prove that nothing was written since; `now` in microseconds."""
        return now * 1_000 - self.written_ns > _SETTLED_NANOSECONDS


def _of_account(repository: Callable[[StoreDatabase], _R]) -> Callable[[Stores], _R]:
    """Return a method of `Stores` that makes a repository of the account's database, which it opens if needed."""
    return lambda stores: repository(stores.account())


class Stores:
    """All databases of a data folder, for one process. Open it after a fork, never before."""

    def __init__(
        self, data_dir: Path, *, patience_seconds: float | None = None, connections: int | None = None
    ) -> None:
        """`patience_seconds` limits the wait for a workspace that is being opened; `connections` how many are kept."""
        self.data_dir = data_dir
        self._lock = threading.RLock()
        # Called with the seconds after a transaction that held the write lock of a store for long.
        self.on_long_write: Callable[[float], None] = lambda _: None
        self._register = KnownStores(data_dir)
        self._names = WorkspaceNames(data_dir / "workspaces")
        self.written: Written = WrittenStores(data_dir, self.names, self.stamp)
        self._open = OpenWorkspaces(
            self._open_workspace,
            patience_seconds=patience_seconds,
            connections=connections,
            being_erased=self.being_erased,
        )
        self._account: Database | None = None
        self._account_store: Store | None = None
        self._kept_tenants: KeptReads[str, str] = KeptReads(lambda: self.stamp(ACCOUNT_STORE))
        self._kept_all_tenants: KeptReads[None, dict[str, str]] = KeptReads(lambda: self.stamp(ACCOUNT_STORE))
        self._kept_quotas: KeptReads[None, list[QuotaRecord]] = KeptReads(lambda: self.stamp(ACCOUNT_STORE))

    def workspace(self, name: str, *, create: bool = True) -> Store:
        """Return the store of a workspace, created and migrated if needed.

        Raises `NotFound` when it does not exist and `create` is false, and `StoreUnavailable` when opening it takes
        longer than this process waits.
        """
        if name == ACCOUNT_STORE:
            return self.account_store()
        path = self.database_path(name)
        try:
            return self._open.get(name, path, create=create)
        except NotFound:
            self._register.check(name, path)
            raise

    def _open_workspace(self, path: Path) -> Database:
        name = path.parent.name
        is_new = inode_of(path) is None
        database = self._open_file(
            name, on_write=lambda keeps_schedules: self.written.note(name, keeps_schedules=keeps_schedules)
        )
        if is_new:  # it is empty, so nothing is due in it
            self.written.note(name, keeps_schedules=True)
        return database

    def _note_long_write(self, seconds: float) -> None:
        self.on_long_write(seconds)

    def _open_file(self, name: str, on_write: Callable[[bool], None] = lambda _: None) -> Database:
        """Open a store in full."""
        from storage.opening import identity_of, open_database  # with SQLAlchemy, which brief reads do not need

        path = self._checked_path(name)
        database = open_database(
            path,
            kind_of(name),
            self.data_dir,
            on_write=on_write,
            on_long_write=self._note_long_write,
            on_version=partial(self._register.note_version, name),
        )
        self._register.remember(name, path, identity_of(database))
        return database

    def account(self) -> StoreDatabase:
        """Return the account's database, which is shared by all workspaces."""
        with self._lock:
            if self._account is None:
                self._account = self._open_file(ACCOUNT_STORE)
            return self._account

    def account_store(self) -> Store:
        """Return the store of the account tier, whose memories are seen from every workspace."""
        with self._lock:
            if self._account_store is None:
                self._account_store = Store(
                    ACCOUNT_STORE, self.account(), new_serial(), being_erased=partial(self.being_erased, ACCOUNT_STORE)
                )
            return self._account_store

    # Tables in the account's database for the whole installation.
    jobs = _of_account(JobRuns)
    usage = _of_account(UsageLog)
    pipeline_samples = _of_account(PipelineSamples)
    erasures = _of_account(Erasures)
    forgets = _of_account(Forgets)
    audit = _of_account(AuditLog)
    tokens = _of_account(Tokens)

    def being_erased(self, name: str) -> list[BeingErased]:
        """Return what unfinished erasures remove from a store."""
        if self._account is None and not self.exists(ACCOUNT_STORE):
            return []
        from storage.lifecycle.withdrawn import being_erased

        return being_erased(self.account(), name, is_account=name == ACCOUNT_STORE)

    def is_read_only(self) -> bool:
        """Return whether nothing can be written to any store, as on a standby of a database server."""
        return False

    def tenants(self) -> Tenants:
        """Return the tenants of the workspaces."""

        def forget() -> None:
            self._kept_tenants.forget()
            self._kept_all_tenants.forget()

        return Tenants(self.account(), forget)

    def quotas(self) -> Quotas:
        """Return the quotas that were set for workspaces and tenants."""
        return Quotas(self.account(), self._kept_quotas.forget)

    def known_quotas(self) -> list[QuotaRecord]:
        """Return the quotas that were set; changes by other processes are seen within half a second."""
        return self._kept_quotas.get(None, lambda: self.quotas().all())

    def known_tenants(self) -> dict[str, str]:
        """Return the tenants by workspace, a change by another process at most half a second late.

        A workspace that is missing belongs to the local one.
        """
        return self._kept_all_tenants.get(None, lambda: self.tenants().all())

    def tenant_of(self, workspace: str) -> str:
        """Return the tenant of a workspace, whose memories of the account are seen from it.

        A change by another process is seen within half a second.
        """
        return self._kept_tenants.get(workspace, lambda: self.tenants().of(workspace))

    def stored_tenant_of(self, workspace: str) -> str | None:
        """Return the tenant of a workspace as memories of the account store it: None for the local one."""
        tenant = self.tenant_of(workspace)
        return None if tenant == LOCAL_TENANT else tenant

    def names(self) -> list[str]:
        """Return the names of all workspaces, even those whose files are lost, which cannot be used.

        A folder with an invalid name (a manual copy) is left out.
        """
        found = self._names.all()
        lost = self._register.names().difference(found, (ACCOUNT_STORE,))
        return sorted((*found, *filter(is_workspace_name, lost))) if lost else found

    def all_names(self) -> list[str]:
        """Return the names of all stores: the account's, once it exists, and the workspaces'."""
        has_account = ACCOUNT_STORE in self._register.names() or self.database_path(ACCOUNT_STORE).exists()
        account = [ACCOUNT_STORE] if has_account else []
        return [*account, *self.names()]

    def last_written(self) -> list[str]:
        """Return the names of all workspaces, last written first; workspaces that may not be read come last."""
        written: dict[str, int] = {}
        for name in self.names():
            with suppress(StoreUnavailable):
                stamp = self.stamp(name)
                written[name] = 0 if stamp is None else stamp.written_ns
        return sorted(written, key=lambda name: -written[name])

    def exists(self, name: str) -> bool:
        """Return whether a store exists, or did and its file is lost.

        Raises `StoreUnavailable` for a folder without rights.
        """
        return name in self._register.names() or inode_of(self.database_path(name)) is not None

    def database_path(self, name: str) -> Path:
        """Return the path of a store's database. Raises `Rejected` for a name that could leave the data folder."""
        if name == ACCOUNT_STORE:
            return self.data_dir / ACCOUNT_FILE
        return self.data_dir / "workspaces" / check_workspace(name) / "memory.db"

    def stamp(self, name: str) -> FileStamp | None:
        """Return when a store was last written, at the cost of three file lookups; None when it does not exist.

        Raises `StoreUnavailable` for a folder without rights.
        """
        path = str(self.database_path(name))
        if os.path.islink(path):  # noqa: PTH114 - the log lies beside the file that the link leads to
            path = os.path.realpath(path)
        try:
            main = os.stat(path)  # noqa: PTH116 - sweeps look at thousands: a Path costs as much as the call
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise cannot_read(path, error) from error
        try:
            log = os.stat(f"{path}-wal")  # noqa: PTH116
        except OSError:  # there is no log
            return FileStamp(main.st_size, main.st_mtime_ns, 0, 0)
        # An empty log counts as none: opening and closing the file creates and removes it.
        return FileStamp(main.st_size, main.st_mtime_ns, log.st_size, log.st_mtime_ns if log.st_size else 0)

    def is_idle(self, name: str, stages: Sequence[Stage]) -> bool:
        """Return whether a store has no work left, checked without opening it in full: 1.5 ms instead of 3 ms.

        False for a store that is open in this process, which the caller can query directly. False, too, for one that
        cannot be read or has an older schema: opening it reports the first and mends the second.
        """
        if name in self._open or (name == ACCOUNT_STORE and self._account is not None):
            return False
        try:
            with reading_file(self.database_path(name), kind_of(name)) as connection:
                return WorkQueue(connection).is_idle(stages)
        except ReverieError:
            return False

    def counts(self, name: str) -> StoreCounts:
        """Return the counts of a store. Raises `NotFound`, `StoreUnavailable`, or `StoreUnusable` (damaged, newer)."""
        with self._read_briefly(name) as connection:
            return counts_of(connection)

    def agents(self, name: str, *, now: int) -> list[AgentCounts]:
        """Return the agents of a store by name; `now` is in microseconds. Raises the errors of `counts`."""
        with self._read_briefly(name) as connection:
            return agents_of(connection, now)

    def amounts(self, name: str) -> Mapping[Resource, int]:
        """Return how much a workspace holds of what quotas limit. Raises the errors of `counts`."""
        with self._read_briefly(name) as connection:
            return stored_amounts(connection)

    def check_usable(self, name: str) -> None:
        """Raise `StoreUnusable` for a store that is lost, damaged or newer than this code; 1.5 ms.

        One with an older schema, which is migrated when it is next used, is usable.
        """
        path = self._checked_path(name)
        with suppress(NotFound, StoreUnavailable), reading_file(path, kind_of(name)):
            pass

    def _read_briefly(self, name: str) -> AbstractContextManager[Connection]:
        """Open a read-only transaction without opening the store in full."""
        return reading_file(self._checked_path(name), kind_of(name))

    def accept(self, name: str) -> Path | None:
        """Accept the present file of a store: another sound database, or none, and then the store begins anew.

        A file that is no database is moved aside; return its new path, None if nothing was moved. The caller makes sure
        that no other process uses the data folder.
        """
        path = self.database_path(name)
        self._open.forget(name)
        self._register.forget(name)
        try:
            self._register.check(name, path)
        except StoreUnusable:
            aside = self.data_dir / "damaged" / f"{name}-{secrets.token_hex(4)}"
            aside.mkdir(mode=0o700, parents=True)
            for file in path.parent.glob(f"{path.name}*"):
                file.rename(aside / file.name)
            return aside
        return None

    def _checked_path(self, name: str) -> Path:
        path = self.database_path(name)
        self._register.check(name, path)
        return path

    def delete_workspace(self, name: str, *, when_closed: Callable[[], None] = lambda: None) -> bool:
        """Remove a workspace with all its files; False when it does not exist.

        `when_closed` is called once nothing can be written to it any more, to remove other data of the workspace. Later
        writes go to a new workspace of this name. Killed half-way, either nothing is deleted, or the workspace is gone
        and `remove_deleted` removes its files.

        Raises `StoreUnavailable` when another writer holds its lock for long, or its folder cannot be removed.
        """
        path = self.database_path(name)
        self._open.forget(name)
        # First: a kill after this leaves a store that becomes known again when it is next opened.
        was_known = self._register.forget(name)
        if not path.parent.exists():
            when_closed()
            return was_known
        from storage.engine import Database

        with ExitStack() as held:
            database = Database(path)
            held.callback(database.close)
            try:
                if path.exists():
                    held.enter_context(database.atomic())
            except (StoreUnavailable, StoreUnusable) as error:  # damaged, or no space for its log: nobody can write it
                if is_locked(error):
                    raise
            when_closed()
            deleted = self._set_aside(path.parent)
            self._register.forget(name)  # another process may have opened it meanwhile
        self._remove_set_aside(deleted)
        return True

    def remove_deleted(self) -> int:
        """Remove the files of workspaces whose deletion was interrupted; return how many workspaces."""
        folder = self.data_dir / _DELETED
        found = list(folder.iterdir()) if folder.exists() else []
        for one in found:
            _remove(one)
        if found:
            self._remove_empty()
        return len(found)

    def remove_foreign_folders(self) -> list[str]:
        """Remove from this host the folders of workspaces that were deleted on another one; return their names."""
        return []

    def file_of(self, name: str) -> str:
        """Return an id that distinguishes a workspace's file from later ones in its place; empty without a file."""
        path = self.database_path(name)
        inode = inode_of(path)
        if inode is None:
            return ""
        with suppress(OSError), path.open("rb") as file:
            return f"{inode} {int.from_bytes(file.read(72)[68:], 'big')}"
        return str(inode)

    def _set_aside(self, folder: Path) -> Path:
        """Rename the folder of a workspace, which deletes it in one step; return its new path."""
        deleted = self.data_dir / _DELETED / secrets.token_hex(8)
        try:
            deleted.parent.mkdir(mode=0o700, exist_ok=True)
            folder.rename(deleted)
        except OSError as error:
            raise StoreUnavailable(f"{folder} cannot be removed ({error}): try again") from error
        return deleted

    def _remove_set_aside(self, folder: Path) -> None:
        _remove(folder)
        self._remove_empty()

    def _remove_empty(self) -> None:
        with suppress(OSError):  # another deleted workspace is still there
            (self.data_dir / _DELETED).rmdir()

    def empty_logs(self) -> None:
        """Copy the logs that killed processes left behind into their databases, except damaged databases."""
        from storage.engine import Database

        for name in self.all_names():
            with suppress(StoreUnavailable, StoreUnusable):
                stamp = self.stamp(name)
                if stamp is not None and stamp.log_size:
                    database = Database(self._checked_path(name))
                    database.truncate_log()
                    database.close()

    def close(self) -> None:
        """Close every connection of this process."""
        self._open.close_all()
        with self._lock:
            if self._account is not None:
                self._account.close()
                self._account = self._account_store = None


class StoresReadOnce(Stores):
    """The stores for a process that reads them once and opens none in full: that would import SQLAlchemy for 0.4 s."""

    def account(self) -> StoreDatabase:
        """Return the account's database to be read: an empty one if it is missing, opened in full if it is older."""
        opened = partial(self._read_briefly, ACCOUNT_STORE) if self.exists(ACCOUNT_STORE) else reading_nothing
        with suppress(StoreUnavailable), opened():
            return cast("StoreDatabase", _ReadBriefly(opened))
        return super().account()


class _ReadBriefly(NamedTuple):
    """A store that is opened briefly for each transaction that reads it."""

    reading: Callable[[], AbstractContextManager[Connection]]


def kind_of(name: str) -> Kind:
    """Return the kind of the database of a store."""
    return "account" if name == ACCOUNT_STORE else "workspace"


def _remove(folder: Path) -> None:
    """Remove a folder in which other processes may still create or remove the log of a database."""
    for attempts_left in range(_REMOVE_ATTEMPTS - 1, -1, -1):
        try:
            shutil.rmtree(folder)
            return
        except OSError as error:
            if not folder.exists():
                return
            if not attempts_left:
                raise StoreUnavailable(f"{folder} cannot be removed ({error}): try again") from error
