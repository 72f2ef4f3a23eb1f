"""The folders in which a host keeps what belongs to workspaces, each marked with the store that it is of.

A workspace that was deleted on another host leaves its folder here, and a later one of its name must not get it. So a
process that first uses a store looks at the mark, and each host removes the folders of stores that are gone. Folders
without a mark are left alone: nobody has used them with this database, and they may hold files of SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from reverie.errors import StoreUnavailable
from storage.private_files import write_private

MARK: Final = "store.id"
_LOCK: Final = "workspaces.lock"
# Renaming folders takes milliseconds.
_LOCK_SECONDS: Final = 30.0


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, for the user alone. Raises `StoreUnavailable`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be created ({error}): check free space and permissions") from error


def claim_folder(data_dir: Path, folder: Path, store: str, set_aside: Callable[[Path], Path]) -> Path | None:
    """Make a store's folder on this host, or mark it as the store's; return where the one before was moved, if any.

    `store` is what tells the store from all others: its database and its key. What another database has left in the
    folder stays: whoever points a data folder to another one wants to keep it. Raises `StoreUnavailable`.
    """
    if _mark_of(folder) == store:
        return None
    with _locked(data_dir):
        mark = _mark_of(folder)
        if mark == store:
            return None
        is_of_another = mark is not None and mark.split()[0] == store.split()[0]
        moved = set_aside(folder) if is_of_another else None
        make_folder(folder)
        try:
            write_private(folder / MARK, store.encode())
        except OSError as error:
            raise StoreUnavailable(f"{folder / MARK} cannot be written ({error}): check the disk") from error
        return moved


def move_foreign_folders(
    data_dir: Path, installation: str, present: Callable[[], Mapping[str, str]], set_aside: Callable[[Path], Path]
) -> dict[str, Path]:
    """Move the folders of stores that a database does not have any more; return where they are now, by their names.

    `present` returns the keys of the stores that the database has, by name. Raises `StoreUnavailable`.
    """
    with _locked(data_dir):
        # Before the stores are read: a store is in the database before it has a folder.
        marks = {folder: mark for folder in _folders(data_dir) if (mark := _mark_of(folder)) is not None}
        own = {folder: key for folder, mark in marks.items() for base, key in [mark.split()] if base == installation}
        keys = present() if own else {}
        return {folder.name: set_aside(folder) for folder, key in own.items() if keys.get(folder.name) != key}


def _folders(data_dir: Path) -> list[Path]:
    try:
        return [path for path in (data_dir / "workspaces").iterdir() if path.is_dir() and not path.is_symlink()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnavailable(f"{data_dir / 'workspaces'} cannot be read ({error}): check its permissions") from error


def _mark_of(folder: Path) -> str | None:
    """Return the mark of a folder; None without one, or with one that a full disk left incomplete."""
    try:
        mark = (folder / MARK).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{folder / MARK} cannot be read ({error}): check its permissions") from error
    return mark if len(mark.split()) == 2 else None


@contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    lock = FileLock(data_dir / _LOCK, timeout=_LOCK_SECONDS, mode=0o600)
    make_folder(data_dir)
    try:
        lock.acquire()
    except Timeout as error:
        raise StoreUnavailable(f"{data_dir / _LOCK} is held by another process: try again") from error
    except OSError as error:
        raise StoreUnavailable(
            f"{data_dir / _LOCK} cannot be used ({error}): check free space and permissions"
        ) from error
    try:
        yield
    finally:
        lock.release()
