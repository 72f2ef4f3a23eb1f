"""Read JSON Lines that another program has written, one line at a time and whatever is wrong with some of them."""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeVar

import msgspec

from adapters.histories.reading import Reading

_T = TypeVar("_T")

_LINE_BYTES: Final = 64 * 1024 * 1024
# How much of a file's end is searched for its last time, and of both ends for its title.
_TAIL_BYTES: Final = 256 * 1024
_TIME: Final = re.compile(rb'"timestamp":\s?"([0-9T:.+Z-]{10,40})"')
# Seconds since 1970 in a text; fewer digits are a date such as 20260501.
_NUMBER: Final = re.compile(r"[0-9]{9,13}(\.[0-9]{1,9})?")
_OTHER_ENCODINGS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Line(NamedTuple):
    """A line of a file: its number, where it is, and its text."""

    number: int
    where: str
    text: bytes


def lines_of(file: Path, reading: Reading) -> Iterator[Line]:
    """Yield the lines of a file that are not blank. Raises `OSError`."""
    with file.open("rb") as opened:
        begin = opened.read(4)
        if begin[:2] in _OTHER_ENCODINGS:
            reading.leave("files in UTF-16: convert them with `iconv -f utf-16 -t utf-8`", file.name)
            return
        opened.seek(len(codecs.BOM_UTF8) if begin.startswith(codecs.BOM_UTF8) else 0)
        number = 0
        while text := opened.readline(_LINE_BYTES):
            number += 1
            where = f"{file.name}:{number}"
            if len(text) == _LINE_BYTES:
                reading.leave("lines of more than 64 MiB", where)
                _skip_line(opened)
            elif not text.isspace():
                yield Line(number, where, text)
            reading.progress(opened.tell())


def decoded_lines(file: Path, reading: Reading, decoder: msgspec.json.Decoder[_T]) -> Iterator[tuple[Line, _T]]:
    """Yield what the lines of a file hold; those that cannot be decoded are left out. Raises `OSError`."""
    for line in lines_of(file, reading):
        found = decoded(line.text, line.where, reading, decoder)
        if found is not None:
            yield line, found


def decoded(text: bytes, where: str, reading: Reading, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    """Return what a JSON text holds, None if it cannot be decoded, which is counted."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        reading.leave("entries of an unknown shape", f"{where}: {error}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cut_off = not text.endswith((b"\n", b"}"))
        reading.leave("lines that are cut off" if cut_off else "lines that are not JSON", f"{where}: {error}")
    return None


def decoded_json(text: Any) -> Any:
    """Return what is in a JSON text, and anything else as it is."""
    if isinstance(text, str):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return text
    return text


def ends_of(file: Path) -> bytes:
    """Return the beginning and the end of a file, all of it if it is short. Raises `OSError`."""
    with file.open("rb") as opened:
        begin = opened.read(_TAIL_BYTES)
        opened.seek(max(len(begin), opened.seek(0, 2) - _TAIL_BYTES))
        return begin + opened.read()


def last_time(file: Path, field: re.Pattern[bytes] = _TIME) -> datetime:
    """Return the last time that a file names in a field, else when it was last changed. Raises `OSError`."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - _TAIL_BYTES))
        times = field.findall(opened.read())
    for text in reversed(times):
        if (found := moment(text.decode())) is not None:
            return found
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def moment(value: Any) -> datetime | None:
    """Return a time that another program wrote, None for what is none: RFC 3339, or seconds or milliseconds since 1970.

    A time without a zone is UTC.
    """
    if isinstance(value, bool):
        return None
    found: datetime | None = None
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value)
        if isinstance(value, str):
            found = datetime.fromisoformat(value.strip())
        elif isinstance(value, (int, float)) and value > 0:
            # More than this many seconds is after the year 5000: then they are milliseconds.
            found = datetime.fromtimestamp(value if value < 1e11 else value / 1000, UTC)
    if found is not None and found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return found


def _skip_line(opened: IO[bytes]) -> None:
    while (rest := opened.readline(_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass
