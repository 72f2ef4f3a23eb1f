"""The messages, files and memories that chunks came from: their texts, sessions, tags, times and weights.

They are read as records: frozen and typed, times as integer microseconds in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from reverie.memories.types import Tier
from reverie.recall.types import Turn
from storage.index.chunk_filter import ChunkFilter, MemoryScope
from storage.repository import AgentRepository
from storage.rows import select_list, valid_json
from storage.viewer import of_memory, of_message


class ChunkSource(msgspec.Struct, frozen=True):
    """The message, file or memory that a chunk came from, as recall shows it.

    For a memory `tier` is its tier, `source_message` the id of the message it was made from, and `source_session` the
    reference code of that message's session, both as far as the memory names them. A source with `expires_at` must not
    be shown from then on. `ref_code` is the reference code of its session. `owner` is the end user of its session, or
    of a memory, and `member` the one who said a message in a group. A replaced memory held until `valid_to`;
    `confirmed_at` is when a memory was last confirmed.
    A memory of nobody, or an instruction, that `waits` for approval is in no context.
    """

    chunk_id: int
    kind: str
    id: str
    session: str | None
    role: str | None
    name: str | None
    text: str
    chunk_text: str
    tags: tuple[str, ...]
    sequence: int
    created_at: int
    tier: Tier | None = None
    source_message: str | None = None
    expires_at: int | None = None
    owner: str | None = None
    ref_code: str | None = None
    valid_to: int | None = None
    source_session: str | None = None
    confirmed_at: int | None = None
    waits: bool = False
    member: str | None = None


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a user's memory: the text of the old memory, the text of the new one, and since when it holds.

    Memories of nobody have an empty `owner`. `older` is empty if the new memory only says that something changed. The
    old memory was made from a `message` of a `session`. The message is empty if the memory names none, and if the new
    memory was there before: two memories that said the same were merged.
    """

    older: str
    id: str
    newer: str
    at: int
    owner: str = ""
    message: str = ""
    session: str = ""


class ChunkAttributes(NamedTuple):
    """The attributes of a chunk that ranking uses. `accessed_at` is None if it was never found.

    `tier` and `kind` (fact, preference and so on) are those of a memory; messages and files have neither. `keyed` marks
    the value of a category and key, `confirmed` a memory that was said again or that a person has confirmed.
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
    keyed: bool = False
    confirmed: bool = False


# The length of the first chunk of a memory.
SHOWN_CHARACTERS: Final = 640
# At most so many are scored, those said last.
_LIMIT: Final = 10_000


class PastMemory(ChunkSource, frozen=True, kw_only=True):
    """A memory that was replaced, with the fields that recall shows and ranks by. Times are microseconds.

    It has no chunk, so its readers number such memories in place of chunk ids.
    """

    row_id: int
    channel: str | None
    importance: float
    access_count: int
    accessed_at: int
    memory_kind: str
    keyed: bool

    def attributes(self) -> ChunkAttributes:
        """Return the attributes that rankings use."""
        return ChunkAttributes(
            self.chunk_id,
            self.session,
            self.channel,
            self.importance,
            self.access_count,
            self.accessed_at,
            self.created_at,
            self.tier,
            self.memory_kind,
            self.keyed,
        )


_COLUMNS: Final = select_list(
    PastMemory,
    "m",
    chunk_id="0",
    kind="'memory'",
    session="s.id",
    role="NULL",
    name="NULL",
    text="m.content",
    chunk_text=f"substr(m.content, 1, {SHOWN_CHARACTERS})",
    sequence="0",
    owner="m.owner_user_id",
    ref_code="s.ref_code",
    source_session="s.ref_code",
    valid_to="b.created_at",
    waits="1 = 0",
    member="NULL",
    memory_kind="m.kind",
    keyed="m.category IS NOT NULL",
)
_HELD: Final = f"""
    SELECT {_COLUMNS}
    FROM memories AS m CROSS JOIN memories AS b ON b.row_id = m.superseded_by
    LEFT JOIN sessions AS s ON s.row_id = m.session_row
    WHERE m.agent_id = :agent AND m.superseded_by IS NOT NULL AND m.created_at <= :until AND b.created_at > :until
