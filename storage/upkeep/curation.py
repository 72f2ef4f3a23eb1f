"""The curation log: what background work changed, with every row as it was before, so that it can be undone (X9).

While an entry is open, triggers write each change of the tables that jobs touch into it, cascades included: nothing
has to be listed by hand, and nothing can be forgotten. An entry and its changes commit together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, exc, text

from reverie.errors import NotFound

_COLUMNS: Final = (
    "id, at, job, agent_id, action, why, session_id, undone_at,"
    " (SELECT json_group_array(memory_id) FROM curation_items WHERE entry_id = curation_log.id)"
)


@dataclass(frozen=True, slots=True)
class CurationEntry:
    """One thing that a job did: to which memories, or to which session, and why. Times are microseconds."""

    id: int
    at: int
    job: str
    agent: str
    action: str
    why: str
    session: str | None
    undone_at: int | None
    memories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row as it was and as it became; None where there was none, or is none any more."""

    table: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class EntryDraft:
    """One of many entries that are written together: why, and about which memories."""

    why: str
    memories: tuple[str, ...]


class CurationLog:
    """The log of a whole workspace within one transaction. It crosses agents unless one is named."""

    def __init__(self, connection: Connection, agent: str | None = None) -> None:
        self._connection = connection
        self._agent = agent

    @contextmanager
    def entry(
        self,
        *,
        job: str,
        agent: str,
        action: str,
        why: str,
        at: int,
        memories: Sequence[str] = (),
        session: str | None = None,
    ) -> Iterator[int]:
        """Log what the block changes; one that changes nothing leaves no entry. Entries do not lie in one another.

        `memories` and `session` need name only what is not changed itself: what is, the entry names by itself. A
        block that fails ends the recording, too: what follows in its transaction, if it goes on, is not the job's.
        """
        self._must_not_be_open()
        row = self._connection.execute(
            text(
                "INSERT INTO curation_log (at, job, agent_id, action, why, session_id)"
                " VALUES (:at, :job, :agent, :action, :why, :session) RETURNING id"
            ),
            {"at": at, "job": job, "agent": agent, "action": action, "why": why, "session": session},
        )
        entry_id = int(row.scalar_one())
        items = [{"entry": entry_id, "agent": agent, "memory": memory} for memory in dict.fromkeys(memories)]
        if items:
            self._connection.execute(
                text("INSERT INTO curation_items (entry_id, agent_id, memory_id) VALUES (:entry, :agent, :memory)"),
                items,
            )
        self._connection.execute(text("INSERT INTO curation_recording (entry_id) VALUES (:id)"), {"id": entry_id})
        with self._ending_at_last():
            yield entry_id
        self._connection.execute(
            text(
                "DELETE FROM curation_log WHERE id = :id"
                " AND NOT EXISTS (SELECT 1 FROM curation_changes WHERE entry_id = :id)"
            ),
            {"id": entry_id},
        )

    def entries(self, drafts: Sequence[EntryDraft], *, job: str, agent: str, action: str, at: int) -> Iterator[int]:
        """Log many changes with few statements: what is done while an entry is the current one goes into it.

        To be exhausted, in one transaction. Entries without changes leave nothing.
        """
        if not drafts:
            return
        self._must_not_be_open()
        last = int(self._connection.exec_driver_sql("SELECT coalesce(max(seq), 0) FROM sqlite_sequence"
                                                    " WHERE name = 'curation_log'").scalar_one())  # fmt: skip
        ids = range(last + 1, last + 1 + len(drafts))
        self._connection.exec_driver_sql(
            "INSERT INTO curation_log (id, at, job, agent_id, action, why) VALUES (?, ?, ?, ?, ?, ?)",
            [(entry, at, job, agent, action, draft.why) for entry, draft in zip(ids, drafts, strict=True)],
        )
        self._connection.exec_driver_sql(
            "INSERT INTO curation_items (entry_id, agent_id, memory_id) VALUES (?, ?, ?)",
            [
                (entry, agent, memory)
                for entry, draft in zip(ids, drafts, strict=True)
                for memory in dict.fromkeys(draft.memories)
            ],
        )
        self._connection.exec_driver_sql("INSERT INTO curation_recording (entry_id) VALUES (?)", (ids[0],))
        with self._ending_at_last():
            for entry in ids:
                self._connection.exec_driver_sql("UPDATE curation_recording SET entry_id = ?", (entry,))
                yield entry
        self._connection.exec_driver_sql(
            "DELETE FROM curation_log WHERE id BETWEEN ? AND ?"
            " AND NOT EXISTS (SELECT 1 FROM curation_changes WHERE entry_id = curation_log.id)",
            (ids[0], ids[-1]),
        )

    def page(
        self, *, limit: int = 50, offset: int = 0, memory: str | None = None, job: str | None = None,
        action: str | None = None, since: int = 0, undone: bool | None = None,
    ) -> list[CurationEntry]:  # fmt: skip
        """Entries, the newest first; of a job, an action, a memory, since a moment, or only those (not) undone."""
        clauses = {
            "agent_id = :agent": self._agent,
            "job = :job": job,
            "action = :action": action,
            "id IN (SELECT entry_id FROM curation_items WHERE memory_id = :memory)": memory,
        }
        wanted = [clause for clause, value in clauses.items() if value is not None]
        if since:
            wanted.append("at >= :since")
        if undone is not None:
            wanted.append(f"undone_at IS {'NOT ' if undone else ''}NULL")
        rows = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} FROM curation_log WHERE {' AND '.join(wanted) or '1'}"
                " ORDER BY id DESC LIMIT :limit OFFSET :offset"
            ),
            {
                "agent": self._agent,
                "job": job,
                "action": action,
                "memory": memory,
                "since": since,
                "limit": limit,
                "offset": offset,
            },
        )
        return [_entry(row) for row in rows]

    def get(self, entry_id: int) -> CurationEntry:
        """One entry. Raises `NotFound`."""
        row = self._connection.execute(
            text(f"SELECT {_COLUMNS} FROM curation_log WHERE id = :id AND coalesce(:agent, agent_id) = agent_id"),
            {"id": entry_id, "agent": self._agent},
        ).one_or_none()
        if row is None:
            raise NotFound(f"there is no entry {entry_id} in the curation log", field="id")
        return _entry(row)

    def changes(self, entry_id: int) -> list[RowChange]:
        """The rows that an entry changed, in the order in which they were."""
        rows = self._connection.execute(
            text("SELECT table_name, before, after FROM curation_changes WHERE entry_id = :id ORDER BY seq"),
            {"id": entry_id},
        )
        return [RowChange(str(row[0]), _loaded(row[1]), _loaded(row[2])) for row in rows]

    def undone(self, action: str) -> set[tuple[str, str]]:
        """Agents and memories with which a person has undone this action: it is not done to them again."""
        rows = self._connection.execute(
            text(
                "SELECT i.agent_id, i.memory_id FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id"
                " WHERE l.action = :action AND l.undone_at IS NOT NULL"
            ),
            {"action": action},
        )
        return {(str(row[0]), str(row[1])) for row in rows}

    def undone_together(self, action: str) -> set[tuple[str, frozenset[str]]]:
        """Agents and the memories of each entry of this action that a person has undone: not done to them together."""
        rows = self._connection.execute(
            text(
                "SELECT l.agent_id, (SELECT json_group_array(memory_id) FROM curation_items WHERE entry_id = l.id)"
                " FROM curation_log AS l WHERE l.action = :action AND l.undone_at IS NOT NULL"
            ),
            {"action": action},
        )
        return {(str(row[0]), frozenset(json.loads(row[1]))) for row in rows}

    def mark_undone(self, entry_id: int, *, at: int) -> None:
        """Note that an entry was undone."""
        self._connection.execute(
            text("UPDATE curation_log SET undone_at = :at WHERE id = :id"), {"at": at, "id": entry_id}
        )

    def later_entry(self, entry_id: int, table: str, key: Mapping[str, object]) -> int | None:
        """The next entry, not undone, that changed the row of a table with this key."""
        same = " AND ".join(f"coalesce(c.after, c.before) ->> '{name}' = :{name}" for name in key)
        found = self._connection.execute(
            text(
                "SELECT min(l.id) FROM curation_log AS l JOIN curation_changes AS c ON c.entry_id = l.id"
                f" WHERE l.id > :entry AND l.undone_at IS NULL AND c.table_name = :table AND {same}"
            ),
            {**key, "entry": entry_id, "table": table},
        ).scalar()
        return None if found is None else int(found)

    def forget_memories(self, agent: str, memory_ids: Sequence[str]) -> int:
        """Remove every entry about these memories: what is forgotten must not come back by an undo."""
        gone = self._connection.execute(
            text(
                "DELETE FROM curation_log WHERE id IN (SELECT entry_id FROM curation_items WHERE agent_id = :agent"
                " AND memory_id IN (SELECT value FROM json_each(:ids)))"
            ),
            {"agent": agent, "ids": json.dumps(list(memory_ids))},
        )
        return gone.rowcount

    def forget_removed(self, agent: str, memory_id: str) -> int:
        """Remove what the log holds of a memory that is no more; returns how many entries held it.

        Entries that were undone lose their rows and stay: what a person has undone is not done again.
        """
        about = "SELECT entry_id FROM curation_items WHERE agent_id = :agent AND memory_id = :id"
        parameters = {"agent": agent, "id": memory_id}
        blanked = self._connection.execute(
            text(
                f"DELETE FROM curation_changes WHERE entry_id IN ({about}) AND entry_id IN"
                " (SELECT id FROM curation_log WHERE undone_at IS NOT NULL) RETURNING entry_id"
            ),
            parameters,
        ).scalars()
        held = set(blanked)
        gone = self._connection.execute(
            text(f"DELETE FROM curation_log WHERE undone_at IS NULL AND id IN ({about})"), parameters
        )
        return len(held) + gone.rowcount

    def forget_session(self, agent: str, session: str, session_row: int) -> int:
        """Remove every entry about a session, and every one that holds a memory which came from it."""
        gone = self._connection.execute(
            text(
                "DELETE FROM curation_log WHERE agent_id = :agent AND (session_id = :session OR id IN"
                " (SELECT entry_id FROM curation_changes WHERE table_name = 'memories'"
                " AND coalesce(after, before) ->> 'session_row' = :row))"
            ),
            {"agent": agent, "session": session, "row": session_row},
        )
        return gone.rowcount

    def forget_origin(self, workspace: str, session: str | None, *, agent: str | None = None) -> int:
        """Remove every entry that holds a memory which came into the account from a workspace, or a session of one."""
        gone = self._connection.execute(
            text(
                "DELETE FROM curation_log WHERE agent_id = coalesce(:agent, agent_id) AND id IN (SELECT entry_id FROM"
                " (SELECT entry_id, coalesce(after, before) ->> 'metadata' AS metadata FROM curation_changes"
                " WHERE table_name = 'memories') WHERE metadata ->> 'workspace' = :workspace"
                " AND coalesce(:session, metadata ->> 'session') IS metadata ->> 'session')"
            ),
            {"agent": agent, "workspace": workspace, "session": session},
        )
        return gone.rowcount

    def prune(self, *, before: int, limit: int) -> int:
        """Remove up to `limit` of the entries older than a time; returns how many."""
        gone = self._connection.execute(
            text(
                "DELETE FROM curation_log WHERE id IN"
                " (SELECT id FROM curation_log WHERE at < :before ORDER BY at LIMIT :limit)"
            ),
            {"before": before, "limit": limit},
        )
        return gone.rowcount

    def _must_not_be_open(self) -> None:
        if self._connection.exec_driver_sql("SELECT 1 FROM curation_recording").scalar() is not None:
            raise ValueError("an entry of the curation log is open already: end it before the next one")

    @contextmanager
    def _ending_at_last(self) -> Iterator[None]:
        """End the recording also where the block fails, and whoever called it goes on with the transaction."""
        try:
            yield
        except BaseException:  # goes on its way; a database that failed is past recording
            with suppress(exc.SQLAlchemyError):
                self._connection.exec_driver_sql("DELETE FROM curation_recording")
            raise
        self._connection.exec_driver_sql("DELETE FROM curation_recording")


def _entry(row: Row[Any]) -> CurationEntry:
    values = list(row)
    return CurationEntry(*[*values[:8], tuple(json.loads(values[8]))])


def _loaded(image: str | None) -> dict[str, Any] | None:
    loaded: dict[str, Any] | None = json.loads(image) if image is not None else None
    return loaded
