"""The rows that memory extraction reads: sessions with new messages, positions in them, and memories to compare with.

The position in a session is stored under the session's ref code, which is never reused; a row number may be reused
after the session is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reverie.clock import CLOCK_TOLERANCE_MICROS
from storage.engines import Connection
from storage.leases import READING, Attempts, JobLeases
from storage.memories.records import CONFIRMED
from storage.repository import AgentRepository, Repository
from storage.rows import select_list, valid_json

# Sessions are checked again this long after the watermark: one may be committed a little after its `updated_at`.
RECHECK_MICROS: Final = 3_600 * 1_000_000
_METADATA: Final = valid_json("metadata")
_WATERMARK: Final = "mark"
# The stage of the dead letters of sessions that kill their reader.
EXTRACT_STAGE: Final = "extract"


@dataclass(frozen=True, slots=True)
class WaitingSession:
    """A session with messages after `position`, up to which memories were extracted. Times are microseconds.

    `user` of a group is only the first of its users.
    """

    row_id: int
    id: str
    agent: str
    ref_code: str
    user: str | None
    channel: str | None
    updated_at: int
    last_sequence: int
    position: int
    is_group: bool = False

    def speaker(self, message: SourceMessage) -> str | None:
        """Return the user who said a message: the user that it names, else the session's only user, if any."""
        return message.user or (None if self.is_group else self.user)


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """The parts of a message that extraction reads.

    `created_at` is never after the time at which the message was stored. Otherwise a message that a wrong clock dated
    to next year would override everything said until then. `user` is the end user it was stored for, if it named one.
    """

    id: str
    sequence: int
    role: str
    name: str | None
    content: str
    created_at: int
    trace: str
    row_id: int
    user: str | None = None


@dataclass(frozen=True, slots=True)
class KnownMemory:
    """The parts of a current memory that extraction compares new ones with."""

    row_id: int
    id: str
    content: str
    source: str
    kind: str
    category: str | None
    key: str | None
    value: str | None
    subject: str | None
    owner: str | None
    note_id: str | None
    pinned: bool
    created_at: int
    visibility: str = "private"
    importance: float = 0.0


# One index lookup for each agent, however many sessions it has.
_AGENTS: Final = """
    WITH RECURSIVE agents (agent_id) AS (
        SELECT min(agent_id) FROM sessions WHERE agent_id > ''
        UNION ALL
        SELECT (SELECT min(s.agent_id) FROM sessions AS s WHERE s.agent_id > a.agent_id) FROM agents AS a
        WHERE a.agent_id IS NOT NULL)
"""
_FROM_AGENTS: Final = """
    FROM agents AS a
    JOIN sessions AS s ON s.agent_id = a.agent_id AND s.updated_at >= :since
    LEFT JOIN job_progress AS p ON p.job = :job AND p.item = s.ref_code
"""
_JOIN_RETRIES: Final = "LEFT JOIN job_progress AS r ON r.job = :job AND r.item = 'retry ' || s.ref_code"
_SESSION_COLUMNS: Final = select_list(WaitingSession, "s", id="s.id", position="coalesce(p.position, 0)")
_WAITING: Final = f"""
    {_AGENTS}
    SELECT {_SESSION_COLUMNS}
    {_FROM_AGENTS}
    {_JOIN_RETRIES}
    WHERE s.last_sequence > coalesce(p.position, 0)
    AND (coalesce(r.position, 0) <= :now OR r.at > :now + {CLOCK_TOLERANCE_MICROS})
    AND coalesce(:agent, s.agent_id) = s.agent_id
    ORDER BY s.updated_at, s.row_id LIMIT :limit
"""
_OLDEST_WAITING: Final = f"""
    {_AGENTS} SELECT min(s.updated_at) {_FROM_AGENTS} WHERE s.last_sequence > coalesce(p.position, 0)
"""
# How many sessions wait and since when, how many are being read or killed their reader, how many a failed model delays.
EXTRACTION_BACKLOG: Final = f"""
    {_AGENTS}
    SELECT count(*), min(s.updated_at), (SELECT count(*) FROM job_progress WHERE job = :job
        AND item >= '{READING}' AND item < '{READING}\uffff'), count(r.position)
    {_FROM_AGENTS}
    {_JOIN_RETRIES}
    WHERE s.last_sequence > coalesce(p.position, 0)
"""
# When a session was last begun or read on, without times noted while the clock was ahead. It reads a row of each
# session of the workspace.
EXTRACTION_MOVED: Final = f"SELECT max(at) FROM job_progress WHERE job = :job AND at <= :now + {CLOCK_TOLERANCE_MICROS}"
# The latest time up to which every session that was written has been read, 0 if it lies in the future.
EXTRACTED_UP_TO: Final = (
    f"SELECT max(position) FROM job_progress WHERE job = :job AND item = '{_WATERMARK}' AND position <= :now"
)
_SESSION_WAITING: Final = f"""
    SELECT {_SESSION_COLUMNS}
    FROM sessions AS s LEFT JOIN job_progress AS p ON p.job = :job AND p.item = s.ref_code
    WHERE s.agent_id = :agent AND s.id = :session AND s.last_sequence > coalesce(p.position, 0)
"""
_MESSAGES: Final = f"""
    SELECT {select_list(SourceMessage, created_at="min(created_at, stored_at)", user="user_id")} FROM messages
    WHERE session_row = (SELECT row_id FROM sessions WHERE row_id = :row AND ref_code = :ref_code)
"""
_KNOWN: Final = f"""
    SELECT {select_list(KnownMemory, owner="owner_user_id")}
    FROM memories WHERE agent_id = :agent AND superseded_by IS NULL AND tenant IS :tenant
"""


