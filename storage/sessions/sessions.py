"""Sessions of one agent: conversations, found by their id or by provider and chat id."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from reverie.contract import DEFAULT_CHANNEL, EXTRACT_MEMORIES, SUMMARIZE_SESSIONS
from reverie.errors import NotFound
from storage.memories.memories import Memories
from storage.memories.records import MemoryFilter
from storage.recall.index import SearchIndex
from storage.sessions.records import SessionRecord
from storage.upkeep.curation import CurationLog

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_REF_CODE_CHARACTERS: Final = 11
_COLUMNS: Final = (
    "row_id, id, agent_id, ref_code, user_id, provider, chat_id, channel_id, status, started_at, ended_at,"
    " updated_at, last_sequence, metadata"
)
_COUNT: Final = "(SELECT count(*) FROM messages WHERE session_row = sessions.row_id)"
_KEEP_OUT: Final = """
    INSERT INTO forgotten_sessions (agent_id, session_id, forgotten_at) VALUES (:agent, :session, :at)
    ON CONFLICT DO UPDATE SET forgotten_at = max(forgotten_at, excluded.forgotten_at)
"""

# What jobs have noted of a session, by its reference code or its names.
_DROP_PROGRESS: Final = """
    DELETE FROM job_progress WHERE job IN (:extract, :summarize)
    AND item IN (:ref_code, 'retry ' || :ref_code, :named)
