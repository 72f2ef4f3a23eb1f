"""What jobs do to very many memories of an agent: read them lightly, remove, promote and merge them in batches.

Each memory removed, promoted or merged away is an entry of the curation log of its own, so that it can be undone alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, text

from storage.memories.records import Lifetime, MemoryRecord, Tier, is_protected
from storage.recall.index import SearchIndex
from storage.upkeep.curation import CurationLog, EntryDraft

_OUTLINE: Final = (
    "SELECT m.row_id, m.id, m.tier, m.lifetime, m.source, m.importance, m.access_count, m.created_at, m.accessed_at,"
    " m.expires_at, m.owner_user_id, m.channel_id, m.session_row, m.note_id IS NOT NULL, m.category IS NOT NULL,"
    " m.subject, m.pinned"
)
# A join in this order: with IN the agent's whole index is gone through for each batch.
_AMONG: Final = "FROM json_each(?) AS j CROSS JOIN memories AS m ON m.row_id = j.value WHERE m.agent_id = ?"
_REMOVE_CHUNKS: Final = "DELETE FROM chunks WHERE agent_id = ? AND memory_row = ? RETURNING id"
_MERGE: Final = """
    UPDATE memories SET importance = ?, access_count = ?, accessed_at = ?, expires_at = ?, lifetime = ?, tags = ?,
        subject = ? WHERE row_id = ? AND agent_id = ?
