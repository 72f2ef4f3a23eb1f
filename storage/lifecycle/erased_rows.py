"""Which rows of an agent in a store an erasure removes, the texts in these rows, and the ids that tombstones may name.

A selection has the rows that are removed directly; their chunks, vectors, words, recall events, runs and so on follow.
The same selection is counted before a removal and by a dry run, so both give the same numbers. `storage/catalogue.py`
has the conditions for each table.

`StoredTexts` reads the texts of all remaining rows, and removes records of work that quote what was erased.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from reverie.contract import chat_key
from reverie.parts import in_parts
from storage.catalogue import MEMORY_METADATA, SHARED_GROUP, TABLES, SubjectKind, listed
from storage.engines import Row, RowMapping
from storage.lifecycle.erasures import Subject
from storage.repository import AgentRepository, Repository
from storage.rows import DamagedRow, from_json_of, tables_of, valid_json

_SELECTED: Final = tuple(name for name, table in TABLES.items() if table.about)
# The tables whose removed rows the receipt counts.
_REMOVED: Final = tuple(name for name, table in TABLES.items() if table.about or table.removed)
# The log comes first: some of its entries are found by the memories that they are about. Sessions and files, which are
# large, come one by one.
_IN_BATCHES: Final = (
    "curation_log",
    *(name for name in _SELECTED if name not in ("curation_log", "sessions", "files")),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The keys of the rows to remove, by table, and the groups that the user `member` leaves."""

    keys: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    groups: Sequence[int] = ()
    member: str = ""

    @classmethod
    def of_all(cls, selections: Iterable[Selection]) -> Selection:
        """Return the rows of several selections, each once. Only a single selection may have groups."""
        every = list(selections)
        if len(every) == 1:
            return every[0]
        tables = {table for one in every for table in one.keys}
        return cls({table: list(dict.fromkeys(key for one in every for key in one.of(table))) for table in tables})

    def is_empty(self) -> bool:
        """Return whether there is nothing to remove."""
        return not self.groups and not any(self.keys.values())

    def of(self, table: str) -> Sequence[Any]:
        """Return the keys of the rows of a table."""
        return self.keys.get(table, ())

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the catalogue's conditions on removed rows."""
        return {table: self.of(table) for table in _SELECTED}

    def parts(self, rows: int) -> Iterator[Selection]:
        """Split the selection into one part for each transaction: `rows` rows of a table, a session, or a file."""
        for table in _IN_BATCHES:
            keys = self.of(table)
            yield from (Selection({table: keys[first : first + rows]}) for first in range(0, len(keys), rows))
        if self.groups:
            yield Selection(groups=self.groups, member=self.member)
        yield from (Selection({table: [key]}) for table in ("files", "sessions") for key in self.of(table))


def conditions_in(table: str, subject: Subject) -> Mapping[SubjectKind, str]:
    """Return the conditions by which rows of a table are about a subject, by kind of subject.

    In the account, only rows that came from the subject's workspace are. Recall events there are not: they do not tell
    from which workspace the account was asked.
    """
    conditions = TABLES[table].about
    if subject.origin is None or table not in ("memories", "recall_events"):
        return conditions
    if table == "recall_events":
        return {}
    of_session = f"session_row IS NULL AND {MEMORY_METADATA} ->> 'session' = :id AND stored_at <= :before"
    of_kinds: dict[SubjectKind, str] = {**conditions, "session": of_session}
    return {kind: f"({one}) AND {MEMORY_METADATA} ->> 'workspace' = :origin" for kind, one in of_kinds.items()}


# Columns with Reverie's own words, which everybody's rows have. Texts that they quote are also in other columns.
_OWN_WORDS: Final = frozenset({
    "agent_id", "table_name", "model", "stage", "tier", "lifetime", "kind", "role", "status", "visibility", "source",
    "job", "action", "why", "phase", "trigger_kind", "notification_policy", "last_run_status", "run_status",
    "error", "error_type", "embedding_error", "title", "undone_by",
    "audience",  # "u:kate": other columns have the id alone
})  # fmt: skip