"""
_DROP_DEAD_LETTERS: Final = "DELETE FROM dead_letters WHERE agent_id = :agent AND session_id = :session"


class Sessions:
    """The sessions of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def find(self, session_id: str) -> SessionRecord | None:
        """The session with this id, if it exists."""
        row = self._connection.execute(
            text(f"SELECT {_COLUMNS}, {_COUNT} FROM sessions WHERE agent_id = :agent AND id = :id"),
            {"agent": self._agent, "id": session_id},
        ).one_or_none()
        return _session(row) if row else None

    def get(self, session_id: str) -> SessionRecord:
        """The session with this id. Raises `NotFound`."""
        found = self.find(session_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no session {session_id!r}", field="session")
        return found

    def summary(self, row_id: int) -> str | None:
        """The rolling summary of a session, if there is one."""
        found = self._connection.execute(
            text("SELECT summary_text FROM sessions WHERE row_id = :row_id AND agent_id = :agent"),
            {"row_id": row_id, "agent": self._agent},
        ).scalar()
        return str(found) if found else None

    def ensure(
        self,
        session_id: str,
        *,
        now: int,
        user: str | None = None,
        provider: str | None = None,
        chat_id: str | None = None,
        channel: str | None = None,
    ) -> SessionRecord:
        """The session with this id, made on its first message; what was not known of it before is filled in."""
        self._connection.execute(
            text(
                "INSERT INTO sessions (id, agent_id, ref_code, user_id, provider, chat_id, channel_id, started_at,"
                " updated_at) VALUES (:id, :agent, :ref_code, :user, :provider, :chat_id, :channel, :now, :now)"
                " ON CONFLICT (agent_id, id) DO UPDATE SET user_id = coalesce(user_id, excluded.user_id),"
                " provider = coalesce(provider, excluded.provider), chat_id = coalesce(chat_id, excluded.chat_id),"
                " channel_id = coalesce(excluded.channel_id, channel_id)"
            ),
            {
                "id": session_id,
                "agent": self._agent,
                "ref_code": new_ref_code(),
                "user": user,
                "provider": provider,
                "chat_id": chat_id,
                "channel": channel,
                "now": now,
            },
        )
        return self.get(session_id)

    def id_of_chat(self, provider: str, chat_id: str) -> str | None:
        """The id of the session that a provider knows by this chat id."""
        found = self._connection.execute(
            text(
                "SELECT id FROM sessions WHERE agent_id = :agent AND provider = :provider AND chat_id = :chat_id"
                " ORDER BY row_id LIMIT 1"
            ),
            {"agent": self._agent, "provider": provider, "chat_id": chat_id},
        ).scalar()
        return str(found) if found is not None else None

    def id_of_ref(self, ref_code: str) -> str | None:
        """The id of the session with this reference code."""
        found = self._connection.execute(
            text("SELECT id FROM sessions WHERE agent_id = :agent AND ref_code = :code"),
            {"agent": self._agent, "code": ref_code},
        ).scalar()
        return str(found) if found is not None else None

    def describe(self, row_id: int, metadata: Mapping[str, Any]) -> None:
        """Set what is noted of a session."""
        self._connection.execute(
            text("UPDATE sessions SET metadata = :metadata WHERE row_id = :row_id AND agent_id = :agent"),
            {"row_id": row_id, "agent": self._agent, "metadata": json.dumps(dict(metadata), ensure_ascii=False)},
        )

    def rows_of_channel(self, channel: str | None) -> tuple[int, ...]:
        """The rows of the sessions in a channel; those that name none are in the default one, as is None."""
        is_default = channel in (None, DEFAULT_CHANNEL)
        rows = self._connection.execute(
            text(
                "SELECT row_id FROM sessions WHERE agent_id = :agent"
                f" AND (channel_id = :channel{' OR channel_id IS NULL' if is_default else ''})"
            ),
            {"agent": self._agent, "channel": channel or DEFAULT_CHANNEL},
        )
        return tuple(int(row) for row in rows.scalars())

    def touch(self, row_id: int, *, now: int, last_sequence: int) -> None:
        """Note that something was said: the session is active, and its highest sequence is this one."""
        self._connection.execute(
            text(
                "UPDATE sessions SET updated_at = max(updated_at, :now), last_sequence = :last_sequence,"
                " status = CASE status WHEN 'idle' THEN 'active' ELSE status END,"
                " ended_at = CASE status WHEN 'idle' THEN NULL ELSE ended_at END"
                " WHERE row_id = :row_id AND agent_id = :agent"
            ),
            {"now": now, "last_sequence": last_sequence, "row_id": row_id, "agent": self._agent},
        )

    def list(self, *, limit: int = 50, offset: int = 0, status: str | None = None) -> Sequence[SessionRecord]:
        """Sessions, the most recently active first; archived ones only when asked for."""
        condition = "status = :status" if status else "status <> 'archived'"
        rows = self._connection.execute(
            text(
                f"SELECT {_COLUMNS}, {_COUNT} FROM sessions WHERE agent_id = :agent AND {condition}"
                " ORDER BY updated_at DESC, row_id DESC LIMIT :limit OFFSET :offset"
            ),
            {"agent": self._agent, "status": status, "limit": limit, "offset": offset},
        )
        return [_session(row) for row in rows]

    def forget(self, session_id: str, *, forgotten_at: int) -> bool:
        """Delete a session with all that came from it, and keep out what is still on its way.

        Messages, files, chunks, vectors, full text, claims and dead letters go in this transaction. An item of
        this session that was accepted up to `forgotten_at` is never stored. False when there was no such session
        (the mark is set all the same).
        """
        parameters = {"agent": self._agent, "session": session_id, "at": forgotten_at}
        self._connection.execute(text(_KEEP_OUT), parameters)
        self._connection.execute(text(_DROP_DEAD_LETTERS), parameters)
        found = self.find(session_id)
        if found is None:
            return False
        if found.provider and found.chat_id:
            # What is still on its way, or dead, may name the session by its chat alone.
            chat = {**parameters, "session": f"{found.provider}:{found.chat_id}"}
            self._connection.execute(text(_KEEP_OUT), chat)
            self._connection.execute(text(_DROP_DEAD_LETTERS), chat)
        self._connection.execute(
            text(_DROP_PROGRESS),
            {
                "extract": EXTRACT_MEMORIES,
                "summarize": SUMMARIZE_SESSIONS,
                "ref_code": found.ref_code,
                "named": json.dumps([self._agent, session_id]),
            },
        )
        self._forget_memories(found)
        chunk_ids = self._connection.execute(
            text("SELECT id FROM chunks WHERE session_row = :row"), {"row": found.row_id}
        ).scalars()
        SearchIndex(self._connection).remove_vectors(list(chunk_ids))
        self._connection.execute(
            text("DELETE FROM sessions WHERE row_id = :row AND agent_id = :agent"),
            {"row": found.row_id, "agent": self._agent},
        )
        return True

    def _forget_memories(self, session: SessionRecord) -> None:
        """Delete the memories that came from a session, and what the log of curation holds of both.

        What they had taken the place of, from other sessions, stands again.
        """
        memories, log = Memories(self._connection, self._agent), CurationLog(self._connection, self._agent)
        log.forget_session(self._agent, session.id, session.row_id)
        gone = list(memories.iterate(MemoryFilter(session=session.id, active=None)))
        if gone:
            rows = [memory.row_id for memory in gone]
            memories.detach_superseded(rows)
            log.forget_memories(self._agent, [memory.id for memory in gone])
            memories.delete(rows)

    def forgotten_at(self, session_id: str) -> int:
        """Until when what was accepted for this session is kept out; 0 when it was never forgotten."""
        found = self._connection.execute(
            text("SELECT forgotten_at FROM forgotten_sessions WHERE agent_id = :agent AND session_id = :session"),
            {"agent": self._agent, "session": session_id},
        ).scalar()
        return int(found or 0)


def new_ref_code() -> str:
    """Eleven base62 characters: 65 bits, safe in a URL, short enough to be read out."""
    return "".join(secrets.choice(_BASE62) for _ in range(_REF_CODE_CHARACTERS))


def _session(row: Row[Any]) -> SessionRecord:
    values = tuple(row)
    return SessionRecord(*[*values[:13], json.loads(values[13]), int(values[14])])
