"""Channels of one agent: topics that sessions and memories lie in.

One is there without being made: the default, in which every session lies that names none. A channel that only messages
have named is one as well; a row of its own gives it a description.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from reverie.contract import DEFAULT_CHANNEL

# Sessions without a channel, and memories of the channel tier without one, lie in the default.
_ALL: Final = """
    WITH known (id, sessions, memories, first_at) AS (
        SELECT id, 0, 0, created_at FROM channels WHERE agent_id = :agent
        UNION ALL SELECT :default, 0, 0, NULL
        UNION ALL SELECT coalesce(channel_id, :default), count(*), 0, min(started_at) FROM sessions
            WHERE agent_id = :agent GROUP BY 1
        UNION ALL SELECT coalesce(channel_id, :default), 0, count(*), min(created_at) FROM memories
            WHERE agent_id = :agent AND superseded_by IS NULL AND (channel_id IS NOT NULL OR tier = 'channel')
            GROUP BY 1
    )
    SELECT k.id, coalesce(c.description, ''), k.id = :default, coalesce(c.created_at, min(k.first_at)),
        sum(k.sessions), sum(k.memories)
    FROM known AS k LEFT JOIN channels AS c ON c.agent_id = :agent AND c.id = k.id
    WHERE :id IS NULL OR k.id = :id GROUP BY k.id ORDER BY k.id <> :default, k.id
"""


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """A channel with what lies in it. `created_at` is None for a default that nothing has been put into yet."""

    id: str
    description: str
    is_default: bool
    created_at: int | None
    sessions: int
    memories: int


class Channels:
    """The channels of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def list(self) -> list[ChannelRecord]:
        """All channels: the default first, then by id."""
        rows = self._connection.execute(text(_ALL), {"agent": self._agent, "default": DEFAULT_CHANNEL, "id": None})
        return [_channel(row) for row in rows]

    def find(self, channel: str) -> ChannelRecord | None:
        """One channel, made or only named."""
        row = self._connection.execute(
            text(_ALL), {"agent": self._agent, "default": DEFAULT_CHANNEL, "id": channel}
        ).one_or_none()
        return _channel(row) if row else None

    def is_made(self, channel: str) -> bool:
        """Whether a channel has a row of its own."""
        found = self._connection.execute(
            text("SELECT 1 FROM channels WHERE agent_id = :agent AND id = :id"), {"agent": self._agent, "id": channel}
        )
        return found.scalar() is not None

    def ensure(self, channel: str, *, now: int, description: str | None = None) -> None:
        """Make a channel, if it is not there; a description given takes the place of what it had."""
        self._connection.execute(
            text(
                "INSERT INTO channels (agent_id, id, description, is_default, created_at)"
                " VALUES (:agent, :id, coalesce(:description, ''), :is_default, :now)"
                " ON CONFLICT (agent_id, id) DO UPDATE SET description = coalesce(:description, description)"
            ),
            {
                "agent": self._agent,
                "id": channel,
                "description": description,
                "is_default": channel == DEFAULT_CHANNEL,
                "now": now,
            },
        )

    def delete(self, channel: str) -> bool:
        """Remove a channel's row; what lies in it stays. False where there was none."""
        gone = self._connection.execute(
            text("DELETE FROM channels WHERE agent_id = :agent AND id = :id AND NOT is_default"),
            {"agent": self._agent, "id": channel},
        )
        return gone.rowcount > 0

    def move_session(self, session_row: int, channel: str) -> None:
        """Put a session into a channel, with the memories that serve its conversation alone."""
        parameters = {"agent": self._agent, "row": session_row, "channel": channel}
        self._connection.execute(
            text("UPDATE sessions SET channel_id = :channel WHERE row_id = :row AND agent_id = :agent"), parameters
        )
        self._connection.execute(
            text(
                "UPDATE memories SET channel_id = :channel WHERE session_row = :row AND agent_id = :agent"
                " AND tier = 'conversation' AND channel_id IS NOT NULL"
            ),
            parameters,
        )


def _channel(row: Row[Any]) -> ChannelRecord:
    channel, description, is_default, created_at, sessions, memories = list(row)
    return ChannelRecord(channel, description, bool(is_default), created_at, sessions, memories)
