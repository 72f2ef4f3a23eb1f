"""Data folders for stacks, with names short enough for the broker's socket."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

# Where the folder of temporary files has a long name, as on macOS.
_SHORT: Final = "/tmp"
_LONGEST: Final = 24


def short_folder(prefix: str) -> Path:
    """Make a new data folder; the socket of its broker lies in it."""
    folder = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir=folder if len(folder) <= _LONGEST else _SHORT))
