"""Removes the rows of a selection, and keeps out what was accepted before and is still on its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reverie.contract import EXTRACT_MEMORIES, SUMMARIZE_SESSIONS
from storage.memories.memories import Memories
from storage.pipeline.forgotten_files import ForgottenFiles
from storage.recall.index import SearchIndex
from storage.repository import AgentRepository, Repository
from storage.rows import tables_of
from storage.sessions.sessions import Sessions
from storage.trust.erased_rows import Selection, Subject

# Where a session id is expected; a session id holds no control character.
MESSAGE_MARK: Final = "\x1fmessage\x1f"
USER_MARK: Final = "\x1fuser\x1f"
AGENT_MARK: Final = "\x1fagent\x1f"
# Tables with a number of their own: with a plus before the agent, SQLite does not read all rows of the agent.
_NUMBERED: Final = frozenset({"chunks", "curation_log", "recall_events", "dead_letters"})
# The agent of a mark that is for all agents.
EVERY_AGENT: Final = ""

_KEEP_OUT: Final = """
    INSERT INTO forgotten_sessions (agent_id, session_id, forgotten_at) VALUES (:agent, :key, :at)
    ON CONFLICT (agent_id, session_id) DO UPDATE SET forgotten_at = max(forgotten_at, excluded.forgotten_at)
"""
# Chunks that contain or answer a removed message, and the messages that need new ones.
_NEIGHBOURS: Final = """
    SELECT DISTINCT n.row_id FROM messages AS m JOIN messages AS n ON n.session_row = m.session_row
    AND n.sequence > m.sequence AND n.row_id NOT IN (SELECT value FROM json_each(:messages))
    JOIN message_chunks AS l ON l.message_row = n.row_id JOIN chunks AS c ON c.id = l.chunk_id AND c.lead <> ''
    WHERE +m.agent_id = :agent AND m.row_id IN (SELECT value FROM json_each(:messages)) AND n.sequence = (
        SELECT min(f.sequence) FROM messages AS f WHERE f.session_row = m.session_row AND f.sequence > m.sequence
        AND f.row_id NOT IN (SELECT value FROM json_each(:messages)))
"""
_CHUNKS_OF_MESSAGES: Final = """
    SELECT DISTINCT l.chunk_id FROM message_chunks AS l
    WHERE l.message_row IN (SELECT value FROM json_each(:rows)) AND NOT EXISTS (SELECT 1 FROM message_chunks AS o
        WHERE o.chunk_id = l.chunk_id AND o.message_row NOT IN (SELECT value FROM json_each(:rows)))
"""
_SUMMARISED: Final = """
    SELECT DISTINCT s.row_id FROM messages AS m JOIN sessions AS s ON s.row_id = m.session_row
    WHERE +m.agent_id = :agent AND m.row_id IN (SELECT value FROM json_each(:messages))
    AND m.consolidated_at IS NOT NULL AND s.summary_text IS NOT NULL
