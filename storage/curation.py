"""The curation log: what background jobs changed, with every row as it was before, so that it can be undone.

While an entry is being recorded, triggers (`storage.migrations.triggers`) write each change of the tables that jobs
touch into it, cascades included, so no change is missed. An entry and its changes commit together.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import exc

from reverie.errors import NotFound
from reverie.upkeep import CurationChange
from storage.engines import Connection
from storage.migrations.triggers import make_recorders
from storage.repository import Repository
from storage.rows import from_json_of, select_list, to_parameters, valid_json


@dataclass(frozen=True, slots=True)
class CurationEntry:
    """One thing that a job did, with the memories or the session that it changed, and why. Times are microseconds.

    `effect` is "learned", "replaced", "merged" or "forgotten" if this happened to memories, else the action.
    `sensitive` is why a person should read it.
    """

    id: int
    at: int
    job: str
    agent: str
    action: str
    why: str
    session: str | None
    undone_at: int | None
    accepted_at: int | None
    sensitive: str | None
    effect: str
    memories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunEffect:
    """How many entries of one run have the same effect, and how many of them are `open`, or open and sensitive (`due`).

    Open entries are neither undone nor accepted.
    """

    job: str
    at: int
    effect: str
    entries: int
    open: int
    due: int


def _some_memory(condition: str) -> str:
    return (
        "EXISTS (SELECT 1 FROM curation_changes AS c WHERE c.entry_id = curation_log.id"
        f" AND c.table_name = 'memories' AND {condition})"
    )


_REPLACED: Final = _some_memory(
    "c.before IS NOT NULL AND c.before ->> 'superseded_by' IS NULL AND c.after ->> 'superseded_by' IS NOT NULL"
)
_EFFECT: Final = (
    f"CASE WHEN {_some_memory('c.before IS NULL')} THEN CASE WHEN {_REPLACED} THEN 'replaced' ELSE 'learned' END"
    f" WHEN {_REPLACED} THEN 'merged' WHEN {_some_memory('c.after IS NULL')} THEN 'forgotten' ELSE action END"
)
_IS_OPEN: Final = "coalesce(undone_at, accepted_at) IS NULL"
_MEMORIES: Final = "(SELECT json_group_array(memory_id) FROM curation_items WHERE entry_id = curation_log.id)"
_SELECT: Final = f"SELECT {select_list(CurationEntry, memories=_MEMORIES, effect=_EFFECT)} FROM curation_log"


@dataclass(frozen=True, slots=True)
class EntryDraft:
    """An entry to record: the reason, and the memories and session that it is about.

    Changed memories and sessions need not be given: triggers add them. `sensitive` is why a person should read it.
    """

    why: str
    memories: Sequence[str] = ()
    session: str | None = None
    sensitive: str | None = None


@dataclass(frozen=True, slots=True)
class CurationFilter:
    """Conditions on entries, all of which must hold; `undone` None takes both. Times are microseconds.

    `job` is its name as a person writes it. `at` is the time of a run: with `job` it takes the entries of that run.
    `due` takes open sensitive ones only.
    """

    memory: str | None = None
    job: str | None = None
    action: str | None = None
    at: int | None = None
    since: int = 0
    undone: bool | None = None
    due: bool = False


_INSERT: Final = """
    INSERT INTO curation_log (id, at, job, agent_id, action, why, session_id, sensitive)
    VALUES (:id, :at, :job, :agent, :action, :why, :session, :sensitive)
