"""What a search is confined to, as SQL over `chunks`: sessions, tags, kinds, and which memories are seen from where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from reverie.contract import DEFAULT_CHANNEL

_OF_KIND: Final = {
    "message": "(file_row IS NULL AND memory_row IS NULL)",
    "file": "file_row IS NOT NULL",
    "memory": "memory_row IS NOT NULL",
    "note": "memory_row IN (SELECT row_id FROM memories WHERE agent_id = :agent AND note_id IS NOT NULL)",
}


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """Which memories are seen from a place, by their tier.

    Of the conversation tier those of these sessions, and any notes that lie in them; of the channel tier those of this
    channel; and with `wider` all that hold in the whole workspace or across workspaces.
    """

    sessions: tuple[int, ...]
    channel: str | None
    wider: bool

    def sql(self, memories: str) -> str:
        """A condition on memories under this alias, never NULL; its parameters come from `parameters`."""
        sessions = f"{memories}.session_row IN (SELECT value FROM json_each(:seen_sessions))"
        parts = [
            f"({memories}.session_row IS NOT NULL AND {sessions}"
            f" AND ({memories}.tier = 'conversation' OR {memories}.note_id IS NOT NULL))"
        ]
        if self.channel is not None:
            channel = f"coalesce({memories}.channel_id, :usual_channel) = :seen_channel"
            parts.append(f"({memories}.tier = 'channel' AND {channel})")
        if self.wider:
            parts.append(f"{memories}.tier IN ('workspace', 'account')")
        return f"({' OR '.join(parts)})"

    def parameters(self) -> dict[str, Any]:
        """The bound values of `sql`."""
        return {
            "seen_sessions": json.dumps(self.sessions),
            "seen_channel": self.channel,
            "usual_channel": DEFAULT_CHANNEL,
        }


@dataclass(frozen=True, slots=True)
class ChunkFilter:
    """What a search is confined to, inside the query: the agent always, the rest where it is asked for.

    `sessions` confines messages and files, and memories too where `memories` does not say which of them. `kinds` are
    message, file, memory and note; a note is a memory.
    """

    agent: str
    sessions: tuple[int, ...] | None = None
    tags: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    memories: MemoryScope | None = None

    @property
    def narrow(self) -> bool:
        """Whether it selects less than all that the agent holds."""
        return self.sessions is not None or self.memories is not None or bool(self.tags or self.kinds)

    def ids_sql(self) -> str:
        """A sub-select of the chunk ids that pass; its parameters come from `parameters`."""
        clauses = ["agent_id = :agent"]
        in_sessions = "session_row IN (SELECT value FROM json_each(:sessions))"
        if self.memories is not None:
            told = "memory_row IS NULL" + (f" AND {in_sessions}" if self.sessions is not None else "")
            seen = f"SELECT k.row_id FROM memories AS k WHERE k.agent_id = :agent AND {self.memories.sql('k')}"
            clauses.append(f"(({told}) OR memory_row IN ({seen}))")
        elif self.sessions is not None:
            clauses.append(in_sessions)
        if self.kinds:
            clauses.append(f"({' OR '.join(_OF_KIND[kind] for kind in self.kinds)})")
        if self.tags:
            clauses.append(
                "id IN (SELECT chunk_id FROM chunk_tags WHERE tag IN (SELECT value FROM json_each(:tags))"
                " GROUP BY chunk_id HAVING count(*) = json_array_length(:tags))"
            )
        return f"SELECT id FROM chunks WHERE {' AND '.join(clauses)}"

    def parameters(self) -> dict[str, Any]:
        """The bound values of `ids_sql`."""
        scope = {} if self.memories is None else self.memories.parameters()
        return {**scope, "agent": self.agent, "sessions": json.dumps(self.sessions), "tags": json.dumps(self.tags)}
