"""Scratchpads: an agent's working notes in one session, as a list of items and as keys with values.

The first write creates the session. A scratchpad without any write reads as empty, even if there is no session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reverie.clock import from_micros
from reverie.errors import NotFound, Rejected
from reverie.sessions.calls import MAX_KEYS, check_items, check_key, check_value
from reverie.sessions.types import ScratchpadEntry, ScratchpadList
from storage.stores import Store
from storage.transaction import AgentRepositories


def read_items(store: Store, *, agent: str, session: str) -> ScratchpadList:
    """Return the list of a session."""
    with store.reading_as(agent) as rows:
        items, at = rows.scratchpads.items(_row_of(rows, session))
    return ScratchpadList(items=items, updated_at=from_micros(at) if at is not None else None)


def write_items(store: Store, *, agent: str, session: str, items: Sequence[str], now: int) -> ScratchpadList:
    """Replace the list of a session. Raises `Rejected`."""
    checked = check_items("items", items)
    with store.writing_as(agent) as rows:
        rows.scratchpads.replace(rows.sessions.ensure(session, now=now).row_id, checked, now=now)
    return ScratchpadList(items=checked, updated_at=from_micros(now))


def clear_items(store: Store, *, agent: str, session: str) -> int:
    """Delete the list; return how many items it had."""
    with store.writing_as(agent) as rows:
        row = _row_of(rows, session)
        items, _ = rows.scratchpads.items(row)
        rows.scratchpads.clear_items(row)
    return len(items)


def list_keys(store: Store, *, agent: str, session: str) -> list[ScratchpadEntry]:
    """Return all keys of a session with their values."""
    with store.reading_as(agent) as rows:
        return rows.scratchpads.keys(_row_of(rows, session))


def read_key(store: Store, *, agent: str, session: str, key: str) -> ScratchpadEntry:
    """Return one key with its value. Raises `NotFound`."""
    with store.reading_as(agent) as rows:
        found = rows.scratchpads.find(_row_of(rows, session), key)
    if found is None:
        raise NotFound(f"the scratchpad of session {session!r} has no key {key!r}", field="key")
    return found


def write_key(store: Store, *, agent: str, session: str, key: str, value: Any, now: int) -> ScratchpadEntry:
    """Set a key to a value. Raises `Rejected`, also if there are too many keys."""
    name, checked = check_key("key", key), check_value("value", value)
    with store.writing_as(agent) as rows:
        row = rows.sessions.ensure(session, now=now).row_id
        if rows.scratchpads.find(row, name) is None and rows.scratchpads.count(row) >= MAX_KEYS:
            raise Rejected(f"the scratchpad has {MAX_KEYS} keys, the limit: delete one first", field="key")
        return rows.scratchpads.write(row, name, checked, now=now)


def delete_keys(store: Store, *, agent: str, session: str, key: str | None = None) -> int:
    """Delete one key, or all without a `key`; return how many there were."""
    with store.writing_as(agent) as rows:
        return rows.scratchpads.delete(_row_of(rows, session), key)


def _row_of(rows: AgentRepositories, session: str) -> int | None:
    found = rows.sessions.find(session)
    return found.row_id if found is not None else None