"""


class Removal(AgentRepository):
    """Removes rows of one agent within one transaction."""

    def remove(self, selection: Selection, *, forgotten_at: int) -> None:
        """Remove the selected rows and all that belongs to them; items accepted up to `forgotten_at` stay out.

        Large sessions and files are set aside: nobody finds them any more, and the caller removes them in steps.
        """
        self._delete("curation_log", "id", selection.curation)
        if selection.memories:
            self._remove_memories(selection.memories)
        if selection.messages:
            self._remove_messages(selection.messages)
        if selection.files:
            for row in selection.files:
                ForgottenFiles(self._connection).forget(row)
        sessions = Sessions(self._connection, self._agent)
        for name in self._values(
            "SELECT id FROM sessions WHERE row_id IN (SELECT value FROM json_each(:rows))", rows=selection.sessions
        ):
            sessions.forget(str(name), forgotten_at=forgotten_at)
        if selection.groups:
            self._leave(selection.groups, selection.member)
        self._delete("recall_events", "id", selection.recalls)
        self._delete("items", "row_id", selection.items)
        for table in ("schedules", "reminders", "notifications", "dead_letters"):
            self._delete(table, "id", getattr(selection, table))

    def remove_everything(self) -> int:
        """Remove what no selection names: what an agent has besides sessions, memories and schedules."""
        removed = 0
        tables = {name for name, columns in tables_of(self._connection).items() if "agent_id" in columns}
        kept = {"forgotten_sessions", "forward_changes", "audit_log", "tokens", "erasures"}
        for table in sorted(tables - kept):
            if not table.startswith("chunks_"):  # the indexes, which follow the chunks
                removed += self._execute(f"DELETE FROM {table} WHERE agent_id = :agent").rowcount
        return removed

    def _leave(self, groups: Sequence[int], user: str) -> None:
        """Remove a user from groups, unless the user has said something there since; they belong to the others."""
        self._execute(
            "DELETE FROM session_users WHERE agent_id = :agent AND user_id = :user AND session_row IN"
            " (SELECT value FROM json_each(:rows)) AND NOT EXISTS (SELECT 1 FROM messages AS m"
            " WHERE m.session_row = session_users.session_row AND m.user_id = :user)",
            rows=groups,
            user=user,
        )
        self._execute(
            "UPDATE sessions SET user_id = (SELECT min(user_id) FROM session_users WHERE session_row = sessions.row_id)"
            " WHERE agent_id = :agent AND user_id = :user AND row_id IN (SELECT value FROM json_each(:rows))"
            " AND NOT EXISTS (SELECT 1 FROM session_users WHERE session_row = sessions.row_id AND user_id = :user)",
            rows=groups,
            user=user,
        )

    def _remove_memories(self, rows: Sequence[int]) -> None:
        memories = Memories(self._connection, self._agent)
        names = self._values("SELECT id FROM memories WHERE row_id IN (SELECT value FROM json_each(:rows))", rows=rows)
        memories.detach_superseded(rows)
        memories.delete(rows)
        self._execute(
            "DELETE FROM memory_promotions WHERE agent_id = :agent"
            " AND memory_id IN (SELECT value FROM json_each(:names))",
            names=names,
        )

    def _remove_messages(self, rows: Sequence[int]) -> None:
        """Remove messages; what follows one loses it from its chunks, and a summary that covers one is made anew."""
        neighbours = [int(row) for row in self._values(_NEIGHBOURS, messages=rows)]
        for session in self._values(_SUMMARISED, messages=rows):
            self._forget_summary(int(session))
        self._remove_chunks(self._values(_CHUNKS_OF_MESSAGES, rows=rows))
        self._delete("messages", "row_id", rows)
        if neighbours:
            self._remove_chunks(self._values(_CHUNKS_OF_MESSAGES, rows=neighbours))
            self._execute(
                "UPDATE messages SET chunked_at = NULL WHERE agent_id = :agent"
                " AND row_id IN (SELECT value FROM json_each(:rows))",
                rows=neighbours,
            )

    def _forget_summary(self, session_row: int) -> None:
        self._execute(
            "UPDATE sessions SET summary_text = NULL, summary_epoch = summary_epoch + 1, summary_upper_sequence = 0"
            " WHERE row_id = :row AND agent_id = :agent",
            row=session_row,
        )
        self._execute("UPDATE messages SET consolidated_at = NULL WHERE session_row = :row", row=session_row)
        self._execute(
            "DELETE FROM curation_log WHERE agent_id = :agent AND session_id ="
            " (SELECT id FROM sessions WHERE row_id = :row) AND id IN"
            " (SELECT entry_id FROM curation_changes WHERE table_name = 'sessions')",
            row=session_row,
        )
        self._execute(
            "DELETE FROM job_progress WHERE job IN (:extract, :summarize) AND item ="
            " (SELECT ref_code FROM sessions WHERE row_id = :row)",
            extract=EXTRACT_MEMORIES,
            summarize=SUMMARIZE_SESSIONS,
            row=session_row,
        )

    def _remove_chunks(self, chunk_ids: Sequence[int]) -> None:
        SearchIndex(self._connection).remove_vectors(chunk_ids)
        self._delete("chunks", "id", chunk_ids)

    def _delete(self, table: str, column: str, keys: Sequence[int] | Sequence[str]) -> None:
        if keys:
            own = "+agent_id" if column == "row_id" or table in _NUMBERED else "agent_id"
            sql = f"DELETE FROM {table} WHERE {own} = :agent AND {column} IN (SELECT value FROM json_each(:keys))"
            self._execute(sql, keys=keys)


class KeptOut(Repository):
    """The marks by which items that were accepted before an erasure are not stored after it."""

    def agents(self) -> list[str]:
        """Return all agents that have rows in the store."""
        tables = ("sessions", "files", "memories", "items", "schedules", "reminders", "notifications", "dead_letters")
        union = " UNION ".join(f"SELECT agent_id FROM {table}" for table in (*tables, "curation_log", "channels"))
        return [str(agent) for agent in self._values(f"SELECT agent_id FROM ({union}) ORDER BY 1") if agent]

    def add(self, subject: Subject, agent: str | None, *, at: int) -> None:
        """Keep out what was accepted for the subject up to `at`, for one agent or all."""
        keys = {
            "session": subject.id,
            "message": MESSAGE_MARK + subject.id,
            "user": USER_MARK + subject.id,
            "agent": AGENT_MARK,
        }
        if subject.kind in keys:
            self._execute(_KEEP_OUT, agent=agent or EVERY_AGENT, key=keys[subject.kind], at=at)

    def any(self) -> bool:
        """Return whether there is any mark."""
        return self._value("SELECT 1 FROM forgotten_sessions LIMIT 1") is not None

    def drop(self, *, up_to: int) -> int:
        """Drop the marks up to a time: nothing that was accepted before is on its way any more. Return how many."""
        return self._execute("DELETE FROM forgotten_sessions WHERE forgotten_at <= :at", at=up_to).rowcount


class Marks(AgentRepository):
    """The marks of one agent, as ingest looks them up."""

    def forgotten_at(self, *, user: str | None = None) -> int:
        """Return the time up to which items of the agent, or of one of its users, are kept out; 0 without a mark."""
        keys = [AGENT_MARK, *([USER_MARK + user] if user else [])]
        sql = (
            "SELECT max(forgotten_at) FROM forgotten_sessions WHERE agent_id IN (:agent, '')"
            " AND session_id IN (SELECT value FROM json_each(:keys))"
        )
        return int(self._value(sql, keys=keys) or 0)

    def messages_forgotten_at(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the times up to which deliveries of these messages are kept out, for those that are."""
        sql = (
            "SELECT session_id, max(forgotten_at) FROM forgotten_sessions WHERE agent_id IN (:agent, '')"
            " AND session_id IN (SELECT value FROM json_each(:keys)) GROUP BY session_id"
        )
        rows = self._execute(sql, keys=[MESSAGE_MARK + message_id for message_id in ids])
        return {str(row[0]).removeprefix(MESSAGE_MARK): int(row[1]) for row in rows}
