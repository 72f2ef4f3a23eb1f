"""Overwrites, in log files, the ids of what was erased; a line keeps its length, because its process still appends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from memory.trust.fragments import FragmentSet, HashKey, Matcher

# What may be an id in a line: of JSON everything between quotes, or behind one that is not closed, and otherwise
# whatever has no blank.
_QUOTED: Final = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)("?)')
_BARE: Final = re.compile(rb"[^\s\"'=,;()\[\]{}]+")
_BLOCK_BYTES: Final = 1 << 20


def redact_logs(folder: Path, key: HashKey, erased: FragmentSet) -> int:
    """Overwrite the ids and texts of a set in all log files of a folder; return in how many lines."""
    names, matcher = {int(name) for name in erased.names}, Matcher(key, erased)
    return sum(_redact_file(path, key, names, matcher) for path in sorted(folder.glob("*.log*")) if path.is_file())


def blank_logs(folder: Path) -> int:
    """Overwrite all lines of all log files of a folder; return how many. For a host that nobody can tell what to."""
    return sum(_blank_file(path) for path in sorted(folder.glob("*.log*")) if path.is_file())


def _blank_file(path: Path) -> int:
    blanked, at = 0, 0
    with path.open("r+b") as file:
        while lines := file.readlines(_BLOCK_BYTES):
            clean = b"".join(b"*" * (len(line) - 1) + b"\n" for line in lines if line.endswith(b"\n"))
            file.seek(at)
            file.write(clean)
            file.flush()
            at += len(clean)
            blanked += clean.count(b"\n")
            if not lines[-1].endswith(b"\n"):  # a process is writing it
                break
            file.seek(at)
    return blanked


def _redact_file(path: Path, key: HashKey, names: set[int], matcher: Matcher) -> int:
    redacted = 0
    with path.open("r+b") as file:
        while True:
            start = file.tell()
            lines = file.readlines(_BLOCK_BYTES)
            if not lines:
                return redacted
            if lines[-1][-1:] != b"\n":  # a process is writing it
                lines.pop()
                if not lines:
                    return redacted
            block = b"".join(lines)
            clean, number = _redacted(block, key, names, matcher)
            if number:
                file.seek(start)
                file.write(clean)
                file.flush()
                redacted += number
            file.seek(start + len(block))


def _redacted(block: bytes, key: HashKey, names: set[int], matcher: Matcher) -> tuple[bytes, int]:
    number = 0
    lines = block.splitlines(keepends=True)
    for position, line in enumerate(lines):
        clean = _BARE.sub(lambda found: _unless_named(found[0], found[0], key, names), line)
        clean = _QUOTED.sub(lambda found: b'"' + _unless_named(found[1], found[1], key, names) + found[2], clean)
        if matcher.is_in(clean):
            clean = b"*" * (len(line) - 1) + b"\n"
        if clean != line:
            lines[position] = clean
            number += 1
    return b"".join(lines), number


def _unless_named(token: bytes, shown: bytes, key: HashKey, names: set[int]) -> bytes:
    try:
        return b"*" * len(shown) if key.name(token.decode()) in names else shown
    except UnicodeDecodeError:
        return shown
