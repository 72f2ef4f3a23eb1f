"""Data folders for stacks: names short enough for the broker's socket, and a listing while the stack writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# Where the folder of temporary files has a long name, as on macOS.
_SHORT: Final = "/tmp"
_LONGEST: Final = 24


def short_folder(prefix: str) -> Path:
    """Make a new data folder; the socket of its broker lies in it."""
    folder = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir=folder if len(folder) <= _LONGEST else _SHORT))


def paths_below(folder: Path) -> Iterator[Path]:
    """Yield every folder and file below a folder, except those that are removed before their turn comes.

    `Path.rglob` would raise FileNotFoundError for these. A path may be gone when the caller opens it.
    """
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))
