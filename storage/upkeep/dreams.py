"""What dreams are made of: the recall events of an agent, what each stands for, and the ledger of what was promoted.

A row of the ledger is for good: it stays when its memory is forgotten, so that nothing is promoted a second time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

# By time and row: the order of the index, so that a page costs what it holds. Events of one recall lie together.
_EVENTS: Final = """
    SELECT id, chunk_id, recall, query, score, at FROM recall_events
    WHERE agent_id = :agent AND at >= :since AND at <= :until AND (at, id) > (:after_at, :after_id)
    ORDER BY at, id LIMIT :limit
"""
# A message of which exactly one memory was made stands for that memory; one of which several were made, for none.
_SOURCES: Final = """
    SELECT c.id, k.row_id, k.id, k.kind, x.row_id, x.id, x.kind, g.id,
        (SELECT count(*) FROM memories WHERE agent_id = :agent AND source_message = g.id AND superseded_by IS NULL)
    FROM json_each(:ids) AS j
    CROSS JOIN chunks AS c ON c.id = j.value AND c.agent_id = :agent
    LEFT JOIN memories AS k ON k.row_id = c.memory_row
    LEFT JOIN messages AS g ON g.row_id = (SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)
    LEFT JOIN memories AS x ON x.row_id = (
        SELECT min(row_id) FROM memories WHERE agent_id = :agent AND source_message = g.id AND superseded_by IS NULL
    )
"""
_EVENTS_AT_ONCE: Final = 2_000
# As SQL has it: all there are.
_WITHOUT_LIMIT: Final = -1


@dataclass(frozen=True, slots=True)
class DreamEvent:
    """One result of one recall; `at` in microseconds, the score on [0, 1]."""

    id: int
    chunk_id: int
    recall: str
    query: str
    score: float
    at: int


@dataclass(frozen=True, slots=True)
class DreamSource:
    """What a chunk stands for: a memory with its row and kind, or the message that it was cut from."""

    id: str
    memory_row: int | None = None
    kind: str = "event"


@dataclass(frozen=True, slots=True)
class Promotion:
    """One row of the ledger; `promoted_at` in microseconds."""

    memory_id: str
    promoted_at: int
    score: float
    phase: str


class Dreams:
    """The recall events and the ledger of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def events(
        self, *, since: int, until: int, after: DreamEvent | None = None, limit: int = _EVENTS_AT_ONCE
    ) -> list[DreamEvent]:
        """A page of the events between two moments (both included), the oldest first, after one that was read."""
        rows = self._connection.execute(
            text(_EVENTS),
            {
                "agent": self._agent,
                "since": since,
                "until": until,
                "after_at": after.at if after else since - 1,
                "after_id": after.id if after else 0,
                "limit": limit,
            },
        )
        return [DreamEvent(*row) for row in rows]

    def sources(self, chunk_ids: Iterable[int]) -> dict[int, DreamSource]:
        """What these chunks stand for; those of files, and of messages that became several memories, are left out."""
        rows = self._connection.execute(text(_SOURCES), {"agent": self._agent, "ids": json.dumps(list(chunk_ids))})
        found: dict[int, DreamSource] = {}
        for chunk, memory_row, memory, kind, made_row, made, made_kind, message, times in rows:
            if memory_row is not None:
                found[chunk] = DreamSource(memory, memory_row, kind)
            elif times == 1:
                found[chunk] = DreamSource(made, made_row, made_kind)
            elif message is not None and not times:
                found[chunk] = DreamSource(message)
        return found

    def promoted(self, memory_ids: Sequence[str]) -> set[str]:
        """Which of these are in the ledger."""
        rows = self._connection.execute(
            text(
                "SELECT memory_id FROM memory_promotions WHERE agent_id = :agent"
                " AND memory_id IN (SELECT value FROM json_each(:ids))"
            ),
            {"agent": self._agent, "ids": json.dumps(list(memory_ids))},
        )
        return {str(found) for found in rows.scalars()}

    def count_at(self, at: int) -> int:
        """How many were promoted by the sweep of a moment in microseconds."""
        found = self._connection.execute(
            text("SELECT count(*) FROM memory_promotions WHERE agent_id = :agent AND promoted_at = :at"),
            {"agent": self._agent, "at": at},
        )
        return int(found.scalar_one())

    def promote(self, promotion: Promotion) -> bool:
        """Write a row into the ledger; False when the memory is in it already."""
        written = self._connection.execute(
            text(
                "INSERT INTO memory_promotions (agent_id, memory_id, promoted_at, score, phase)"
                " VALUES (:agent, :memory, :at, :score, :phase) ON CONFLICT (agent_id, memory_id) DO NOTHING"
            ),
            {
                "agent": self._agent,
                "memory": promotion.memory_id,
                "at": promotion.promoted_at,
                "score": promotion.score,
                "phase": promotion.phase,
            },
        )
        return written.rowcount > 0

    def ledger(self, *, limit: int = 50, offset: int = 0) -> list[Promotion]:
        """Promotions, the newest sweep first and the best of each first."""
        rows = self._connection.execute(
            text(
                "SELECT memory_id, promoted_at, score, phase FROM memory_promotions WHERE agent_id = :agent"
                " ORDER BY promoted_at DESC, score DESC, memory_id LIMIT :limit OFFSET :offset"
            ),
            {"agent": self._agent, "limit": limit, "offset": offset},
        )
        return [Promotion(*row) for row in rows]

    def whole_ledger(self) -> list[Promotion]:
        """All promotions in the same order."""
        return self.ledger(limit=_WITHOUT_LIMIT)


class AllDreams:
    """The ledger of a whole store within one transaction. It crosses agents: only jobs use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def agents(self) -> list[str]:
        """The agents that have promotions."""
        rows = self._connection.execute(text("SELECT DISTINCT agent_id FROM memory_promotions ORDER BY 1"))
        return [str(agent) for agent in rows.scalars()]