"""
_ALL_TAGS: Final = (
    f"(SELECT count(DISTINCT value) FROM json_each({valid_json('m.tags')})"
    " WHERE value IN (SELECT value FROM json_each(:tags)))"
    " = json_array_length(:tags)"
)


@dataclass(frozen=True, slots=True)
class Said:
    """The memory `root`, or a statement that it has superseded. `value` is set if it is a fact."""

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


# The subjects of memories that say that something has changed begin with this; a move is one of the home.
CHANGED: Final = "changed: "
HOME: Final = "lives in"
_REPLACEMENTS: Final = f"""
    SELECT * FROM (
        SELECT m.content AS older, b.id AS id, b.content AS newer, b.created_at AS at,
            coalesce(m.owner_user_id, '') AS owner,
            CASE WHEN m.superseded_at IN (b.stored_at, m.stored_at) THEN coalesce(m.source_message, '') ELSE ''
            END AS message,
            coalesce((SELECT s.id FROM sessions AS s WHERE s.row_id = m.session_row), '') AS session
        FROM memories AS m CROSS JOIN memories AS b ON b.row_id = m.superseded_by
        WHERE m.agent_id = :agent AND m.superseded_by IS NOT NULL AND b.visibility <> 'requested'
        AND {{visible}}{{of_owner}} ORDER BY m.superseded_at DESC LIMIT :limit
    ) AS replaced
    UNION ALL SELECT * FROM (
        SELECT '' AS older, m.id AS id, m.content AS newer, m.created_at AS at, coalesce(m.owner_user_id, '') AS owner,
            '' AS message, '' AS session
        FROM (
            SELECT row_id FROM memories WHERE agent_id = :agent AND subject = '{HOME}'
            UNION ALL SELECT row_id FROM memories
            WHERE agent_id = :agent AND subject >= '{CHANGED}' AND subject < '{CHANGED}~'
        ) AS said CROSS JOIN memories AS m ON m.row_id = said.row_id
        WHERE m.superseded_by IS NULL AND m.visibility <> 'requested' AND {{visible_too}}{{of_owner}}
        ORDER BY m.created_at DESC LIMIT :limit
    ) AS changed
"""
# Only the newest replacements count: statements from before older ones have been said again or are past.
_MAX_REPLACEMENTS: Final = 50
_MAX_REPLACEMENTS_OF_ALL: Final = 1_000


class PastMemories(AgentRepository):
    """The superseded memories of one agent within one transaction."""

    def held(self, chunk_filter: ChunkFilter) -> list[PastMemory]:
        """Return the memories that held at the filter's `until` and pass the filter, the last said first."""
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

    def replacements(self, owner: str | None) -> list[Replacement]:
        """Return the newest replacements among the memories of one user, or of nobody."""
        sql = self._replacements(" AND coalesce(m.owner_user_id, '') = :owner")
        return self._records(Replacement, sql, owner=owner or "", limit=_MAX_REPLACEMENTS)

    def newest_replacements(self) -> list[Replacement]:
        """Return the newest replacements among the memories of all users."""
        return self._records(Replacement, self._replacements(""), limit=_MAX_REPLACEMENTS_OF_ALL)

    def _replacements(self, of_owner: str) -> str:
        visible, visible_too = (of_memory(self._viewer, name) for name in "bm")
        return _REPLACEMENTS.format(visible=visible, visible_too=visible_too, of_owner=of_owner)

    def histories(self, memory_ids: Sequence[str]) -> dict[str, list[Said]]:
        """Return the versions of each memory that has several: itself and those that it superseded, newest first."""
        found: dict[str, list[Said]] = {}
        visible = of_memory(self._viewer, "m")
        for said in self._records(Said, _HISTORIES.format(visible=visible), ids=memory_ids):
            found.setdefault(said.root, []).append(said)
        return found


