"""Scratchpads as an agent sees them: working notes of one session, as a list (M10) and as keys with values (M11).

The first note makes the session. What was never written reads as empty, in a session that does not exist too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reverie.clock import from_micros
from reverie.errors import NotFound, Rejected
from reverie.sessions.checks import MAX_KEYS, check_items, check_key, check_value
from reverie.sessions.scratchpad_types import ScratchpadEntry, ScratchpadList
from storage.sessions.scratchpads import ScratchpadRow
from storage.stores import Store
from storage.transaction import AgentRepositories


def read_items(store: Store, *, agent: str, session: str) -> ScratchpadList:
    """The list of a session."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        row = _row_of(rows, session)
        items, at = rows.scratchpads.items(row) if row is not None else ([], None)
    return ScratchpadList(items=items, updated_at=from_micros(at) if at is not None else None)


def write_items(store: Store, *, agent: str, session: str, items: Sequence[str], now: int) -> ScratchpadList:
    """Put a list in the place of what was there. Raises `Rejected`."""
    checked = check_items(items)
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        rows.scratchpads.replace(rows.sessions.ensure(session, now=now).row_id, checked, now=now)
    return ScratchpadList(items=checked, updated_at=from_micros(now))


def clear_items(store: Store, *, agent: str, session: str) -> int:
    """Remove the list; returns how many items it had."""
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        row = _row_of(rows, session)
        if row is None:
            return 0
        items, _ = rows.scratchpads.items(row)
        rows.scratchpads.clear_items(row)
    return len(items)


def list_keys(store: Store, *, agent: str, session: str) -> list[ScratchpadEntry]:
    """All keys of a session with their values."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        row = _row_of(rows, session)
        return [_entry(found) for found in rows.scratchpads.keys(row)] if row is not None else []


def read_key(store: Store, *, agent: str, session: str, key: str) -> ScratchpadEntry:
    """One key. Raises `NotFound`."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        row = _row_of(rows, session)
        found = rows.scratchpads.find(row, key) if row is not None else None
    if found is None:
        raise NotFound(f"the scratchpad of session {session!r} has no key {key!r}", field="key")
    return _entry(found)


def write_key(store: Store, *, agent: str, session: str, key: str, value: Any, now: int) -> ScratchpadEntry:
    """Set a key to a value. Raises `Rejected`, also for a key too many."""
    name, checked = check_key(key), check_value(value)
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        row = rows.sessions.ensure(session, now=now).row_id
        if rows.scratchpads.find(row, name) is None and rows.scratchpads.count(row) >= MAX_KEYS:
            raise Rejected(f"the scratchpad has {MAX_KEYS} keys, the limit: delete one first", field="key")
        return _entry(rows.scratchpads.write(row, name, checked, now=now))


def delete_keys(store: Store, *, agent: str, session: str, key: str | None = None) -> int:
    """Remove a key, or all of them; returns how many there were."""
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        row = _row_of(rows, session)
        return rows.scratchpads.delete(row, key) if row is not None else 0


def _row_of(rows: AgentRepositories, session: str) -> int | None:
    found = rows.sessions.find(session)
    return found.row_id if found is not None else None


def _entry(row: ScratchpadRow) -> ScratchpadEntry:
    return ScratchpadEntry(
        key=row.key, value=row.value, created_at=from_micros(row.created_at), updated_at=from_micros(row.updated_at)
    )
