"""Removes the rows of a selection, and all that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from reverie.contract import EXTRACT_MEMORIES, SUMMARIZE_SESSIONS
from storage.catalogue import TABLES
from storage.lifecycle.erased_rows import Selection
from storage.memories.memories import Memories
from storage.pipeline.chunks import Chunks
from storage.pipeline.files import ForgottenFiles
from storage.repository import AgentRepository
from storage.rows import tables_of
from storage.sessions.sessions import Sessions

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
        removers: Mapping[str, Callable[[Sequence[Any]], None]] = {
            "memories": self._remove_memories,
            "messages": self._remove_messages,
            "files": self._set_files_aside,
            "sessions": lambda rows: self._forget_sessions(rows, forgotten_at),
        }
        for table, keys in selection.keys.items():
            if table in removers and keys:
                removers[table](keys)
            else:
                self._delete(table, keys)
        if selection.groups:
            self._leave(selection.groups, selection.member)

    def remove_everything(self) -> int:
        """Remove everything else that an agent has besides sessions, memories and schedules."""
        removed = 0
        present = tables_of(self._connection)
        for name, table in reversed([*TABLES.items()]):  # dependent tables first, so that each row is counted
            if name in present and table.of_agent and not table.outlives:
                removed += self._execute(f"DELETE FROM {name} WHERE agent_id = :agent").rowcount
        return removed

    def _set_files_aside(self, rows: Sequence[int]) -> None:
        for row in rows:
            ForgottenFiles(self._connection).forget(row)

    def _forget_sessions(self, rows: Sequence[int], forgotten_at: int) -> None:
        sessions = Sessions(self._connection, self._agent)
        for name in self._values(
            "SELECT id FROM sessions WHERE row_id IN (SELECT value FROM json_each(:rows))", rows=rows
        ):
            sessions.forget(str(name), forgotten_at=forgotten_at)

    def _leave(self, groups: Sequence[int], user: str) -> None:
        """Remove a user from groups that have other users, unless the user has said something there since."""
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
        """Remove messages; the messages after them are chunked again, and summaries that cover them are made anew."""
        neighbours = [int(row) for row in self._values(_NEIGHBOURS, messages=rows)]
        for session in self._values(_SUMMARISED, messages=rows):
            self._forget_summary(int(session))
        chunks = Chunks(self._connection)
        chunks.remove(self._values(_CHUNKS_OF_MESSAGES, rows=rows))
        self._delete("messages", rows)
        if neighbours:
            chunks.remove(self._values(_CHUNKS_OF_MESSAGES, rows=neighbours))
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

    def _delete(self, table: str, keys: Sequence[Any]) -> None:
        if keys:
            key = TABLES[table].key
            # With a plus before the agent, SQLite does not read all rows of the agent.
            own = "agent_id" if key[0] == "agent_id" else "+agent_id"
            sql = f"DELETE FROM {table} WHERE {own} = :agent AND {key[-1]} IN (SELECT value FROM json_each(:keys))"
            self._execute(sql, keys=keys)
