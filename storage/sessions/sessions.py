"""Sessions of one agent: conversations, found by id, by ref code, or by provider and chat id."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from reverie.contract import DEFAULT_CHANNEL, EXTRACT_MEMORIES, SUMMARIZE_SESSIONS, chat_key
from reverie.errors import NotFound
from storage.memories.memories import Memories
from storage.memories.records import MemoryFilter
from storage.recall.index import SearchIndex
from storage.repository import AgentRepository
from storage.rows import select_list
from storage.sessions.forgotten import ForgottenSessions
from storage.sessions.records import SessionRecord
from storage.upkeep.curation import CurationLog
from storage.viewer import of_session

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_REF_CODE_CHARACTERS: Final = 11
_MESSAGES: Final = "(SELECT count(*) FROM messages WHERE session_row = sessions.row_id)"
_SELECT: Final = f"SELECT {select_list(SessionRecord, messages=_MESSAGES)} FROM sessions"
_KEEP_OUT: Final = """
    INSERT INTO forgotten_sessions (agent_id, session_id, forgotten_at) VALUES (:agent, :session, :at)
    ON CONFLICT (agent_id, session_id) DO UPDATE SET forgotten_at = max(forgotten_at, excluded.forgotten_at)
"""
# The positions that jobs noted for a session, by its ref code or its name.
_DROP_PROGRESS: Final = """
    DELETE FROM job_progress WHERE job IN (:extract, :summarize)
    AND item IN (:ref_code, 'retry ' || :ref_code, :name)
