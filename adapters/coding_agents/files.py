"""Write entries into the files of a coding agent, and take them out again exactly.

Before a file is changed the first time, a copy of it is kept beside it. If nothing else has changed the file since, the
copy is put back when the entries are removed, so that it is what it was, byte for byte; else only the entries go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.coding_agents import jsonc, toml_tables
from adapters.coding_agents.entries import Change, is_own
from reverie.errors import Conflict, Rejected

_COPY: Final = ".before-reverie"
_MAX_BYTES: Final = 64 * 1024 * 1024


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was changed: its text afterwards, the copy of what it was, and the lists and objects made in it."""

    file: str
    sha256: str
    copy: str | None
    made: list[list[str]] = []


def planned(changes: Sequence[Change], tool: str) -> dict[Path, str]:
    """Return the new texts of the files that change, without writing anything.

    Raises `Rejected` for a file that cannot be read or is not valid, and `Conflict` for an entry of somebody else.
    """
    texts: dict[Path, str] = {}
    before: dict[Path, str] = {}
    for change in changes:
        if change.file not in texts:
            before[change.file] = texts[change.file] = _read(change.file)
        texts[change.file] = _applied(texts[change.file], change, tool)
    return {file: text for file, text in texts.items() if text != before[file]}


def write(texts: dict[Path, str], changes: Sequence[Change], known: Iterable[Written]) -> list[Written]:
    """Write the planned texts, each at once, after a copy of what was there. Raises `Rejected`."""
    records = {one.file: one for one in known}
    done = []
    for file, text in texts.items():
        earlier = records.get(str(file))
        made = [list(keys) for keys in _missing(file, [change.keys for change in changes if change.file == file])]
        copy = earlier.copy if earlier is not None else _copied(file)
        # What somebody changed between two writes of ours is not in the copy: it must not be put back.
        touched = earlier is not None and earlier.sha256 != _sha256(_read(file).encode())
        _replace(file, text.encode())
        kept = made if earlier is None else [*earlier.made, *(keys for keys in made if keys not in earlier.made)]
        done.append(Written(file=str(file), sha256="" if touched else _sha256(text.encode()), copy=copy, made=kept))
    return done


def remove(changes: Sequence[Change], known: Iterable[Written]) -> list[Path]:
    """Take entries out of their files, and return those that changed. Raises `Rejected` for a file that is not valid.

    A file that there was not before is deleted if nothing else is in it.
    """
    records = {one.file: one for one in known}
    changed = []
    for file in dict.fromkeys(change.file for change in changes):
        if not file.exists():
            continue
        record = records.get(str(file))
        text = _read(file)
        if record is not None and record.sha256 == _sha256(text.encode()):
            _restore(file, record)
            changed.append(file)
            continue
        wanted = _without_entries(text, [change for change in changes if change.file == file], record)
        if wanted == text:
            continue
        if record is not None and record.copy is None and not wanted.strip(" \t\r\n{}"):
            file.unlink()
        else:
            _replace(file, wanted.encode())
        changed.append(file)
    return changed


def _applied(text: str, change: Change, tool: str) -> str:
    with _naming(change.file):
        if change.kind == "table":
            return _with_table(text, change, tool)
        text = text if text.strip() else "{}\n"
        if change.kind == "item":
            return _with_item(text, change)
        found = _at(jsonc.parse(text).value, change.keys)
        if found == change.value or (change.keys == ("version",) and found is not None):
            return text
        if found is not None and not is_own(found):
            _refuse(change)
        return jsonc.with_member(text, change.keys, change.value)


def _with_table(text: str, change: Change, tool: str) -> str:
    found = _at(toml_tables.parse(text), change.keys)
    if found == change.value:
        return text
    if found is not None and not is_own(found):
        _refuse(change)
    text = toml_tables.without_table(text, change.keys)
    wanted = toml_tables.with_table(text, change.keys, change.value, tool=tool)
    if _at(toml_tables.parse(wanted), change.keys) != change.value:
        raise Rejected("the entry cannot be added to it: the file was left as it is", field="file")
    return wanted


def _with_item(text: str, change: Change) -> str:
    found = _at(jsonc.parse(text).value, change.keys)
    own = [place for place, item in enumerate(found if isinstance(found, list) else []) if is_own(item)]
    if len(own) == 1 and isinstance(found, list) and found[own[0]] == change.value:
        return text
    for place in reversed(own):
        text = jsonc.without(text, [*change.keys, place])
    return jsonc.with_item(text, change.keys, change.value)


def _without_entries(text: str, changes: Sequence[Change], record: Written | None) -> str:
    for change in changes:
        with _naming(change.file):
            if change.kind == "table":
                if is_own(_at(toml_tables.parse(text), change.keys)):
                    text = toml_tables.without_table(text, change.keys)
                continue
            found = _at(jsonc.parse(text).value, change.keys)
            if change.kind == "item":
                for place in reversed([place for place, item in enumerate(found or []) if is_own(item)]):
                    text = jsonc.without(text, [*change.keys, place])
            elif found is not None and is_own(found):
                text = jsonc.without(text, change.keys)
    for keys in sorted(record.made if record else [], key=len, reverse=True):
        if _at(jsonc.parse(text).value, keys) in ({}, [], 1):  # what was made and is empty now; the version alone
            text = jsonc.without(text, keys)
    return text


def _missing(file: Path, paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the objects and lists on the way to entries that a file does not have yet."""
    if file.suffix == ".toml":
        return []
    text = _read(file)
    value = jsonc.parse(text).value if text.strip() else {}
    found: dict[tuple[str, ...], None] = {}
    for keys in paths:
        for length in range(1, len(keys) + 1):
            if _at(value, keys[:length]) is None:
                found[keys[:length]] = None
    return [*found]


def _at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


def _refuse(change: Change) -> None:
    raise Conflict(
        f"{change.file} has another entry {'.'.join(change.keys)}, which was left as it is: rename or remove it first",
        field="file",
    )


def _read(file: Path) -> str:
    """Return the text of a file; empty if there is none. Raises `Rejected`."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Rejected(f"{file} cannot be read: {error.strerror}", field="file") from error
    try:
        if len(content) > _MAX_BYTES:
            raise Rejected(f"{file} has more than 64 MiB: it was left as it is", field="file")
        return content.decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{file} is not in UTF-8: it was left as it is", field="file") from error


def _copied(file: Path) -> str | None:
    """Keep a copy of a file beside it, and return its path; None if there is no file."""
    if not file.exists():
        return None
    copy = file.with_name(file.name + _COPY)
    with _naming(copy):
        _replace(copy, file.read_bytes(), mode=stat.S_IMODE(file.stat().st_mode))
    return str(copy)


def _restore(file: Path, record: Written) -> None:
    if record.copy is None:
        file.unlink()
        return
    with _naming(file):
        _replace(file, Path(record.copy).read_bytes())
        Path(record.copy).unlink()


def _replace(file: Path, content: bytes, *, mode: int | None = None) -> None:
    """Put a content in a file's place at once, with the rights of the one before. A link stays one."""
    target = file.resolve()
    with _naming(file):
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode is None:
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            Path(draft).chmod(mode)
            Path(draft).replace(target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _naming(file: Path) -> Any:
    """Let errors name the file."""
    try:
        yield
    except OSError as error:
        raise Rejected(f"{file} cannot be written: {error.strerror}", field="file") from error
    except Conflict:
        raise
    except Rejected as error:
        raise Rejected(f"{file}: {error}", field="file") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
