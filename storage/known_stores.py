"""Remembers the stores of a data folder, so that a store whose file was lost or replaced is not silently begun anew.

Each store has a file under `known/`, written when the store is created and removed when it is deleted. It holds the
store's identity, which SQLite keeps in the header of the database (`application_id`). A store without such a file (its
process was killed while it created the store) becomes known when it is next opened.

A store also has a version, which is advanced while the store is written (`user_version` in its header). Committed
versions are noted under `known/.versions/`: a file with a lower version is an older copy or lost its log.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from reverie.checks import is_workspace_name
from reverie.contract import ACCOUNT_STORE
from reverie.errors import StoreUnavailable, StoreUnusable
from storage.driver import IDENTITY
from storage.private_files import write_private

_FOLDER: Final = "known"
# A separate folder: these files change often, and every change to `known` makes processes read that folder again.
_VERSIONS: Final = ".versions"
# https://sqlite.org/fileformat2.html#the_database_header
_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
# Times of folders advance in timer ticks: a folder that was just changed may change again without a new time.
_SETTLED_NANOSECONDS: Final = 2_000_000_000
_VERSION: Final = slice(60, 64)


class KnownStores:
    """The known stores of a data folder. Thread-safe; several processes may use it at once."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / _FOLDER
        # The inode of the data folder, once a store in it was opened.
        self._inode: int | None = None
        self._lock = threading.Lock()
        self._kept: tuple[int, frozenset[str]] | None = None

    def names(self) -> frozenset[str]:
        """Return the names of the known stores."""
        try:
            changed_ns = self._folder.stat().st_mtime_ns
            with self._lock:
                if self._kept is None or self._kept[0] != changed_ns:
                    found = frozenset(one.name for one in self._folder.iterdir() if not one.name.startswith("."))
                    # A folder that was changed just now may change again without a new time.
                    if time.time_ns() - changed_ns < _SETTLED_NANOSECONDS:
                        return found
                    self._kept = (changed_ns, found)
                return self._kept[1]
        except OSError:
            return frozenset()

    def check(self, name: str, path: Path) -> bool:
        """Return whether the file of a store exists; False for an unknown store without a file.

        Raises `StoreUnusable` for a known store whose file is gone, for a file that is no database or another store's,
        or an older copy, and in a data folder that was removed or replaced; `StoreUnavailable` where it cannot be read.
        """
        if self._inode not in (None, self._inode_now()):
            raise StoreUnusable(
                f"the data folder {self._folder.parent} was removed or replaced while this process used it: put it"
                " back, and start Reverie again"
            )
        known = self._identity(name)
        try:
            is_file = stat.S_ISREG(path.stat().st_mode)
            header = b"" if not is_file else _header(path)
        except (FileNotFoundError, NotADirectoryError):
            if known is None:
                return False
            raise _unusable(name, f"{path} is gone") from None
        except OSError as error:
            raise StoreUnavailable(
                f"{path} cannot be read ({error.strerror}): check the permissions of its folder, and which user runs"
                " this"
            ) from error
        if not is_file:
            raise _unusable(name, f"{path} is no file")
        if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
            raise _unusable(name, f"{path} is damaged (it does not begin as a database)")
        found = int.from_bytes(header[IDENTITY], "big")
        if known and found and known != found:
            raise _unusable(name, f"{path} is the database of another store")
        if self._is_older(name, path) and self._is_older(name, path):  # read twice: a header may be half written
            raise StoreUnusable(
                f"{path} is older than the database that was here: stop Reverie and restore a newer backup of it,"
                f" or run {_accept(name)} to go on with this one"
            )
        return True

    def _is_older(self, name: str, path: Path) -> bool:
        """Return whether a store has a lower version than was noted; False while its log may contain a higher one.

        The order matters: the noted version is committed, and without a log it is in the file, which is read last.
        """
        with suppress(OSError, ValueError):
            identity, version = map(int, (self._folder / _VERSIONS / name).read_text().split())
            log = Path(f"{path.resolve()}-wal")  # the log of a linked file lies beside the file itself
            if not log.exists() or not log.stat().st_size:
                header = _header(path)
                found = int.from_bytes(header[_VERSION], "big")
                return int.from_bytes(header[IDENTITY], "big") == identity and found < version
        return False

    def note_version(self, name: str, identity: int, version: int) -> None:
        """Note that a store has committed this version. A concurrent older note may replace it, which does no harm."""
        note, path = f"{identity} {version}\n".encode(), self._folder / _VERSIONS / name
        with suppress(OSError):
            if path.read_bytes() == note:
                return
        with suppress(OSError):  # without space or rights the earlier note stays
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(path, note)

    def remember(self, name: str, path: Path, identity: int) -> None:
        """Note an opened store, unless it is known with this identity or was deleted meanwhile."""
        self._inode = self._inode or self._inode_now()
        if self._identity(name) == identity:
            return
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_private(self._folder / name, f"{identity}\n".encode())
        except OSError as error:
            raise StoreUnavailable(
                f"{self._folder} cannot be written ({error.strerror}): check free space and permissions of its disk"
            ) from error
        if not path.exists():  # deleted between its opening and this note
            self.forget(name)

    def forget(self, name: str) -> bool:
        """Forget a store, so that it can be begun anew; return whether it was known."""
        (self._folder / _VERSIONS / name).unlink(missing_ok=True)
        try:
            (self._folder / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _inode_now(self) -> int | None:
        with suppress(OSError):
            return self._folder.parent.stat().st_ino
        return None

    def _identity(self, name: str) -> int | None:
        """Return the identity of a known store, 0 where its note cannot be read; None for an unknown store."""
        try:
            text = (self._folder / name).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError):
            return 0
        with suppress(ValueError):
            return int(text)
        return 0


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES)


def _unusable(name: str, what: str) -> StoreUnusable:
    return StoreUnusable(f"{what}: stop Reverie and restore a backup of it, or run {_accept(name)} to begin it anew")


def _accept(name: str) -> str:
    return f"`reverie db accept {'--account' if name == ACCOUNT_STORE else name}`"


class WorkspaceNames:
    """The names of the workspaces in a folder. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._kept: tuple[int, list[str]] | None = None

    def all(self) -> list[str]:
        """Return the names of all workspaces, sorted; a folder with an invalid name (a manual copy) is left out."""
        try:
            changed_ns = self._folder.stat().st_mtime_ns
        except OSError:
            return []
        with self._lock:
            if self._kept is not None and self._kept[0] == changed_ns:
                return list(self._kept[1])
            is_settled = time.time_ns() - changed_ns > _SETTLED_NANOSECONDS
            names, is_complete = self._list()
            self._kept = (changed_ns, names) if is_settled and is_complete else None
            return list(names)

    def _list(self) -> tuple[list[str], bool]:
        """Return the names, and whether all folders have a database: adding one leaves the time of this folder."""
        try:
            with os.scandir(self._folder) as entries:
                folders = [entry.name for entry in entries if is_workspace_name(entry.name)]
        except OSError:
            return [], False
        names = [name for name in folders if os.path.exists(f"{self._folder}/{name}/memory.db")]  # noqa: PTH110 - thousands
        return sorted(names), len(names) == len(folders)
