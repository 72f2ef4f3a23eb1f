"""Closes the gaps that a full disk leaves in the embedded broker's append-only files, so that it starts again.

After a partial write, valkey-server removes the written part but continues behind it, unless it opened the file when it
started. This leaves a gap of NUL bytes between two commands. At the next partial write, the server removes that many
bytes too many, so the gap follows half a command. The server refuses to load such a file ("Bad file format") and would
never start again. No command can begin with NUL, so gaps can be recognised.

`broker_sync` makes a running server rewrite a file with a gap; this module is for servers that are killed before. For a
broker that Reverie does not start: `python -m worker.supervision.append_only FOLDER`, while it does not run.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from storage.private_files import private_folder

# A gap begins after the line break of a whole command, or has at least two NULs; few texts have either.
_SUSPICIOUS: Final = (b"\n\0", b"\0\0")
_LINE_BYTES: Final = 32
_NUL: Final = 0

log = structlog.get_logger(__name__)


class _Damaged(Exception):
    """The bytes at a position are no command."""


def close_gaps(folder: Path) -> int:
    """Remove gaps, and the half commands before them, from the files of `folder`; return the bytes removed.

    A file with other damage, or one that cannot be written, stays as it is; both cases are logged.
    """
    removed = 0
    for path in sorted(folder.glob("*.incr.aof")):
        try:
            removed += _close_gaps_of(path)
        except (OSError, _Damaged) as error:
            log.warning("broker_file_not_repaired", path=str(path), error=str(error))
    return removed


def _close_gaps_of(path: Path) -> int:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if all(content.find(sign) < 0 for sign in _SUSPICIOUS):
                return 0
            kept = list(_sound_parts(content))
            if kept in ([(0, size)], []):
                return 0
            _write_parts(path, content, kept)
    removed = size - sum(end - start for start, end in kept)
    log.warning("broker_file_repaired", path=str(path), removed_bytes=removed, gaps=len(kept) - 1)
    return removed


def _sound_parts(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Yield the parts between gaps, each from the first to the last complete command outside an open transaction.

    The end of the file may be half a command, which the server itself removes. Raises `_Damaged`.
    """
    start = position = safe = 0
    is_open = False
    while position < len(content):
        try:
            following, name = _command(content, position)
        except _Damaged:
            gap = content.find(b"\0\0", position)
            # At the beginning of a command, a gap may have a single byte.
            begin = position if content[position] == _NUL else gap
            if begin < 0:
                if _is_cut(content, position):
                    break
                raise
            yield start, safe
            position = _end_of_gap(content, begin)
            start, safe, is_open = position, position, False
            continue
        position = following
        is_open = (is_open or name == b"MULTI") and name != b"EXEC"
        if not is_open:
            safe = position
    yield start, len(content)


def _command(content: mmap.mmap, position: int) -> tuple[int, bytes]:
    """Return where the command at a position ends, and its name in capitals. Raises `_Damaged`."""
    if content[position : position + 1] == b"#":  # an annotation
        end = content.find(b"\n", position)
        if end < 0:
            raise _Damaged(f"half an annotation at byte {position}")
        return end + 1, b""
    count, position = _number(content, position, b"*")
    name = b""
    for number in range(count):
        length, position = _number(content, position, b"$")
        end = position + length
        if content[end : end + 2] != b"\r\n":
            raise _Damaged(f"no end of a text at byte {end}")
        if number == 0:
            name = content[position:end].upper()
        position = end + 2
    return position, name


def _number(content: mmap.mmap, position: int, kind: bytes) -> tuple[int, int]:
    end = content.find(b"\r\n", position, position + _LINE_BYTES)
    digits = content[position + 1 : end] if end >= 0 else b""
    if content[position : position + 1] != kind or not digits.isdigit():
        raise _Damaged(f"no command at byte {position}")
    return int(digits), end + 2


def _is_cut(content: mmap.mmap, position: int) -> bool:
    """Return whether the file ends within the command at a position."""
    try:
        count, position = _number(content, position, b"*")
        for _ in range(count):
            length, position = _number(content, position, b"$")
            position += length + 2
            if position > len(content):
                return True
    except _Damaged:
        return len(content) - position < _LINE_BYTES
    return False


def _end_of_gap(content: mmap.mmap, position: int) -> int:
    step = 65_536
    while position < len(content):
        part = content[position : position + step]
        rest = part.lstrip(b"\0")
        position += len(part) - len(rest)
        if rest:
            break
    return position


def _write_parts(path: Path, content: mmap.mmap, parts: list[tuple[int, int]]) -> None:
    """Replace `path` by a file with these parts, which is flushed to disk before the replacement."""
    draft = private_folder(path.parent) / f"{path.name}.repaired"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for start, end in parts:
                for position in range(start, end, 1_048_576):
                    file.write(content[position : min(end, position + 1_048_576)])
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def main(*arguments: str) -> None:
    """Close the gaps in the files of the one folder that is named, and print how many bytes were removed."""
    if len(arguments) != 1:
        sys.exit("name the folder of the broker's append-only files, which is called appendonlydir")
    folder = Path(arguments[0])
    if not any(folder.glob("*.incr.aof")):
        sys.exit(f"{folder} has no append-only files (*.incr.aof): name the broker's folder appendonlydir")
    print(f"{close_gaps(folder):,} bytes were removed")  # noqa: T201 - for the person at the terminal


if __name__ == "__main__":
    main(*sys.argv[1:])
