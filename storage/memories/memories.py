"""Memories, facts and notes of one agent, in one table.

The pipeline makes a memory's chunks from its content. Removing or rewriting a memory also removes its chunks from every
index, in the same transaction. An id, a note id, and a fact's category and key are each unique for an agent.

A memory holds until its successor was said. This end is not stored but follows from `superseded_by`: restoring or
replacing the successor also restores or moves the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reverie.errors import NotFound
from storage.engines import Connection
from storage.index.search_index import SearchIndex
from storage.memories.records import UNCONFIRMED_DAYS, DueMemory, MemoryFilter, MemoryRecord, NewMemory
from storage.memories.trust import HAS_RIGHT
from storage.repository import AgentRepository, Repository
from storage.rows import column_name, execute, field_names, insert_sql, select_list, to_parameters, valid_json
from storage.viewer import Viewer, of_memory

TAGS: Final = valid_json("m.tags")
_ONE_OF: Final = {"tiers": "m.tier", "lifetimes": "m.lifetime", "kinds": "m.kind", "sources": "m.source"}
_EQUAL: Final = {
    "channel": "m.channel_id = :channel",
    "session": "s.id = :session",
    "owner": "m.owner_user_id = :owner",
    "category": "m.category = :category",
    "key": "m.key = :key",
    "subject": "m.subject = :subject",
    "visibility": "m.visibility = :visibility",
    "held_at": "(m.created_at <= :held_at AND (m.superseded_by IS NULL OR b.created_at > :held_at))",
    "since": "m.created_at >= :since",
    "until": "m.created_at < :until",
    "unexpired_at": "(m.expires_at IS NULL OR m.expires_at > :unexpired_at)",
}
_TRUE_OR_FALSE: Final = {
    "active": "m.superseded_by IS NULL",
    "facts": "m.category IS NOT NULL",
    "notes": "m.note_id IS NOT NULL",
}


def filter_sql(memory_filter: MemoryFilter) -> tuple[str, dict[str, Any]]:
    """Return a condition (`1` for an empty filter) and its parameters."""
    clauses: list[str] = []
    parameters: dict[str, Any] = {}
    for name, column in _ONE_OF.items():
        if values := getattr(memory_filter, name):
            clauses.append(f"{column} IN (SELECT value FROM json_each(:{name}))")
            parameters[name] = values
    for name, clause in _EQUAL.items():
        if (value := getattr(memory_filter, name)) is not None:
            clauses.append(clause)
            parameters[name] = value
    for name, clause in _TRUE_OR_FALSE.items():
        if (expected := getattr(memory_filter, name)) is not None:
            clauses.append(clause if expected else f"NOT ({clause})")
    if memory_filter.tags:
        clauses.append(
            f"(SELECT count(*) FROM json_each({TAGS}) WHERE value IN (SELECT value FROM json_each(:tags))) = :tag_count"
        )
        parameters |= {"tags": memory_filter.tags, "tag_count": len(set(memory_filter.tags))}
    if memory_filter.text is not None:
        clauses.append("instr(lower(m.content), lower(:text)) > 0")
        parameters["text"] = memory_filter.text
    return " AND ".join(clauses) or "1", parameters


class MemoryChunks(AgentRepository):
    """The chunks of one agent's memories within one transaction."""

    def remove(self, row_ids: Sequence[int]) -> None:
        """Delete the chunks of memories, also from every index, and cancel the claims on these memories."""
        self.cancel_claims(row_ids)
        chunk_ids = self._values(
            "DELETE FROM chunks WHERE agent_id = :agent AND memory_row IN (SELECT value FROM json_each(:rows))"
            " RETURNING id",
            rows=row_ids,
        )
        SearchIndex(self._connection).remove_vectors(chunk_ids)

    def cancel_claims(self, row_ids: Sequence[int]) -> None:
        """Cancel the claims of a worker that is chunking these memories: what it has read is out of date."""
        self._execute(
            "DELETE FROM claims WHERE stage = 'chunk-memories' AND item_id IN (SELECT value FROM json_each(:rows))",
            rows=row_ids,
        )

    def retag(self, row_ids: Sequence[int]) -> None:
        """Give the chunks of memories the tags that the memories have now."""
        self.cancel_claims(row_ids)
        chunks = (
            f"SELECT c.id, {TAGS} AS tags FROM json_each(:rows) AS j CROSS JOIN chunks AS c ON c.memory_row = j.value"
            " AND c.agent_id = :agent JOIN memories AS m ON m.row_id = c.memory_row"
        )
        self._execute(
            f"DELETE FROM chunk_tags WHERE (tag, chunk_id) IN (SELECT t.tag, k.id FROM ({chunks}) AS k"
            " JOIN chunk_tags AS t ON t.chunk_id = k.id WHERE t.tag NOT IN (SELECT value FROM json_each(k.tags)))",
            rows=row_ids,
        )
        self._execute(
            "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id)"
            f" SELECT t.value, k.id FROM ({chunks}) AS k CROSS JOIN json_each(k.tags) AS t",
            rows=row_ids,
        )


