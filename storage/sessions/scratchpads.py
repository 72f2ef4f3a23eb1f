"""Scratchpads of one agent: working notes of a session, as a list and as keys with JSON values.

They belong to their session: kept when it is archived, deleted when it is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from reverie.sessions.types import ScratchpadEntry
from storage.repository import AgentRepository
from storage.rows import from_json_of, select_list

_COLUMNS: Final = select_list(ScratchpadEntry)


class Scratchpads(AgentRepository):
    """The scratchpads of one agent's sessions within one transaction; `session` is its row, or None without one."""

    def items(self, session: int | None) -> tuple[list[str], int | None]:
        """Return the list of a session and when it was written; an empty list and None without one."""
        row = self._execute(
            "SELECT items, updated_at FROM scratchpad_lists WHERE session_row = :row AND agent_id = :agent", row=session
        ).one_or_none()
        return (from_json_of(list, row[0]), int(row[1])) if row else ([], None)

    def replace(self, session: int, items: Sequence[str], *, now: int) -> None:
        """Store a list in place of the session's current one."""
        self._execute(
            "INSERT INTO scratchpad_lists (session_row, agent_id, items, updated_at)"
            " VALUES (:row, :agent, :items, :now)"
            " ON CONFLICT (session_row) DO UPDATE SET items = excluded.items, updated_at = excluded.updated_at",
            row=session,
            items=items,
            now=now,
        )

    def clear_items(self, session: int | None) -> bool:
        """Delete the list of a session; False without one."""
        sql = "DELETE FROM scratchpad_lists WHERE session_row = :row AND agent_id = :agent"
        return self._execute(sql, row=session).rowcount > 0

    def keys(self, session: int | None) -> list[ScratchpadEntry]:
        """Return all keys of a session with their values, ordered by key."""
        return self._records(
            ScratchpadEntry,
            f"SELECT {_COLUMNS} FROM scratchpads WHERE session_row = :row AND agent_id = :agent ORDER BY key",
            row=session,
        )

    def find(self, session: int | None, key: str) -> ScratchpadEntry | None:
        """Return one key of a session."""
        return self._record(
            ScratchpadEntry,
            f"SELECT {_COLUMNS} FROM scratchpads WHERE session_row = :row AND agent_id = :agent AND key = :key",
            row=session,
            key=key,
        )

    def count(self, session: int) -> int:
        """Return how many keys a session has."""
        sql = "SELECT count(*) FROM scratchpads WHERE session_row = :row AND agent_id = :agent"
        return int(self._value(sql, row=session))

    def write(self, session: int, key: str, value: Any, *, now: int) -> ScratchpadEntry:
        """Set the value of a key, keeping the `created_at` of an existing one, and return it."""
        row = self._record(
            ScratchpadEntry,
            "INSERT INTO scratchpads (session_row, agent_id, key, value, created_at, updated_at)"
            " VALUES (:row, :agent, :key, :value, :now, :now)"
            " ON CONFLICT (session_row, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"
            f" RETURNING {_COLUMNS}",
            row=session,
            key=key,
            value=msgspec.json.encode(value).decode(),
            now=now,
        )
        assert row is not None
        return row

    def delete(self, session: int | None, key: str | None = None) -> int:
        """Delete one key of a session, or all of them; returns how many were deleted."""
        sql = "DELETE FROM scratchpads WHERE session_row = :row AND agent_id = :agent AND key = coalesce(:key, key)"
        return self._execute(sql, row=session, key=key).rowcount