# The importance of a file's chunks: that of a plain user message.
_FILE_IMPORTANCE: Final = 0.5
_NEWEST: Final = "(SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)"
# Messages of a session with the same text share their chunks.
_NEWEST_UNTIL: Final = (
    "(SELECT max(d.row_id) FROM message_chunks AS l CROSS JOIN messages AS d ON d.row_id = l.message_row"
    " WHERE l.chunk_id = c.id AND d.created_at <= :until)"
)
_FROM: Final = f"""
    FROM chunks AS c
    LEFT JOIN messages AS m ON m.row_id = {_NEWEST}
    LEFT JOIN memories AS k ON k.row_id = c.memory_row
"""
_LISTED: Final = "c.agent_id = :agent AND c.id IN (SELECT value FROM json_each(:ids))"
# A session or file that was set aside belongs to no agent: see `storage.sessions.sessions`. A file that waits to be
# cut has chunks of an earlier version.
_NOT_FORGOTTEN: Final = (
    "(c.session_row IS NULL OR s.agent_id = c.agent_id) AND (c.file_row IS NULL OR EXISTS"
    " (SELECT 1 FROM files AS here WHERE here.row_id = c.file_row AND here.agent_id = c.agent_id"
    " AND here.chunked_at IS NOT NULL))"
)
_SOURCES: Final = f"""
    SELECT c.id AS chunk_id,
        CASE WHEN c.memory_row IS NOT NULL THEN 'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END AS kind,
        coalesce(m.id, f.id, k.id) AS id, coalesce(s.id, o.id) AS session, m.role AS role,
        CASE WHEN c.file_row IS NOT NULL AND c.memory_row IS NULL THEN f.source_uri ELSE m.name END AS name,
        coalesce(nullif(coalesce(m.content, k.content), ''), c.text) AS text, c.text AS chunk_text,
        coalesce(m.tags, f.tags, k.tags) AS tags, coalesce(m.sequence, c.sequence_start) AS sequence,
        coalesce(m.created_at, f.created_at, k.created_at) AS created_at, k.tier AS tier,
        k.source_message AS source_message, k.expires_at AS expires_at, k.confirmed_at AS confirmed_at,
        coalesce(s.ref_code, o.ref_code) AS ref_code,
        coalesce(o.ref_code, {valid_json("k.metadata")} ->> 'ref_code') AS source_session,
        CASE WHEN c.memory_row IS NULL THEN s.user_id ELSE k.owner_user_id END AS owner,
        (k.visibility = 'requested' AND k.source = 'extraction'
        AND (k.kind IN ('instruction', 'preference') OR k.owner_user_id IS NULL)) IS TRUE AS waits,
        CASE WHEN s.is_group THEN m.user_id END AS member
    {_FROM}
    LEFT JOIN files AS f ON f.row_id = c.file_row
    LEFT JOIN sessions AS s ON s.row_id = c.session_row
    LEFT JOIN sessions AS o ON o.row_id = k.session_row
    WHERE {_LISTED} AND {_NOT_FORGOTTEN}
"""
_ATTRIBUTES: Final = f"""
    SELECT c.id AS chunk_id, s.id AS session, coalesce(k.channel_id, s.channel_id) AS channel,
        coalesce(m.importance, k.importance, :importance) AS importance,
        coalesce(k.access_count, c.access_count) AS access_count, coalesce(k.accessed_at, c.accessed_at) AS accessed_at,
        coalesce(m.created_at, c.created_at) AS created_at, k.tier AS tier, k.kind AS kind,
        k.category IS NOT NULL AS keyed, k.confirmed_at IS NOT NULL AS confirmed
    {_FROM}
    LEFT JOIN sessions AS s ON s.row_id = coalesce(c.session_row, k.session_row)
    WHERE {_LISTED}
"""
_NEIGHBOURS: Final = """
    SELECT m.id AS id, m.role AS role, m.name AS name, m.content AS text, m.created_at AS created_at
    FROM messages AS m CROSS JOIN sessions AS s ON s.row_id = m.session_row
    WHERE m.session_row = (SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :session)
        AND m.sequence {comparison} :sequence AND {visible} ORDER BY m.sequence {direction} LIMIT :count
"""


