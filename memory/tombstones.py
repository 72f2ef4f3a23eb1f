"""Tombstones: keyed hashes of what was erased, in a file outside the databases.

A backup may have rows that were erased after it was made. Before a restored data folder is opened, everything that
tombstones name is removed from it. The file only grows; without the key, which lies beside it, it reveals nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from adapters.kept_secrets import create_once
from memory.fragments import HashKey
from reverie.clock import now_micros
from reverie.errors import StoreUnavailable
from storage.private_files import read_json, write_private

if TYPE_CHECKING:
    from storage.postgres.hosts import Hosts  # its module needs the driver of the database

_FOLDER: Final = "tombstones"
_LINES: Final = "tombstones.jsonl"
_KEY_FILE: Final = "key"
_KEY_BYTES: Final = 32


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """One erasure: its kind, the hash of its target and limits, and up to when it erases (microseconds).

    Rows that an ordinary call has removed have a tombstone, too, without an `erasure`.
    """

    v: int = 1
    erasure: str
    kind: str
    hash: str
    at: int


def hash_key(data: Path) -> HashKey:
    """Return the key of a data folder, made when it is first used. Raises `StoreUnavailable`."""
    path = data / _FOLDER / _KEY_FILE
    try:
        if not path.exists():
            create_once(path, secrets.token_bytes(_KEY_BYTES))
        return HashKey(path.read_bytes())
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be used ({error}): check its permissions") from error


def adopt_key(data: Path, secret: bytes) -> bool:
    """Make a data folder use the key that its host shares with others; return whether it had another one.

    A replaced key is set aside together with its tombstones, which belong to another installation. Raises
    `StoreUnavailable`.
    """
    if hash_key(data).secret == secret:
        return False
    folder = data / _FOLDER
    try:
        if (folder / _LINES).exists():
            earlier = folder / f"earlier-{secrets.token_hex(4)}"
            earlier.mkdir(mode=0o700)
            write_private(earlier / _KEY_FILE, (folder / _KEY_FILE).read_bytes())
            with contextlib.suppress(FileNotFoundError):  # another process of this host was first
                (folder / _LINES).rename(earlier / _LINES)
        write_private(folder / _KEY_FILE, secret)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be written ({error}): check free space and permissions") from error
    return True


def target_hash(key: HashKey, kind: str, *, workspace: str | None, agent: str | None, target: str | None) -> str:
    """Return the hash of an erasure's target; a limit of None stands for all workspaces or agents."""
    return key.tombstone(kind, _limit(workspace), _limit(agent), target or "")


def add_tombstones(data: Path, tombstones: Sequence[Tombstone]) -> None:
    """Append tombstones that the file does not have yet, and flush them to disk."""
    present = set(read_tombstones(data))
    _append(data, [one for one in tombstones if one not in present])


def note_forgotten(data: Path, kind: str, ids: Iterable[str], *, workspace: str | None, agent: str | None) -> None:
    """Write tombstones for rows that a plain call removes. Call this just before the removal is committed.

    Costs a flush to disk. Raises `StoreUnavailable`.
    """
    key, at = hash_key(data), now_micros()
    hashes = [target_hash(key, kind, workspace=workspace, agent=agent, target=one) for one in ids]
    _append(data, [Tombstone(erasure="", kind=kind, hash=hashed, at=at) for hashed in hashes])


class SharedTombstones:
    """Exchanges tombstones between a data folder and the other hosts: each host gets the tombstones of all."""

    def __init__(self, data: Path, hosts: Hosts) -> None:
        self._data = data
        self._hosts = hosts
        self._known: set[str] = set()
        # Bytes read of this host's file, and the number of the last tombstone that was taken from the others.
        self._read_bytes = 0
        self._number = 0

    def exchange(self) -> int:
        """Give this host's new tombstones to the other hosts and take theirs; return how many were taken.

        Safe to repeat, by any process. Raises `StoreUnavailable`.
        """
        own = [line for line in self._new_lines() if line not in self._known]
        if own:
            self._hosts.add_tombstones(own)
            self._known.update(own)
        found = self._hosts.tombstones(after=self._number)
        taken = [content for _, content in found if content not in self._known]
        _append(self._data, [msgspec.json.decode(content, type=Tombstone) for content in taken])
        self._known.update(taken)
        self._number = found[-1][0] if found else self._number
        return len(taken)

    def _new_lines(self) -> list[str]:
        """Return the lines that were appended to the file since the last call, without damaged ones."""
        try:
            with (self._data / _FOLDER / _LINES).open("rb") as file:
                file.seek(self._read_bytes)
                added = file.read()
        except FileNotFoundError:
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [_encoded(tombstone).decode() for tombstone in _decoded(whole.splitlines())]


def _append(data: Path, tombstones: Sequence[Tombstone]) -> None:
    """Append tombstones in one write, and flush them to disk."""
    if not tombstones:
        return
    path = data / _FOLDER / _LINES
    line = b"".join(_encoded(tombstone) + b"\n" for tombstone in tombstones)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # A line that a full disk or a power cut left incomplete must not swallow this one.
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written ({error}): check free space and permissions") from error


def read_tombstones(data: Path) -> Iterator[Tombstone]:
    """Yield the tombstones of a data folder; a line that is damaged, or left incomplete by a power cut, is skipped."""
    try:
        lines = (data / _FOLDER / _LINES).read_bytes().splitlines()
    except FileNotFoundError:
        return
    yield from _decoded(lines)


def _encoded(tombstone: Tombstone) -> bytes:
    return msgspec.json.encode(tombstone)


def _decoded(lines: Iterable[bytes]) -> Iterator[Tombstone]:
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Tombstone)
        except (ValueError, RecursionError):
            continue


def _limit(name: str | None) -> str:
    return json.dumps(name)


# --- indexes in memory that have erased rows ---
# A small file tells every process of the host which they are. It names stores and agents by keyed hashes, each with the
# time of its last erasure. A process that keeps indexes looks at the file's time once a second (`worker/runtime.py`),
# and drops those that are named since.

# Stands for all agents of a store: no agent has an empty name.
ALL_AGENTS: Final = ""
_INDEXES: Final = "tombstones/indexes.json"
# Older entries are dropped: every process has read them long before.
_KEPT_MICROSECONDS: Final = 86_400 * 1_000_000


def note_erased(data: Path, indexes: Collection[tuple[str, str]]) -> None:
    """Note that rows of these agents, each as (store, agent) or (store, ALL_AGENTS), were erased.

    Raises `StoreUnavailable`.
    """
    if not indexes:
        return
    key, now = hash_key(data), now_micros()
    noted = {name: at for name, at in read_erased(data).items() if now - at < _KEPT_MICROSECONDS}
    noted |= {index_name(key, store, agent): now for store, agent in indexes}
    try:
        write_private(data / _INDEXES, msgspec.json.encode(noted))
    except OSError as error:
        raise StoreUnavailable(
            f"{data / _INDEXES} cannot be written ({error}): check the disk and permissions"
        ) from error


def read_erased(data: Path) -> Mapping[str, int]:
    """Return when something was erased last, in microseconds, by the names that `index_name` returns."""
    return read_json(data / _INDEXES, dict[str, int]) or {}


def indexes_changed_at(data: Path) -> int:
    """Return when the file was written last, in nanoseconds; 0 without one."""
    try:
        return (data / _INDEXES).stat().st_mtime_ns
    except OSError:
        return 0


def index_name(key: HashKey, store: str, agent: str) -> str:
    """Return the name of an agent's index in the file."""
    return key.tombstone("index", store, agent)
