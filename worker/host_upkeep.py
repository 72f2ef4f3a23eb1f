"""Opens the stores of this host, and looks after its files where several hosts share a database.

All long-lived processes of a host have a thread for this, and the process that holds a lock in the data folder works:
at its start, every two seconds for erasures and deletions on other hosts, and every hour for the memory files. If that
process dies, another one goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import cache
from typing import Final

import structlog

from adapters.workspace_git import GitFolders
from memory.lifecycle.host_folder import HostFolder, leading, share_keys
from memory.secrets import looks_secret
from memory.upkeep.notebook import Notebooks
from reverie.clock import now_micros
from reverie.errors import ReverieError
from storage.opened import hosts_of, open_stores
from storage.stores import FileStamp, Stores
from worker.settings import Settings

POLL_SECONDS: Final = 2.0
_REFRESH_SECONDS: Final = 3_600.0
# A server is busy with requests: it waits this long so that workers of its host, if there are any, do the work.
SERVER_WAITS_SECONDS: Final = 20.0

log = structlog.get_logger(__name__)


def open_own_stores(
    settings: Settings, *, patience_seconds: float | None = None, kept_connections: int | None = None
) -> Stores:
    """Open the stores, whose hosts share their keys; see `open_stores` for the rest."""
    stores = open_stores(
        settings.data,
        settings.database,
        patience_seconds=patience_seconds,
        connections=settings.database_connections,
        kept_connections=kept_connections,
    )
    with ExitStack() as on_error:
        on_error.callback(stores.close)
        share_keys(stores)
        on_error.pop_all()
    return stores


def host_folder(settings: Settings, stores: Stores, now: Callable[[], int]) -> HostFolder | None:
    """Return this host's data folder among those that share the stores; None for stores in files."""
    hosts = hosts_of(stores)
    if hosts is None:
        return None
    # Even with `workspace_git` off: there may be files from earlier.

    @cache  # only a success is cached: once is enough for a process
    def join() -> None:
        folder.join()

    repositories = GitFolders(settings.data, looks_secret, before_commit=join)
    notebooks = Notebooks(repositories, trust=settings.trust)
    folder = HostFolder(stores, hosts, notebooks, now)
    return folder


def start_host_upkeep(settings: Settings, *, first_after_seconds: float = 0.0) -> HostUpkeep | None:
    """Start the thread of this process, after any fork; None if the stores are files of this host."""
    return None if settings.database is None else HostUpkeep(settings, first_after_seconds=first_after_seconds)


class HostUpkeep:
    """A thread that looks after the host's files unless another process of the host does."""

    def __init__(self, settings: Settings, *, first_after_seconds: float = 0.0) -> None:
        self._settings = settings
        self._first_after_seconds = first_after_seconds
        self._closing = threading.Event()
        self._error: str | None = None  # None: not known, because an earlier process may have reported an error
        self._thread = threading.Thread(target=self._run, name="host-upkeep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after its current work."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        wait = self._first_after_seconds
        while not self._closing.wait(wait):
            wait = POLL_SECONDS
            try:
                with leading(self._settings.data) as is_leading:
                    if is_leading:
                        self._lead()
            except ReverieError as error:  # the database or the disk: the next round tries again
                self._note(None, str(error))

    def _lead(self) -> None:
        """Look after the files until this process ends, with connections other than those of tasks."""
        with closing(open_own_stores(self._settings)) as stores:
            folder = host_folder(self._settings, stores, now_micros)
            assert folder is not None
            seen: dict[str, FileStamp] = {}
            refreshed = -_REFRESH_SECONDS
            while True:
                try:
                    counts = folder.look()
                    if time.monotonic() - refreshed >= _REFRESH_SECONDS:
                        refreshed = time.monotonic()
                        counts["refreshed"] = folder.refresh(seen)
                    if any(counts.values()):
                        log.info("host_files_kept_true", **counts)
                    self._note(folder, "")
                except ReverieError as error:  # the next round tries again
                    self._note(folder, str(error))
                if self._closing.wait(POLL_SECONDS):
                    return

    def _note(self, folder: HostFolder | None, error: str) -> None:
        """Log an error and tell all hosts of it, unless it is the same as before."""
        if error == self._error:
            return
        self._error = error
        if error:
            log.warning("host_files_not_kept_true", error=error)
        if folder is not None:
            with suppress(ReverieError):  # the database itself may have failed
                folder.note_error(error)
