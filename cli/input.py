"""Input of the commands: the content of a file, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from reverie.errors import Rejected


def input_of(path: Path) -> bytes:
    """Return the content of a file, or of standard input for `-`. Raises `Rejected`."""
    return sys.stdin.buffer.read() if str(path) == "-" else bytes_of(path)


def bytes_of(path: Path) -> bytes:
    """Return the content of a file. Raises `Rejected`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Rejected(f"{path} cannot be read: {error.strerror}", field="file") from error
