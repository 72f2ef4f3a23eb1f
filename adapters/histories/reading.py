"""Read somebody else's file: lines, arrays and tables, what was left out and why, and how far reading has come.

Whatever is wrong with a part of a history is counted with its place, and reading goes on.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple, TypeVar

import ijson
import msgspec
import pysqlite3

from reverie.errors import Rejected
from reverie.trust.exports import ExportedRecord

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
        start = _start_of(opened.read(4), file.name, reading)
        if start is None:
            return
        opened.seek(start)
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
    """Yield the decoded lines of a file; lines that cannot be decoded are left out. Raises `OSError`."""
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


def converted(value: Any, kind: type[_T], where: str, reading: Reading, *, reason: str) -> _T | None:
    """Return a decoded value as a struct, None if it has another shape, which is counted for this reason."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        reading.leave(reason, f"{where}: {error}")
        return None


def shown_branch(end: str | None, parents: Mapping[str, str | None]) -> list[str]:
    """Return the ids from the first message of a tree to `end`, by the parent of each message."""
    branch: dict[str, None] = {}
    while end is not None and end in parents and end not in branch:
        branch[end] = None
        end = parents[end]
    return [*reversed(branch)]


def ends_of(file: Path) -> bytes:
    """Return the beginning and the end of a file, all of it if it is short. Raises `OSError`."""
    with file.open("rb") as opened:
        begin = opened.read(_TAIL_BYTES)
        opened.seek(max(len(begin), opened.seek(0, 2) - _TAIL_BYTES))
        return begin + opened.read()


def last_time(file: Path) -> datetime:
    """Return the last time that a file names, else when it was last changed. Raises `OSError`."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - _TAIL_BYTES))
        times = _TIME.findall(opened.read())
    for text in reversed(times):
        if (found := moment(text.decode())) is not None:
            return found
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def moment(value: Any) -> datetime | None:
    """Return a time that another program wrote, None for an invalid one: RFC 3339, or seconds or milliseconds since
    1970.

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
            # As seconds, a larger number would be after the year 5000: it must be milliseconds.
            found = datetime.fromtimestamp(value if value < 1e11 else value / 1000, UTC)
    if found is not None and found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return found


def _start_of(begin: bytes, name: str, reading: Reading) -> int | None:
    """Return where the text of a file begins, None for one in UTF-16, which is counted."""
    if begin[:2] in _OTHER_ENCODINGS:
        reading.leave("files in UTF-16: convert them with `iconv -f utf-16 -t utf-8`", name)
        return None
    return len(codecs.BOM_UTF8) if begin.startswith(codecs.BOM_UTF8) else 0


