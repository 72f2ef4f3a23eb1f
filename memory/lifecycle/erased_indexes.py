"""Tells every process of the host, through a small file, which in-memory indexes have erased rows.

It names stores and agents by keyed hashes, each with the time of its last erasure. A process that keeps indexes looks
at the file's time once a second (`worker/runtime.py`), and drops those that are named since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from memory.fragments import HashKey
from memory.tombstones import hash_key
from reverie.clock import now_micros
from reverie.errors import StoreUnavailable
from storage.private_files import write_private

# Stands for all agents of a store: no agent has an empty name.
ALL_AGENTS: Final = ""
_FILE: Final = "tombstones/indexes.json"
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
    noted |= {name_of(key, store, agent): now for store, agent in indexes}
    try:
        write_private(data / _FILE, msgspec.json.encode(noted))
    except OSError as error:
        raise StoreUnavailable(f"{data / _FILE} cannot be written ({error}): check the disk and permissions") from error


def read_erased(data: Path) -> Mapping[str, int]:
    """Return when something was erased last, in microseconds, by the names that `name_of` returns."""
    try:
        return msgspec.json.decode((data / _FILE).read_bytes(), type=dict[str, int])
    except (OSError, ValueError, RecursionError):  # there is none yet, or it is damaged
        return {}


def changed_at(data: Path) -> int:
    """Return when the file was written last, in nanoseconds; 0 without one."""
    try:
        return (data / _FILE).stat().st_mtime_ns
    except OSError:
        return 0


def name_of(key: HashKey, store: str, agent: str) -> str:
    """Return the name of an agent's index in the file."""
    return key.tombstone("index", store, agent)
