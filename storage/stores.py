"""The files of a data directory: one database for each workspace, one for the account, opened when first used.

A workspace that cannot be opened (corrupt, newer schema) is an error for that workspace alone.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Connection

from reverie.checks import check_workspace, is_workspace_name
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, StoreUnavailable
from storage.engine import Database
from storage.memories.memories import AllMemories, Memories
from storage.migrate import Kind, migrate
from storage.pipeline.chunks import Chunks
from storage.pipeline.dead_letters import DeadLetters
from storage.pipeline.files import Files
from storage.pipeline.messages import Messages
from storage.pipeline.work import Stage, WorkQueue, is_idle_file
from storage.recall.events import RecallEvents, RecallHistory
from storage.recall.forward import ForwardIndex
from storage.recall.found import FoundChunks
from storage.recall.index import SearchIndex
from storage.recall.standing import Standings
from storage.scheduling.due_schedules import DueSchedules
from storage.scheduling.goal_vectors import GoalVectors
from storage.scheduling.notifications import AllNotifications, Notifications
from storage.scheduling.reminders import AllReminders, Reminders
from storage.scheduling.runs import OpenRuns, ScheduleRuns
from storage.scheduling.schedules import Schedules
from storage.sessions.channels import Channels
from storage.sessions.lifecycle import AllSessionLives, SessionLife
from storage.sessions.scratchpads import Scratchpads
from storage.sessions.sessions import Sessions
from storage.sessions.summaries import AllSummaries, Summaries
from storage.upkeep.curation import CurationLog
from storage.upkeep.dreams import AllDreams, Dreams
from storage.upkeep.jobs import JobRuns
from storage.upkeep.leases import JobLeases
from storage.upkeep.retention import Retention
from storage.upkeep.usage import UsageLog

# Workspaces whose connections stay open in one process; the longest unused is closed first.
OPEN_WORKSPACES: Final = 16
# A file's time has the grain of a timer tick: what was written this recently may be written again unseen.
_SETTLED_NANOSECONDS: Final = 2_000_000_000
# A worker that closes a database folds its log away while the folder is being emptied: once or twice, not for ever.
_REMOVE_ATTEMPTS: Final = 5

_serials = itertools.count(1)


class AgentRows:
    """Everything of one agent within one transaction: a query without the agent cannot be written from here."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self.agent = agent
        self.sessions = Sessions(connection, agent)
        self.session_life = SessionLife(connection, agent)
        self.channels = Channels(connection, agent)
        self.scratchpads = Scratchpads(connection, agent)
        self.messages = Messages(connection, agent)
        self.files = Files(connection, agent)
        self.memories = Memories(connection, agent)
        self.curation = CurationLog(connection, agent)
        self.dreams = Dreams(connection, agent)
        self.summaries = Summaries(connection, agent)
        self.found = FoundChunks(connection, agent)
        self.forward = ForwardIndex(connection, agent)
        self.recalls = RecallHistory(connection, agent)
        self.standing = Standings(connection, agent)
        self.dead_letters = DeadLetters(connection, agent)
        self.schedules = Schedules(connection, agent)
        self.runs = ScheduleRuns(connection, agent)
        self.reminders = Reminders(connection, agent)
        self.notifications = Notifications(connection, agent)


class Transaction:
    """One transaction on a workspace, with its repositories."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.work = WorkQueue(connection)
        self.chunks = Chunks(connection)
        self.index = SearchIndex(connection)
        self.recalls = RecallEvents(connection)
        self.memories = AllMemories(connection)
        self.curation = CurationLog(connection)
        self.dreams = AllDreams(connection)
        self.leases = JobLeases(connection)
        self.session_lives = AllSessionLives(connection)
        self.retention = Retention(connection)
        self.summaries = AllSummaries(connection)
        self.dead_letters = DeadLetters(connection)
        self.due_schedules = DueSchedules(connection)
        self.open_runs = OpenRuns(connection)
        self.goal_vectors = GoalVectors(connection)
        self.reminders = AllReminders(connection)
        self.notifications = AllNotifications(connection)

    def for_agent(self, agent: str) -> AgentRows:
        """The repositories of one agent."""
        return AgentRows(self.connection, agent)


class Store:
    """The memory of one workspace."""

    def __init__(self, name: str, database: Database) -> None:
        self.name = name
        self.database = database
        # Tells this opened file from another of the same name: one that was deleted and made anew.
        self.serial = next(_serials)
        self.inode = _inode(database.path)

    @contextmanager
    def writing(self, *, lock_wait_seconds: float | None = None) -> Iterator[Transaction]:
        """A transaction that holds the write lock and commits whole or not at all.

        Raises `StoreUnavailable` when another writer holds it for longer than `lock_wait_seconds` (30 s by default).
        """
        with self.database.atomic(lock_wait_seconds=lock_wait_seconds) as connection:
            yield Transaction(connection)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A read-only transaction: one state of the file, waiting for nobody."""
        with self.database.reading() as connection:
            yield Transaction(connection)


class FileStamp(NamedTuple):
    """What changes whenever a workspace's files are written: size and time of the database and of its log."""

    size: int
    modified_ns: int
    log_size: int
    log_modified_ns: int

    @property
    def written_ns(self) -> int:
        """When either of them was last written."""
        return max(self.modified_ns, self.log_modified_ns)

    def settled(self, now: int) -> bool:
        """Whether the same stamp later on means that nothing was written since; `now` in microseconds."""
        return now * 1_000 - self.written_ns > _SETTLED_NANOSECONDS


