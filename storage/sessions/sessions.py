"""Sessions: conversations of an agent, found by id, by ref code, or by provider and chat id, until they are forgotten.

Deleting takes half a millisecond for each chunk under the write lock: a minute for 100,000. So a large session is first
set aside, which changes one row: it then belongs to no agent, and none of its content is found, read or worked on. The
caller or a sweep removes its rows in short steps.

The life cycle of a session is active, idle, archived. A status is set in the transaction that read the previous one.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from reverie.contract import DEFAULT_CHANNEL, EXTRACT_MEMORIES, SUMMARIZE_SESSIONS, chat_key
from reverie.errors import NotFound
from storage.curation import CurationLog
from storage.engines import CursorResult
from storage.index.search_index import SearchIndex
from storage.memories.memories import Memories
from storage.memories.records import MemoryFilter
from storage.repository import AgentRepository, Repository
from storage.rows import select_list
from storage.sessions.records import SessionContent, SessionName, SessionRecord, SessionSpeaker
from storage.viewer import of_session

# The agent of sessions that were set aside; the name of an agent is never empty.
NOBODY: Final = ""
# Rows deleted in one transaction: some 100 ms under the write lock.
STEP_ROWS: Final = 150

_SET_ASIDE: Final = """
    UPDATE sessions SET agent_id = '', id = ref_code || '-' || row_id, provider = NULL, chat_id = NULL,
        status = 'archived', last_sequence = 0, summary_text = NULL WHERE row_id = :row
"""
# Rows that a trigger deletes with an agent's session. A session that was set aside has no agent when it is deleted.
_SCHEDULING: Final = (
    "DELETE FROM schedules WHERE agent_id = :agent AND session_id = :session AND user_id IS NULL",
    "DELETE FROM notifications WHERE agent_id = :agent AND session_id = :session AND user_id IS NULL",
    "DELETE FROM reminders WHERE agent_id = :agent AND session_id = :session AND user_id IS NULL",
)


class ForgottenSessions(Repository):
    """The sessions that were set aside, within one transaction."""

    def is_small(self, row: int) -> bool:
        """Return whether a session with its content can be deleted in one step."""
        return not any(
            self._value(f"SELECT 1 FROM {table} WHERE session_row = :row LIMIT 1 OFFSET {STEP_ROWS}", row=row)
            for table in ("chunks", "messages", "files")
        )

    def set_aside(self, row: int, *, agent: str, session: str, has_user: bool) -> None:
        """Set a session aside: take it from its agent."""
        if has_user:
            for sql in _SCHEDULING:
                self._execute(sql, agent=agent, session=session)
        self._execute(_SET_ASIDE, row=row)

    def not_forgotten(self, ref_codes: Collection[str]) -> set[str]:
        """Return the given ref codes whose sessions exist, under any agent."""
        sql = "SELECT ref_code FROM sessions WHERE agent_id <> '' AND ref_code IN (SELECT value FROM json_each(:codes))"
        return set(self._values(sql, codes=sorted(ref_codes)))

    def any(self) -> bool:
        """Return whether something is left to remove."""
        return self._next() is not None

    def remove_step(self) -> bool:
        """Remove some rows of a session that was set aside; False when there is none left."""
        row = self._next()
        if row is None:
            return False
        chunks = self._values("SELECT id FROM chunks WHERE session_row = :row LIMIT :limit", row=row, limit=STEP_ROWS)
        if chunks:
            SearchIndex(self._connection).remove_vectors(chunks)
            self._execute("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(:chunks))", chunks=chunks)
            return True
        for table in ("messages", "files"):
            removed = self._execute(
                f"DELETE FROM {table} WHERE row_id IN"
                f" (SELECT row_id FROM {table} WHERE session_row = :row ORDER BY row_id LIMIT :limit)",
                row=row,
                limit=STEP_ROWS,
            )
            if removed.rowcount:
                return True
        self._execute("DELETE FROM sessions WHERE row_id = :row", row=row)
        return True

    def _next(self) -> int | None:
        row: int | None = self._integer("SELECT row_id FROM sessions WHERE agent_id = '' ORDER BY id LIMIT 1")
        return row


_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_REF_CODE_CHARACTERS: Final = 11
_MESSAGES: Final = "(SELECT count(*) FROM messages WHERE session_row = sessions.row_id)"
_SELECT: Final = f"SELECT {select_list(SessionRecord, messages=_MESSAGES)} FROM sessions"
# Only roles that speak in the conversation count, not messages to or from programs.
_CONTENTS: Final = """
    SELECT s.row_id AS session_row,
        (SELECT substr(m.content, 1, 400) FROM messages AS m WHERE m.session_row = s.row_id
            AND m.role IN ('user', 'assistant') ORDER BY m.created_at, m.id LIMIT 1) AS first_words,
        (SELECT min(m.created_at) FROM messages AS m WHERE m.session_row = s.row_id) AS first_said_at,
        (SELECT max(m.created_at) FROM messages AS m WHERE m.session_row = s.row_id) AS last_said_at
    FROM sessions AS s WHERE s.agent_id = :agent AND s.row_id IN (SELECT value FROM json_each(:rows))
