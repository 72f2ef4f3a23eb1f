"""Searches every file of the data folder, byte by byte, for what was erased."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memory.trust.fragments import WIDE, FragmentSet, HashKey, Matcher

_BLOCK_BYTES: Final = 1 << 20
# Files that hold no content by their making: the shared memory of SQLite has page numbers only.
_SKIPPED: Final = ("-shm",)


@dataclass(slots=True)
class Found:
    """What was searched, and in which files something was found: the windows by the path in the data folder."""

    files: int = 0
    bytes: int = 0
    hits: dict[str, FragmentSet] = field(default_factory=dict)

    def leftovers(self, explained: FragmentSet) -> dict[str, int]:
        """Return how many windows each file has that live rows do not explain."""
        left = {path: len(found.without(explained)) for path, found in self.hits.items()}
        return {path: number for path, number in left.items() if number}


def search_files(data: Path, key: HashKey, wanted: FragmentSet, *, on_block: Callable[[], None]) -> Found:
    """Search all files below a folder, objects of git decompressed; `on_block` is called after each megabyte.

    Files that disappear meanwhile, and sockets, are left out.
    """
    found, matcher = Found(), Matcher(key, wanted)
    for path in _files(data):
        hits = FragmentSet()
        try:
            for block in _blocks(path):
                hits.add(matcher.found_in(block))
                found.bytes += len(block)
                on_block()
        except FileNotFoundError:
            continue
        found.files += 1
        if len(hits):
            found.hits[str(path.relative_to(data))] = hits
    return found


def _files(data: Path) -> Iterator[Path]:
    for path in sorted(data.rglob("*")):
        if path.is_file() and not path.is_symlink() and not path.name.endswith(_SKIPPED):
            yield path


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield a file in blocks that overlap by a window, and behind them what it holds compressed."""
    with path.open("rb") as file:
        before = b""
        while block := file.read(_BLOCK_BYTES):
            yield before + block
            before = (before + block)[-WIDE + 1 :]
    if "objects" in path.parts:
        yield from _decompressed(path.read_bytes())


def _decompressed(raw: bytes) -> Iterator[bytes]:
    """Yield every zlib stream in an object or a pack of git, wherever it begins; a delta holds its own text."""
    at = 0
    while at < len(raw):
        at = raw.find(b"\x78", at)
        if at < 0:
            return
        stream = zlib.decompressobj()
        try:
            yield stream.decompress(raw[at:])
        except zlib.error:
            at += 1
            continue
        at = len(raw) - len(stream.unused_data) if stream.eof else at + 1
