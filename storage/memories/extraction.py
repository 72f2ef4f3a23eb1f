"""Which sessions hold messages that nothing was extracted from yet, how far extraction has come, and what it knows.

How far it has come with a session is noted under the session's ref code, which is never given twice: a row's number
may be, once the session is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from storage.upkeep.leases import JobLeases

# So far back sessions are looked at again, whatever was seen: one that was written a little before its commit.
SEEN_AGAIN_MICROS: Final = 3_600 * 1_000_000

_EACH_AGENT: Final = """
    WITH RECURSIVE agents (agent_id) AS (
        SELECT min(agent_id) FROM sessions
        UNION ALL
        SELECT (SELECT min(s.agent_id) FROM sessions AS s WHERE s.agent_id > a.agent_id) FROM agents AS a
        WHERE a.agent_id IS NOT NULL)
"""
_FROM_WAITING: Final = """
    FROM agents AS a
    JOIN sessions AS s ON s.agent_id = a.agent_id AND s.updated_at >= :since
    LEFT JOIN job_progress AS p ON p.job = :job AND p.item = s.ref_code
"""
_WAITING: Final = f"""
    {_EACH_AGENT}
    SELECT s.row_id, s.id, s.agent_id, s.ref_code, s.user_id, s.channel_id, s.updated_at, s.last_sequence,
        coalesce(p.position, 0)
    {_FROM_WAITING}
    LEFT JOIN job_progress AS r ON r.job = :job AND r.item = 'retry ' || s.ref_code
    WHERE s.last_sequence > coalesce(p.position, 0) AND coalesce(r.position, 0) <= :now
    ORDER BY s.updated_at, s.row_id LIMIT :limit
"""
_OLDEST_WAITING: Final = f"""
    {_EACH_AGENT} SELECT min(s.updated_at) {_FROM_WAITING} WHERE s.last_sequence > coalesce(p.position, 0)
"""
_ONE: Final = """
    SELECT s.row_id, s.id, s.agent_id, s.ref_code, s.user_id, s.channel_id, s.updated_at, s.last_sequence,
        coalesce(p.position, 0)
    FROM sessions AS s LEFT JOIN job_progress AS p ON p.job = :job AND p.item = s.ref_code
    WHERE s.agent_id = :agent AND s.id = :session AND s.last_sequence > coalesce(p.position, 0)
"""
_SAID: Final = """
    SELECT id, sequence, role, name, content, created_at, trace_id FROM messages
    WHERE session_row = (SELECT row_id FROM sessions WHERE row_id = :row AND ref_code = :ref_code)
"""
_KNOWN: Final = """
    SELECT row_id, id, content, source, kind, category, key, value, subject, owner_user_id, note_id, pinned, created_at
    FROM memories WHERE agent_id = :agent AND superseded_by IS NULL