"""
_SPEAKERS: Final = """
    SELECT session_row, name FROM messages
    WHERE session_row IN (SELECT value FROM json_each(:rows)) AND sequence <= :last
    AND name IS NOT NULL AND role <> 'tool'
    GROUP BY session_row, name ORDER BY session_row, min(sequence)
"""
# Messages that are read to find the speakers of a session.
_SPEAKERS_UP_TO: Final = 200
# The positions that jobs noted for a session, by its ref code or its name.
_DROP_PROGRESS: Final = """
    DELETE FROM job_progress WHERE job IN (:extract, :summarize)
    AND item IN (:ref_code, 'retry ' || :ref_code, :name)
"""
# Prefix of the key of a chat in a column for session ids, which contain no control characters.
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
        """Return the only user of a session; None for a group, without a user, and if there is no such session."""
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

        A chat that belongs to another session stays with it. A new session belongs to the user who creates it. Raises
        `NotFound` for a session that the viewer may not see.
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
        """Note the users of messages: a session with several users becomes a group, which each of them sees."""
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
        """Return the rows of the sessions in a channel; None is the default channel."""
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

    def list(
        self, *, limit: int = 50, offset: int = 0, status: str | None = None, ids: Sequence[str] = ()
    ) -> Sequence[SessionRecord]:
        """Return sessions, the most recently active first; archived ones only with that `status`, or by their `ids`."""
        condition = "status = :status" if status else "1" if ids else "status <> 'archived'"
        if ids:
            condition += " AND id IN (SELECT value FROM json_each(:ids))"
        sql = (
            f"{_SELECT} WHERE agent_id = :agent AND {condition} AND {self._visible}"
            " ORDER BY updated_at DESC, row_id DESC LIMIT :limit OFFSET :offset"
        )
        return self._records(SessionRecord, sql, status=status, ids=list(ids), limit=limit, offset=offset)

    def contents(self, rows: Sequence[int]) -> dict[int, SessionContent]:
        """Return the first words and the times of sessions, by their rows."""
        return {one.session_row: one for one in self._records(SessionContent, _CONTENTS, rows=list(rows))}

    def speakers(self, rows: Sequence[int]) -> Mapping[int, Sequence[str]]:
        """Return the names of the speakers in sessions, by row of the session: the first to speak comes first."""
        found = self._records(SessionSpeaker, _SPEAKERS, rows=[*rows], last=_SPEAKERS_UP_TO)
        by_session = itertools.groupby(found, key=lambda one: one.session_row)
        return {row: [one.name for one in named if one.name is not None] for row, named in by_session}

    def forget(self, session_id: str, *, forgotten_at: int) -> bool:
        """Delete a session with all that came from it, and keep out its items that are not stored yet.

        Messages, files, chunks, vectors, full text, claims and dead letters go in this transaction, or if there are
        many, are set aside for `ForgottenSessions.remove_step`: either way nobody finds them any more. An item of this
        session that was accepted up to `forgotten_at` is never stored. Returns False if there is no such session; its
        items are kept out even then.
        """
        self._note_forgotten(session_id, forgotten_at)
        session = self.find(session_id)
        if session is None:
            return False
        if session.provider and session.chat_id:
            # Items and dead letters may name the session only by its chat.
            key = chat_key(session.provider, session.chat_id)
            self._keep_out(_CHAT_MARK + key, forgotten_at)
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

    def free_id_for_chat(self, provider: str, chat_id: str, others: Collection[str] = ()) -> str:
        """Return an id for a chat's new session: the key of the chat, unless another session has that id.

        A caller chose that id without naming this chat, so that session's words are not for this chat's users. `others`
        are ids that are about to be used.
        """
        key = chat_key(provider, chat_id)
        for number in itertools.count(2):
            if key not in others and self.find(key) is None:
                break
            key = f"{chat_key(provider, chat_id)}~{number}"
        return key

    def _note_forgotten(self, session: str, forgotten_at: int) -> None:
        self._keep_out(session, forgotten_at)
        self._execute(_DROP_DEAD_LETTERS, session=session)

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


# Actions in the curation log: the end of a session, and the removal of its conversation's memories.
CLOSE: Final = "close"
CLEAR: Final = "clear"
_MAX_TIME: Final = 2**63 - 1

# A session whose end a person has undone stays open until its next message.
_INACTIVE: Final = """
    SELECT s.agent_id, s.id, s.updated_at FROM sessions AS s
    WHERE s.status = 'active' AND s.updated_at < :before AND NOT EXISTS (
        SELECT 1 FROM curation_log AS l WHERE l.agent_id = s.agent_id AND l.session_id = s.id
        AND l.action = :close AND l.undone_at > s.updated_at)
    AND coalesce(:agent, s.agent_id) = s.agent_id
    ORDER BY s.updated_at, s.row_id LIMIT :limit