_FROM: Final = (
    "FROM memories AS m LEFT JOIN sessions AS s ON s.row_id = m.session_row"
    " LEFT JOIN memories AS b ON b.row_id = m.superseded_by"
)
# A memory that was merged into an older one ends at its own beginning.
_VALID_TO: Final = "CASE WHEN b.row_id IS NOT NULL THEN max(m.created_at, b.created_at) END"
_COMPUTED: Final = {"session": "s.id", "superseded_by": "b.id", "valid_from": "m.created_at", "valid_to": _VALID_TO}
_SELECT: Final = f"SELECT {select_list(MemoryRecord, 'm', **_COMPUTED)} {_FROM}"
# A current memory of the same kind and subject with another content; the plus makes SQLite use the index of subjects.
_CONTRADICTS: Final = (
    "(SELECT o.id FROM memories AS o WHERE o.agent_id = m.agent_id AND o.subject = m.subject AND o.kind = m.kind"
    " AND o.superseded_by IS NULL AND o.visibility <> 'requested' AND o.content <> m.content"
    " AND o.owner_user_id IS m.owner_user_id AND o.tenant IS m.tenant ORDER BY +o.row_id LIMIT 1)"
)
_CONFIRMED_AT: Final = "coalesce(m.confirmed_at, m.created_at)"
_OUTDATED: Final = " ".join(f"WHEN '{kind}' THEN {days * 86_400_000_000}" for kind, days in UNCONFIRMED_DAYS.items())
_DUE_FIRST: Final = f"ORDER BY {_CONTRADICTS} IS NULL, {_CONFIRMED_AT}, m.row_id"
_SELECT_DUE: Final = (
    f"SELECT {select_list(DueMemory, 'm', **_COMPUTED, contradicts=_CONTRADICTS)} {_FROM}"
    " WHERE m.agent_id = :agent AND m.superseded_by IS NULL AND m.visibility <> 'requested' AND (m.expires_at <= :now"
    f" OR {_CONTRADICTS} IS NOT NULL OR {_CONFIRMED_AT} < :now - CASE m.kind {_OUTDATED} END)"
)
_INSERT: Final = (
    insert_sql(
        "memories",
        NewMemory,
        exclude=["session"],
        agent_id=":agent",
        session_row=":session_row",
        updated_at=":created_at",
        accessed_at=":created_at",
        stored_at=":now",
        superseded_by=":superseded_by",
        superseded_at="CASE WHEN :superseded_by IS NOT NULL THEN :now END",
    )
    + " ON CONFLICT (agent_id, id) DO NOTHING"
)
# Fields that `change` refuses: what identifies a memory, its content, and what follows from these.
_FIXED: Final = frozenset(
    {
        "id",
        "content",
        "created_at",
        "session",
        "source_message",
        "note_id",
        "category",
        "key",
        "value",
        "trace",
        "made_by",
    }
)
_CHANGEABLE: Final = frozenset(field_names(NewMemory)) - _FIXED | {"access_count", "accessed_at"}
_PAGE_ROWS: Final = 1_000
_FACT: Final = "m.category = :category AND m.key = :key AND m.superseded_by IS NULL"
EVERY_ACTIVE: Final = MemoryFilter()