class ExtractionProgress(Repository):
    """How far extraction has come in a workspace, within one transaction. It crosses agents: only jobs use it."""

    def __init__(self, connection: Connection, job: str) -> None:
        super().__init__(connection)
        self._job = job
        self._bound = {"job": job}
        self._progress = JobLeases(connection)
        # By the ref codes of sessions.
        self.attempts = Attempts(connection, job)

    def waiting(self, *, now: int, limit: int, agent: str | None = None) -> list[WaitingSession]:
        """Return sessions with new messages that are not postponed, longest inactive first.

        With `agent`, only sessions of that agent.
        """
        return self._records(WaitingSession, _WAITING, since=self.watermark(now), now=now, limit=limit, agent=agent)

    def oldest_waiting(self, *, now: int) -> int | None:
        """Return the earliest `updated_at` of sessions with new messages, postponed or not; None without any."""
        oldest: int | None = self._integer(_OLDEST_WAITING, since=self.watermark(now))
        return oldest

    def waiting_session(self, agent: str, session: str) -> WaitingSession | None:
        """Return one session if it has new messages."""
        return self._record(WaitingSession, _SESSION_WAITING, agent=agent, session=session)

    def first_waiting_since(self, session: WaitingSession) -> int:
        """Return when the first new message of a session was stored."""
        stored_at = self._value(
            "SELECT stored_at FROM messages WHERE session_row = :row AND sequence > :position"
            " ORDER BY sequence LIMIT 1",
            row=session.row_id,
            position=session.position,
        )
        return int(stored_at) if stored_at is not None else session.updated_at

    def new_messages(self, session: WaitingSession, *, limit: int) -> list[SourceMessage]:
        """Return the first messages after the position, in sequence order."""
        return self._messages("sequence > :position ORDER BY sequence LIMIT :limit", session, limit)

    def messages_before(self, session: WaitingSession, *, limit: int) -> list[SourceMessage]:
        """Return the last messages up to the position, in sequence order."""
        return self._messages("sequence <= :position ORDER BY sequence DESC LIMIT :limit", session, limit)[::-1]

    def advance(self, session: WaitingSession, *, to: int, now: int) -> bool:
        """Move the position of a session; False when another worker has moved it, or the session is gone."""
        exists = self._value(
            "SELECT 1 FROM sessions WHERE row_id = :row AND ref_code = :ref_code",
            row=session.row_id,
            ref_code=session.ref_code,
        )
        if exists is None or not self._progress.advance(
            self._job, session.ref_code, after=session.position, to=to, now=now
        ):
            return False
        self._progress.drop(self._job, f"retry {session.ref_code}")
        return True

    def postpone(self, session: WaitingSession, *, now: int, first_seconds: float, longest_seconds: float) -> None:
        """Postpone a session after a failure; each pause is twice as long as the last."""
        item = f"retry {session.ref_code}"
        last = self._value("SELECT position - at FROM job_progress WHERE job = :job AND item = :item", item=item)
        pause = min(2 * int(last), int(longest_seconds * 1e6)) if last else int(first_seconds * 1e6)
        self._progress.set(self._job, item, now + pause, now=now)

    def read_again(self, ref_code: str, *, after: int, now: int) -> None:
        """Move the position of a session back to `after` if it is higher, so that later messages are read once more.

        This works for sessions of any age.
        """
        if self._progress.progress(self._job, ref_code) > after:
            self._progress.set(self._job, ref_code, after, now=now)
            self._progress.drop(self._job, _WATERMARK)

    def read_everything_again(self) -> None:
        """Forget all positions, so that every session of the workspace is read from its start."""
        self._execute("DELETE FROM job_progress WHERE job = :job")

    def watermark(self, now: int) -> int:
        """Return a time (microseconds): every session that still waits was last written then or later.

        0 if the stored time lies in the future: it was set before the clock was set back.
        """
        watermark = self._progress.progress(self._job, _WATERMARK)
        return 0 if watermark > now else watermark

    def set_watermark(self, *, up_to: int, now: int) -> None:
        """Note that every session that still waits was last written at this time or later."""
        self._progress.set(self._job, _WATERMARK, max(0, up_to), now=now)

    def _messages(self, condition: str, session: WaitingSession, limit: int) -> list[SourceMessage]:
        values: dict[str, Any] = {"row": session.row_id, "ref_code": session.ref_code, "position": session.position}
        return self._records(SourceMessage, f"{_MESSAGES} AND {condition}", **values, limit=limit)