"""
_LEFTOVERS: Final = """
    SELECT s.agent_id, s.id, min(m.updated_at) FROM memories AS m CROSS JOIN sessions AS s ON s.row_id = m.session_row
    WHERE m.tier = 'conversation' AND m.superseded_by IS NULL AND s.status <> 'active' AND m.updated_at < :before
    AND NOT EXISTS (SELECT 1 FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id
        WHERE i.agent_id = m.agent_id AND i.memory_id = m.id AND l.action = :clear AND l.undone_at IS NOT NULL)
    AND coalesce(:agent, s.agent_id) = s.agent_id
    GROUP BY s.row_id, s.agent_id, s.id ORDER BY min(m.updated_at), s.row_id LIMIT :limit
"""
_CLEARABLE: Final = """
    SELECT m.row_id FROM memories AS m
    WHERE m.session_row = :row AND m.agent_id = :agent AND m.tier = 'conversation' AND m.superseded_by IS NULL
    AND NOT EXISTS (SELECT 1 FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id
        WHERE i.agent_id = m.agent_id AND i.memory_id = m.id AND l.action = :clear AND l.undone_at IS NOT NULL)
    ORDER BY m.row_id LIMIT :limit
"""


class SessionLifecycle(AgentRepository):
    """The status of one agent's sessions within one transaction."""

    def set_status(self, session_row: int, status: str, *, ended_at: int | None) -> None:
        """Set the status of a session and when it ended."""
        self._execute(
            "UPDATE sessions SET status = :status, ended_at = :at WHERE row_id = :row AND agent_id = :agent",
            status=status,
            at=ended_at,
            row=session_row,
        )

    def clearable(self, session_row: int, *, limit: int) -> list[int]:
        """Return rows of a session's conversation memories, except those whose removal a person has undone."""
        return self._values(_CLEARABLE, row=session_row, clear=CLEAR, limit=limit)


class AllSessionLifecycles(Repository):
    """The sessions of all agents of a workspace within one transaction, for jobs. Times are microseconds.

    With `agent`, only the sessions of that agent.
    """

    def inactive(self, *, before: int, limit: int, agent: str | None = None) -> list[SessionName]:
        """Return active sessions without a message since `before`, the longest inactive first."""
        return [SessionName(row[0], row[1]) for row in self._query(_INACTIVE, before, limit, agent)]

    def with_leftover_memories(self, *, before: int, limit: int, agent: str | None = None) -> list[SessionName]:
        """Return ended sessions that still have conversation memories and have not changed since `before`."""
        return [SessionName(row[0], row[1]) for row in self._query(_LEFTOVERS, before, limit, agent)]

    def oldest_change(self) -> int | None:
        """Return when the longest unchanged of all these sessions was last changed; None without any."""
        changes = [int(row[2]) for sql in (_INACTIVE, _LEFTOVERS) for row in self._query(sql, _MAX_TIME, 1, None)]
        return min(changes, default=None)

    def _query(self, sql: str, before: int, limit: int, agent: str | None) -> CursorResult[*tuple[Any, ...]]:
        return self._execute(sql, before=before, close=CLOSE, clear=CLEAR, limit=limit, agent=agent)
