"""Filters of a search as SQL over `chunks`: by session, tag and kind, and by which memories are visible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from reverie.contract import DEFAULT_CHANNEL
from storage.viewer import Audiences

_OF_KIND: Final = {
    "message": "(file_row IS NULL AND memory_row IS NULL)",
    "file": "file_row IS NOT NULL",
    "memory": "memory_row IS NOT NULL",
    "note": "memory_row IN (SELECT row_id FROM memories WHERE agent_id = :agent AND note_id IS NOT NULL)",
}


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """The memories that are visible from a place, by tier.

    They are the memories of the conversation tier of `sessions`, the notes in these sessions, the memories of the tier
    of `channel`, and with `wider` all memories of the workspace and account tiers.
    """

    sessions: tuple[int, ...]
    channel: str | None
    wider: bool

    def sql(self, memories: str) -> str:
        """Return a condition on memories under this alias, never NULL; its parameters come from `parameters`."""
        sessions = f"{memories}.session_row IN (SELECT value FROM json_each(:visible_sessions))"
        parts = [
            f"({memories}.session_row IS NOT NULL AND {sessions}"
            f" AND ({memories}.tier = 'conversation' OR {memories}.note_id IS NOT NULL))"
        ]
        if self.channel is not None:
            channel = f"coalesce({memories}.channel_id, :default_channel) = :visible_channel"
            parts.append(f"({memories}.tier = 'channel' AND {channel})")
        if self.wider:
            parts.append(f"{memories}.tier IN ('workspace', 'account')")
        return f"({' OR '.join(parts)})"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `sql`."""
        return {
            "visible_sessions": self.sessions,
            "visible_channel": self.channel,
            "default_channel": DEFAULT_CHANNEL,
        }


@dataclass(frozen=True, slots=True)
class ChunkFilter:
    """Restricts a search to an agent's chunks that meet all conditions.

    `sessions` restricts messages and files, and also memories if there is no condition `memories`. `kinds` are message,
    file, memory and note; a note is a memory. `until` leaves out texts that were said later, in microseconds.
    `audiences` leaves out texts that the viewer may not see.
    """

    agent: str
    sessions: tuple[int, ...] | None = None
    tags: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    memories: MemoryScope | None = None
    until: int | None = None
    audiences: Audiences | None = None

    @property
    def is_narrow(self) -> bool:
        """Return whether the filter selects only a part of the agent's chunks."""
        return self.audiences is not None or self._is_narrow_for_everybody

    @property
    def _is_narrow_for_everybody(self) -> bool:
        if self.until is not None:
            return True
        return self.sessions is not None or self.memories is not None or bool(self.tags or self.kinds)

    def passes_sql(self, chunk: str) -> str:
        """Return a condition, which begins with AND or is empty, on the few chunks under this alias."""
        sql = ""
        if self._is_narrow_for_everybody:
            sql = f" AND {chunk}.id IN ({replace(self, audiences=None).ids_sql()})"
        if self.audiences is not None:
            everybody = "v.audience IS NULL OR " if self.audiences.everybody else ""
            sql += (
                f" AND EXISTS (SELECT 1 FROM forward_index AS v WHERE v.agent_id = :agent AND v.chunk_id = {chunk}.id"
                f" AND ({everybody}v.audience IN (SELECT value FROM json_each(:audiences))))"
            )
        return sql

    def ids_sql(self) -> str:
        """Return a sub-select of the chunk ids that pass; its parameters come from `parameters`."""
        return f"SELECT id FROM chunks WHERE {self.condition_sql()}"

    def condition_sql(self) -> str:
        """Return a condition on the rows of `chunks`, for queries in which no other table has columns of these names.

        Its parameters come from `parameters`.
        """
        clauses = ["agent_id = :agent"]
        in_sessions = "session_row IN (SELECT value FROM json_each(:sessions))"
        if self.memories is not None:
            other = "memory_row IS NULL" + (f" AND {in_sessions}" if self.sessions is not None else "")
            visible = f"SELECT k.row_id FROM memories AS k WHERE k.agent_id = :agent AND {self.memories.sql('k')}"
            clauses.append(f"(({other}) OR memory_row IN ({visible}))")
        elif self.sessions is not None:
            clauses.append(in_sessions)
        if self.kinds:
            clauses.append(f"({' OR '.join(_OF_KIND[kind] for kind in self.kinds)})")
        if self.tags:
            clauses.append(
                "id IN (SELECT chunk_id FROM chunk_tags WHERE tag IN (SELECT value FROM json_each(:tags))"
                " GROUP BY chunk_id HAVING count(*) = json_array_length(:tags))"
            )
        if self.until is not None:
            clauses.append("created_at <= :until")
        if self.audiences is not None:
            # Most stores have few hidden chunks, and an index of the chunks with an audience finds them.
            hidden = "agent_id = :agent AND audience NOT IN (SELECT value FROM json_each(:audiences))"
            clauses.append(f"id NOT IN (SELECT chunk_id FROM forward_index WHERE audience IS NOT NULL AND {hidden})")
            if not self.audiences.everybody:
                clauses.append(
                    "id IN (SELECT chunk_id FROM forward_index WHERE agent_id = :agent AND audience IS NOT NULL)"
                )
        return " AND ".join(clauses)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `condition_sql`."""
        scope = {} if self.memories is None else self.memories.parameters()
        own = {"agent": self.agent, "sessions": self.sessions or (), "tags": self.tags}
        audiences = () if self.audiences is None else self.audiences.names
        return {**scope, **own, "until": self.until, "audiences": audiences}
