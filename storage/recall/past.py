"""Memories that held at a time in the past and were replaced since.

A superseded memory has no chunks, so that a recall of what holds now pays nothing for it. A recall that looks back
reads the few that held then, and scores them as if they were indexed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reverie.memories.types import Tier
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.records import ChunkAttributes, ChunkSource
from storage.repository import AgentRepository
from storage.rows import select_list
from storage.viewer import of_memory

# As much as the first chunk of a memory.
SHOWN_CHARACTERS: Final = 640
# No more are scored, the last said first.
_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True)
class PastMemory:
    """A memory that was replaced, with what recall shows of it and ranks it by. Times are microseconds."""

    row_id: int
    id: str
    session: str | None
    text: str
    tags: tuple[str, ...]
    created_at: int
    valid_to: int
    tier: Tier
    kind: str
    source_message: str | None
    expires_at: int | None
    owner: str | None
    channel: str | None
    importance: float
    access_count: int
    accessed_at: int
    keyed: bool
    ref_code: str | None

    def source(self, number: int) -> ChunkSource:
        """Return it as the source of a chunk with this number."""
        return ChunkSource(
            number,
            "memory",
            self.id,
            self.session,
            None,
            None,
            self.text,
            self.text[:SHOWN_CHARACTERS],
            self.tags,
            0,
            self.created_at,
            self.tier,
            self.source_message,
            self.expires_at,
            self.owner,
            self.ref_code,
            self.valid_to,
        )

    def attributes(self, number: int) -> ChunkAttributes:
        """Return what a ranking needs to know of it, as of a chunk with this number."""
        return ChunkAttributes(
            number,
            self.session,
            self.channel,
            self.importance,
            self.access_count,
            self.accessed_at,
            self.created_at,
            self.tier,
            self.kind,
            self.keyed,
        )


_COLUMNS: Final = select_list(
    PastMemory,
    "m",
    session="s.id",
    text="m.content",
    valid_to="b.created_at",
    owner="m.owner_user_id",
    keyed="m.category IS NOT NULL",
    ref_code="s.ref_code",
)
_HELD: Final = f"""
    SELECT {_COLUMNS}
    FROM memories AS m CROSS JOIN memories AS b ON b.row_id = m.superseded_by
    LEFT JOIN sessions AS s ON s.row_id = m.session_row
    WHERE m.agent_id = :agent AND m.superseded_by IS NOT NULL AND m.created_at <= :until AND b.created_at > :until
"""
_ALL_TAGS: Final = (
    "(SELECT count(DISTINCT value) FROM json_each(m.tags) WHERE value IN (SELECT value FROM json_each(:tags)))"
    " = json_array_length(:tags)"
)


@dataclass(frozen=True, slots=True)
class Said:
    """One of the statements that `root`, a memory, has superseded, or the memory itself; `value` is that of a fact."""

    root: str
    content: str
    value: str | None
    created_at: int


_HISTORIES: Final = """
    WITH RECURSIVE said (root, row_id) AS (
        SELECT r.id, m.row_id FROM memories AS r CROSS JOIN memories AS m ON m.superseded_by = r.row_id
        WHERE r.agent_id = :agent AND r.id IN (SELECT value FROM json_each(:ids))
        UNION SELECT s.root, m.row_id FROM said AS s CROSS JOIN memories AS m ON m.superseded_by = s.row_id
    )
    SELECT s.root AS root, m.content AS content, m.value AS value, m.created_at AS created_at
    FROM said AS s JOIN memories AS m ON m.row_id = s.row_id WHERE {visible}
    UNION ALL
    SELECT r.id, r.content, r.value, r.created_at FROM memories AS r
    WHERE r.agent_id = :agent AND r.id IN (SELECT root FROM said)
    ORDER BY created_at DESC
"""


class PastMemories(AgentRepository):
    """The superseded memories of one agent within one transaction."""

    def held(self, chunk_filter: ChunkFilter) -> list[PastMemory]:
        """Return those that held at the filter's `until` and pass the filter, the last said first."""
        if chunk_filter.kinds and "memory" not in chunk_filter.kinds:
            return []
        clauses = [of_memory(self._viewer, "m")]
        if chunk_filter.memories is not None:
            clauses.append(chunk_filter.memories.sql("m"))
        if chunk_filter.tags:
            clauses.append(_ALL_TAGS)
        sql = " AND ".join([_HELD, *clauses])
        parameters = chunk_filter.parameters()
        return self._records(
            PastMemory, f"{sql} ORDER BY m.created_at DESC, m.row_id DESC LIMIT :limit", **parameters, limit=_LIMIT
        )

    def histories(self, memory_ids: Sequence[str]) -> dict[str, list[Said]]:
        """Return what was said of these memories, itself and what it superseded, the newest first; none without any."""
        found: dict[str, list[Said]] = {}
        visible = of_memory(self._viewer, "m")
        for said in self._records(Said, _HISTORIES.format(visible=visible), ids=memory_ids):
            found.setdefault(said.root, []).append(said)
        return found
