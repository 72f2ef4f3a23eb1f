"""Searches the files of a data folder for texts, written again here, so that it does not rest on the product."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

from benchmarks.harness.folders import paths_below


def places_of(data: Path, *texts: str) -> set[str]:
    """Return the files that hold a text in any form, of those that exist until they are read."""
    forms: set[bytes] = set()
    for text in texts:
        plain = text.encode()
        forms |= {plain, json.dumps(text)[1:-1].encode(), text.encode("utf-16-le"), text.encode("utf-16-be")}
        forms |= {base64.b64encode(plain[skip:])[: len(plain) - 6] for skip in range(3)}
    found = set()
    for path in paths_below(data):
        try:
            raw = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:
            continue
        if "objects" in path.parts:
            raw += _inflated(raw)
        if any(form in raw for form in forms):
            found.add(str(path.relative_to(data)))
    return found


def _inflated(raw: bytes) -> bytes:
    try:
        return zlib.decompress(raw)
    except zlib.error:
        return b""