class Stores:
    """All databases below one data directory, for one process. Open it after a fork, never before."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._lock = threading.RLock()
        self._open: OrderedDict[str, Store] = OrderedDict()
        self._account: Database | None = None
        self._account_store: Store | None = None

    def workspace(self, name: str, *, create: bool = True) -> Store:
        """The store of a workspace, made and migrated where needed. Raises `NotFound` without `create`."""
        if name == ACCOUNT_STORE:
            return self.account_store()
        path = self.path_of(name)
        with self._lock:
            store = self._open.get(name)
            if store is not None and store.inode == _inode(path):
                self._open.move_to_end(name)
                return store
            if store is not None:  # deleted, and perhaps made anew, by another process
                self._open.pop(name).database.close()
            if not create and not path.exists():
                raise NotFound(f"there is no workspace {name!r}", field="workspace")
            store = Store(name, _opened(path, "workspace"))
            self._open[name] = store
            while len(self._open) > OPEN_WORKSPACES:
                self._open.popitem(last=False)[1].database.close()
            return store

    def account(self) -> Database:
        """The database of what holds across workspaces."""
        with self._lock:
            if self._account is None:
                self._account = _opened(self._data_dir / "account.db", "account")
            return self._account

    def account_store(self) -> Store:
        """The memories of the account tier, which hold in every workspace: a store like any other, in account.db."""
        with self._lock:
            if self._account_store is None:
                self._account_store = Store(ACCOUNT_STORE, self.account())
            return self._account_store

    def jobs(self) -> JobRuns:
        """The runs of periodic jobs."""
        return JobRuns(self.account())

    def usage(self) -> UsageLog:
        """What the language model was used for."""
        return UsageLog(self.account())

    def names(self) -> list[str]:
        """The workspaces that exist; a folder under any other name (a copy made by hand) is none."""
        found = (path.parent.name for path in (self._data_dir / "workspaces").glob("*/memory.db"))
        return sorted(name for name in found if is_workspace_name(name))

    def all_names(self) -> list[str]:
        """Every store there is: the account's, once there is one, and the workspaces."""
        account = [ACCOUNT_STORE] if self.path_of(ACCOUNT_STORE).exists() else []
        return [*account, *self.names()]

    def path_of(self, name: str) -> Path:
        """Where a store's database lies. Raises `Rejected` for a name that could leave the folder."""
        if name == ACCOUNT_STORE:
            return self._data_dir / "account.db"
        return self._data_dir / "workspaces" / check_workspace(name) / "memory.db"

    def stamp(self, name: str) -> FileStamp | None:
        """When a workspace was last written, for the price of two file look-ups; None when it does not exist."""
        path = self.path_of(name)
        try:
            main = path.stat()
        except FileNotFoundError:
            return None
        try:
            log = path.with_name(f"{path.name}-wal").stat()
        except FileNotFoundError:
            return FileStamp(main.st_size, main.st_mtime_ns, 0, 0)
        # An empty log says the same as none: opening and closing the file makes and removes it.
        return FileStamp(main.st_size, main.st_mtime_ns, log.st_size, log.st_mtime_ns if log.st_size else 0)

    def is_idle(self, name: str, stages: Sequence[Stage]) -> bool:
        """Whether nothing is left to do in a workspace, asked without opening its whole store: 0.3 ms, not 3."""
        with self._lock:
            if name in self._open or (name == ACCOUNT_STORE and self._account is not None):
                return False  # the caller asks the open store itself
        return is_idle_file(self.path_of(name), stages)

    def delete_workspace(self, name: str) -> bool:
        """Remove a workspace with all its files; False when there was none. Raises `StoreUnavailable`."""
        folder = self.path_of(name).parent
        with self._lock:
            store = self._open.pop(name, None)
            if store is not None:
                store.database.close()
            if not folder.exists():
                return False
            _remove(folder)
            return True

    def close(self) -> None:
        """Close every connection of this process."""
        with self._lock:
            for store in self._open.values():
                store.database.close()
            self._open.clear()
            if self._account is not None:
                self._account.close()
                self._account = self._account_store = None


def _remove(folder: Path) -> None:
    """Remove a folder in which other processes may still make or remove the log of a database."""
    for left in range(_REMOVE_ATTEMPTS - 1, -1, -1):
        try:
            shutil.rmtree(folder)
            return
        except OSError as error:
            if not folder.exists():
                return
            if not left:
                raise StoreUnavailable(f"{folder} cannot be removed ({error}): try again") from error


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _cannot_be_made(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"{path} cannot be made ({error}): check the space and the rights on its disk")


def _opened(path: Path, kind: Kind) -> Database:
    try:
        for folder in [*reversed(path.parent.parents), path.parent]:  # mkdir(parents=True) would leave them open to all
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            # SQLite would make it readable for all; its log and shared-memory files take over the mode of this one.
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise _cannot_be_made(path, error) from error
    database = Database(path)
    try:
        migrate(database, kind)
    except OSError as error:  # of the lock file
        database.close()
        raise _cannot_be_made(path, error) from error
    except BaseException:  # whatever it was goes on its way; only the open file must not stay behind
        database.close()
        raise
    return database
