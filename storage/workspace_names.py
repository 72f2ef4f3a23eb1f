"""Lists the workspaces of a data folder; a listing is kept until a workspace is created or deleted."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

from reverie.checks import is_workspace_name

# Times of folders advance in timer ticks: one that was changed this recently may be changed again without a new time.
_SETTLED_NANOSECONDS: Final = 2_000_000_000


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
        """Return the names, and whether every folder has its database: one that gets it later does not change this."""
        try:
            with os.scandir(self._folder) as entries:
                folders = [entry.name for entry in entries if is_workspace_name(entry.name)]
        except OSError:
            return [], False
        names = [name for name in folders if os.path.exists(f"{self._folder}/{name}/memory.db")]  # noqa: PTH110 - thousands
        return sorted(names), len(names) == len(folders)
