"""Finds the data folder of a command.

A running supervisor registers its data folder in the user's state folder (`$XDG_STATE_HOME/reverie/running`).
An entry counts only while a supervisor holds the lock of its data folder, so one left by a SIGKILL does no harm.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from reverie.config import state_folder
from reverie.errors import Conflict
from worker.own_paths import check_own
from worker.supervision.data_lock import supervisor_pid

DEFAULT_NAME: Final = ".reverie"


class RunningStack(msgspec.Struct, frozen=True):
    """A data folder on which a supervisor runs."""

    data: str


def nearest_data_folder(start: Path) -> Path | None:
    """Return the folder `.reverie` in `start` or in the nearest folder above it.

    Raises `Rejected` if another user could have put it there: it decides which server gets the user's texts.
    """
    folders = (folder / DEFAULT_NAME for folder in (start, *start.parents))
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is not None:
        check_own(found, what="data folder", instead=f"To use it as it is, name it: --data {found}", field="data")
    return found


def find_data_folder(start: Path) -> Path | None:
    """Return the data folder for a command that is run in `start` without naming one; None if there is none yet.

    It is the nearest `.reverie` in `start` or above, else the folder of the running stack, else the user's own. Raises
    `Conflict` if several stacks run, and `Rejected` if the nearest one is not the user's own.
    """
    nearest = nearest_data_folder(start)
    if nearest is not None:
        return nearest
    running = running_stacks()
    if len(running) > 1:
        folders = ", ".join(stack.data for stack in running)
        raise Conflict(f"several instances of Reverie are running, in {folders}: name one with --data", field="data")
    if running:
        return Path(running[0].data)
    own = user_data_folder()
    return own if own.is_dir() else None


def default_data_folder() -> Path:
    """Return the data folder of a stack that is started here without naming one.

    It is the nearest `.reverie`, else the user's own. Raises `Rejected` if the nearest one is not the user's own.
    """
    return nearest_data_folder(Path.cwd()) or user_data_folder()


def user_data_folder() -> Path:
    """Return the folder for Reverie's data among the user's data of this platform.

    It is `~/.local/share/reverie` on Linux, unless `XDG_DATA_HOME` is set.
    """
    from platformdirs import user_data_path  # imported only here: few commands get this far, and it takes 5 ms

    return user_data_path("reverie", appauthor=False)


def running_stacks() -> list[RunningStack]:
    """Return the stacks of this user that run on this machine, by data folder."""
    try:
        files = sorted(_registry().glob("*.json"))
    except OSError:
        return []
    stacks = (_read(file) for file in files)
    return [stack for stack in stacks if stack is not None and _is_running(stack)]


@contextlib.contextmanager
def registered(data: Path) -> Iterator[None]:
    """Register a stack while it runs. It runs even if the state folder cannot be written."""
    from storage.private_files import write_private

    name = hashlib.sha256(str(data.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    entry = _registry() / f"{name}.json"
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(entry, msgspec.json.encode(RunningStack(str(data.resolve()))))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            entry.unlink(missing_ok=True)


def _registry() -> Path:
    return state_folder() / "running"


def _read(file: Path) -> RunningStack | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunningStack)
    except (OSError, ValueError, RecursionError):
        return None


def _is_running(stack: RunningStack) -> bool:
    try:
        return supervisor_pid(Path(stack.data)) is not None
    except OSError:
        return False
