"""Bulk changes that jobs make to an agent's memories: remove, promote and merge them in batches.

Each memory removed, promoted or merged gets an entry of its own in the curation log, so that it can be undone alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reverie.clock import DAY_MICROS
from reverie.memories.types import Lifetime, MemoryKind, Tier
from storage.curation import CurationLog, EntryDraft
from storage.index.search_index import SearchIndex
from storage.memories.records import MemoryRecord, is_protected, is_standing
from storage.repository import AgentRepository
from storage.rows import is_vector, select_list, to_json
from storage.viewer import author_of, seen_by_several

# The order of the join counts: with IN, SQLite reads the whole index of the agent's memories for each batch.
_LISTED: Final = "FROM json_each(:rows) AS j CROSS JOIN memories AS m ON m.row_id = j.value WHERE m.agent_id = :agent"
_REMOVE_CHUNKS: Final = "DELETE FROM chunks WHERE agent_id = :agent AND memory_row = :row RETURNING id"
_MERGE: Final = """
    UPDATE memories SET importance = :importance, access_count = :access_count, accessed_at = :accessed_at,
        expires_at = :expires_at, lifetime = :lifetime, tags = :tags, subject = :subject
    WHERE row_id = :row AND agent_id = :agent
"""


@dataclass(frozen=True, slots=True)
class MemoryOutline:
    """A current memory without its content: the fields that decide whether it is kept, promoted or merged."""

    row_id: int
    id: str
    tier: Tier
    lifetime: Lifetime
    kind: MemoryKind
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
    visibility: str = "private"
    tenant: str | None = None
    confirmed_at: int | None = None
    # Who sees the session of a memory without an owner; None for everybody.
    audience: str | None = None

    @property
    def protected(self) -> bool:
        """Return whether only a manual call may remove it."""
        is_note_or_fact = self.is_note or self.is_fact
        return is_protected(
            self.lifetime,
            self.source,
            pinned=self.pinned or is_standing(self.kind, self.importance),
            is_note_or_fact=is_note_or_fact,
        )


_OUTLINE: Final = "SELECT " + select_list(
    MemoryOutline,
    "m",
    is_note="m.note_id IS NOT NULL",
    is_fact="m.category IS NOT NULL",
    audience="CASE WHEN m.owner_user_id IS NULL AND m.session_row IS NOT NULL THEN"
    " (SELECT os.audience FROM sessions AS os WHERE os.row_id = m.session_row) END",
)
# Recalls by named users other than the author, as dream sweeps count them.
_LITTLE_KNOWN: Final = f"""
    SELECT m.row_id FROM json_each(:rows) AS j CROSS JOIN memories AS m ON m.row_id = j.value
    WHERE m.agent_id = :agent AND {seen_by_several("m")} AND EXISTS (
        SELECT 1 FROM (
            SELECT count(DISTINCT e.user_id) AS users, count(DISTINCT e.at / {DAY_MICROS}) AS days
            FROM chunks AS c CROSS JOIN recall_events AS e ON e.chunk_id = c.id
            WHERE c.memory_row = m.row_id AND e.user_id IS NOT NULL AND e.user_id IS NOT {author_of("m")}
        ) WHERE users < :min_users OR days < :min_days
    )
"""


@dataclass(frozen=True, slots=True)
class CurationBatch:
    """The curation log's entry for a batch of changes; `now` in microseconds. `updated_at` stays as it is."""

    job: str
    action: str
    now: int