class Memories(AgentRepository):
    """The memories of one agent within one transaction."""

    @property
    def _chunks(self) -> MemoryChunks:
        return MemoryChunks(self._connection, self._agent)

    def add(self, memory: NewMemory, *, now: int, superseded_by: int | None = None) -> MemoryRecord:
        """Store a memory and return it; an existing memory with its id stays as it is and is returned.

        With `superseded_by`, a row, it is stored as replaced by that memory. Raises `NotFound` for a session
        that does not exist. The caller makes sure that a note or fact is new.
        """
        session_row = None if memory.session is None else self._session_row(memory.session)
        self._execute(_INSERT, **to_parameters(memory), session_row=session_row, now=now, superseded_by=superseded_by)
        return self.get(memory.id)

    def find(self, memory_id: str) -> MemoryRecord | None:
        """Return the memory with this id, superseded or not."""
        return self._one("m.id = :id", id=memory_id)

    def get(self, memory_id: str) -> MemoryRecord:
        """Return the memory with this id, superseded or not. Raises `NotFound`."""
        found = self.find(memory_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no memory {memory_id!r}", field="id")
        return found

    def with_ids(self, memory_ids: Sequence[str]) -> dict[str, MemoryRecord]:
        """Return the memories with these ids that exist, superseded or not, by id."""
        found = self._many("m.id IN (SELECT value FROM json_each(:ids))", ids=memory_ids)
        return {memory.id: memory for memory in found}

    def by_rows(self, row_ids: Sequence[int]) -> dict[int, MemoryRecord]:
        """Return the memories in these rows that exist, superseded or not, by row."""
        # The unary plus keeps SQLite from reading the whole index of the agent's memories.
        where = "+m.agent_id = :agent AND m.row_id IN (SELECT value FROM json_each(:rows))"
        found = self._records(MemoryRecord, f"{_SELECT} WHERE {where}", rows=row_ids)
        return {memory.row_id: memory for memory in found}

    def by_note(self, note_id: str) -> MemoryRecord | None:
        """Return the note with this note id."""
        return self._one("m.note_id = :note", note=note_id)

    def fact(self, category: str, key: str, *, owner: str | None = None) -> MemoryRecord | None:
        """Return an owner's current fact with this category and key; for an owner of None, the fact of nobody."""
        return self._one(f"{_FACT} AND m.owner_user_id IS :owner", category=category, key=key, owner=owner)

    def seen_fact(self, category: str, key: str) -> MemoryRecord | None:
        """Return the current fact with this category and key: the viewer's own if there is one, else another."""
        where = f"{_FACT} ORDER BY m.owner_user_id IS {self._viewer_user} DESC, m.owner_user_id IS NULL DESC LIMIT 1"
        return self._one(where, category=category, key=key)

    @property
    def _viewer_user(self) -> str:
        return "NULL" if self._viewer is None else ":viewer"

    def page(
        self, memory_filter: MemoryFilter = EVERY_ACTIVE, *, limit: int = 50, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return memories that pass a filter, newest first."""
        where, parameters = filter_sql(memory_filter)
        order = "ORDER BY m.created_at DESC, m.row_id DESC LIMIT :limit OFFSET :offset"
        return self._many(f"{where} {order}", **parameters, limit=limit, offset=offset)

    def due(self, *, now: int, limit: int) -> list[DueMemory]:
        """Return current memories that a person should look at, contradicting ones first, then the longest known."""
        sql = f"{_SELECT_DUE} AND {of_memory(self._viewer, 'm')} {_DUE_FIRST} LIMIT :limit"
        return self._records(DueMemory, sql, now=now, limit=limit)

    def contradicting(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return for those of these memories that another one contradicts, by id, the id of that other."""
        listed = "m.agent_id = :agent AND m.id IN (SELECT value FROM json_each(:ids)) AND m.subject IS NOT NULL"
        rows = self._execute(f"SELECT m.id, {_CONTRADICTS} FROM memories AS m WHERE {listed}", ids=memory_ids)
        return {id: other for id, other in rows if other is not None}

    def states_before(self, at: int, *, owners: Sequence[str], limit: int) -> list[MemoryRecord]:
        """Return current memories but events, last said before a time, of these users ("" is nobody), newest first."""
        where = (
            f"m.superseded_by IS NULL AND m.visibility <> 'requested' AND m.kind <> 'event' AND {_CONFIRMED_AT} < :at"
            " AND coalesce(m.owner_user_id, '') IN (SELECT value FROM json_each(:owners))"
        )
        return self._many(f"{where} ORDER BY m.row_id DESC LIMIT :limit", at=at, owners=owners, limit=limit)

    def unconfirmed(self, *, orders_only: bool, limit: int) -> list[MemoryRecord]:
        """Return current unconfirmed memories, newest first; or just instructions from untrusted sources."""
        orders = f"(m.kind IN ('instruction', 'preference') AND NOT {HAS_RIGHT})"
        where = (
            "m.superseded_by IS NULL AND m.visibility <> 'requested' AND m.confirmed_at IS NULL"
            f"{f' AND {orders}' if orders_only else ''} ORDER BY m.row_id DESC LIMIT :limit"
        )
        return self._many(where, limit=limit)

    def iterate(self, memory_filter: MemoryFilter = EVERY_ACTIVE) -> Iterator[MemoryRecord]:
        """Yield all memories that pass a filter, oldest row first, read in pages."""
        where, parameters = filter_sql(memory_filter)
        after = 0
        while True:
            page_where = f"({where}) AND m.row_id > :after ORDER BY m.row_id LIMIT {_PAGE_ROWS}"
            page = self._many(page_where, **parameters, after=after)
            yield from page
            # Even an empty page need not be the last one: damaged rows are left out of pages.
            sql = f"SELECT m.row_id {_FROM} WHERE m.agent_id = :agent AND m.row_id > :after ORDER BY m.row_id LIMIT 1"
            if page:
                after = page[-1].row_id
            elif found := self._values(f"{sql} OFFSET {_PAGE_ROWS - 1}", after=after):
                after = found[0]
            else:
                return

    def any(self, memory_filter: MemoryFilter = EVERY_ACTIVE) -> bool:
        """Return whether a memory passes a filter."""
        where, parameters = filter_sql(memory_filter)
        sql = f"SELECT 1 {_FROM} WHERE m.agent_id = :agent AND {of_memory(self._viewer, 'm')} AND {where} LIMIT 1"
        return self._value(sql, **parameters) is not None

    def change(self, row_id: int, *, now: int, **fields: Any) -> None:
        """Set fields of a memory other than its content; new tags are put on its chunks too."""
        fixed = set(fields) - _CHANGEABLE
        if fixed:
            raise ValueError(f"{sorted(fixed)} cannot be changed: use rewrite, or store another memory")
        settings = "".join(f", {column_name(name)} = :{name}" for name in fields)
        self._execute(
            f"UPDATE memories SET updated_at = :now{settings} WHERE row_id = :row AND agent_id = :agent",
            **fields,
            now=now,
            row=row_id,
        )
        if "tags" in fields:
            self._chunks.retag([row_id])

    def rewrite(self, row_id: int, content: str, *, now: int, value: str | None = None) -> None:
        """Set the content of a memory (and the value of a fact), and make the pipeline chunk it again."""
        self._chunks.remove([row_id])
        self._execute(
            "UPDATE memories SET content = :content, value = coalesce(:value, value), updated_at = :now,"
            " chunked_at = NULL WHERE row_id = :row AND agent_id = :agent",
            content=content,
            value=value,
            now=now,
            row=row_id,
        )

    def supersede(self, row_id: int, *, by: int, now: int) -> None:
        """Mark a memory as replaced by another: it is kept, but recall no longer finds it."""
        self._chunks.remove([row_id])
        self._execute(
            "UPDATE memories SET superseded_by = :by, superseded_at = :now WHERE row_id = :row AND agent_id = :agent",
            by=by,
            now=now,
            row=row_id,
        )

    def move_superseded(self, row_ids: Sequence[int], *, to: int) -> None:
        """Make another memory the successor of superseded ones."""
        self._execute(
            "UPDATE memories SET superseded_by = :to WHERE agent_id = :agent AND superseded_by IS NOT NULL"
            " AND row_id IN (SELECT value FROM json_each(:rows))",
            to=to,
            rows=row_ids,
        )

    def with_all_superseded(self, row_ids: Sequence[int]) -> list[MemoryRecord]:
        """Return these memories and all that they replaced, the earliest first."""
        found = self.by_rows(self._with_superseded(row_ids)).values()
        return sorted(found, key=lambda memory: (memory.created_at, memory.row_id))

    def detach_superseded(self, row_ids: Sequence[int]) -> None:
        """Detach the memories that these replaced, so that `delete`, called next, keeps them.

        Each gets the next successor that stays; without one it becomes current again, and the pipeline chunks it again.
        """
        removed = {"rows": list(self.by_rows(row_ids))}
        superseded = self._execute(
            "SELECT row_id, superseded_by FROM memories WHERE agent_id = :agent"
            " AND superseded_by IN (SELECT value FROM json_each(:rows))",
            **removed,
        ).all()
        rows = self._execute(
            "SELECT row_id, superseded_by FROM memories WHERE row_id IN (SELECT value FROM json_each(:rows))", **removed
        )
        successors: dict[int, int | None] = {int(row[0]): row[1] for row in rows}
        # Makes room for the one current fact that a category and key may have.
        self._execute(
            "UPDATE memories SET superseded_by = row_id WHERE row_id IN (SELECT value FROM json_each(:rows))", **removed
        )
        for row_id, by in superseded:
            if row_id in successors:
                continue
            while by in successors:
                by = successors[by]
            current_again = ", superseded_at = NULL, chunked_at = NULL" if by is None else ""
            self._execute(
                f"UPDATE memories SET superseded_by = :by{current_again} WHERE row_id = :row AND agent_id = :agent",
                by=by,
                row=row_id,
            )

    def delete(self, row_ids: Sequence[int]) -> int:
        """Delete memories and the ones they replaced, with their chunks, vectors and words.

        Returns how many of `row_ids` were deleted.
        """
        self._chunks.remove(self._with_superseded(row_ids))
        return self._execute(
            # The unary plus keeps SQLite from reading all memories of the agent.
            "DELETE FROM memories WHERE +agent_id = :agent AND row_id IN (SELECT value FROM json_each(:rows))",
            rows=row_ids,
        ).rowcount

    def ids_with_superseded(self, row_ids: Sequence[int]) -> list[str]:
        """Return the ids of these memories and of all that they replaced."""
        return self._values(
            "SELECT id FROM memories WHERE row_id IN (SELECT value FROM json_each(:rows)) AND agent_id = :agent",
            rows=self._with_superseded(row_ids),
        )

    def _session_row(self, session: str) -> int:
        row = self._value("SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :id", id=session)
        if row is None:
            raise NotFound(f"agent {self._agent} has no session {session!r}", field="session")
        return int(row)

    def _with_superseded(self, row_ids: Sequence[int]) -> list[int]:
        return self._values(
            """
            WITH RECURSIVE removed (row_id) AS (
                SELECT CAST(value AS INTEGER) FROM json_each(:rows)
                UNION SELECT m.row_id FROM removed AS r CROSS JOIN memories AS m ON m.superseded_by = r.row_id
            )
            SELECT row_id FROM removed
            """,
            rows=row_ids,
        )

    def _one(self, where: str, **parameters: Any) -> MemoryRecord | None:
        return self._record(MemoryRecord, self._select(where), **parameters)

    def _many(self, where: str, **parameters: Any) -> list[MemoryRecord]:
        return self._records(MemoryRecord, self._select(where), **parameters)

    def _select(self, where: str) -> str:
        return f"{_SELECT} WHERE m.agent_id = :agent AND {of_memory(self._viewer, 'm')} AND {where}"


class AllMemories(Repository):
    """The memories of all agents of a workspace within one transaction, for jobs."""

    def agents(self) -> list[str]:
        """Return the agents that have memories."""
        return self._values("SELECT DISTINCT agent_id FROM memories ORDER BY 1")

    def current_counts(self) -> list[tuple[str, str | None, int]]:
        """Return how many current memories each agent has, in the account for each tenant: agent, tenant, number."""
        rows = self._execute(
            "SELECT agent_id, tenant, count(*) FROM memories WHERE superseded_by IS NULL GROUP BY 1, 2 ORDER BY 1, 2"
        )
        return [(str(row[0]), row[1], int(row[2])) for row in rows]


_GROUPS: Final = ("tier", "lifetime", "kind", "source")
_CURRENT: Final = """
    SELECT tier, lifetime, kind, source, count(*) AS memories, sum(category IS NOT NULL) AS facts,
        sum(note_id IS NOT NULL) AS notes, min(created_at) AS oldest, max(created_at) AS newest
    FROM memories AS m WHERE agent_id = :agent AND {visible} AND superseded_by IS NULL GROUP BY 1, 2, 3, 4
"""
_SUPERSEDED: Final = (
    "SELECT count(*) FROM memories AS m WHERE agent_id = :agent AND {visible} AND superseded_by IS NOT NULL"
)
_PROMOTED: Final = (
    "SELECT count(*) FROM memory_promotions AS p WHERE agent_id = :agent AND (:everything"
    " OR memory_id IN (SELECT id FROM memories AS m WHERE m.agent_id = p.agent_id AND {visible}))"
)


@dataclass(slots=True)
class MemoryCounts:
    """Numbers of current memories by kind; times in microseconds, None without memories."""

    memories: int = 0
    facts: int = 0
    notes: int = 0
    superseded: int = 0
    promoted: int = 0
    oldest: int | None = None
    newest: int | None = None
    by: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _GROUPS})

    def add(self, other: MemoryCounts) -> None:
        """Add the counts of another store."""
        for name in ("memories", "facts", "notes", "superseded", "promoted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.oldest = min((at for at in (self.oldest, other.oldest) if at is not None), default=None)
        self.newest = max((at for at in (self.newest, other.newest) if at is not None), default=None)
        for name, counts in other.by.items():
            self.by[name] += counts


def count_memories(connection: Connection, agent: str, viewer: Viewer | None = None) -> MemoryCounts:
    """Return the counts of one agent's memories that a viewer may see, within the caller's transaction."""
    counts = MemoryCounts()
    visible, values = of_memory(viewer, "m"), {"agent": agent, **(viewer.parameters() if viewer else {})}
    for row in execute(connection, _CURRENT.format(visible=visible), **values).mappings():
        totals = {name: value for name, value in row.items() if name not in _GROUPS}
        counts.add(MemoryCounts(**totals, by={name: Counter({row[name]: row["memories"]}) for name in _GROUPS}))
    counts.superseded = int(execute(connection, _SUPERSEDED.format(visible=visible), **values).scalar_one())
    promoted = execute(connection, _PROMOTED.format(visible=visible), **values, everything=viewer is None)
    counts.promoted = int(promoted.scalar_one())
    return counts