class ErasedRows(AgentRepository):
    """The rows of one agent that erasures remove, within one transaction."""

    def select(self, subject: Subject) -> Selection:
        """Return the rows that are about the subject, or belong to such rows."""
        found: dict[str, list[Any]] = {"sessions": self._about("sessions", subject, {})}
        names = self._values(f"SELECT id FROM sessions WHERE row_id IN {listed('rows')}", rows=found["sessions"])
        if subject.kind == "session" and subject.origin is None:
            names.append(subject.id)  # the session itself may not be stored (any more)
        chats = [*names, *self._chats(subject, found["sessions"])]
        known: dict[str, Sequence[Any]] = {"names": names, "chats": chats}
        if subject.kind == "message":
            known |= {"chats": [], "chats_of_message": [subject.session, *chats]}
        for table in _SELECTED:
            if table == "curation_log":
                found[table] = self._curation(subject, found["sessions"], names, found["memories"])
            elif table != "sessions":
                known |= {name: found[name] for name in ("sessions", "schedules") if name in found}
                found[table] = self._about(table, subject, known)
            if table == "memories" and subject.kind in ("memory", "message"):
                found[table] = self._with_history(subject, found[table])
        if subject.kind != "user":
            return Selection(found)
        groups = self._values(
            f"SELECT row_id FROM sessions WHERE agent_id = :agent AND {SHARED_GROUP}", **subject.parameters()
        )
        return Selection(found, groups, subject.id if groups else "")

    def are_about(self, subject: Subject, sessions: Sequence[int]) -> bool:
        """Return whether selected sessions are still about the subject: others may have joined them."""
        if not sessions:
            return True
        is_about = conditions_in("sessions", subject).get(subject.kind, "false")
        sql = f"SELECT count(*) FROM sessions WHERE agent_id = :agent AND row_id IN {listed('rows')} AND ({is_about})"
        return int(self._value(sql, rows=sessions, **subject.parameters())) == len(sessions)

    def count(self, selection: Selection) -> Counter[str]:
        """Return how many rows of each table a selection removes."""
        keys = selection.parameters()
        return Counter({table: int(self._value(f"SELECT count(*) {_from(table)}", **keys)) for table in _REMOVED})

    def count_memories(self, subject: Subject, *, tenant: str | None) -> int:
        """Return how many memories of a tenant are about the subject; None is the local tenant."""
        condition = conditions_in("memories", subject).get(subject.kind)
        if condition is None:
            return 0
        sql = f"SELECT count(*) FROM memories WHERE agent_id = :agent AND tenant IS :tenant AND ({condition})"
        return int(self._value(sql, **subject.parameters(), tenant=tenant))

    def texts(self, selection: Selection) -> Iterator[str]:
        """Yield every text of the selected rows, one by one, also those within JSON."""
        keys = selection.parameters()
        for table in _REMOVED:
            if TABLES[table].of_agent:
                for row in self._execute(f"SELECT * {_from(table)}", **keys).mappings():
                    yield from _texts_of_row(row)
        changes = _from("curation_changes")
        images = self._execute(f"SELECT before {changes} UNION ALL SELECT after {changes}", **keys).scalars()
        for image in images:  # rows that are kept as JSON
            if image is not None:
                with suppress(DamagedRow):
                    yield from _texts_of_row(from_json_of(dict, image))

    def vectors(self, selection: Selection) -> Iterator[bytes]:
        """Yield the vectors of the selected rows: the meaning of a text can be read from them."""
        for table in _REMOVED:
            if column := TABLES[table].vector:
                found = self._execute(f"SELECT {column} {_from(table)}", **selection.parameters())
                yield from map(bytes, found.scalars())

    def names(self, selection: Selection) -> set[str]:
        """Return the names in the selected rows that log lines may contain."""
        found: set[str] = set()
        for table in _REMOVED:
            if columns := TABLES[table].names:
                rows = self._execute(f"SELECT {', '.join(columns)} {_from(table)}", **selection.parameters())
                found |= {str(name) for row in rows for name in row if name}
        return found

    def sessions_of(self, selection: Selection) -> list[str]:
        """Return the ids of the selected sessions, and of those of the selected messages."""
        sql = (
            "SELECT id FROM sessions WHERE row_id IN (SELECT value FROM json_each(:sessions)) UNION SELECT s.id"
            " FROM messages AS m JOIN sessions AS s ON s.row_id = m.session_row"
            " WHERE m.row_id IN (SELECT value FROM json_each(:messages))"
        )
        return [str(name) for name in self._values(sql, **selection.parameters())]

    def _about(self, table: str, subject: Subject, selected: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Return the keys of the rows of a table that are about a subject or belong to selected rows."""
        entry = TABLES[table]
        is_about = conditions_in(table, subject).get(subject.kind, "false")
        belongs = entry.belongs or (f"session_id IN {listed('names')}" if entry.has_session_id else "false")
        rows = f"SELECT {entry.key[-1]} FROM {table} WHERE agent_id = :agent"
        sql = f"{rows} AND {is_about} UNION {rows} AND {belongs} ORDER BY 1"
        return self._values(sql, **subject.parameters(), **selected)

    def _with_history(self, subject: Subject, rows: Sequence[int]) -> list[int]:
        """Return memories with those that they have replaced."""
        found = self._values(
            "WITH RECURSIVE removed (row_id) AS (SELECT CAST(value AS INTEGER) FROM json_each(:rows)"
            " UNION SELECT m.row_id FROM removed AS r CROSS JOIN memories AS m ON m.superseded_by = r.row_id"
            " AND (:is_memory OR m.source_message = :id)) SELECT row_id FROM removed",
            rows=rows,
            is_memory=subject.kind == "memory",
            id=subject.id,
        )
        return sorted(map(int, found))

    def _chats(self, subject: Subject, sessions: Sequence[int]) -> list[str]:
        """Return the chats of sessions, by which dead letters may name them."""
        rows = self._execute(
            "SELECT provider, chat_id FROM sessions WHERE agent_id = :agent AND provider IS NOT NULL"
            " AND chat_id IS NOT NULL AND (row_id IN (SELECT value FROM json_each(:rows)) OR id = :session)",
            rows=sessions,
            session=subject.session,
        )
        return [chat_key(row[0], row[1]) for row in rows.all()]

    def _curation(
        self, subject: Subject, sessions: Sequence[int], names: Sequence[str], memories: Sequence[int]
    ) -> list[int]:
        image = valid_json("coalesce(after, before)")
        in_json = valid_json(f"({image} ->> 'metadata')")
        of_images = {
            "message": f"{image} ->> 'source_message' = :id AND coalesce((SELECT id FROM sessions"
            f" WHERE row_id = CAST({image} ->> 'session_row' AS INTEGER)),"
            f" {in_json} ->> 'session', :session) = :session",
            "memory": f"{image} ->> 'id' = :id",
            "user": f"{image} ->> 'owner_user_id' = :id AND {image} ->> 'stored_at' <= :before",
        }
        found: set[int] = set()
        if subject.kind == "agent" and subject.origin is None:
            found |= set(self._about("curation_log", subject, {}))
        if subject.kind in of_images or subject.origin is not None:
            limit = "" if subject.origin is None else f" AND {in_json} ->> 'workspace' = :origin"
            condition = of_images.get(subject.kind, f"{in_json} ->> 'session' = :id" if subject.id else "1")
            found |= set(
                self._values(
                    "SELECT entry_id FROM curation_changes WHERE table_name = 'memories'"
                    f" AND {image} ->> 'agent_id' = :agent AND {condition}{limit}",
                    **subject.parameters(),
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
                names=names,
                sessions=sessions,
            )
        )
        return sorted(found)


def _from(table: str) -> str:
    """Return the FROM and WHERE of the rows of a table that a selection removes."""
    entry = TABLES[table]
    # With the plus, SQLite looks rows up by their keys and does not read all rows of the agent for each part.
    of_agent = f"{'' if entry.key[0] == 'agent_id' else '+'}agent_id = :agent AND " if entry.of_agent else ""
    return f"FROM {table} WHERE {of_agent}{entry.removed or f'{entry.key[-1]} IN {listed(table)}'}"


def _texts_of_row(row: Mapping[str, Any] | RowMapping) -> Iterator[str]:
    for name, value in row.items():
        if name not in _OWN_WORDS:
            yield from texts_of_value(value)


class Candidate(NamedTuple):
    """An id in an agent's rows that an erasure may have named; `origin` is the workspace of a row of the account.

    For a message, `session` is the session within which its id is unique.
    """

    kind: SubjectKind
    id: str
    origin: str | None
    session: str = ""


_OF_ROW: Final = valid_json("metadata")
_OF_MEMORY: Final = valid_json("k.metadata")
# Memories, the rows of the account, name the workspace that they came from.
_ORIGINS: Final = {"memories": f"{_OF_ROW} ->> 'workspace'"}
_USERS: Final = (
    *(
        f"SELECT {column}, {_ORIGINS.get(name, 'NULL')} FROM {name} WHERE agent_id = :agent"
        for name, table in TABLES.items()
        for column in table.users
    ),
    f"SELECT label.value, NULL FROM items JOIN json_each({valid_json('items.namespace')}) AS label"
    " WHERE items.agent_id = :agent AND items.user_id IS NULL",
)
_NAMED: Final[tuple[tuple[SubjectKind, str], ...]] = (
    ("session", "SELECT id, NULL FROM sessions WHERE agent_id = :agent"),
    (
        "session",
        f"SELECT DISTINCT {_OF_ROW} ->> 'session', {_OF_ROW} ->> 'workspace' FROM memories WHERE agent_id = :agent"
        f" AND session_row IS NULL AND {_OF_ROW} ->> 'session' IS NOT NULL",
    ),
    (
        "message",
        "SELECT m.id, NULL, s.id FROM messages AS m JOIN sessions AS s ON s.row_id = m.session_row"
        " WHERE m.agent_id = :agent",
    ),
    (
        "message",
        f"SELECT DISTINCT k.source_message, {_OF_MEMORY} ->> 'workspace', coalesce(s.id, {_OF_MEMORY} ->> 'session')"
        " FROM memories AS k LEFT JOIN sessions AS s ON s.row_id = k.session_row WHERE k.agent_id = :agent"
        " AND k.source_message IS NOT NULL",
    ),
    ("file", "SELECT id, NULL FROM files WHERE agent_id = :agent"),
    ("memory", "SELECT id, NULL FROM memories WHERE agent_id = :agent"),
    ("memory", "SELECT note_id, NULL FROM memories WHERE agent_id = :agent AND note_id IS NOT NULL"),
    ("user", " UNION ".join(_USERS)),
)


class Candidates(AgentRepository):
    """The ids in the rows of one agent that erasures may have named, within one transaction."""

    def all(self) -> Iterator[Candidate]:
        """Yield every id with its kind."""
        for kind, sql in _NAMED:
            for row in self._execute(sql):
                if row[0]:
                    yield Candidate(kind, str(row[0]), row[1], str(row[2] or "") if kind == "message" else "")

    def origins(self) -> list[str]:
        """Return the workspaces that the agent's rows of the account came from."""
        return self._values(
            f"SELECT DISTINCT {_OF_ROW} ->> 'workspace' FROM memories WHERE agent_id = :agent"
            f" AND {_OF_ROW} ->> 'workspace' IS NOT NULL"
        )


def texts_of_value(value: Any) -> Iterator[str]:
    """Yield the texts of one column's value. JSON, as text or as bytes (a payload), yields each text in it."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return
    if not isinstance(value, str) or not value:
        return
    if value[0] in "[{":
        try:
            yield from _inner_texts(json.loads(value))
            return
        except (ValueError, RecursionError):
            pass
    yield value


def _inner_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from texts_of_value(value)  # JSON within JSON, as in the images of the curation log
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _inner_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _inner_texts(inner)


_BLOCK_BYTES: Final = 1 << 20
# Rows in memory at a time; a file has up to 16 MiB.
_ROWS_AT_ONCE: Final = 200
_FILES_AT_ONCE: Final = 4


class StoredTexts(Repository):
    """The texts of all agents of a store within one transaction."""

    def blocks(self, *, everything: bool = False) -> Iterator[bytes]:
        """Return all texts and vectors of stored rows, or of the rows of all tables, in blocks of about a megabyte."""
        present = tables_of(self._connection)
        tables = sorted(present) if everything else [name for name in present if TABLES[name].words]
        values = (_bytes(value) for table in tables for row in self._rows(table, "*") for value in row)
        return map(b"\0".join, in_parts(((value, len(value)) for value in values if value), size=_BLOCK_BYTES))

    def quoting(self, quotes: Callable[[bytes], bool]) -> dict[str, list[Any]]:
        """Return by table the keys of records of work that quote erased texts."""
        found: dict[str, list[Any]] = {}
        for table in tables_of(self._connection):
            entry = TABLES[table]
            key = entry.quoted_by or entry.key[-1]
            for row in self._rows(table, f"{key}, {', '.join(entry.quotes)}") if entry.quotes else ():
                if quotes(b"\0".join(_bytes(value) for value in row[1:])):
                    found.setdefault(table, []).append(row[0])
        return found

    def remove_quoting(self, table: str, keys: Sequence[Any]) -> int:
        """Remove these records of work and return how many; a run keeps its outcome and loses its texts."""
        entry = TABLES[table]
        change = entry.unquote or f"DELETE FROM {table} WHERE {entry.key[-1]}"
        return self._execute(f"{change} IN (SELECT value FROM json_each(:keys))", keys=keys).rowcount

    def _rows(self, table: str, columns: str) -> Iterator[Row[*tuple[Any, ...]]]:
        at_once = _FILES_AT_ONCE if table == "files" else _ROWS_AT_ONCE
        for page in self._pages(f"SELECT {columns} FROM {table}", at_once):
            yield from page


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return bytes(value) if isinstance(value, (bytes, memoryview)) else b""
