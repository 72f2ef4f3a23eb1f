"""The ids in a store that an erasure may have named, to compare them with tombstones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from storage.repository import AgentRepository
from storage.trust.erasures import SubjectKind


class Candidate(NamedTuple):
    """An id of an agent's row, as an erasure may have named it; `origin` is where a row of the account came from."""

    kind: SubjectKind
    id: str
    origin: str | None


_NAMED: tuple[tuple[SubjectKind, str], ...] = (
    ("session", "SELECT id, NULL FROM sessions WHERE agent_id = :agent"),
    (
        "session",
        "SELECT DISTINCT metadata ->> 'session', metadata ->> 'workspace' FROM memories WHERE agent_id = :agent"
        " AND session_row IS NULL AND metadata ->> 'session' IS NOT NULL",
    ),
    ("message", "SELECT id, NULL FROM messages WHERE agent_id = :agent"),
    (
        "message",
        "SELECT DISTINCT source_message, metadata ->> 'workspace' FROM memories WHERE agent_id = :agent"
        " AND source_message IS NOT NULL",
    ),
    ("file", "SELECT id, NULL FROM files WHERE agent_id = :agent"),
    ("memory", "SELECT id, NULL FROM memories WHERE agent_id = :agent"),
    ("memory", "SELECT note_id, NULL FROM memories WHERE agent_id = :agent AND note_id IS NOT NULL"),
    (
        "user",
        "SELECT user_id, NULL FROM sessions WHERE agent_id = :agent UNION SELECT owner_user_id, metadata ->>"
        " 'workspace' FROM memories WHERE agent_id = :agent UNION SELECT user_id, NULL FROM schedules"
        " WHERE agent_id = :agent UNION SELECT recipient, NULL FROM reminders WHERE agent_id = :agent"
        " UNION SELECT user_id, NULL FROM reminders WHERE agent_id = :agent"
        " UNION SELECT user_id, NULL FROM notifications WHERE agent_id = :agent"
        " UNION SELECT user_id, NULL FROM session_users WHERE agent_id = :agent"
        " UNION SELECT user_id, NULL FROM files WHERE agent_id = :agent"
        " UNION SELECT user_id, NULL FROM recall_events WHERE agent_id = :agent"
        " UNION SELECT user_id, NULL FROM items WHERE agent_id = :agent"
        " UNION SELECT label.value, NULL FROM items JOIN json_each(items.namespace) AS label"
        " WHERE items.agent_id = :agent AND items.user_id IS NULL",
    ),
)


class Candidates(AgentRepository):
    """What erasures may have named in the rows of one agent, within one transaction."""

    def all(self) -> Iterator[Candidate]:
        """Yield every id by its kind."""
        for kind, sql in _NAMED:
            for row in self._execute(sql):
                if row[0]:
                    yield Candidate(kind, str(row[0]), row[1])

    def origins(self) -> list[str]:
        """Return the workspaces that the agent's rows of the account came from."""
        return self._values(
            "SELECT DISTINCT metadata ->> 'workspace' FROM memories WHERE agent_id = :agent"
            " AND metadata ->> 'workspace' IS NOT NULL"
        )
