"""Summaries of sessions: their text, the messages they cover, and the conditional write of a newer one.

The text of a summary has one line for each statement, with its date and speaker, oldest first. The form is the same
whether a job or a language model wrote it:

    - 2026-05-03 Ann: I moved to Lisbon in May.
    - 2026-05-03 Ann, asked "Do you like it there?": Very much.

A summary covers a message if and only if the message's `consolidated_at` is set; a late message with an early time or
sequence is not covered. `summary_upper_sequence` is the highest sequence up to which every message is covered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from reverie.errors import NotFound
from storage.repository import AgentRepository, Repository
from storage.rows import is_vector
from storage.sessions.records import SessionName
from storage.viewer import of_session

OMISSION: Final = "…"
_LINE = re.compile(r"- (?P<date>\d{4}-\d\d-\d\d) (?P<speaker>[^:]{1,240}): (?P<text>.+)")
_NOT_IN_A_LABEL = re.compile(r"[:\s]+")
_MAX_LABEL: Final = 60
# Characters of the question quoted after a speaker's name, where the line is a short answer to it.
MAX_QUESTION: Final = 120


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a summary, or a message to summarise; text in another form has an empty date and speaker."""

    date: str
    speaker: str
    text: str

    def __str__(self) -> str:
        """Return the line as it is written in a summary."""
        return f"- {self.date} {self.speaker}: {self.text}" if self.date else self.text


def parse_summary(summary: str) -> list[Line]:
    """Return the lines of a summary, oldest first."""
    lines = []
    for raw in summary.splitlines():
        match = _LINE.fullmatch(raw)
        if match is not None:
            lines.append(Line(match["date"], match["speaker"], match["text"]))
        elif raw.strip():
            lines.append(Line("", "", raw))
    return lines


def format_summary(lines: Iterable[Line]) -> str:
    """Return lines as the text of a summary."""
    return "\n".join(map(str, lines))


def speaker_label(name: str) -> str:
    """Return a name in the form a line can hold: on one line, without a colon, at most 60 characters."""
    label = _NOT_IN_A_LABEL.sub(" ", name).strip() or "someone"
    return label if len(label) <= _MAX_LABEL else label[: _MAX_LABEL - 1] + OMISSION


def until_day(summary: str, day: str) -> str:
    """Return the lines of a summary about days before `day`, such as 2026-05-03, without lines that have no date."""
    return format_summary(line for line in parse_summary(summary) if line.date and line.date < day)


def without_quoted(summary: str, texts: Iterable[str]) -> str:
    """Return a summary without the lines that quote one of these texts, which are shown in full elsewhere."""
    shown = [" ".join(text.split()) for text in texts]
    return "\n".join(raw for raw in summary.splitlines() if not _is_quoted(raw, shown))


def _is_quoted(raw: str, texts: Sequence[str]) -> bool:
    line = _LINE.fullmatch(raw)
    return line is not None and any(line["text"].removesuffix(OMISSION) in text for text in texts)


# The action of a written summary in the curation log.
SUMMARISE: Final = "summarise"

_STATE: Final = """
    SELECT s.row_id AS row_id, s.id AS session, s.agent_id AS agent, coalesce(s.summary_text, '') AS text,
        s.summary_epoch AS epoch, s.summary_upper_sequence AS upper_sequence,
        coalesce((SELECT max(l.undone_at) FROM curation_log AS l
            WHERE l.agent_id = s.agent_id AND l.session_id = s.id AND l.action = :action), 0) AS undone_at
    FROM sessions AS s WHERE s.agent_id = :agent AND s.id = :id AND {visible}
"""
_SIZES: Final = """
    SELECT row_id, octet_length(content) + coalesce(octet_length(tool_calls), 0) AS size_bytes
    FROM messages INDEXED BY messages_unsummarised
    WHERE session_row = :row AND consolidated_at IS NULL AND agent_id = :agent ORDER BY created_at, id
"""
_MARK_COVERED: Final = """
    UPDATE messages SET consolidated_at = :now WHERE session_row = :row AND agent_id = :agent
    AND consolidated_at IS NULL AND row_id IN (SELECT value FROM json_each(:rows))
"""
_WRITE: Final = """
    UPDATE sessions SET summary_text = :text, summary_epoch = summary_epoch + 1, summary_upper_sequence = coalesce(
        (SELECT max(sequence) FROM messages WHERE session_row = :row AND sequence < coalesce(
            (SELECT min(sequence) FROM messages INDEXED BY messages_unsummarised
                WHERE session_row = :row AND consolidated_at IS NULL), :max_sequence)), 0)
    WHERE row_id = :row AND agent_id = :agent AND id = :id AND summary_epoch = :epoch
"""
# Not by joins: with tables that were never analysed, PostgreSQL would read the vectors of all chunks.
_VECTORS: Final = """
    SELECT l.message_row, (SELECT text FROM chunks WHERE id = l.chunk_id AND agent_id = :agent) AS text,
        (SELECT embedding FROM chunks_vec WHERE chunk_id = l.chunk_id AND model = :model) AS embedding
    FROM message_chunks AS l WHERE l.message_row IN (SELECT value FROM json_each(:rows))
    ORDER BY l.message_row, l.chunk_id
"""
_WITH_MESSAGES: Final = """
    SELECT s.agent_id, s.id, max(m.row_id) FROM
        (SELECT row_id, session_row FROM messages WHERE row_id > :after ORDER BY row_id LIMIT :limit) AS m
    CROSS JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id <> '' GROUP BY s.row_id, s.agent_id, s.id
    ORDER BY min(m.row_id)
"""
_UNSUMMARISED_INACTIVE: Final = """
    SELECT s.row_id, s.agent_id, s.id FROM sessions AS s
    WHERE s.row_id > :after AND s.agent_id <> '' AND (s.status <> 'active' OR s.updated_at < :before)
    AND EXISTS (SELECT 1 FROM messages AS m INDEXED BY messages_unsummarised
        WHERE m.session_row = s.row_id AND m.consolidated_at IS NULL)
    ORDER BY s.row_id LIMIT :limit
"""
_MAX_SEQUENCE: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SummaryState:
    """A session's summary as it was read. `undone_at` is when a summary was last undone (microseconds; 0 if never)."""

    row_id: int
    session: str
    agent: str
    text: str
    epoch: int
    upper_sequence: int
    undone_at: int


