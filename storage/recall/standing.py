"""How chunks stand in a memory: where they were said, how much they weigh, how often and when they were found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from storage.memories.records import Tier

# What a document weighs: as much as a user's turn of which nothing else was said.
_FILE_IMPORTANCE: Final = 0.5
_STANDINGS: Final = """
    SELECT c.id, s.id, coalesce(k.channel_id, s.channel_id), coalesce(m.importance, k.importance, :importance),
        coalesce(k.access_count, c.access_count), coalesce(k.accessed_at, c.accessed_at),
        coalesce(m.created_at, c.created_at), k.tier, k.kind
    FROM chunks AS c
    LEFT JOIN messages AS m ON m.row_id = (SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)
    LEFT JOIN memories AS k ON k.row_id = c.memory_row
    LEFT JOIN sessions AS s ON s.row_id = coalesce(c.session_row, k.session_row)
    WHERE c.agent_id = :agent AND c.id IN (SELECT value FROM json_each(:ids))
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """One chunk's place and weight. Times are microseconds; `accessed_at` is None where it was never found.

    `tier` is that of a memory, `kind` whether it is a fact, a preference and so on; a message or file has neither.
    """

    chunk_id: int
    session: str | None
    channel: str | None
    importance: float
    access_count: int
    accessed_at: int | None
    created_at: int
    tier: Tier | None = None
    kind: str | None = None


class Standings:
    """The standings of one agent's chunks within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def of(self, chunk_ids: Sequence[int]) -> dict[int, Standing]:
        """The standing of each of these chunks that is the agent's."""
        rows = self._connection.execute(
            text(_STANDINGS),
            {"agent": self._agent, "ids": json.dumps(list(chunk_ids)), "importance": _FILE_IMPORTANCE},
        )
        return {int(row[0]): Standing(*row) for row in rows}

    def chunks_of(self, message_rows: Sequence[int]) -> list[int]:
        """The chunks of these messages."""
        rows = self._connection.execute(
            text(
                "SELECT DISTINCT l.chunk_id FROM message_chunks AS l JOIN chunks AS c ON c.id = l.chunk_id"
                " WHERE c.agent_id = :agent AND l.message_row IN (SELECT value FROM json_each(:rows))"
            ),
            {"agent": self._agent, "rows": json.dumps(list(message_rows))},
        )
        return [int(chunk_id) for chunk_id in rows.scalars()]
