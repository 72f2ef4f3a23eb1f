"""The rows that dream sweeps read and write: recall events, the sources of found chunks, and the ledger of promotions.

Rows of the ledger are permanent: they stay when their memory is forgotten, so that nothing is promoted twice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from storage.repository import AgentRepository, Repository
from storage.rows import insert_sql, select_list, to_parameters
from storage.viewer import author_of, is_source, seen_by_several

# In index order (time, then row): the events of one recall are adjacent. SQLite finds the first row by `at` alone: with
# the time of the last event as its lower bound, the cost of a page depends only on its rows.
_EVENTS: Final = """
    SELECT id, chunk_id, recall, query, score, at, user_id AS user FROM recall_events
    WHERE agent_id = :agent AND at >= :since AND at <= :until AND (at, id) > (:after_at, :after_id)
    ORDER BY at, id LIMIT :limit
"""
_EVER_MADE_OF_IT: Final = f"o.agent_id = :agent AND {is_source('g', 'o')}"
_MADE_OF_IT: Final = f"{_EVER_MADE_OF_IT} AND o.superseded_by IS NULL"
# A message from which exactly one current memory was made counts as that memory; with several, or only replaced ones,
# it counts as none. A memory made from a message belongs to its speaker: in a session of several users, the user whom
# the message names.
_SOURCES: Final = f"""
    SELECT c.id, k.row_id, k.id, k.kind, x.row_id, x.id, x.kind, g.id, g.row_id,
        (SELECT gs.id FROM sessions AS gs WHERE gs.row_id = g.session_row),
        (SELECT CASE count(*) WHEN count(o.superseded_by) THEN 2 * count(*) ELSE count(*) - count(o.superseded_by) END
            FROM memories AS o WHERE {_EVER_MADE_OF_IT}),
        {seen_by_several("k")}, {author_of("k")}, {seen_by_several("x")}, {author_of("x")},
        coalesce(g.user_id, (SELECT s.user_id FROM sessions AS s WHERE s.row_id = g.session_row AND NOT s.is_group))
    FROM json_each(:ids) AS j
    CROSS JOIN chunks AS c ON c.id = j.value AND c.agent_id = :agent AND (c.session_row IS NULL OR EXISTS
        (SELECT 1 FROM sessions AS cs WHERE cs.row_id = c.session_row AND cs.agent_id = c.agent_id))
    LEFT JOIN memories AS k ON k.row_id = c.memory_row
    LEFT JOIN messages AS g ON g.row_id = (SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)
    LEFT JOIN memories AS x ON x.row_id = (
        SELECT min(o.row_id) FROM memories AS o WHERE {_MADE_OF_IT}
    )
"""
# Each of these finds the first row that names a user, or reads the agent's rows once.
_HAS_USERS: Final = """
    SELECT EXISTS (SELECT 1 FROM sessions WHERE agent_id = :agent AND user_id IS NOT NULL)
        OR EXISTS (SELECT 1 FROM memories WHERE agent_id = :agent AND owner_user_id IS NOT NULL)
        OR EXISTS (SELECT 1 FROM recall_events WHERE agent_id = :agent AND user_id IS NOT NULL)
"""
_EVENTS_AT_ONCE: Final = 2_000
# More rows than any ledger has. It is not -1, because a page must know its maximum of rows.
_NO_LIMIT: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class DreamEvent:
    """One result of one recall; `at` in microseconds, the score on [0, 1]; `user` is None if it named nobody."""

    id: int
    chunk_id: int
    recall: str
    query: str
    score: float
    at: int
    user: str | None = None


@dataclass(frozen=True, slots=True)
class DreamSource:
    """The source of a chunk: a memory with its row and kind, or the message it was cut from, with its row and session.

    `author` is the user who said it; None if there is no single one. With `for_several`, more than one user sees the
    memory, or would see the memory made from the message.
    """

    id: str
    memory_row: int | None = None
    kind: str = "event"
    message_row: int = 0
    session: str = ""
    author: str | None = field(default=None, compare=False)
    for_several: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Promotion:
    """One row of the ledger; `promoted_at` in microseconds."""

    memory_id: str
    promoted_at: int
    score: float
    phase: str


class Dreams(AgentRepository):
    """The recall events and the ledger of one agent within one transaction."""

    def events(self, *, since: int, until: int, after: DreamEvent | None) -> list[DreamEvent]:
        """Return a page of the events between two times (inclusive), oldest first, starting after an event."""
        return self._records(
            DreamEvent,
            _EVENTS,
            since=max(since, after.at) if after else since,
            until=until,
            after_at=after.at if after else since - 1,
            after_id=after.id if after else 0,
            limit=_EVENTS_AT_ONCE,
        )

    def sources(self, chunk_ids: Iterable[int]) -> dict[int, DreamSource]:
        """Return the sources of chunks, without files and messages that became several memories, or replaced ones."""
        found: dict[int, DreamSource] = {}
        rows = self._execute(_SOURCES, ids=chunk_ids)
        for chunk, memory_row, memory, kind, made_row, made, made_kind, message, row, session, times, *whose in rows:
            several, author, made_for_several, made_author, speaker = whose
            if memory_row is not None:
                found[chunk] = DreamSource(memory, memory_row, kind, author=author, for_several=bool(several))
            elif times == 1:
                found[chunk] = DreamSource(
                    made, made_row, made_kind, author=made_author, for_several=bool(made_for_several)
                )
            elif message is not None and not times:
                found[chunk] = DreamSource(
                    message, message_row=row, session=session, author=speaker, for_several=speaker is None
                )
        return found

    def has_users(self) -> bool:
        """Return whether sessions, memories or recalls of the agent name a user."""
        return bool(self._value(_HAS_USERS))

    def promoted(self, memory_ids: Sequence[str]) -> set[str]:
        """Return which of these memories are in the ledger."""
        sql = (
            "SELECT memory_id FROM memory_promotions WHERE agent_id = :agent"
            " AND memory_id IN (SELECT value FROM json_each(:ids))"
        )
        return set(self._values(sql, ids=memory_ids))

    def count_at(self, at: int) -> int:
        """Return how many memories the sweep at a time in microseconds promoted."""
        sql = "SELECT count(*) FROM memory_promotions WHERE agent_id = :agent AND promoted_at = :at"
        return int(self._value(sql, at=at))

    def promote(self, promotion: Promotion) -> bool:
        """Add a row to the ledger; False when the memory is in it already."""
        sql = insert_sql("memory_promotions", Promotion, agent_id=":agent")
        added = self._execute(f"{sql} ON CONFLICT (agent_id, memory_id) DO NOTHING", **to_parameters(promotion))
        return added.rowcount > 0

    def ledger(self, *, limit: int = 50, offset: int = 0) -> list[Promotion]:
        """Return promotions, the newest sweep first and the best of each sweep first."""
        return self._records(
            Promotion,
            f"SELECT {select_list(Promotion)} FROM memory_promotions WHERE agent_id = :agent"
            " ORDER BY promoted_at DESC, score DESC, memory_id LIMIT :limit OFFSET :offset",
            limit=limit,
            offset=offset,
        )

    def whole_ledger(self) -> list[Promotion]:
        """Return all promotions in the same order."""
        return self.ledger(limit=_NO_LIMIT)


class AllDreams(Repository):
    """The ledger of all agents of a store within one transaction, for jobs."""

    def agents(self) -> list[str]:
        """Return the agents that have promotions."""
        return self._values("SELECT DISTINCT agent_id FROM memory_promotions ORDER BY 1")
