"""Scratchpads of one agent: working notes within a session, as a list and as keys with JSON values.

They lie in their session: kept when it is archived, gone when it is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, text


@dataclass(frozen=True, slots=True)
class ScratchpadRow:
    """One key of a scratchpad. Times are microseconds."""

    key: str
    value: Any
    created_at: int
    updated_at: int


class Scratchpads:
    """The scratchpads of one agent's sessions within one transaction; `session` is a session's row."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def items(self, session: int) -> tuple[list[str], int | None]:
        """The list of a session and when it was written; empty, and None, where there is none."""
        row = self._connection.execute(
            text("SELECT items, updated_at FROM scratchpad_lists WHERE session_row = :row AND agent_id = :agent"),
            {"row": session, "agent": self._agent},
        ).one_or_none()
        return (json.loads(row[0]), int(row[1])) if row else ([], None)

    def replace(self, session: int, items: Sequence[str], *, now: int) -> None:
        """Put a list in the place of what was there."""
        self._connection.execute(
            text(
                "INSERT INTO scratchpad_lists (session_row, agent_id, items, updated_at)"
                " VALUES (:row, :agent, :items, :now)"
                " ON CONFLICT (session_row) DO UPDATE SET items = excluded.items, updated_at = excluded.updated_at"
            ),
            {"row": session, "agent": self._agent, "items": json.dumps(list(items), ensure_ascii=False), "now": now},
        )

    def clear_items(self, session: int) -> bool:
        """Remove the list; False where there was none."""
        gone = self._connection.execute(
            text("DELETE FROM scratchpad_lists WHERE session_row = :row AND agent_id = :agent"),
            {"row": session, "agent": self._agent},
        )
        return gone.rowcount > 0

    def keys(self, session: int) -> list[ScratchpadRow]:
        """All keys of a session with their values, in the order of the keys."""
        rows = self._connection.execute(
            text(
                "SELECT key, value, created_at, updated_at FROM scratchpads"
                " WHERE session_row = :row AND agent_id = :agent ORDER BY key"
            ),
            {"row": session, "agent": self._agent},
        )
        return [_row(row) for row in rows]

    def find(self, session: int, key: str) -> ScratchpadRow | None:
        """One key, if it was written."""
        row = self._connection.execute(
            text(
                "SELECT key, value, created_at, updated_at FROM scratchpads"
                " WHERE session_row = :row AND agent_id = :agent AND key = :key"
            ),
            {"row": session, "agent": self._agent, "key": key},
        ).one_or_none()
        return _row(row) if row else None

    def count(self, session: int) -> int:
        """How many keys a session has."""
        found = self._connection.execute(
            text("SELECT count(*) FROM scratchpads WHERE session_row = :row AND agent_id = :agent"),
            {"row": session, "agent": self._agent},
        )
        return int(found.scalar_one())

    def write(self, session: int, key: str, value: Any, *, now: int) -> ScratchpadRow:
        """Set a key; when it was first written stays."""
        row = self._connection.execute(
            text(
                "INSERT INTO scratchpads (session_row, agent_id, key, value, created_at, updated_at)"
                " VALUES (:row, :agent, :key, :value, :now, :now)"
                " ON CONFLICT (session_row, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"
                " RETURNING key, value, created_at, updated_at"
            ),
            {
                "row": session,
                "agent": self._agent,
                "key": key,
                "value": msgspec.json.encode(value).decode(),
                "now": now,
            },
        )
        return _row(row.one())

    def delete(self, session: int, key: str | None = None) -> int:
        """Remove a key, or all of a session's; returns how many there were."""
        gone = self._connection.execute(
            text(
                "DELETE FROM scratchpads WHERE session_row = :row AND agent_id = :agent AND key = coalesce(:key, key)"
            ),
            {"row": session, "agent": self._agent, "key": key},
        )
        return gone.rowcount


def _row(row: Row[Any]) -> ScratchpadRow:
    key, value, created_at, updated_at = list(row)
    return ScratchpadRow(key, msgspec.json.decode(value), created_at, updated_at)
