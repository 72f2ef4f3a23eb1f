"""Channels of one agent: topics that sessions and memories belong to.

The default channel always exists and holds every session that names no channel. A channel also exists once a message
has named it; a row in `channels` only adds a description.
"""

from __future__ import annotations

from typing import Final

from reverie.contract import DEFAULT_CHANNEL
from reverie.errors import NotFound
from reverie.sessions.types import Channel
from storage.repository import AgentRepository

# Sessions without a channel, and memories of the channel tier without one, are in the default channel.
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
    SELECT k.id AS id, coalesce(c.description, '') AS description, k.id = :default AS is_default,
        min(k.first_at) AS created_at, sum(k.sessions) AS sessions, sum(k.memories) AS memories
    FROM known AS k LEFT JOIN channels AS c ON c.agent_id = :agent AND c.id = k.id
    WHERE :id IS NULL OR k.id = :id GROUP BY k.id, c.description ORDER BY k.id <> :default, k.id
"""
_EXISTS: Final = """
    SELECT EXISTS (SELECT 1 FROM channels WHERE agent_id = :agent AND id = :id)
        OR EXISTS (SELECT 1 FROM sessions WHERE agent_id = :agent AND channel_id = :id)
        OR EXISTS (SELECT 1 FROM memories WHERE agent_id = :agent AND channel_id = :id)
"""


class Channels(AgentRepository):
    """The channels of one agent within one transaction."""

    def list(self) -> list[Channel]:
        """Return all channels: the default first, then by id."""
        return self._records(Channel, _ALL, default=DEFAULT_CHANNEL, id=None)

    def find(self, channel: str) -> Channel | None:
        """Return one channel, which may have no row of its own but be named by messages."""
        return self._record(Channel, _ALL, default=DEFAULT_CHANNEL, id=channel)

    def check_exists(self, channel: str) -> None:
        """Raise `NotFound` for a channel that has neither a row of its own nor sessions nor memories."""
        if channel != DEFAULT_CHANNEL and not self._value(_EXISTS, id=channel):
            raise NotFound(f"agent {self._agent} has no channel {channel!r}", field="channel")

    def has_row(self, channel: str) -> bool:
        """Return whether a channel has a row of its own."""
        return self._value("SELECT 1 FROM channels WHERE agent_id = :agent AND id = :id", id=channel) is not None

    def ensure(self, channel: str, *, now: int, description: str | None = None) -> None:
        """Create a channel if it does not exist, and set its description unless that is None."""
        self._execute(
            "INSERT INTO channels (agent_id, id, description, is_default, created_at)"
            " VALUES (:agent, :id, coalesce(:description, ''), :is_default, :now)"
            " ON CONFLICT (agent_id, id) DO UPDATE SET description = coalesce(:description, description)",
            id=channel,
            description=description,
            is_default=channel == DEFAULT_CHANNEL,
            now=now,
        )

    def delete(self, channel: str) -> bool:
        """Delete a channel's row, but nothing in the channel; False when it has none."""
        sql = "DELETE FROM channels WHERE agent_id = :agent AND id = :id AND NOT is_default"
        return self._execute(sql, id=channel).rowcount > 0

    def move_session(self, session_row: int, channel: str) -> None:
        """Move a session to a channel, together with the memories of its conversation tier."""
        self._execute(
            "UPDATE sessions SET channel_id = :channel WHERE row_id = :row AND agent_id = :agent",
            row=session_row,
            channel=channel,
        )
        self._execute(
            "UPDATE memories SET channel_id = :channel WHERE session_row = :row AND agent_id = :agent"
            " AND tier = 'conversation' AND channel_id IS NOT NULL",
            row=session_row,
            channel=channel,
        )