class MemorySweeps(AgentRepository):
    """Bulk changes to the memories of one agent within one transaction."""

    def outlines(self, row_ids: Sequence[int] | None = None) -> list[MemoryOutline]:
        """Return the current memories, all or only these rows, oldest row first."""
        if row_ids is None:
            sql = (
                f"{_OUTLINE} FROM memories AS m WHERE m.agent_id = :agent AND m.superseded_by IS NULL ORDER BY m.row_id"
            )
            return self._records(MemoryOutline, sql)
        sql = f"{_OUTLINE} {_LISTED} AND m.superseded_by IS NULL ORDER BY m.row_id"
        return self._records(MemoryOutline, sql, rows=row_ids)

    def little_known(self, row_ids: Sequence[int], *, min_users: int, min_days: int) -> set[int]:
        """Return the rows of the memories that several users see and that too few have recalled, or on too few days."""
        return set(self._values(_LITTLE_KNOWN, rows=row_ids, min_users=min_users, min_days=min_days))

    def count(self, tier: Tier | None = None) -> int:
        """Return how many memories are current, in all or of one tier."""
        sql = (
            "SELECT count(*) FROM memories WHERE agent_id = :agent AND superseded_by IS NULL"
            " AND tier = coalesce(:tier, tier)"
        )
        return int(self._value(sql, tier=tier))

    def texts(self, row_ids: Sequence[int]) -> dict[int, str]:
        """Return the contents of these memories by row."""
        rows = self._execute(f"SELECT m.row_id, m.content {_LISTED}", rows=row_ids)
        return {int(row[0]): str(row[1]) for row in rows}

    def single_chunk_vectors(self, row_ids: Sequence[int]) -> dict[int, bytes]:
        """Return the vectors (float32, little-endian, of the active model) of the memories with a single chunk."""
        active = SearchIndex(self._connection).active("vector")
        if active is None:
            return {}
        rows = self._execute(
            "SELECT c.memory_row, v.embedding FROM chunks AS c CROSS JOIN chunks_vec AS v ON v.chunk_id = c.id"
            " AND v.model = :model AND v.dim = :dim WHERE c.agent_id = :agent"
            " AND c.memory_row IN (SELECT value FROM json_each(:rows))"
            " AND NOT EXISTS (SELECT 1 FROM chunks AS o WHERE o.memory_row = c.memory_row AND o.id <> c.id)",
            model=active.model,
            dim=active.dim,
            rows=row_ids,
        )
        return {int(row[0]): row[1] for row in rows if is_vector(row[1], active.dim)}

    def remove(self, removals: Sequence[tuple[int, str]], batch: CurationBatch) -> None:
        """Delete memories, each given as a row and a reason, with their chunks and the memories they replaced."""
        ids = self._ids_with_superseded([row for row, _ in removals])
        drafts = [EntryDraft(reason, tuple(ids[row])) for row, reason in removals]
        chunks: list[int] = []
        for _, (row, _) in zip(self._entries(drafts, batch), removals, strict=True):
            chunks += self._remove_chunks(row)
            self._execute("DELETE FROM memories WHERE row_id = :row AND agent_id = :agent", row=row)
        SearchIndex(self._connection).remove_vectors(chunks)

    def promote(self, promotions: Sequence[tuple[MemoryOutline, str]], batch: CurationBatch) -> None:
        """Make memories long-term, each given with a reason."""
        drafts = [EntryDraft(reason, (memory.id,)) for memory, reason in promotions]
        for _, (memory, _) in zip(self._entries(drafts, batch), promotions, strict=True):
            sql = "UPDATE memories SET lifetime = 'long_term' WHERE row_id = :row AND agent_id = :agent"
            self._execute(sql, row=memory.row_id)

    def merge(self, merges: Sequence[tuple[MemoryRecord, MemoryRecord, str]], batch: CurationBatch) -> None:
        """Replace memories by others: each the survivor as it is to be stored, the duplicate, and a reason."""
        drafts = [EntryDraft(reason, (survivor.id, duplicate.id)) for survivor, duplicate, reason in merges]
        chunks: list[int] = []
        for _, (survivor, duplicate, _) in zip(self._entries(drafts, batch), merges, strict=True):
            self._update(survivor)
            chunks += self._remove_chunks(duplicate.row_id)
            self._execute(
                "UPDATE memories SET superseded_by = :by, superseded_at = :at"
                " WHERE row_id = :row AND agent_id = :agent",
                by=survivor.row_id,
                at=batch.now,
                row=duplicate.row_id,
            )
        SearchIndex(self._connection).remove_vectors(chunks)

    def _update(self, memory: MemoryRecord) -> None:
        self._execute(
            _MERGE,
            importance=memory.importance,
            access_count=memory.access_count,
            accessed_at=memory.accessed_at,
            expires_at=memory.expires_at,
            lifetime=memory.lifetime,
            tags=to_json(memory.tags),
            subject=memory.subject,
            row=memory.row_id,
        )
        if memory.tags:
            self._execute(
                "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id) SELECT t.value, c.id FROM chunks AS c"
                " CROSS JOIN json_each(:tags) AS t WHERE c.memory_row = :row AND c.agent_id = :agent",
                tags=memory.tags,
                row=memory.row_id,
            )

    def _entries(self, drafts: Sequence[EntryDraft], batch: CurationBatch) -> Iterator[int]:
        log = CurationLog(self._connection)
        return log.entries(drafts, job=batch.job, agent=self._agent, action=batch.action, at=batch.now)

    def _remove_chunks(self, row: int) -> list[int]:
        return self._values(_REMOVE_CHUNKS, row=row)

    def _ids_with_superseded(self, row_ids: Sequence[int]) -> dict[int, list[str]]:
        """Return, by row, the id of each of these memories and of all that it replaced."""
        rows = self._execute(
            "WITH RECURSIVE removed (root, row_id) AS"
            " (SELECT CAST(value AS INTEGER), CAST(value AS INTEGER) FROM json_each(:rows) UNION"
            " SELECT r.root, m.row_id FROM removed AS r CROSS JOIN memories AS m ON m.superseded_by = r.row_id)"
            " SELECT r.root, m.id FROM removed AS r JOIN memories AS m ON m.row_id = r.row_id"
            " WHERE m.agent_id = :agent",
            rows=row_ids,
        )
        found: dict[int, list[str]] = {row: [] for row in row_ids}
        for root, memory_id in rows:
            found[int(root)].append(str(memory_id))
        return found