"""
# Before the key of a chat where a session id is expected; a session id holds no control character.
_CHAT_MARK: Final = "\x1f"
_DROP_DEAD_LETTERS: Final = "DELETE FROM dead_letters WHERE agent_id = :agent AND session_id = :session"


class Sessions(AgentRepository):
    """The sessions of one agent within one transaction."""

    @property
    def _visible(self) -> str:
        return of_session(self._viewer, "sessions")

    def find(self, session_id: str) -> SessionRecord | None:
        """Return the session with this id."""
        sql = f"{_SELECT} WHERE agent_id = :agent AND id = :id AND {self._visible}"
        return self._record(SessionRecord, sql, id=session_id)

    def get(self, session_id: str) -> SessionRecord:
        """Return the session with this id. Raises `NotFound`."""
        found = self.find(session_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no session {session_id!r}", field="session")
        return found

    def is_hidden(self, session_id: str) -> bool:
        """Return whether there is a session that the viewer may not see."""
        sql = f"SELECT 1 FROM sessions WHERE agent_id = :agent AND id = :id AND ({self._visible}) IS NOT TRUE"
        return self._value(sql, id=session_id) is not None

    def has_users(self, session_id: str) -> bool:
        """Return whether a session belongs to a user or is a group."""
        sql = "SELECT 1 FROM sessions WHERE agent_id = :agent AND id = :id AND user_id IS NOT NULL"
        return self._value(sql, id=session_id) is not None

    def owner(self, session_id: str) -> str | None:
        """Return the only user of a session; None for a group, for one without a user, and if there is none."""
        sql = "SELECT user_id FROM sessions WHERE agent_id = :agent AND id = :id AND NOT is_group"
        owner: str | None = self._value(sql, id=session_id)
        return owner

    def summary(self, row_id: int) -> str | None:
        """Return the rolling summary of a session, or None without one."""
        found = self._value("SELECT summary_text FROM sessions WHERE row_id = :row AND agent_id = :agent", row=row_id)
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
        """Return the session with this id, created if needed; unknown fields of an existing one are filled in.

        A chat that another session has stays with that one. A new session belongs to the user who creates it. Raises
        `NotFound` for one that its viewer may not see.
        """
        if provider and chat_id and self.id_by_chat(provider, chat_id) not in (None, session_id):
            provider = chat_id = None
        self._execute(
            "INSERT INTO sessions (id, agent_id, ref_code, user_id, provider, chat_id, channel_id, started_at,"
            " updated_at) VALUES (:id, :agent, :ref_code, :creator, :provider, :chat_id, :channel, :now, :now)"
            " ON CONFLICT (agent_id, id) DO UPDATE SET user_id = coalesce(user_id, :user),"
            " provider = iif(chat_id IS NULL, coalesce(excluded.provider, provider), provider),"
            " chat_id = coalesce(chat_id, excluded.chat_id),"
            " channel_id = coalesce(excluded.channel_id, channel_id)",
            id=session_id,
            ref_code=new_ref_code(),
            user=user,
            creator=user or (self._viewer.user if self._viewer is not None else None),
            provider=provider,
            chat_id=chat_id,
            channel=channel,
            now=now,
        )
        return self.get(session_id)

    def users(self, session: SessionRecord) -> set[str]:
        """Return the users of a session."""
        if not session.is_group:
            return set() if session.user is None else {session.user}
        return set(self._values("SELECT user_id FROM session_users WHERE session_row = :row", row=session.row_id))

    def add_users(self, session: SessionRecord, users: Iterable[str]) -> None:
        """Note the users of messages: a session with several becomes a group, which each of them sees."""
        new = set(users) - self.users(session)
        if not new:
            return
        for user in {*new, *filter(None, (session.user,))}:
            self._execute(
                "INSERT OR IGNORE INTO session_users (session_row, agent_id, user_id) VALUES (:row, :agent, :user)",
                row=session.row_id,
                user=user,
            )
        self._execute("UPDATE sessions SET is_group = 1 WHERE row_id = :row AND agent_id = :agent", row=session.row_id)

    def id_by_chat(self, provider: str, chat_id: str) -> str | None:
        """Return the id of the session with this chat id at a provider."""
        session_id: str | None = self._value(
            "SELECT id FROM sessions WHERE agent_id = :agent AND provider = :provider AND chat_id = :chat_id",
            provider=provider,
            chat_id=chat_id,
        )
        return session_id

    def id_by_ref_code(self, ref_code: str) -> str | None:
        """Return the id of the session with this ref code."""
        session_id: str | None = self._value(
            f"SELECT id FROM sessions WHERE agent_id = :agent AND ref_code = :code AND {self._visible}", code=ref_code
        )
        return session_id

    def set_metadata(self, row_id: int, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a session."""
        sql = "UPDATE sessions SET metadata = :metadata WHERE row_id = :row AND agent_id = :agent"
        self._execute(sql, row=row_id, metadata=metadata)

    def rows_in_channel(self, channel: str | None) -> tuple[int, ...]:
        """Return the rows of the sessions in a channel; None is the default one, which holds sessions without any."""
        is_default = channel in (None, DEFAULT_CHANNEL)
        rows = self._values(
            "SELECT row_id FROM sessions WHERE agent_id = :agent"
            f" AND (channel_id = :channel{' OR channel_id IS NULL' if is_default else ''})",
            channel=channel or DEFAULT_CHANNEL,
        )
        return tuple(rows)

    def touch(self, row_id: int, *, now: int, last_sequence: int) -> None:
        """Note a new message: an idle session becomes active again, and its highest sequence is set."""
        self._execute(
            "UPDATE sessions SET updated_at = max(updated_at, :now), last_sequence = :last_sequence,"
            " status = CASE status WHEN 'idle' THEN 'active' ELSE status END,"
            " ended_at = CASE status WHEN 'idle' THEN NULL ELSE ended_at END"
            " WHERE row_id = :row AND agent_id = :agent",
            now=now,
            last_sequence=last_sequence,
            row=row_id,
        )

    def list(self, *, limit: int = 50, offset: int = 0, status: str | None = None) -> Sequence[SessionRecord]:
        """Return sessions, the most recently active first; archived ones only with that `status`."""
        condition = "status = :status" if status else "status <> 'archived'"
        sql = (
            f"{_SELECT} WHERE agent_id = :agent AND {condition} AND {self._visible}"
            " ORDER BY updated_at DESC, row_id DESC LIMIT :limit OFFSET :offset"
        )
        return self._records(SessionRecord, sql, status=status, limit=limit, offset=offset)

    def forget(self, session_id: str, *, forgotten_at: int) -> bool:
        """Delete a session with all that came from it, and keep out what is still on its way.

        Messages, files, chunks, vectors, full text, claims and dead letters go in this transaction, or if there are
        many, are set aside for `ForgottenSessions.remove_step`: either way nobody finds them any more. An item of this
        session that was accepted up to `forgotten_at` is never stored. False when there is no such session; its items
        are kept out all the same.
        """
        self._keep_out(session_id, forgotten_at)
        session = self.find(session_id)
        if session is None:
            return False
        if session.provider and session.chat_id:
            # Items and dead letters may name the session by its chat alone.
            key = chat_key(session.provider, session.chat_id)
            self._execute(_KEEP_OUT, session=_CHAT_MARK + key, at=forgotten_at)
            if key == session_id or self.find(key) is None:
                self._execute(_DROP_DEAD_LETTERS, session=key)
        self._execute(
            _DROP_PROGRESS,
            extract=EXTRACT_MEMORIES,
            summarize=SUMMARIZE_SESSIONS,
            ref_code=session.ref_code,
            name=json.dumps([self._agent, session_id]),
        )
        self._forget_memories(session)
        forgotten = ForgottenSessions(self._connection)
        if not forgotten.is_small(session.row_id):
            has_user = session.user is not None
            forgotten.set_aside(session.row_id, agent=self._agent, session=session.id, has_user=has_user)
            return True
        chunk_ids = self._values("SELECT id FROM chunks WHERE session_row = :row", row=session.row_id)
        SearchIndex(self._connection).remove_vectors(chunk_ids)
        self._execute("DELETE FROM sessions WHERE row_id = :row AND agent_id = :agent", row=session.row_id)
        return True

    def forgotten_at(self, session_id: str) -> int:
        """Return the time up to which items accepted for this session are kept out; 0 if it was never forgotten."""
        found = self._value(
            "SELECT forgotten_at FROM forgotten_sessions WHERE agent_id = :agent AND session_id = :session",
            session=session_id,
        )
        return int(found or 0)

    def chat_forgotten_at(self, key: str) -> int:
        """Return the time up to which items that name only a chat, by its key, are kept out; 0 if never forgotten."""
        return self.forgotten_at(_CHAT_MARK + key)

    def free_id_for_chat(self, provider: str, chat_id: str) -> str:
        """Return the id for the session of a chat that has none yet: its key, unless another chat has that session.

        A session with that id and without a chat is taken for this one.
        """
        key = chat_key(provider, chat_id)
        for number in itertools.count(2):
            session = self.find(key)
            if session is None or not (session.provider and session.chat_id):
                break
            key = f"{chat_key(provider, chat_id)}~{number}"
        return key

    def _keep_out(self, session: str, forgotten_at: int) -> None:
        self._execute(_KEEP_OUT, session=session, at=forgotten_at)
        self._execute(_DROP_DEAD_LETTERS, session=session)

    def make_way(self, message_ids: Sequence[str]) -> None:
        """Remove messages of forgotten sessions whose rows are still being removed, and whose ids are sent again."""
        ForgottenSessions(self._connection).make_way(self._agent, message_ids)

    def forget_some_memories(self, session_id: str, *, limit: int) -> bool:
        """Delete memories that came from a session, at most `limit`; return whether there may be more.

        Called until it returns false, before `forget`: that deletes the rest in its one transaction.
        """
        session = self.find(session_id)
        return session is not None and self._forget_memories(session, limit) == limit

    def _forget_memories(self, session: SessionRecord, limit: int | None = None) -> int:
        """Delete the memories that came from a session, and the curation log's entries about it and them.

        Memories of other sessions that they had replaced become current again.
        """
        memories, log = Memories(self._connection, self._agent), CurationLog(self._connection, self._agent)
        log.forget_session(self._agent, session.id, session.row_id)
        found = memories.iterate(MemoryFilter(session=session.id, active=None))
        removed = list(itertools.islice(found, limit))
        if removed:
            rows = [memory.row_id for memory in removed]
            memories.detach_superseded(rows)
            log.forget_memories(self._agent, [memory.id for memory in removed])
            memories.delete(rows)
        return len(removed)


def new_ref_code() -> str:
    """Return a random ref code: eleven base62 characters (65 bits), safe in a URL and short enough to read out."""
    return "".join(secrets.choice(_BASE62) for _ in range(_REF_CODE_CHARACTERS))
