"""Which rows of an agent in one store an erasure removes, what texts they hold, and their removal.

A selection names the rows that are removed directly; chunks, vectors, words, recall events, runs and whatever else
belongs to them follows. The same selection is counted before a removal and by a dry run, so both give the same numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from sqlalchemy import RowMapping

from reverie.contract import chat_key
from storage.repository import AgentRepository
from storage.trust.erasures import SubjectKind
from storage.trust.value_texts import texts_of_value

# Rows stored later than this stay; no time is later.
ALL_TIMES: Final = 2**62


@dataclass(frozen=True, slots=True)
class Subject:
    """What is erased in one store: of a kind, with an id unless it is everything of the agent.

    `origin` is the workspace that rows of the account must come from, None in a workspace's own store and for all.
    Rows stored after `before` (microseconds) stay.
    """

    kind: SubjectKind
    id: str = ""
    origin: str | None = None
    before: int = ALL_TIMES


@dataclass(slots=True)
class Selection:
    """Rows to be removed, by their keys; and the groups that a user leaves, who is named with them."""

    sessions: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    memories: list[int] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    reminders: list[str] = field(default_factory=list)
    notifications: list[str] = field(default_factory=list)
    dead_letters: list[int] = field(default_factory=list)
    curation: list[int] = field(default_factory=list)
    recalls: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    member: str = ""

    def is_empty(self) -> bool:
        """Return whether there is nothing to remove."""
        return not any(getattr(self, field.name) for field in fields(self))


# What is counted and read: the rows named directly, and those that are removed with them.
_CHUNKS: Final = (
    "(session_row IN (SELECT value FROM json_each(:sessions)) OR file_row IN (SELECT value FROM json_each(:files))"
    " OR memory_row IN (SELECT value FROM json_each(:memories)) OR id IN (SELECT l.chunk_id FROM message_chunks AS l"
    " WHERE l.message_row IN (SELECT value FROM json_each(:messages)) AND NOT EXISTS (SELECT 1 FROM message_chunks AS o"
    " WHERE o.chunk_id = l.chunk_id AND o.message_row NOT IN (SELECT value FROM json_each(:messages)))))"
)
_OF_CHUNKS: Final = f"chunk_id IN (SELECT id FROM chunks WHERE agent_id = :agent AND {_CHUNKS})"
_IN_SESSIONS: Final = "session_row IN (SELECT value FROM json_each(:sessions))"
_PLACES: Final = {
    "sessions": "row_id IN (SELECT value FROM json_each(:sessions))",
    "messages": f"({_IN_SESSIONS} OR row_id IN (SELECT value FROM json_each(:messages)))",
    "files": f"({_IN_SESSIONS} OR row_id IN (SELECT value FROM json_each(:files)))",
    "memories": "row_id IN (SELECT value FROM json_each(:memories))",
    "memory_promotions": "memory_id IN (SELECT id FROM memories WHERE agent_id = :agent"
    " AND row_id IN (SELECT value FROM json_each(:memories)))",
    "chunks": _CHUNKS,
    "recall_events": f"id IN (SELECT id FROM recall_events WHERE {_OF_CHUNKS}"
    " UNION SELECT CAST(value AS INTEGER) FROM json_each(:recalls))",
    "scratchpads": _IN_SESSIONS,
    "scratchpad_lists": _IN_SESSIONS,
    "items": "row_id IN (SELECT value FROM json_each(:items))",
    "schedules": "id IN (SELECT value FROM json_each(:schedules))",
    "schedule_runs": "schedule_id IN (SELECT value FROM json_each(:schedules))",
    "reminders": "id IN (SELECT value FROM json_each(:reminders))",
    "notifications": "id IN (SELECT value FROM json_each(:notifications))",
    "dead_letters": "id IN (SELECT value FROM json_each(:dead_letters))",
    "curation_log": "id IN (SELECT value FROM json_each(:curation))",
}
# Looked up by their keys: with the plus, SQLite does not read all rows of the agent for each part of an erasure.
_BY_KEY: Final = frozenset(
    {"sessions", "messages", "files", "memories", "items", "chunks", "recall_events", "curation_log"}
)
# Groups of a user: those that others are in, too, stay theirs.
_MEMBER: Final = "row_id IN (SELECT session_row FROM session_users WHERE agent_id = :agent AND user_id = :id)"
_OTHERS: Final = "EXISTS (SELECT 1 FROM session_users AS u WHERE u.session_row = sessions.row_id AND u.user_id <> :id)"
_SHARED_GROUP: Final = f"is_group AND {_MEMBER} AND {_OTHERS}"
_LONE_GROUP: Final = f"(is_group AND {_MEMBER} AND NOT {_OTHERS})"
# Tables without an agent, which is that of the rows that they belong to.
_PLAIN_PLACES: Final = {
    "chunks_vec": _OF_CHUNKS,
    "item_vectors": "item_row IN (SELECT value FROM json_each(:items))",
    "curation_changes": "entry_id IN (SELECT value FROM json_each(:curation))",
}
# LangGraph's callers name users by a label, such as ("memories", "kate").
OF_ITEM_USER: Final = (
    "(items.user_id = :id OR items.user_id IS NULL"
    " AND EXISTS (SELECT 1 FROM json_each(items.namespace) AS label WHERE label.value = :id))"
)
# Columns in Reverie's own words, which are the same in rows of others. What they quote is in another column, too.
_OWN_WORDS: Final = frozenset({
    "agent_id", "table_name", "model", "stage", "tier", "lifetime", "kind", "role", "status", "visibility", "source",
    "job", "action", "why", "phase", "trigger_kind", "notification_policy", "last_run_status", "run_status",
    "error", "error_type", "embedding_error", "title",
})  # fmt: skip
# Columns that are in Reverie's own words if the row is about a run that failed.
_OWN_WORDS_OF_FAILURES: Final = frozenset({"failed", "cancelled", "timed_out", "alert", "disabled"})
_FAILURES: Final = frozenset({"failed", "cancelled", "timed_out", "alert", "disabled"})


class ErasedRows(AgentRepository):
    """The rows of one agent that erasures remove, within one transaction."""

    def select(self, subject: Subject) -> Selection:
        """Return the rows that are about the subject."""
        sessions = self._sessions(subject)
        names = self._names("sessions", "id", sessions)
        memories = self._memories(subject, sessions)
        schedules = self._schedules(subject, names)
        groups = self._of_kind(subject, "sessions", "row_id", {"user": _SHARED_GROUP})
        return Selection(
            sessions=sessions,
            messages=self._messages(subject),
            files=self._files(subject),
            memories=memories,
            schedules=schedules,
            reminders=self._reminders(subject, names),
            notifications=self._notifications(subject, names, schedules),
            dead_letters=self._dead_letters(subject, sessions, names),
            curation=self._curation(subject, sessions, names, memories),
            recalls=self._recalls(subject),
            items=self._items(subject),
            groups=groups,
            member=subject.id if groups else "",
        )

    def count(self, selection: Selection) -> Counter[str]:
        """Return how many rows of each table a selection removes."""
        keys = _keys(selection)
        counts: Counter[str] = Counter()
        for table, condition in _PLACES.items():
            sql = f"SELECT count(*) FROM {table} WHERE {_own(table)} AND {condition}"
            counts[table] = int(self._value(sql, **keys))
        for table, condition in _PLAIN_PLACES.items():
            counts[table] = int(self._value(f"SELECT count(*) FROM {table} WHERE {condition}", **keys))
        return counts

    def texts(self, selection: Selection) -> Iterator[str]:
        """Yield every text of the selected rows, one by one, also those within JSON."""
        keys = _keys(selection)
        for table, condition in _PLACES.items():
            yield from self._texts_of(f"SELECT * FROM {table} WHERE {_own(table)} AND {condition}", keys)
        of_entries = _PLAIN_PLACES["curation_changes"]
        yield from self._texts_of_images(
            f"SELECT before FROM curation_changes WHERE {of_entries}"
            f" UNION ALL SELECT after FROM curation_changes WHERE {of_entries}",
            keys,
        )

    def vectors(self, selection: Selection) -> Iterator[bytes]:
        """Yield the vectors of the selected rows: the meaning of a text can be read from them."""
        for table in ("chunks_vec", "item_vectors"):
            sql = f"SELECT embedding FROM {table} WHERE {_PLAIN_PLACES[table]}"
            yield from (bytes(row) for row in self._execute(sql, **_keys(selection)).scalars())

    def names(self, selection: Selection) -> set[str]:
        """Return the ids of the selected rows, as they may be in log lines."""
        keys = _keys(selection)
        found: set[str] = set()
        for table in ("sessions", "messages", "files", "memories", "schedules", "schedule_runs", "reminders"):
            sql = f"SELECT id FROM {table} WHERE {_own(table)} AND {_PLACES[table]}"
            found |= {str(name) for name in self._values(sql, **keys)}
        of_sessions = (
            f"SELECT user_id, chat_id, ref_code FROM sessions WHERE agent_id = :agent AND {_PLACES['sessions']}"
        )
        for row in self._execute(of_sessions, **keys):
            found |= {str(name) for name in row if name}
        return found

    def sessions_of(self, selection: Selection) -> list[str]:
        """Return the ids of the selected sessions, and of those of the selected messages."""
        sql = (
            "SELECT id FROM sessions WHERE row_id IN (SELECT value FROM json_each(:sessions)) UNION SELECT s.id"
            " FROM messages AS m JOIN sessions AS s ON s.row_id = m.session_row"
            " WHERE m.row_id IN (SELECT value FROM json_each(:messages))"
        )
        return [str(name) for name in self._values(sql, **_keys(selection))]

    def _sessions(self, subject: Subject) -> list[int]:
        return self._of_kind(
            subject,
            "sessions",
            "row_id",
            {
                "session": "id = :id AND started_at <= :before",
                "user": f"(user_id = :id AND NOT is_group OR {_LONE_GROUP}) AND started_at <= :before",
                "agent": "started_at <= :before",
            },
        )

    def _messages(self, subject: Subject) -> list[int]:
        """Return single messages: one by its id, or what a user said in groups, which others keep."""
        conditions = {
            "message": "id = :id AND stored_at <= :before",
            "user": "user_id = :id AND stored_at <= :before AND session_row IN"
            f" (SELECT row_id FROM sessions WHERE agent_id = :agent AND {_SHARED_GROUP})",
        }
        return self._of_kind(subject, "messages", "row_id", conditions)

    def _files(self, subject: Subject) -> list[int]:
        conditions = {
            "agent": "session_row IS NULL AND stored_at <= :before",
            "user": "user_id = :id AND stored_at <= :before",
            "file": "id = :id AND stored_at <= :before",
        }
        return self._of_kind(subject, "files", "row_id", conditions)

    def _items(self, subject: Subject) -> list[int]:
        """Return items: of a user, also those of the agent in whose namespace the user's id is a label."""
        conditions = {"user": f"{OF_ITEM_USER} AND stored_at <= :before", "agent": "stored_at <= :before"}
        return self._of_kind(subject, "items", "row_id", conditions)

    def _recalls(self, subject: Subject) -> list[int]:
        """Return the events of a user's own recalls, whatever they found."""
        if subject.origin is not None:  # an event does not tell from which workspace the account was asked
            return []
        return self._of_kind(subject, "recall_events", "id", {"user": "user_id = :id AND at <= :before"})

    def _memories(self, subject: Subject, sessions: Sequence[int]) -> list[int]:
        of_message = (
            "(source_message = :id OR EXISTS (SELECT 1 FROM json_each(memories.metadata, '$.evidence')"
            " WHERE value = :id))"
        )
        conditions = {
            "message": f"{of_message} AND stored_at <= :before",
            "memory": "(id = :id OR note_id = :id) AND stored_at <= :before",
            "user": "owner_user_id = :id AND stored_at <= :before",
            "agent": "stored_at <= :before",
        }
        if subject.origin is not None:
            conditions["session"] = "session_row IS NULL AND metadata ->> 'session' = :id AND stored_at <= :before"
            limit = " AND metadata ->> 'workspace' = :origin"
            conditions = {kind: f"({condition}){limit}" for kind, condition in conditions.items()}
        found = self._of_kind(subject, "memories", "row_id", conditions)
        found += self._values(
            f"SELECT row_id FROM memories WHERE agent_id = :agent AND {_IN_SESSIONS}", sessions=sessions
        )
        if subject.kind in ("memory", "message"):  # with the history of what it replaced
            found = self._values(
                "WITH RECURSIVE removed (row_id) AS (SELECT CAST(value AS INTEGER) FROM json_each(:rows)"
                " UNION SELECT m.row_id FROM removed AS r CROSS JOIN memories AS m ON m.superseded_by = r.row_id"
                " AND (:is_memory OR m.source_message = :id)) SELECT row_id FROM removed",
                rows=found,
                is_memory=subject.kind == "memory",
                id=subject.id,
            )
        return sorted({int(row) for row in found})

    def _schedules(self, subject: Subject, sessions: Sequence[str]) -> list[str]:
        conditions = {"user": "user_id = :id AND created_at <= :before", "agent": "created_at <= :before"}
        found = self._of_kind(subject, "schedules", "id", conditions)
        sql = "SELECT id FROM schedules WHERE agent_id = :agent AND session_id IN (SELECT value FROM json_each(:names))"
        return sorted({*found, *self._values(sql, names=self._named(subject, sessions))})

    def _reminders(self, subject: Subject, sessions: Sequence[str]) -> list[str]:
        conditions = {
            "user": "(recipient = :id OR user_id = :id) AND created_at <= :before",
            "agent": "created_at <= :before",
        }
        found = self._of_kind(subject, "reminders", "id", conditions)
        sql = "SELECT id FROM reminders WHERE agent_id = :agent AND session_id IN (SELECT value FROM json_each(:names))"
        return sorted({*found, *self._values(sql, names=self._named(subject, sessions))})

    def _notifications(self, subject: Subject, sessions: Sequence[str], schedules: Sequence[str]) -> list[str]:
        conditions = {"user": "user_id = :id AND created_at <= :before", "agent": "created_at <= :before"}
        found = self._of_kind(subject, "notifications", "id", conditions)
        sql = (
            "SELECT id FROM notifications WHERE agent_id = :agent AND (session_id IN"
            " (SELECT value FROM json_each(:names)) OR schedule_id IN (SELECT value FROM json_each(:schedules)))"
        )
        return sorted({*found, *self._values(sql, names=self._named(subject, sessions), schedules=schedules)})

    def _dead_letters(self, subject: Subject, sessions: Sequence[int], names: Sequence[str]) -> list[int]:
        conditions = {
            "message": "item_id = :id",
            "user": "json_valid(CAST(payload AS TEXT)) AND CAST(payload AS TEXT) ->> 'user' = :id"
            " AND created_at <= :before",
            "agent": "created_at <= :before",
        }
        chats = self._execute(
            "SELECT provider, chat_id FROM sessions WHERE agent_id = :agent AND provider IS NOT NULL"
            " AND chat_id IS NOT NULL AND row_id IN (SELECT value FROM json_each(:rows))",
            rows=sessions,
        ).all()
        keys = [*self._named(subject, names), *(chat_key(row[0], row[1]) for row in chats)]
        sql = (
            "SELECT id FROM dead_letters WHERE agent_id = :agent AND session_id IN (SELECT value FROM json_each(:keys))"
        )
        return sorted({*self._of_kind(subject, "dead_letters", "id", conditions), *self._values(sql, keys=keys)})

    def _curation(
        self, subject: Subject, sessions: Sequence[int], names: Sequence[str], memories: Sequence[int]
    ) -> list[int]:
        image = "coalesce(after, before)"
        of_images = {
            "message": f"{image} ->> 'source_message' = :id",
            "memory": f"{image} ->> 'id' = :id",
            "user": f"{image} ->> 'owner_user_id' = :id AND {image} ->> 'stored_at' <= :before",
        }
        found: set[int] = set()
        if subject.kind == "agent" and subject.origin is None:
            found |= set(self._of_kind(subject, "curation_log", "id", {"agent": "at <= :before"}))
        if subject.kind in of_images or subject.origin is not None:
            in_json = f"({image} ->> 'metadata')"
            limit = "" if subject.origin is None else f" AND {in_json} ->> 'workspace' = :origin"
            condition = of_images.get(subject.kind, f"{in_json} ->> 'session' = :id" if subject.id else "1")
            found |= set(
                self._values(
                    "SELECT entry_id FROM curation_changes WHERE table_name = 'memories'"
                    f" AND {image} ->> 'agent_id' = :agent AND {condition}{limit}",
                    **self._parameters(subject),
                )
            )
        found |= set(
            self._values(
                "SELECT entry_id FROM curation_items WHERE agent_id = :agent AND memory_id IN"
                " (SELECT id FROM memories WHERE row_id IN (SELECT value FROM json_each(:memories)))"
                " UNION SELECT id FROM curation_log WHERE agent_id = :agent AND session_id IN"
                " (SELECT value FROM json_each(:names))"
                " UNION SELECT entry_id FROM curation_changes WHERE table_name = 'memories'"
                " AND coalesce(after, before) ->> 'session_row' IN (SELECT value FROM json_each(:sessions))",
                memories=memories,
                names=self._named(subject, names),
                sessions=sessions,
            )
        )
        return sorted(found)

    def _named(self, subject: Subject, names: Sequence[str]) -> list[str]:
        """Return the ids of sessions, with that of a session that is not stored, or no longer."""
        return [*names, *([subject.id] if subject.kind == "session" and subject.origin is None else [])]

    def _names(self, table: str, column: str, rows: Sequence[int]) -> list[str]:
        sql = f"SELECT {column} FROM {table} WHERE row_id IN (SELECT value FROM json_each(:rows))"
        return [str(name) for name in self._values(sql, rows=rows)]

    def _of_kind(self, subject: Subject, table: str, column: str, conditions: dict[str, str]) -> list[Any]:
        condition = conditions.get(subject.kind)
        if condition is None:
            return []
        sql = f"SELECT {column} FROM {table} WHERE agent_id = :agent AND {condition} ORDER BY 1"
        return self._values(sql, **self._parameters(subject))

    def _parameters(self, subject: Subject) -> dict[str, Any]:
        return {"id": subject.id, "before": subject.before, "origin": subject.origin}

    def _texts_of(self, sql: str, keys: dict[str, Any]) -> Iterator[str]:
        for row in self._execute(sql, **keys).mappings():
            yield from _texts_of_row(row)

    def _texts_of_images(self, sql: str, keys: dict[str, Any]) -> Iterator[str]:
        """Yield the texts of rows that are kept as JSON."""
        for image in self._execute(sql, **keys).scalars():
            if image is not None:
                yield from _texts_of_row(json.loads(image))


def _texts_of_row(row: Mapping[str, Any] | RowMapping) -> Iterator[str]:
    own = _OWN_WORDS
    if not _FAILURES.isdisjoint((row.get("status"), row.get("run_status"), row.get("kind"))):
        own |= _OWN_WORDS_OF_FAILURES
    for name, value in row.items():
        if name not in own:
            yield from texts_of_value(value)


def _own(table: str) -> str:
    return f"{'+' if table in _BY_KEY else ''}agent_id = :agent"


def _keys(selection: Selection) -> dict[str, Any]:
    return {field.name: getattr(selection, field.name) for field in fields(selection)}
