"""Data sets as JSON lines, compressed or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_GZIP: Final = b"\x1f\x8b"


def read_json_lines(path: Path) -> Iterator[Any]:
    """Yield the value of each line that is not blank. Raises OSError and ValueError."""
    with path.open("rb") as look:
        opened = gzip.open if look.read(2) == _GZIP else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, filter(str.strip, lines))