"""


@dataclass(frozen=True, slots=True)
class WaitingSession:
    """A session with messages after the position up to which memories were extracted. Times are microseconds."""

    row_id: int
    id: str
    agent: str
    ref_code: str
    user: str | None
    channel: str | None
    updated_at: int
    last_sequence: int
    position: int


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """One message, as far as extraction reads it."""

    id: str
    sequence: int
    role: str
    name: str | None
    content: str
    created_at: int
    trace: str


@dataclass(frozen=True, slots=True)
class KnownMemory:
    """An active memory, as far as what is new is compared with it."""

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


class ExtractionProgress:
    """How far extraction has come in a workspace, within one transaction. It crosses agents: only jobs use it."""

    def __init__(self, connection: Connection, job: str) -> None:
        self._connection = connection
        self._job = job
        self._progress = JobLeases(connection)

    def waiting(self, *, now: int, limit: int) -> list[WaitingSession]:
        """Sessions with something new that are not put off, the longest silent first.

        Of those long done with, however many they are, only a mark is read.
        """
        rows = self._connection.execute(
            text(_WAITING), {"job": self._job, "since": self.seen_up_to(), "now": now, "limit": limit}
        )
        return [WaitingSession(*row) for row in rows]

    def oldest_waiting(self) -> int | None:
        """When the longest silent session with something new was last written, put off or not; None without any."""
        found = self._connection.execute(text(_OLDEST_WAITING), {"job": self._job, "since": self.seen_up_to()}).scalar()
        return None if found is None else int(found)

    def of_session(self, agent: str, session: str) -> WaitingSession | None:
        """One session, if there is something new in it."""
        row = self._connection.execute(text(_ONE), {"job": self._job, "agent": agent, "session": session}).one_or_none()
        return WaitingSession(*row) if row else None

    def first_waiting_since(self, session: WaitingSession) -> int:
        """When the first of the new messages of a session was stored."""
        found = self._connection.execute(
            text(
                "SELECT stored_at FROM messages WHERE session_row = :row AND sequence > :position"
                " ORDER BY sequence LIMIT 1"
            ),
            {"row": session.row_id, "position": session.position},
        ).scalar()
        return int(found) if found is not None else session.updated_at

    def new_messages(self, session: WaitingSession, *, limit: int) -> list[SourceMessage]:
        """What was said after the position, in the order of sequence."""
        rows = self._connection.execute(
            text(f"{_SAID} AND sequence > :position ORDER BY sequence LIMIT :limit"),
            {"row": session.row_id, "ref_code": session.ref_code, "position": session.position, "limit": limit},
        )
        return [SourceMessage(*row) for row in rows]

    def messages_before(self, session: WaitingSession, *, limit: int) -> list[SourceMessage]:
        """The last messages up to the position, in the order of sequence."""
        rows = self._connection.execute(
            text(f"{_SAID} AND sequence <= :position ORDER BY sequence DESC LIMIT :limit"),
            {"row": session.row_id, "ref_code": session.ref_code, "position": session.position, "limit": limit},
        )
        return [SourceMessage(*row) for row in rows][::-1]

    def advance(self, session: WaitingSession, *, to: int, now: int) -> bool:
        """Move on from where the session was read; False when another has done so, or the session is gone."""
        there = self._connection.execute(
            text("SELECT 1 FROM sessions WHERE row_id = :row AND ref_code = :ref_code"),
            {"row": session.row_id, "ref_code": session.ref_code},
        ).scalar()
        if there is None or not self._progress.advance(
            self._job, session.ref_code, after=session.position, to=to, now=now
        ):
            return False
        self._forget(f"retry {session.ref_code}")
        return True

    def put_off(self, session: WaitingSession, *, now: int, first_seconds: float, longest_seconds: float) -> None:
        """Try a session again later: after twice the time of the last pause."""
        item = f"retry {session.ref_code}"
        last = self._connection.execute(
            text("SELECT position - at FROM job_progress WHERE job = :job AND item = :item"),
            {"job": self._job, "item": item},
        ).scalar()
        pause = min(2 * int(last), int(longest_seconds * 1e6)) if last else int(first_seconds * 1e6)
        self._note(item, now + pause, now)

    def seen_up_to(self) -> int:
        """The moment before which no session was last written that still waits."""
        return self._progress.progress(self._job, "mark")

    def note_seen(self, *, up_to: int, now: int) -> None:
        """Note that no session last written before this moment waits any more."""
        self._note("mark", max(0, up_to), now)

    def _note(self, item: str, position: int, now: int) -> None:
        self._connection.execute(
            text(
                "INSERT INTO job_progress (job, item, position, at) VALUES (:job, :item, :position, :now)"
                " ON CONFLICT (job, item) DO UPDATE SET position = excluded.position, at = excluded.at"
            ),
            {"job": self._job, "item": item, "position": position, "now": now},
        )

    def _forget(self, item: str) -> None:
        self._connection.execute(
            text("DELETE FROM job_progress WHERE job = :job AND item = :item"), {"job": self._job, "item": item}
        )


class KnownMemories:
    """The active memories of one agent within one transaction, for comparing what is new with them."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def newest(self, *, owner: str | None, limit: int) -> list[KnownMemory]:
        """What is known of an owner, and what is nobody's own: the newest of it, oldest first."""
        rows = self._connection.execute(
            text(
                f"{_KNOWN} AND (owner_user_id IS NULL OR owner_user_id IS :owner) AND note_id IS NULL"
                " ORDER BY created_at DESC, row_id DESC LIMIT :limit"
            ),
            {"agent": self._agent, "owner": owner, "limit": limit},
        )
        return [_known(row) for row in rows][::-1]

    def about(self, subject: str, *, owner: str | None) -> list[KnownMemory]:
        """What is known of a subject, of this owner."""
        rows = self._connection.execute(
            text(f"{_KNOWN} AND subject = :subject AND owner_user_id IS :owner ORDER BY created_at, row_id"),
            {"agent": self._agent, "subject": subject, "owner": owner},
        )
        return [_known(row) for row in rows]

    def of_fact(self, category: str, key: str) -> list[KnownMemory]:
        """What stands for a fact, whoever's it is: one at most."""
        rows = self._connection.execute(
            text(f"{_KNOWN} AND category = :category AND key = :key"),
            {"agent": self._agent, "category": category, "key": key},
        )
        return [_known(row) for row in rows]

    def rows_from(self, workspace: str, session: str | None) -> list[int]:
        """The rows of an account's memories, superseded ones too, that came from a session of a workspace, or any."""
        rows = self._connection.execute(
            text(
                "SELECT row_id FROM memories WHERE agent_id = :agent AND session_row IS NULL"
                " AND json_extract(metadata, '$.workspace') = :workspace"
                " AND (:session IS NULL OR json_extract(metadata, '$.session') = :session)"
            ),
            {"agent": self._agent, "workspace": workspace, "session": session},
        )
        return [int(row) for row in rows.scalars()]

    def contents(self, *, owner: str | None) -> Sequence[str]:
        """The contents of all that is known of an owner, and of what is nobody's own."""
        rows = self._connection.execute(
            text(
                "SELECT content FROM memories WHERE agent_id = :agent AND superseded_by IS NULL"
                " AND (owner_user_id IS NULL OR owner_user_id IS :owner)"
            ),
            {"agent": self._agent, "owner": owner},
        )
        return [str(content) for content in rows.scalars()]


def _known(row: Row[Any]) -> KnownMemory:
    values = list(row)
    values[11] = bool(values[11])
    return KnownMemory(*values)
