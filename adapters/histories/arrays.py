"""Read the elements of a large JSON array one at a time, also where it lies in an object or in a ZIP archive."""

from __future__ import annotations

import codecs
import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple

import ijson

from adapters.histories.nesting import BoundedNesting
from adapters.histories.reading import Reading
from reverie.errors import Rejected

# A document without a list is read as a whole.
_WHOLE_BYTES: Final = 64 * 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024
_CUT_OFF: Final = "the rest of files that are cut off or no JSON"
# Half a character, of which some programs write the code; and what reading a file in an archive raises if its bytes are
# damaged, or it is encrypted or packed in a way that Python does not know.
_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)


class Element(NamedTuple):
    """An element of an array, and where it is."""

    where: str
    value: Any


def elements_of(
    file: Path, reading: Reading, *, member: str | Sequence[str], lists: Sequence[str] = ()
) -> Iterator[Element]:
    """Yield the elements of a JSON array: the file itself, or one of these `lists` of an object in it.

    Of a ZIP archive, those of the files that match a pattern of `member`. An object without such a list is the only
    element. What cannot be parsed, and all after it, is left out. Raises `OSError`, and `Rejected` if there is nothing
    of the kind.
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
    """Yield what the JSON object that a file is has at a place: `user`, or the elements of a list `relations.item`.

    Of a ZIP archive, those of the files that match `member`. A file that is cut off is counted only if this is told to:
    it is read once for each place. Raises `OSError`, and `Rejected` for a damaged archive.
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
    if begin[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        reading.leave("files in UTF-16: convert them with `iconv -f utf-16 -t utf-8`", name)
        return
    start = len(codecs.BOM_UTF8) if begin.startswith(codecs.BOM_UTF8) else 0
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
    """Return whether the end of a path, of as many parts as the pattern has, matches it."""
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