class ChunkSources(AgentRepository):
    """The sources of one agent's chunks within one transaction."""

    def texts(self, chunk_ids: Sequence[int], *, until: int | None = None) -> dict[int, ChunkSource]:
        """Return the newest message (`until` a time in microseconds), the file or the memory behind each chunk."""
        sql = _SOURCES if until is None else _SOURCES.replace(_NEWEST, _NEWEST_UNTIL)
        return {source.chunk_id: source for source in self._records(ChunkSource, sql, ids=chunk_ids, until=until)}

    def attributes(self, chunk_ids: Sequence[int]) -> dict[int, ChunkAttributes]:
        """Return the attributes of each chunk that ranking uses."""
        found = self._records(ChunkAttributes, _ATTRIBUTES, ids=chunk_ids, importance=_FILE_IMPORTANCE)
        return {attributes.chunk_id: attributes for attributes in found}

    def sessions(self, chunk_ids: Sequence[int]) -> dict[int, str]:
        """Return the session of each chunk; a chunk of a file without a session is left out."""
        return self._by_first_column(
            f"SELECT c.id, s.id FROM chunks AS c JOIN sessions AS s ON s.row_id = c.session_row"
            f" WHERE {_LISTED} AND {_NOT_FORGOTTEN}",
            ids=chunk_ids,
        )

    def neighbours(self, session: str, sequence: int, count: int) -> tuple[list[Turn], list[Turn]]:
        """Return up to `count` messages before and after a place in a session, each list oldest first."""
        visible = of_message(self._viewer, "m", "s")
        before, after = (
            self._records(
                Turn,
                _NEIGHBOURS.format(comparison=comparison, direction=direction, visible=visible),
                session=session,
                sequence=sequence,
                count=count,
            )
            for comparison, direction in (("<", "DESC"), (">", "ASC"))
        )
        return before[::-1], after

    def session_threads(self, sessions: Sequence[int]) -> list[int]:
        """Return the threads of sessions: their own, and those of the files that belong to them."""
        files = self._values(
            "SELECT row_id FROM files WHERE agent_id = :agent"
            " AND session_row IN (SELECT value FROM json_each(:sessions))",
            sessions=sessions,
        )
        return [*sessions, *(-row for row in files)]

    def file_sessions(self, file_rows: Sequence[int]) -> dict[int, int]:
        """Return the session row of each of these files that belongs to a session."""
        found = self._by_first_column(
            "SELECT row_id, session_row FROM files WHERE agent_id = :agent AND session_row IS NOT NULL"
            " AND row_id IN (SELECT value FROM json_each(:rows))",
            rows=file_rows,
        )
        return {file: session for file, session in found.items() if isinstance(session, int)}

    def with_tags(self, tags: Sequence[str]) -> list[int]:
        """Return the chunks that have all of these tags."""
        different = sorted(set(tags))
        return self._values(
            "SELECT t.chunk_id FROM chunk_tags AS t WHERE t.tag IN (SELECT value FROM json_each(:tags))"
            " AND (SELECT agent_id FROM chunks WHERE id = t.chunk_id) = :agent"
            " GROUP BY t.chunk_id HAVING count(*) = :count",
            tags=different,
            count=len(different),
        )

    def first_of_messages(self, message_ids: Sequence[str], chunk_filter: ChunkFilter) -> list[int]:
        """Return the first chunk that passes a filter, for each message with one of these ids in any session."""
        return self._values(
            "SELECT min(c.id) FROM messages AS m JOIN message_chunks AS l ON l.message_row = m.row_id"
            " JOIN chunks AS c ON c.id = l.chunk_id WHERE m.agent_id = :agent"
            f" AND m.id IN (SELECT value FROM json_each(:messages)){chunk_filter.passes_sql('c')} GROUP BY m.row_id",
            **chunk_filter.parameters(),
            messages=message_ids,
        )

    def memories_in(self, scope: MemoryScope) -> list[int]:
        """Return the chunks of the memories in a scope."""
        return self._of_memories(scope.sql("k"), scope.parameters())

    def memories_outside(self, scope: MemoryScope) -> list[int]:
        """Return the chunks of the memories that are not in a scope."""
        return self._of_memories(f"NOT ({scope.sql('k')})", scope.parameters())

    def note_sessions(self) -> dict[int, int]:
        """Return the session row of each chunk of a note that belongs to a session."""
        return self._by_first_column(
            "SELECT c.id, k.session_row FROM memories AS k JOIN chunks AS c ON c.memory_row = k.row_id"
            " WHERE k.agent_id = :agent AND k.note_id IS NOT NULL AND k.session_row IS NOT NULL"
        )

    def created_at(self, chunk_ids: Sequence[int]) -> dict[int, int]:
        """Return the time of each chunk's source: ties in a ranking go to the newer one."""
        found = self._by_first_column(f"SELECT c.id, c.created_at FROM chunks AS c WHERE {_LISTED}", ids=chunk_ids)
        return {chunk: at if isinstance(at, int) else 0 for chunk, at in found.items()}  # a damaged one is the oldest

    def _of_memories(self, condition: str, parameters: Mapping[str, Any]) -> list[int]:
        return self._values(
            "SELECT c.id FROM memories AS k JOIN chunks AS c ON c.memory_row = k.row_id"
            f" WHERE k.agent_id = :agent AND {condition}",
            **parameters,
        )

    def _by_first_column(self, sql: str, **values: Any) -> dict[Any, Any]:
        return {row[0]: row[1] for row in self._execute(sql, **values)}