class KnownMemories(AgentRepository):
    """The current memories of an agent, in the account of a tenant, to compare new ones with, in one transaction."""

    def __init__(self, connection: Connection, agent: str, tenant: str | None = None) -> None:
        super().__init__(connection, agent)
        self._bound["tenant"] = tenant

    def newest(self, *, owner: str | None, limit: int) -> list[KnownMemory]:
        """Return the newest memories that belong to an owner or to nobody, oldest first; notes are left out."""
        sql = (
            f"{_KNOWN} AND (owner_user_id IS NULL OR owner_user_id IS :owner) AND note_id IS NULL"
            " ORDER BY created_at DESC, row_id DESC LIMIT :limit"
        )
        return self._records(KnownMemory, sql, owner=owner, limit=limit)[::-1]

    def with_subject(self, subject: str, *, owner: str | None) -> list[KnownMemory]:
        """Return an owner's memories about a subject, oldest first."""
        sql = f"{_KNOWN} AND subject = :subject AND owner_user_id IS :owner ORDER BY created_at, row_id"
        return self._records(KnownMemory, sql, subject=subject, owner=owner)

    def with_id(self, memory_id: str) -> KnownMemory:
        """Return the current memory with this id, which exists."""
        (found,) = self._records(KnownMemory, f"{_KNOWN} AND id = :id", id=memory_id)
        return found

    def with_rows(self, row_ids: Sequence[int]) -> list[KnownMemory]:
        """Return the current memories of these rows, oldest first."""
        if not row_ids:
            return []
        sql = f"{_KNOWN} AND row_id IN (SELECT value FROM json_each(:rows)) ORDER BY created_at, row_id"
        return self._records(KnownMemory, sql, rows=row_ids)

    def with_fact(self, category: str, key: str, *, owner: str | None) -> list[KnownMemory]:
        """Return the current fact of an owner with this category and key; at most one."""
        sql = f"{_KNOWN} AND category = :category AND key = :key AND owner_user_id IS :owner"
        return self._records(KnownMemory, sql, category=category, key=key, owner=owner)

    def rows_from_workspace(self, workspace: str, session: str | None) -> list[int]:
        """Return the rows of account memories, superseded or not, from a workspace or one session of it."""
        return self._values(
            "SELECT row_id FROM memories WHERE agent_id = :agent AND session_row IS NULL"
            f" AND {_METADATA} ->> 'workspace' = :workspace"
            f" AND (:session IS NULL OR {_METADATA} ->> 'session' = :session)",
            workspace=workspace,
            session=session,
        )

    def ref_codes(self, rows: Sequence[int]) -> dict[int, str | None]:
        """Return by row the ref code of the session from which each of these account memories came, if it exists."""
        found = self._execute(
            f"SELECT row_id, {_METADATA} ->> 'ref_code' FROM memories"
            " WHERE +agent_id = :agent AND row_id IN (SELECT value FROM json_each(:rows))",
            rows=rows,
        )
        return {int(row[0]): row[1] for row in found}

    def confirm(self, row_id: int, *, at: int) -> None:
        """Note that a memory was said again at a time in microseconds."""
        self._execute(
            "UPDATE memories SET confirmed_at = :at WHERE row_id = :row AND agent_id = :agent"
            " AND coalesce(confirmed_at, created_at) < :at",
            row=row_id,
            at=at,
        )

    def contents(self, *, owner: str | None) -> dict[str, int]:
        """Return the contents of memories that belong to an owner or to nobody, with their rows.

        Unconfirmed instructions are left out.
        """
        found = self._execute(
            "SELECT content, row_id FROM memories WHERE agent_id = :agent AND superseded_by IS NULL"
            f" AND tenant IS :tenant AND ({CONFIRMED} OR kind NOT IN ('instruction', 'preference'))"
            " AND (owner_user_id IS NULL OR owner_user_id IS :owner)",
            owner=owner,
        )
        return {str(content): int(row) for content, row in found}