def _skip_line(opened: IO[bytes]) -> None:
    while (rest := opened.readline(_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


# Exports of conversations have some twenty levels. The parser names the path of every value, so its memory grows with
# the square of the depth: 19 GB for two megabytes of brackets.
MAX_LEVELS: Final = 200
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKETS: Final = bytes(code for code in range(256) if code not in b"[]{}")


class BoundedNesting:
    """A file of JSON to be read from its beginning; `read` raises `ValueError` where it is nested too deeply."""

    def __init__(self, opened: IO[bytes]) -> None:
        self._opened = opened
        self._level = 0
        self._is_in_text = False
        self._half_escape = b""

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        import numpy as np  # takes longer than the help of `reverie import`

        found = self._opened.read(size)
        brackets = self._outside_texts(found).translate(None, _NO_BRACKETS)
        if brackets:
            is_opening = np.isin(np.frombuffer(brackets, dtype="S1"), (b"[", b"{"))
            levels = self._level + np.cumsum(np.where(is_opening, 1, -1))
            if levels.max() > MAX_LEVELS:
                raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")
            self._level = int(levels[-1])
        return found

    def _outside_texts(self, found: bytes) -> bytes:
        """Return what is not within quotation marks, which may have begun in the bytes before."""
        plain = _ESCAPED.sub(b"", self._half_escape + found)
        self._half_escape = b"\\" if plain.endswith(b"\\") else b""
        parts = plain.split(b'"')
        outside = b"".join(parts[int(self._is_in_text) :: 2])
        self._is_in_text ^= len(parts) % 2 == 0
        return outside


# A document without a list is read as a whole.
_WHOLE_BYTES: Final = 64 * 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024
_CUT_OFF: Final = "the rest of files that are cut off or no JSON"
# Raised for a file in an archive that is damaged, encrypted, or packed in a way that Python does not know. `ValueError`
# is also raised for a lone surrogate, which some programs write as an escape.
_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)


class Element(NamedTuple):
    """An element of an array, and where it is."""

    where: str
    value: Any


def elements_of(
    file: Path, reading: Reading, *, member: str | Sequence[str], lists: Sequence[str] = ()
) -> Iterator[Element]:
    """Yield the elements of a JSON array: the file itself, or one of these `lists` of an object in it.

    In a ZIP archive, the files that match a pattern of `member` are read. An object without such a list is the only
    element. The part that cannot be parsed, and everything after it, is left out. Raises `OSError`, and `Rejected` if
    the file has no such array.
    """
    for name, opened in _documents(file, member):
        try:
            yield from _elements(opened, name, reading, lists)
        except (ijson.JSONError, *_DAMAGED) as error:
            text = " ".join(str(error).split())[:100]
            reading.leave(_CUT_OFF, f"{name}: {text}")
        reading.progress(file.stat().st_size)


def values_at(
    file: Path, reading: Reading, prefix: str, *, member: str, counts_damage: bool = False
) -> Iterator[Element]:
    """Yield the value at a place of a JSON document: `user`, or the elements of a list such as `relations.item`.

    In a ZIP archive, the files that match `member` are read. A file that is cut off is counted only with
    `counts_damage`, because a file is read once for each place. Raises `OSError`, and `Rejected` for a damaged archive.
    """
    for name, opened in _documents(file, member):
        try:
            begin = _begin(opened)
            start = len(codecs.BOM_UTF8) if begin.startswith(codecs.BOM_UTF8) else 0
            if begin[start:].lstrip()[:1] != b"{":
                continue
            opened.seek(start)
            for number, value in enumerate(_items(opened, prefix, reading)):
                yield Element(f"{name}, {prefix.removesuffix('.item')}[{number}]", value)
        except (ijson.JSONError, *_DAMAGED) as error:
            if counts_damage:
                reading.leave(_CUT_OFF, f"{name}: {' '.join(str(error).split())[:100]}")


def _elements(opened: IO[bytes], name: str, reading: Reading, lists: Sequence[str]) -> Iterator[Element]:
    begin = _begin(opened)
    start = _start_of(begin, name, reading)
    if start is None:
        return
    is_list = begin[start:].lstrip()[:1] == b"["
    number = 0
    for prefix in ["item"] if is_list else [f"{key}.item" for key in lists]:
        opened.seek(start)
        for number, value in enumerate(_items(opened, prefix, reading), start=1):
            yield Element(f"{name}[{number - 1}]", value)
        if number:
            return
    if not is_list:
        opened.seek(0, 2)
        if opened.tell() > _WHOLE_BYTES:
            raise Rejected(f"it is one JSON object of more than 64 MiB, without a list {' or '.join(lists)}")
        opened.seek(start)
        yield from (Element(name, value) for value in _items(opened, "", reading))


def _items(opened: IO[bytes], prefix: str, reading: Reading) -> Iterator[Any]:
    for value in ijson.items(BoundedNesting(opened), prefix, use_float=True, buf_size=_BUFFER_BYTES):
        yield value
        if not isinstance(opened, zipfile.ZipExtFile):
            reading.progress(opened.tell())


def _begin(opened: IO[bytes]) -> bytes:
    begin = opened.read(4_096)
    opened.seek(0)
    return begin


def _matches(name: str, pattern: str) -> bool:
    """Return whether a pattern matches the last parts of a path, as many as the pattern has."""
    return fnmatch("/".join(PurePosixPath(name).parts[-1 - pattern.count("/") :]), pattern)


def _documents(file: Path, member: str | Sequence[str]) -> Iterator[tuple[str, IO[bytes]]]:
    if not zipfile.is_zipfile(file):
        with file.open("rb") as opened:
            yield file.name, opened
        return
    with contextlib.ExitStack() as closing:
        try:
            archive = closing.enter_context(zipfile.ZipFile(file))
        except _DAMAGED as error:
            raise Rejected(f"the archive is damaged: {error}", field="path") from error
        patterns = [member] if isinstance(member, str) else member
        names = sorted(name for name in archive.namelist() if any(_matches(name, pattern) for pattern in patterns))
        if not names:
            raise Rejected(f"the archive has no {patterns[0]}", field="path")
        for name in names:
            try:
                inner = closing.enter_context(archive.open(name))
            except _DAMAGED as error:
                raise Rejected(f"{name} of the archive is damaged: {error}", field="path") from error
            yield f"{file.name}/{name}", inner


_HEADER: Final = b"SQLite format 3\x00"
_BUSY_SECONDS: Final = 5.0


def is_database(file: Path) -> bool:
    """Return whether a file begins as a SQLite database does. Raises `OSError`."""
    with file.open("rb") as opened:
        return opened.read(len(_HEADER)) == _HEADER


@contextlib.contextmanager
def opened(file: Path) -> Iterator[Any]:
    """Open a database for reading. Raises `Rejected` if the file is no database, or damaged."""
    if not is_database(file):
        raise Rejected("it is no SQLite database", field="path")
    try:
        connection = pysqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
        connection.row_factory = pysqlite3.Row
        try:
            yield connection
        finally:
            connection.close()
    except pysqlite3.Error as error:
        raise Rejected(f"the database cannot be read: {error}", field="path") from error


def columns_of(connection: Any, table: str) -> set[str]:
    """Return the names of a table's columns; none if there is no such table."""
    return {row["name"] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def require_columns(connection: Any, table: str, *names: str) -> set[str]:
    """Return a table's columns. Raises `Rejected` unless it has all of these."""
    found = columns_of(connection, table)
    missing = [name for name in names if name not in found]
    if missing:
        what = "no table" if not found else f"no column {', '.join(missing)} in its table"
        raise Rejected(f"the database has {what} {table!r}: it is of another program or version", field="path")
    return found


# Places named for each reason.
_EXAMPLES: Final = 3


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for which something was left out, how often, and up to three places where."""

    reason: str
    number: int
    examples: list[str]


@dataclass(slots=True)
class Reading:
    """Reading one history into an agent of a workspace.

    `cut` counts texts that were shortened, `notes` says what a person should know. `progress` gets the bytes read of
    the current file.
    """

    workspace: str
    agent: str
    progress: Callable[[int], None] = lambda _bytes: None
    cut: int = 0
    notes: list[str] = field(default_factory=list)
    _numbers: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, list[str]] = field(default_factory=dict)
    _sessions: dict[str, str] = field(default_factory=dict)

    def belongs_to(self, entry: str, session: str) -> str:
        """Return the session in which an entry was read first, which is this one if it is new."""
        return self._sessions.setdefault(entry, session)

    def leave(self, reason: str, where: str = "", number: int = 1) -> None:
        """Count something that is left out, with its reason and the place where it is."""
        self._numbers[reason] += number
        examples = self._examples.setdefault(reason, [])
        if where and len(examples) < _EXAMPLES:
            examples.append(where)

    def note(self, text: str) -> None:
        """Keep a remark for the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    def left_out(self) -> list[LeftOut]:
        """Return what was left out by reason, the most frequent first."""
        return [
            LeftOut(reason=reason, number=number, examples=self._examples[reason])
            for reason, number in self._numbers.most_common()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The format of a program's history.

    `read` yields the records of a file as they are read; each has an id that is the same every time. It raises
    `OSError` if the file cannot be read, and `Rejected` if nothing in it can be taken. `names` are alternatives: the
    files of the first patterns that a folder has any files of are read. A program that keeps many files below a folder
    has `search` instead. `default` is where the program keeps its history, if that is one place. With `has_hooks`,
    hooks of the program may have handed over messages already.
    """

    name: str
    description: str
    read: Callable[[Path, Reading], Iterator[ExportedRecord]]
    names: Sequence[Sequence[str]] = ()
    search: Callable[[Path, Reading], list[Path]] | None = None
    default: str | None = None
    has_hooks: bool = False

    def find(self, path: Path, reading: Reading) -> list[Path]:
        """Return the files of a history in the order in which they are read: a file itself, or those in a folder."""
        if not path.is_dir():
            return [path]
        if self.search is not None:
            return self.search(path, reading)
        for patterns in self.names:
            found = [file for pattern in patterns for file in sorted(path.glob(pattern)) if file.is_file()]
            if found:
                return found
        return []
