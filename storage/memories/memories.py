"""Memories, facts and notes of one agent: one table, one life.

A memory's chunks are made by the pipeline from its content. Whoever removes or rewrites a memory takes its chunks out
of every index in the same transaction. An id, a note and a fact's category and key are each unique for an agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from reverie.errors import NotFound
from storage.memories.chunks import MemoryChunks
from storage.memories.filters import conditions_of
from storage.memories.records import MemoryFilter, MemoryRecord, NewMemory

_COLUMNS: Final = (
    "m.row_id, m.id, m.agent_id, m.tier, m.lifetime, m.kind, m.source, m.content, m.importance, m.access_count,"
    " m.created_at, m.updated_at, m.accessed_at, m.expires_at, m.owner_user_id, m.tags, m.concept_tags, m.metadata,"
    " m.session_row, m.source_message, m.channel_id, m.note_id, m.category, m.key, m.value, m.subject, m.confidence,"
    " m.pinned, m.superseded_at, m.trace_id, m.stored_at, m.chunked_at, s.id, b.id"
)
_FROM: Final = (
    "FROM memories AS m LEFT JOIN sessions AS s ON s.row_id = m.session_row"
    " LEFT JOIN memories AS b ON b.row_id = m.superseded_by"
)
_INSERT: Final = """
    INSERT INTO memories (id, agent_id, tier, lifetime, kind, source, content, importance, created_at, updated_at,
        accessed_at, expires_at, owner_user_id, tags, concept_tags, metadata, session_row, source_message, channel_id,
        note_id, category, key, value, subject, confidence, pinned, trace_id, stored_at)
    VALUES (:id, :agent, :tier, :lifetime, :kind, :source, :content, :importance, :created_at, :created_at,
        :created_at, :expires_at, :owner_user_id, :tags, :concept_tags, :metadata, :session_row, :source_message,
        :channel, :note_id, :category, :key, :value, :subject, :confidence, :pinned, :trace, :now)
    ON CONFLICT (agent_id, id) DO NOTHING