class MessageSize(NamedTuple):
    """A message that no summary covers, and the bytes of its content and its tool calls."""

    row_id: int
    size_bytes: int


class Coverage(NamedTuple):
    """How many messages of a session its summary covers, and how many it does not."""

    covered: int
    uncovered: int


class Summaries(AgentRepository):
    """The summaries of one agent's sessions within one transaction."""

    def state(self, session: str) -> SummaryState:
        """Return a session's current summary. Raises `NotFound`."""
        sql = _STATE.format(visible=of_session(self._viewer, "s"))
        state = self._record(SummaryState, sql, id=session, action=SUMMARISE)
        if state is None:
            raise NotFound(f"agent {self._agent} has no session {session!r}", field="session")
        return state

    def coverage(self, session_row: int) -> Coverage:
        """Return how many of a session's messages its summary covers."""
        sql = (
            "SELECT count(consolidated_at), count(*) - count(consolidated_at) FROM messages"
            " WHERE session_row = :row AND agent_id = :agent"
        )
        return Coverage._make(self._execute(sql, row=session_row).one())

    def unsummarised(self, session_row: int) -> list[MessageSize]:
        """Return the messages that no summary covers, in the order of `created_at`, then id."""
        return self._records(MessageSize, _SIZES, row=session_row)

    def newest_stored_at(self, session_row: int) -> int:
        """Return when the last message of a session was stored, in microseconds; 0 without any."""
        sql = "SELECT max(stored_at) FROM messages WHERE session_row = :row AND agent_id = :agent"
        return int(self._value(sql, row=session_row) or 0)

    def vectors(self, message_rows: Sequence[int], model: str, dim: int) -> list[tuple[int, str, bytes]]:
        """Return the chunks of these messages that have a vector of a model: message row, text and vector."""
        rows = self._execute(_VECTORS, rows=message_rows, model=model)
        return [
            (int(row), text, vector) for row, text, vector in rows if isinstance(text, str) and is_vector(vector, dim)
        ]

    def write(self, state: SummaryState, summary: str, message_rows: Sequence[int], *, now: int) -> bool:
        """Write a summary that also covers these messages, unless something changed since `state` was read.

        False when another summary was written or undone, when a message is gone or already covered, or when the session
        was replaced: the caller must then roll the transaction back.
        """
        if self.state(state.session) != state:  # an undo restores the epoch, so an equal epoch alone proves nothing
            return False
        covered = self._execute(_MARK_COVERED, row=state.row_id, now=now, rows=message_rows)
        if covered.rowcount != len(message_rows):
            return False
        written = self._execute(
            _WRITE,
            row=state.row_id,
            text=summary,
            id=state.session,
            epoch=state.epoch,
            max_sequence=_MAX_SEQUENCE,
        )
        return written.rowcount == 1


class AllSummaries(Repository):
    """Sessions of all agents that may need a summary, within one transaction."""

    def sessions_with_messages(self, after: int, *, limit: int) -> tuple[list[SessionName], int]:
        """Return the sessions of the next `limit` messages after a message row, and the last of these rows.

        Message rows ascend in commit order and are never reused, so none is skipped.
        """
        rows = self._execute(_WITH_MESSAGES, after=after, limit=limit).all()
        last = max((int(row[2]) for row in rows), default=after)
        return [SessionName(row[0], row[1]) for row in rows], last

    def inactive_unsummarised(self, *, before: int, after: int, limit: int) -> list[tuple[int, SessionName]]:
        """Return sessions that ended, or had no message since `before`, and have messages no summary covers.

        Each comes with its row, ascending from the first row after `after`.
        """
        rows = self._execute(_UNSUMMARISED_INACTIVE, before=before, after=after, limit=limit)
        return [(int(row[0]), SessionName(row[1], row[2])) for row in rows]
