"""How two states of some text files differ, as unified text. Bounded: nothing hostile in a file makes it slow."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

# What a person reads, and what an answer may weigh.
MOST_CHARACTERS: Final = 1024 * 1024
# Lines against lines: beyond this many pairs, comparing takes seconds, and the file is shown as replaced.
_MOST_PAIRS: Final = 4_000_000


def unified(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """The differences of all files in the order of their paths; empty where there are none."""
    parts: list[str] = []
    room = MOST_CHARACTERS
    for path in sorted({*before, *after}):
        if before.get(path) == after.get(path):
            continue
        for line in _of_file(path, before.get(path), after.get(path)):
            room -= len(line) + 1
            if room < 0:
                return "".join(parts) + "... the rest is left out: it is too long\n"
            parts.append(line + "\n")
    return "".join(parts)


def _of_file(path: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    yield "--- " + ("/dev/null" if before is None else f"a/{path}")
    yield "+++ " + ("/dev/null" if after is None else f"b/{path}")
    old, new = _lines(before), _lines(after)
    if len(old) * len(new) > _MOST_PAIRS:
        yield f"@@ -1,{len(old)} +1,{len(new)} @@"
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    # Its first two lines name the files: that is said already.
    for number, line in enumerate(difflib.unified_diff(old, new, lineterm="")):
        if number >= 2:
            yield line


def _lines(content: bytes | None) -> list[str]:
    """Lines as git counts them: only a line feed ends one."""
    lines = (content or b"").decode(errors="replace").split("\n")
    return lines[:-1] if lines[-1] == "" else lines