"""


@dataclass(frozen=True, slots=True)
class MemoryOutline:
    """An active memory without what it says: what decides how its life goes on."""

    row_id: int
    id: str
    tier: Tier
    lifetime: Lifetime
    source: str
    importance: float
    access_count: int
    created_at: int
    accessed_at: int
    expires_at: int | None
    owner_user_id: str | None
    channel: str | None
    session_row: int | None
    is_note: bool
    is_fact: bool
    subject: str | None
    pinned: bool

    @property
    def protected(self) -> bool:
        """Whether it ends by hand alone."""
        return is_protected(self.lifetime, self.source, pinned=self.pinned, of_its_own=self.is_note or self.is_fact)


@dataclass(frozen=True, slots=True)
class Curation:
    """On whose behalf a batch is written into the log, and when. It is no edit: `updated_at` stays as it is."""

    job: str
    action: str
    now: int


class MemorySweeps:
    """Many memories of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def outlines(self, row_ids: Sequence[int] | None = None) -> list[MemoryOutline]:
        """The active memories, all or those of these rows, the oldest row first."""
        if row_ids is None:
            every = f"{_OUTLINE} FROM memories AS m WHERE m.agent_id = ? AND m.superseded_by IS NULL ORDER BY m.row_id"
            rows = self._connection.exec_driver_sql(every, (self._agent,))
        else:
            these = f"{_OUTLINE} {_AMONG} AND m.superseded_by IS NULL ORDER BY m.row_id"
            rows = self._connection.exec_driver_sql(these, (json.dumps(list(row_ids)), self._agent))
        return [_outline(tuple(row)) for row in rows]

    def count(self, tier: Tier | None = None) -> int:
        """How many memories are active, in all or of a tier."""
        found = self._connection.execute(
            text(
                "SELECT count(*) FROM memories WHERE agent_id = :agent AND superseded_by IS NULL"
                " AND tier = coalesce(:tier, tier)"
            ),
            {"agent": self._agent, "tier": tier},
        )
        return int(found.scalar_one())

    def texts(self, row_ids: Sequence[int]) -> dict[int, str]:
        """What these memories say."""
        rows = self._connection.exec_driver_sql(
            f"SELECT m.row_id, m.content {_AMONG}", (json.dumps(list(row_ids)), self._agent)
        )
        return {int(row[0]): str(row[1]) for row in rows}

    def whole_vectors(self, row_ids: Sequence[int]) -> dict[int, bytes]:
        """The vector (float32, little-endian, of the active model) of each memory that is one chunk and has it."""
        active = SearchIndex(self._connection).active("vector")
        if active is None:
            return {}
        rows = self._connection.exec_driver_sql(
            "SELECT c.memory_row, v.embedding FROM chunks AS c CROSS JOIN chunks_vec AS v ON v.chunk_id = c.id"
            " AND v.model = ? AND v.dim = ? WHERE c.agent_id = ?"
            " AND c.memory_row IN (SELECT value FROM json_each(?))"
            " AND NOT EXISTS (SELECT 1 FROM chunks AS o WHERE o.memory_row = c.memory_row AND o.id <> c.id)",
            (active.model, active.dim, self._agent, json.dumps(list(row_ids))),
        )
        return {int(row[0]): bytes(row[1]) for row in rows}

    def remove(self, removals: Sequence[tuple[int, str]], curation: Curation) -> None:
        """Remove memories, each a row and why, with all that was made of them and those whose place they took."""
        ids = self._ids_with_superseded([row for row, _ in removals])
        drafts = [EntryDraft(why, tuple(ids[row])) for row, why in removals]
        chunks: list[int] = []
        for _, (row, _why) in zip(self._entries(drafts, curation), removals, strict=True):
            chunks += self._remove_chunks(row)
            self._connection.exec_driver_sql(
                "DELETE FROM memories WHERE row_id = ? AND agent_id = ?", (row, self._agent)
            )
        SearchIndex(self._connection).remove_vectors(chunks)

    def promote(self, promotions: Sequence[tuple[MemoryOutline, str]], curation: Curation) -> None:
        """Make memories long-term ones, each with why."""
        drafts = [EntryDraft(why, (memory.id,)) for memory, why in promotions]
        for _, (memory, _why) in zip(self._entries(drafts, curation), promotions, strict=True):
            self._connection.exec_driver_sql(
                "UPDATE memories SET lifetime = 'long_term' WHERE row_id = ? AND agent_id = ?",
                (memory.row_id, self._agent),
            )

    def merge(self, merges: Sequence[tuple[MemoryRecord, MemoryRecord, str]], curation: Curation) -> None:
        """Have memories, as they become, take the place of others: each the one, the other, and why."""
        drafts = [EntryDraft(why, (stays.id, goes.id)) for stays, goes, why in merges]
        chunks: list[int] = []
        for _, (stays, goes, _why) in zip(self._entries(drafts, curation), merges, strict=True):
            self._become(stays)
            chunks += self._remove_chunks(goes.row_id)
            self._connection.exec_driver_sql(
                "UPDATE memories SET superseded_by = ?, superseded_at = ? WHERE row_id = ? AND agent_id = ?",
                (stays.row_id, curation.now, goes.row_id, self._agent),
            )
        SearchIndex(self._connection).remove_vectors(chunks)

    def _become(self, memory: MemoryRecord) -> None:
        tags = json.dumps(memory.tags, ensure_ascii=False, separators=(",", ":"))
        values = (memory.importance, memory.access_count, memory.accessed_at, memory.expires_at, memory.lifetime)
        self._connection.exec_driver_sql(_MERGE, (*values, tags, memory.subject, memory.row_id, self._agent))
        if memory.tags:
            self._connection.exec_driver_sql(
                "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id) SELECT t.value, c.id FROM chunks AS c"
                " CROSS JOIN json_each(?) AS t WHERE c.memory_row = ? AND c.agent_id = ?",
                (tags, memory.row_id, self._agent),
            )

    def _entries(self, drafts: Sequence[EntryDraft], curation: Curation) -> Iterator[int]:
        log = CurationLog(self._connection)
        return log.entries(drafts, job=curation.job, agent=self._agent, action=curation.action, at=curation.now)

    def _remove_chunks(self, row: int) -> list[int]:
        return list(self._connection.exec_driver_sql(_REMOVE_CHUNKS, (self._agent, row)).scalars())

    def _ids_with_superseded(self, row_ids: Sequence[int]) -> dict[int, list[str]]:
        """The id of each of these memories, and of all whose place it took."""
        rows = self._connection.exec_driver_sql(
            "WITH RECURSIVE gone (root, row_id) AS (SELECT value, value FROM json_each(?) UNION"
            " SELECT g.root, m.row_id FROM gone AS g CROSS JOIN memories AS m ON m.superseded_by = g.row_id)"
            " SELECT g.root, m.id FROM gone AS g JOIN memories AS m ON m.row_id = g.row_id WHERE m.agent_id = ?",
            (json.dumps(list(row_ids)), self._agent),
        )
        found: dict[int, list[str]] = {row: [] for row in row_ids}
        for root, memory_id in rows:
            found[int(root)].append(str(memory_id))
        return found


def _outline(row: tuple[Any, ...]) -> MemoryOutline:
    values = list(row)
    for place in (13, 14, 16):
        values[place] = bool(values[place])
    return MemoryOutline(*values)