"""
_INSERT_ITEM: Final = "INSERT INTO curation_items (entry_id, agent_id, memory_id) VALUES (:entry, :agent, :memory)"
_CONDITIONS: Final = {
    "job": "replace(replace(job, 'reverie.', ''), '_', '-') = :job",
    "action": "action = :action",
    "at": "at = :at",
    "memory": "id IN (SELECT entry_id FROM curation_items WHERE memory_id = :memory)",
}
_IS_DUE: Final = f"sensitive IS NOT NULL AND {_IS_OPEN}"
_METADATA: Final = valid_json("(coalesce(after, before) ->> 'metadata')")
EVERY_ENTRY: Final = CurationFilter()


class CurationLog(Repository):
    """The log of a whole workspace within one transaction; with an agent, reading it is limited to that agent."""

    def __init__(self, connection: Connection, agent: str | None = None) -> None:
        super().__init__(connection)
        self._agent = agent

    @contextmanager
    def entry(self, draft: EntryDraft, *, job: str, agent: str, action: str, at: int) -> Iterator[int]:
        """Record the changes of the block as one entry; a block without changes leaves none. Entries do not nest.

        A block that fails also ends the recording: later statements of the transaction are not attributed to the job.
        """
        entries = self.entries([draft], job=job, agent=agent, action=action, at=at)
        with closing(entries):
            yield next(entries)
            next(entries, None)

    def entries(self, drafts: Sequence[EntryDraft], *, job: str, agent: str, action: str, at: int) -> Generator[int]:
        """Record many entries with few statements: changes between two yields belong to the entry yielded before them.

        The iterator must be exhausted within the transaction. Entries without changes are not kept.
        """
        if not drafts:
            return
        self._check_not_recording()
        # The highest id ever used: ids are never reused.
        last = self._integer("SELECT seq FROM sqlite_sequence WHERE name = 'curation_log'") or 0
        ids = range(last + 1, last + 1 + len(drafts))
        shared = {"at": at, "job": job, "agent": agent, "action": action}
        self._execute_many(
            _INSERT,
            [
                {**shared, "id": entry, "why": draft.why, "session": draft.session, "sensitive": draft.sensitive}
                for entry, draft in zip(ids, drafts, strict=True)
            ],
        )
        self._execute_many(
            _INSERT_ITEM,
            [
                {"entry": entry, "agent": agent, "memory": memory}
                for entry, draft in zip(ids, drafts, strict=True)
                for memory in dict.fromkeys(draft.memories)
            ],
        )
        make_recorders(self._connection)
        self._execute("INSERT INTO curation_recording (entry_id) VALUES (:id)", id=ids[0])
        with self._recording_ended():
            for entry in ids:
                self._execute("UPDATE curation_recording SET entry_id = :id", id=entry)
                yield entry
        self._execute(
            "DELETE FROM curation_log WHERE id BETWEEN :first AND :last"
            " AND NOT EXISTS (SELECT 1 FROM curation_changes WHERE entry_id = curation_log.id)",
            first=ids[0],
            last=ids[-1],
        )

    def page(
        self, entry_filter: CurationFilter = EVERY_ENTRY, *, limit: int = 50, offset: int = 0
    ) -> list[CurationEntry]:
        """Return the entries that pass a filter, newest first."""
        condition, values = self._condition(entry_filter)
        sql = f"{_SELECT} WHERE {condition} ORDER BY id DESC LIMIT :limit OFFSET :offset"
        return self._records(CurationEntry, sql, **values, limit=limit, offset=offset)

    def runs(self, entry_filter: CurationFilter = EVERY_ENTRY, *, limit: int) -> list[RunEffect]:
        """Return the effects of all entries of the newest runs that have an entry which passes a filter."""
        condition, values = self._condition(entry_filter)
        own = "1" if self._agent is None else "agent_id = :agent"
        sql = f"""
            SELECT job, at, effect, count(*) AS entries, sum(open) AS open, sum(due) AS due FROM (
                SELECT job, at, {_EFFECT} AS effect, CASE WHEN {_IS_OPEN} THEN 1 ELSE 0 END AS open,
                    CASE WHEN {_IS_DUE} THEN 1 ELSE 0 END AS due
                FROM curation_log WHERE {own} AND (job, at) IN (
                    SELECT job, at FROM curation_log WHERE {condition}
                    GROUP BY job, at ORDER BY at DESC, job LIMIT :limit)
            ) AS e GROUP BY job, at, effect ORDER BY at DESC, job, effect
        """
        return self._records(RunEffect, sql, **values, limit=limit)

    def _condition(self, entry_filter: CurationFilter) -> tuple[str, dict[str, Any]]:
        """Return the SQL and the parameters of a filter."""
        values = {**to_parameters(entry_filter), "agent": self._agent}
        clauses = [clause for name, clause in _CONDITIONS.items() if values[name] is not None]
        if self._agent is not None:
            clauses.append("agent_id = :agent")
        if entry_filter.since:
            clauses.append("at >= :since")
        if entry_filter.undone is not None:
            clauses.append(f"undone_at IS {'NOT ' if entry_filter.undone else ''}NULL")
        if entry_filter.due:
            clauses.append(_IS_DUE)
        return " AND ".join(clauses) or "1", values

    def ids(self, entry_filter: CurationFilter) -> list[int]:
        """Return the ids of the entries that pass a filter."""
        condition, values = self._condition(entry_filter)
        return self._values(f"SELECT id FROM curation_log WHERE {condition}", **values)

    def accept(self, entry_ids: Sequence[int], *, at: int) -> list[int]:
        """Mark open entries as read and kept, and return them."""
        return self._values(
            f"UPDATE curation_log SET accepted_at = :at WHERE {_IS_OPEN}"
            " AND coalesce(:agent, agent_id) = agent_id AND id IN (SELECT value FROM json_each(:ids)) RETURNING id",
            at=at,
            agent=self._agent,
            ids=entry_ids,
        )

    def get(self, entry_id: int) -> CurationEntry:
        """Return one entry. Raises `NotFound`."""
        sql = f"{_SELECT} WHERE id = :id AND coalesce(:agent, agent_id) = agent_id"
        entry = self._record(CurationEntry, sql, id=entry_id, agent=self._agent)
        if entry is None:
            raise NotFound(f"there is no entry {entry_id} in the curation log", field="id")
        return entry

    def changes(self, entry_id: int) -> list[CurationChange]:
        """Return the rows that an entry changed, in order."""
        rows = self._execute(
            "SELECT table_name, before, after FROM curation_changes WHERE entry_id = :id ORDER BY seq", id=entry_id
        )
        return [CurationChange(table=str(row[0]), before=_loaded(row[1]), after=_loaded(row[2])) for row in rows]

    def undone(self, action: str) -> set[tuple[str, str]]:
        """Return the agents and memories for which a person has undone an action, so that jobs do not repeat it."""
        rows = self._execute(
            "SELECT i.agent_id, i.memory_id FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id"
            " WHERE l.action = :action AND l.undone_at IS NOT NULL",
            action=action,
        )
        return {(str(row[0]), str(row[1])) for row in rows}

    def undone_together(self, action: str) -> set[tuple[str, frozenset[str]]]:
        """Return the agent and the memories of each undone entry of an action, so that jobs do not repeat it."""
        rows = self._execute(
            "SELECT l.agent_id, (SELECT json_group_array(memory_id) FROM curation_items WHERE entry_id = l.id)"
            " FROM curation_log AS l WHERE l.action = :action AND l.undone_at IS NOT NULL",
            action=action,
        )
        return {(str(row[0]), frozenset(json.loads(row[1]))) for row in rows}

    def mark_undone(self, entry_id: int, *, at: int, request: str = "") -> None:
        """Mark an entry as undone, by a request with this key."""
        sql = "UPDATE curation_log SET undone_at = :at, undone_by = nullif(:request, '') WHERE id = :id"
        self._execute(sql, at=at, request=request, id=entry_id)

    def was_undone_by(self, entry_id: int, request: str) -> bool:
        """Return whether a request with this key has undone an entry."""
        return (
            bool(request) and self._value("SELECT undone_by FROM curation_log WHERE id = :id", id=entry_id) == request
        )

    def undone_by(self, request: str) -> list[int]:
        """Return the entries that a request with this key has undone, newest first."""
        sql = (
            "SELECT id FROM curation_log WHERE undone_by = :request AND coalesce(:agent, agent_id) = agent_id"
            " ORDER BY id DESC"
        )
        return self._values(sql, request=request, agent=self._agent)

    def later_entry(self, entry_id: int, table: str, key: Mapping[str, object]) -> int | None:
        """Return the next entry, not undone, that changed the row of a table with this key."""
        same_row = " AND ".join(f"coalesce(c.after, c.before) ->> '{name}' = :{name}" for name in key)
        later: int | None = self._integer(
            "SELECT min(l.id) FROM curation_log AS l JOIN curation_changes AS c ON c.entry_id = l.id"
            f" WHERE l.id > :entry AND l.undone_at IS NULL AND c.table_name = :table AND {same_row}",
            **key,
            entry=entry_id,
            table=table,
        )
        return later

    def forget_memories(self, agent: str, memory_ids: Sequence[str]) -> int:
        """Delete every entry about these memories, so that no undo brings them back; returns how many."""
        return self._execute(
            "DELETE FROM curation_log WHERE id IN (SELECT entry_id FROM curation_items WHERE agent_id = :agent"
            " AND memory_id IN (SELECT value FROM json_each(:ids)))",
            agent=agent,
            ids=memory_ids,
        ).rowcount

    def forget_removed(self, agent: str, memory_id: str) -> int:
        """Delete a memory that no longer exists from the log; return how many entries contained it.

        Undone entries stay without their rows, so that jobs do not repeat a change that a person has undone.
        """
        about = "SELECT entry_id FROM curation_items WHERE agent_id = :agent AND memory_id = :id"
        blanked = self._values(
            f"DELETE FROM curation_changes WHERE entry_id IN ({about}) AND entry_id IN"
            " (SELECT id FROM curation_log WHERE undone_at IS NOT NULL) RETURNING entry_id",
            agent=agent,
            id=memory_id,
        )
        sql = f"DELETE FROM curation_log WHERE undone_at IS NULL AND id IN ({about})"
        return len(set(blanked)) + self._execute(sql, agent=agent, id=memory_id).rowcount

    def forget_session(self, agent: str, session: str, session_row: int) -> int:
        """Delete every entry about a session, or with a memory that came from it; returns how many."""
        return self._execute(
            "DELETE FROM curation_log WHERE agent_id = :agent AND (session_id = :session OR id IN"
            " (SELECT entry_id FROM curation_changes WHERE table_name = 'memories'"
            " AND coalesce(after, before) ->> 'session_row' = :row))",
            agent=agent,
            session=session,
            row=session_row,
        ).rowcount

    def of_origin(
        self, workspace: str, session: str | None, *, agent: str | None = None
    ) -> list[tuple[int, str | None]]:
        """Return the entries with a memory that came into the account from a workspace (or from one session of it).

        Each comes with the ref code of its session. This reads the whole log: not for a transaction that writes.
        """
        rows = self._execute(
            "SELECT DISTINCT l.id, c.metadata ->> 'ref_code' FROM"
            f" (SELECT entry_id, {_METADATA} AS metadata"
            " FROM curation_changes WHERE table_name = 'memories') AS c JOIN curation_log AS l ON l.id = c.entry_id"
            " WHERE c.metadata ->> 'workspace' = :workspace AND l.agent_id = coalesce(:agent, l.agent_id)"
            " AND coalesce(:session, c.metadata ->> 'session') IS c.metadata ->> 'session'",
            agent=agent,
            workspace=workspace,
            session=session,
        )
        return [(int(row[0]), row[1]) for row in rows]

    def forget_entries(self, entry_ids: Sequence[int]) -> int:
        """Delete entries, so that no undo can restore their rows; returns how many."""
        sql = "DELETE FROM curation_log WHERE id IN (SELECT value FROM json_each(:ids))"
        return self._execute(sql, ids=entry_ids).rowcount

    def prune(self, *, before: int, limit: int) -> int:
        """Delete up to `limit` of the entries older than a time in microseconds; returns how many."""
        return self._execute(
            "DELETE FROM curation_log WHERE id IN"
            " (SELECT id FROM curation_log WHERE at < :before ORDER BY at LIMIT :limit)",
            before=before,
            limit=limit,
        ).rowcount

    def _check_not_recording(self) -> None:
        if self._value("SELECT 1 FROM curation_recording") is not None:
            raise ValueError("an entry of the curation log is already open: end it before the next one")

    @contextmanager
    def _recording_ended(self) -> Iterator[None]:
        """End the recording after the block, also when it fails and the caller continues the transaction."""
        with ExitStack() as on_error:
            on_error.callback(self._end_failed_recording)
            yield
            on_error.pop_all()
        self._end_recording()

    def _end_recording(self) -> None:
        self._execute("DELETE FROM curation_recording")

    def _end_failed_recording(self) -> None:
        with suppress(exc.SQLAlchemyError):  # if the database itself has failed, there is nothing to end
            self._end_recording()


def _loaded(image: str | None) -> dict[str, Any] | None:
    return None if image is None else from_json_of(dict, image)