"""
# What can be changed without what it says.
_CHANGEABLE: Final = frozenset(
    {
        "tier", "lifetime", "kind", "importance", "access_count", "accessed_at", "expires_at", "owner_user_id", "tags",
        "concept_tags", "metadata", "channel_id", "subject", "confidence", "pinned", "source",
    }
)  # fmt: skip
_JSON: Final = frozenset({"tags", "concept_tags", "metadata"})
_PAGE: Final = 1_000
# All that stand.
EVERY_ACTIVE: Final = MemoryFilter()


class Memories:
    """The memories of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent
        self._chunks = MemoryChunks(connection, agent)

    def add(self, memory: NewMemory, *, now: int) -> MemoryRecord:
        """Store a memory; one with this id that is there already stays as it is. Returns what is stored.

        Raises `NotFound` for a session that does not exist. That a note or a fact is new is for the caller to see to.
        """
        values = {name: getattr(memory, name) for name in NewMemory.__dataclass_fields__ if name != "session"}
        for name in _JSON:
            values[name] = _dumped(values[name])
        session_row = None if memory.session is None else self._session_row(memory.session)
        self._connection.execute(
            text(_INSERT), {**values, "agent": self._agent, "session_row": session_row, "now": now}
        )
        return self.get(memory.id)

    def find(self, memory_id: str) -> MemoryRecord | None:
        """The memory with this id, superseded or not."""
        return self._one("m.id = :id", {"id": memory_id})

    def get(self, memory_id: str) -> MemoryRecord:
        """The memory with this id. Raises `NotFound`."""
        found = self.find(memory_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no memory {memory_id!r}", field="id")
        return found

    def with_ids(self, memory_ids: Sequence[str]) -> dict[str, MemoryRecord]:
        """Those of these memories that exist, superseded or not, by their ids."""
        where = "m.id IN (SELECT value FROM json_each(:ids))"
        return {memory.id: memory for memory in self._many(where, {"ids": json.dumps(list(memory_ids))})}

    def by_rows(self, row_ids: Sequence[int]) -> dict[int, MemoryRecord]:
        """These memories by their rows."""
        # Not by the index of the agent's memories, all of which would be looked at.
        where = "+m.agent_id = :agent AND m.row_id IN (SELECT value FROM json_each(:rows))"
        rows = self._connection.execute(
            text(f"SELECT {_COLUMNS} {_FROM} WHERE {where}"), {"agent": self._agent, "rows": json.dumps(list(row_ids))}
        )
        return {memory.row_id: memory for memory in map(_record, rows)}

    def by_note(self, note_id: str) -> MemoryRecord | None:
        """The note with this id of its own."""
        return self._one("m.note_id = :note", {"note": note_id})

    def fact(self, category: str, key: str) -> MemoryRecord | None:
        """The fact that stands for a category and key."""
        where = "m.category = :category AND m.key = :key AND m.superseded_by IS NULL"
        return self._one(where, {"category": category, "key": key})

    def page(self, wanted: MemoryFilter = EVERY_ACTIVE, *, limit: int = 50, offset: int = 0) -> list[MemoryRecord]:
        """Memories, the newest first."""
        where, parameters = conditions_of(wanted)
        order = f"ORDER BY m.created_at DESC, m.row_id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
        return self._many(where, parameters, order)

    def every(self, wanted: MemoryFilter = EVERY_ACTIVE) -> Iterator[MemoryRecord]:
        """All of them, the oldest first, read in pages."""
        where, parameters = conditions_of(wanted)
        after = 0
        while True:
            page = self._many(
                f"({where}) AND m.row_id > :after", {**parameters, "after": after}, f"ORDER BY m.row_id LIMIT {_PAGE}"
            )
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].row_id

    def count(self, wanted: MemoryFilter = EVERY_ACTIVE) -> int:
        """How many there are."""
        where, parameters = conditions_of(wanted)
        found = self._connection.execute(
            text(f"SELECT count(*) {_FROM} WHERE m.agent_id = :agent AND {where}"), {"agent": self._agent, **parameters}
        )
        return int(found.scalar_one())

    def change(self, row_id: int, *, now: int, **columns: Any) -> None:
        """Set columns that do not change what a memory says; tags are put on its chunks too."""
        wrong = set(columns) - _CHANGEABLE
        if wrong:
            raise ValueError(f"{sorted(wrong)} cannot be changed like this")
        values = {name: _dumped(value) if name in _JSON else value for name, value in columns.items()}
        settings = "".join(f", {name} = :{name}" for name in values)
        self._connection.execute(
            text(f"UPDATE memories SET updated_at = :now{settings} WHERE row_id = :row AND agent_id = :agent"),
            {**values, "now": now, "row": row_id, "agent": self._agent},
        )
        if "tags" in columns:
            self._chunks.retag(row_id, columns["tags"])

    def rewrite(self, row_id: int, content: str, *, now: int, value: str | None = None) -> None:
        """Change what a memory says (and of a fact its value): its chunks go, the pipeline makes new ones."""
        self._chunks.remove([row_id])
        self._connection.execute(
            text(
                "UPDATE memories SET content = :content, value = coalesce(:value, value), updated_at = :now,"
                " chunked_at = NULL WHERE row_id = :row AND agent_id = :agent"
            ),
            {"content": content, "value": value, "now": now, "row": row_id, "agent": self._agent},
        )

    def supersede(self, row_id: int, *, by: int, now: int) -> None:
        """Have another take a memory's place: it is kept, and found no more."""
        self._chunks.remove([row_id])
        self._connection.execute(
            text(
                "UPDATE memories SET superseded_by = :by, superseded_at = :now"
                " WHERE row_id = :row AND agent_id = :agent"
            ),
            {"by": by, "now": now, "row": row_id, "agent": self._agent},
        )

    def give_way(self, row_ids: Sequence[int]) -> None:
        """Prepare the removal of some memories: those whose place they had taken get their successors, or stand again.

        Just before `delete`, for what must not go with them. The pipeline makes the chunks of those that stand again.
        """
        gone = {memory.row_id: memory for memory in self.by_rows(row_ids).values()}
        rows = self._connection.execute(
            text(
                "SELECT row_id, superseded_by FROM memories WHERE agent_id = :agent"
                " AND superseded_by IN (SELECT value FROM json_each(:rows))"
            ),
            {"agent": self._agent, "rows": json.dumps(list(gone))},
        ).all()
        found = self._connection.execute(
            text("SELECT row_id, superseded_by FROM memories WHERE row_id IN (SELECT value FROM json_each(:rows))"),
            {"rows": json.dumps(list(gone))},
        )
        successors: dict[int, int | None] = {int(row[0]): row[1] for row in found}
        # Out of the way of the one fact that may stand for a category and key.
        self._connection.execute(
            text("UPDATE memories SET superseded_by = row_id WHERE row_id IN (SELECT value FROM json_each(:rows))"),
            {"rows": json.dumps(list(gone))},
        )
        for row_id, by in rows:
            if row_id in gone:
                continue
            while by in gone:
                by = successors[by]
            self._succeed(row_id, by)

    def delete(self, row_ids: Sequence[int]) -> int:
        """Remove memories with their chunks, vectors and words, and those whose place they took; returns how many."""
        rows = self._with_superseded(row_ids)
        self._chunks.remove(rows)
        gone = self._connection.execute(
            text("DELETE FROM memories WHERE agent_id = :agent AND row_id IN (SELECT value FROM json_each(:rows))"),
            {"agent": self._agent, "rows": json.dumps(list(row_ids))},
        )
        return gone.rowcount

    def ids_with_superseded(self, row_ids: Sequence[int]) -> list[str]:
        """The ids of these memories and of all whose place they took."""
        rows = self._connection.execute(
            text("SELECT id FROM memories WHERE row_id IN (SELECT value FROM json_each(:rows)) AND agent_id = :agent"),
            {"agent": self._agent, "rows": json.dumps(self._with_superseded(row_ids))},
        )
        return [str(found) for found in rows.scalars()]

    def is_searchable(self, row_id: int, *, with_vectors: bool) -> bool:
        """Whether a memory can be recalled: chunked, and with `with_vectors` each chunk indexed."""
        return self._chunks.are_searchable(row_id, with_vectors=with_vectors)

    def _succeed(self, row_id: int, by: int | None) -> None:
        stands = ", superseded_at = NULL, chunked_at = NULL" if by is None else ""
        self._connection.execute(
            text(f"UPDATE memories SET superseded_by = :by{stands} WHERE row_id = :row AND agent_id = :agent"),
            {"by": by, "row": row_id, "agent": self._agent},
        )

    def _session_row(self, session: str) -> int:
        row = self._connection.execute(
            text("SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :id"),
            {"agent": self._agent, "id": session},
        ).scalar()
        if row is None:
            raise NotFound(f"agent {self._agent} has no session {session!r}", field="session")
        return int(row)

    def _with_superseded(self, row_ids: Sequence[int]) -> list[int]:
        rows = self._connection.execute(
            text(
                "WITH RECURSIVE gone (row_id) AS (SELECT value FROM json_each(:rows) UNION"
                " SELECT m.row_id FROM gone AS g CROSS JOIN memories AS m ON m.superseded_by = g.row_id)"
                " SELECT row_id FROM gone"
            ),
            {"rows": json.dumps(list(row_ids))},
        )
        return [int(row) for row in rows.scalars()]

    def _one(self, where: str, parameters: dict[str, Any]) -> MemoryRecord | None:
        found = self._many(where, parameters)
        return found[0] if found else None

    def _many(self, where: str, parameters: dict[str, Any], order: str = "") -> list[MemoryRecord]:
        rows = self._connection.execute(
            text(f"SELECT {_COLUMNS} {_FROM} WHERE m.agent_id = :agent AND {where} {order}"),
            {"agent": self._agent, **parameters},
        )
        return [_record(row) for row in rows]


class AllMemories:
    """The memories of a whole workspace within one transaction. It crosses agents: only jobs use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def agents(self) -> list[str]:
        """The agents that have memories."""
        rows = self._connection.execute(text("SELECT DISTINCT agent_id FROM memories ORDER BY 1"))
        return [str(agent) for agent in rows.scalars()]


def _record(row: Row[Any]) -> MemoryRecord:
    values = list(row)
    for place in (15, 16):
        values[place] = tuple(json.loads(values[place]))
    values[17] = json.loads(values[17])
    values[27] = bool(values[27])
    return MemoryRecord(*values)


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
