"""Unified diffs of sets of text files, bounded in size and time whatever the files contain."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

# Limit of a readable diff, and of the size of a response.
MAX_CHARACTERS: Final = 1024 * 1024
# Product of the line counts: beyond this, a comparison takes seconds, and the file is shown as replaced.
_MAX_LINE_PAIRS: Final = 4_000_000


def unified(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """Return the differences of all files, ordered by path; empty if there are none."""
    parts: list[str] = []
    room = MAX_CHARACTERS
    for path in sorted({*before, *after}):
        if before.get(path) == after.get(path):
            continue
        for line in _file_diff(path, before.get(path), after.get(path)):
            room -= len(line) + 1
            if room < 0:
                return "".join(parts) + "... the rest is omitted: it is too long\n"
            parts.append(line + "\n")
    return "".join(parts)


def _file_diff(path: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    yield "--- " + ("/dev/null" if before is None else f"a/{path}")
    yield "+++ " + ("/dev/null" if after is None else f"b/{path}")
    old, new = _lines(before), _lines(after)
    if len(old) * len(new) > _MAX_LINE_PAIRS:
        yield f"@@ -1,{len(old)} +1,{len(new)} @@"
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    # Skip the first two lines, which name the files.
    for number, line in enumerate(difflib.unified_diff(old, new, lineterm="")):
        if number >= 2:
            yield line


def _lines(content: bytes | None) -> list[str]:
    """Split into lines as git does: only at line feeds."""
    lines = (content or b"").decode(errors="replace").split("\n")
    return lines[:-1] if lines[-1] == "" else lines
