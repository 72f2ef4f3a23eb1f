"""Store the rows of an import, with their ids and times, unless they are there already.

Stored rows stay as they are, so storing a record again changes nothing. Chunks and vectors are not imported: the
pipeline makes them for the new rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from blake3 import blake3

from reverie.clock import to_micros
from reverie.contract import EXTRACT_MEMORIES, content_hash
from reverie.trust import exports as types
from reverie.trust.exports import ExportedRecord
from storage.catalogue import listed
from storage.leases import JobLeases
from storage.lifecycle.exported_rows import EXPORTED
from storage.pipeline.messages import Messages
from storage.pipeline.records import WholeMessage
from storage.repository import AgentRepository
from storage.rows import column_name
from storage.sessions.sessions import Sessions, new_ref_code

# "waiting": the row that the record refers to is not chunked yet; "left_out": there is no such row.
ImportOutcome: TypeAlias = Literal["added", "present", "left_out", "waiting"]

# "elsewhere": another row of the store has the id, which must be unique.
Presence: TypeAlias = Literal["absent", "present", "elsewhere"]

_SESSION: Final = "session_row = (SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :session)"
_SOURCES: Final = {
    "message": "SELECT m.row_id, m.chunked_at, c.id FROM messages AS m LEFT JOIN chunks AS c ON c.content_hash = :hash"
    " AND c.id IN (SELECT chunk_id FROM message_chunks WHERE message_row = m.row_id)"
    f" WHERE m.agent_id = :agent AND m.id = :found AND m.{_SESSION}",
    "file": "SELECT f.row_id, f.chunked_at, c.id FROM files AS f LEFT JOIN chunks AS c ON c.file_row = f.row_id"
    " AND c.content_hash = :hash WHERE f.agent_id = :agent AND f.id = :found",
    "memory": "SELECT k.row_id, k.chunked_at, c.id FROM memories AS k LEFT JOIN chunks AS c"
    " ON c.memory_row = k.row_id AND c.content_hash = :hash WHERE k.agent_id = :agent AND k.id = :found",
}
_ENDED: Final = frozenset({"success", "failed", "cancelled", "timed_out"})


class ImportedRows(AgentRepository):
    """The rows of one agent that imports write, within one transaction."""

    def presence(self, records: Sequence[ExportedRecord]) -> list[Presence]:
        """Return for each record whether it is stored already, with one query for each kind of record."""
        there: dict[type[ExportedRecord], dict[str, str | None]] = {types.ExportedMessage: self._messages(records)}
        for kind in {type(record) for record in records} - {types.ExportedMessage}:
            if sql := _by_id(kind):
                ids = [name for record in records if type(record) is kind for name in _ids_of(record)]
                there[kind] = {row[0]: row[1] for row in self._execute(sql, ids=ids)}
        return [self._presence(record, there.get(type(record), {})) for record in records]

    def add_messages(self, records: Sequence[types.ExportedMessage], *, now: int, user: str | None) -> None:
        """Store messages that are not present; a missing session is created for `user`."""
        by_session: dict[str, list[types.ExportedMessage]] = {}
        for record in records:
            by_session.setdefault(record.session, []).append(record)
        for session, group in by_session.items():
            row = self._ensure_session(session, group[0].created_at, now, user)
            taken = set(
                self._values(
                    "SELECT sequence FROM messages WHERE session_row = :row"
                    " AND sequence IN (SELECT value FROM json_each(:sequences))",
                    row=row,
                    sequences=[record.sequence for record in group],
                )
            )
            last = int(self._value("SELECT last_sequence FROM sessions WHERE row_id = :row", row=row) or 0)
            for record in group:
                sequence = last + 1 if record.sequence in taken else record.sequence
                last = max(last, sequence)
                taken.add(sequence)
                columns: dict[str, Any] = {
                    "session_row": row,
                    "sequence": sequence,
                    "accepted_at": now,
                    "stored_at": now,
                }
                columns["tool_calls"] = record.tool_calls or None
                self._insert(record, now, exclude=("session", "sequence", "tool_calls"), **columns)
            self._execute("UPDATE sessions SET last_sequence = :last WHERE row_id = :row", last=last, row=row)
            sessions = Sessions(self._connection, self._agent)
            if users := [record.user for record in group if record.user is not None]:
                sessions.add_users(sessions.get(session), users)

    def add(
        self, record: ExportedRecord, *, now: int, tenant: str | None, trusted: bool, user: str | None
    ) -> ImportOutcome:
        """Store a record that is not present, except a message. `tenant` is the tenant of rows of the account.

        A promoted memory stays promoted only if the import is `trusted`. If the session that a record came from is
        missing, it is created for `user`. `now` in microseconds.
        """
        match record:
            case types.ExportedSession():
                return self._add_session(record, now)
            case types.ExportedFile():
                content_hash = blake3(record.content.encode()).digest()
                row = (
                    None
                    if record.session is None
                    else self._ensure_session(record.session, record.created_at, now, user)
                )
                columns = {"content_hash": content_hash, "session_row": row, "accepted_at": now, "stored_at": now}
                return self._insert(record, now, exclude=("session",), **columns)
            case types.ExportedMemory():
                outcome = self._add_memory(record, now, tenant, user)
                if outcome == "added" and trusted:
                    self._promote(record)
                return outcome
            case types.ExportedItem():
                return self._insert(record, now, stored_at=now)
            case types.ExportedRun():
                return self._add_run(record, now)
            case types.ExportedRecallEvent():
                return self._add_event(record, now)
        if not EXPORTED[types.part_of(record)][1].has_session_row:
            return self._insert(record, now)
        session = getattr(record, "session", "")
        row = None if session is None else self._session_row(session)
        if row is None and session is not None:
            return "left_out"
        return self._insert(record, now, exclude=("session",), session_row=row)

    def link_successor(self, record: types.ExportedMemory) -> None:
        """Mark a stored memory as replaced by its successor, if the successor has been imported meanwhile."""
        if record.superseded_by is not None and record.superseded_by != record.id:
            self._execute(
                "UPDATE memories SET superseded_by = (SELECT b.row_id FROM memories AS b WHERE b.agent_id = :agent"
                " AND b.id = :by) WHERE agent_id = :agent AND id = :id AND superseded_by = row_id"
                " AND EXISTS (SELECT 1 FROM memories AS b WHERE b.agent_id = :agent AND b.id = :by)",
                id=record.id,
                by=record.superseded_by,
            )

    def belongs_to_others(self, session: str, user: str | None) -> bool:
        """Return whether a session exists without this user; for None, whether the session has users."""
        sessions = Sessions(self._connection, self._agent)
        found = sessions.find(session)
        if found is None:
            return False
        users = sessions.users(found)
        return user not in users if user is not None else bool(users)

    def _presence(self, record: ExportedRecord, there: Mapping[str, str | None]) -> Presence:
        if isinstance(record, types.ExportedRecallEvent):
            return "present" if self._has_event(record) else "absent"
        name, _, exported = EXPORTED[types.part_of(record)]
        if exported.same:
            names = ("session", "key", "stage", "item_id", "variant", "user", "namespace")
            values = {field: getattr(record, field, None) for field in names}
            sql = f"SELECT 1 FROM {name} WHERE agent_id = :agent AND {exported.same}"
            return "present" if self._value(sql, **values) is not None else "absent"
        if isinstance(record, types.ExportedMessage):
            ids, own = [_name_of(record)], content_hash(record, whose=False)
        else:
            ids, own = _ids_of(record), self._agent
        known = [name for name in ids if name in there]
        return "absent" if not known else "present" if there[known[0]] in (None, own) else "elsewhere"

    def _messages(self, records: Sequence[ExportedRecord]) -> dict[str, str | None]:
        """Return content hashes of the stored messages that these records name, by session and id."""
        by_session: dict[str, list[str]] = {}
        for record in records:
            if isinstance(record, types.ExportedMessage):
                by_session.setdefault(record.session, []).append(record.id)
        messages, found = Messages(self._connection, self._agent), dict[str, str | None]()
        for session, ids in by_session.items():
            row = self._session_row(session)
            for message in messages.whole(row, ids) if row is not None else ():
                found[_name_of(message)] = content_hash(message, whose=False)
        return found

    def _has_event(self, record: types.ExportedRecallEvent) -> bool:
        _, _, chunk = self._source(record)
        sql = "SELECT 1 FROM recall_events WHERE recall = :recall AND chunk_id = :chunk"
        return chunk is not None and self._value(sql, recall=record.recall, chunk=chunk) is not None

    def _add_session(self, record: types.ExportedSession, now: int) -> ImportOutcome:
        taken = self._value("SELECT 1 FROM sessions WHERE ref_code = :code", code=record.ref_code)
        sessions, chat = Sessions(self._connection, self._agent), dict[str, Any]()
        if record.provider and record.chat_id and sessions.id_by_chat(record.provider, record.chat_id) is not None:
            chat = {"provider": None, "chat_id": None}
        ref_code = new_ref_code() if taken else record.ref_code
        outcome = self._insert(
            record,
            now,
            exclude=("users", "extracted_up_to", "ref_code", *chat),
            ref_code=ref_code,
            is_group=len(record.users) > 1,
            **chat,
        )
        row = self._session_row(record.id)
        for user in record.users if len(record.users) > 1 else ():
            self._execute(
                "INSERT OR IGNORE INTO session_users (session_row, agent_id, user_id) VALUES (:row, :agent, :user)",
                row=row,
                user=user,
            )
        if record.extracted_up_to:
            JobLeases(self._connection).set(EXTRACT_MEMORIES, ref_code, record.extracted_up_to, now=now)
        return outcome

    def _add_memory(
        self, record: types.ExportedMemory, now: int, tenant: str | None, user: str | None
    ) -> ImportOutcome:
        row = None if record.session is None else self._ensure_session(record.session, record.created_at, now, user)
        later = ("superseded_by", "superseded_at", "category", "key")
        replaced = record.superseded_by is not None
        promotion = ("promoted_at", "promotion_score", "promotion_phase")
        outcome = self._insert(
            record,
            now,
            exclude=("session", *promotion, *(later if replaced else later[:2])),
            session_row=row,
            tenant=tenant,
            stored_at=now,
        )
        if outcome == "added" and replaced:
            # In a second step: a row may share the key of a fact's current row only once it is marked as replaced.
            self._execute(
                "UPDATE memories SET superseded_by = row_id, superseded_at = :at, category = :category, key = :key"
                " WHERE agent_id = :agent AND id = :id",
                id=record.id,
                at=_stored(record.superseded_at or record.updated_at),
                category=record.category,
                key=record.key,
            )
            self.link_successor(record)
        return outcome

    def _promote(self, record: types.ExportedMemory) -> None:
        if record.promoted_at is not None:
            self._execute(
                "INSERT OR IGNORE INTO memory_promotions (agent_id, memory_id, promoted_at, score, phase)"
                " VALUES (:agent, :id, :at, :score, :phase)",
                id=record.id,
                at=_stored(record.promoted_at),
                score=record.promotion_score or 0.0,
                phase=record.promotion_phase or "",
            )

    def _add_run(self, record: types.ExportedRun, now: int) -> ImportOutcome:
        schedule = self._value("SELECT 1 FROM schedules WHERE agent_id = :agent AND id = :id", id=record.schedule)
        if schedule is None or record.status not in _ENDED:  # an open run belongs to the installation that executes it
            return "left_out"
        return self._insert(record, now, sent_at=_stored(record.created_at))

    def _add_event(self, record: types.ExportedRecallEvent, now: int) -> ImportOutcome:
        row, chunked_at, chunk = self._source(record)
        if chunk is None:
            return "waiting" if row is not None and chunked_at is None else "left_out"
        outcome = self._insert(
            record,
            now,
            exclude=("found_kind", "found", "found_session", "chunk", "in_account"),
            chunk_id=chunk,
        )
        if outcome == "added":
            self._execute(
                "UPDATE chunks SET access_count = access_count + 1,"
                " accessed_at = max(coalesce(accessed_at, 0), :at) WHERE id = :chunk",
                at=_stored(record.at),
                chunk=chunk,
            )
        return outcome

    def _source(self, record: types.ExportedRecallEvent) -> tuple[int | None, int | None, int | None]:
        """Return the row that an event found, when it was chunked, and the chunk, each None if it does not exist."""
        sql = _SOURCES[record.found_kind]
        values = {"found": record.found, "session": record.found_session, "hash": _bytes_of(record.chunk)}
        found = self._execute(sql, **values).first()
        return (None, None, None) if found is None else (found[0], found[1], found[2])

    def _session_row(self, session: str) -> int | None:
        row: int | None = self._integer("SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :id", id=session)
        return row

    def _ensure_session(self, session: str, started_at: datetime, now: int, user: str | None) -> int:
        """Return the row of a session; it is created for `user` if the import has no record of it."""
        row = self._session_row(session)
        if row is None:
            at = min(to_micros(started_at), now)
            row = Sessions(self._connection, self._agent).ensure(session, now=at, user=user).row_id
        return row

    def _insert(
        self, record: ExportedRecord, now: int, *, exclude: tuple[str, ...] = (), **columns: Any
    ) -> ImportOutcome:
        table = EXPORTED[types.part_of(record)][0]
        names = [name for name in record.__struct_fields__ if name not in ("workspace", "agent", *exclude)]
        values = {column_name(name): getattr(record, name) for name in names} | columns
        bound = {f"v_{name}": _stored(value) for name, value in values.items()}
        if "stored_at" not in columns:
            # Erasures compare these times with their own to spare later rows, so none may be later than now.
            bound |= {
                name: min(bound[name], now) for name in ("v_started_at", "v_created_at", "v_at") if bound.get(name)
            }
        inserted = self._execute(
            f"INSERT INTO {table} (agent_id, {', '.join(values)}) VALUES (:agent, {', '.join(':' + b for b in bound)})"
            " ON CONFLICT DO NOTHING",
            **bound,
        )
        return "added" if inserted.rowcount else "present"


def _by_id(kind: type[ExportedRecord]) -> str:
    """Return a query for those of many ids that are stored; empty for records that are not found by an id.

    The query returns each id with its agent, which must be the record's, if ids are unique across agents.
    """
    name, table, exported = EXPORTED[types.tag_of(kind)]
    if exported.same or kind is types.ExportedRecallEvent:
        return ""
    if table.key == ("id",):
        return f"SELECT id, agent_id FROM {name} WHERE id IN {listed('ids')}"
    columns = ("id", exported.other_id) if exported.other_id else ("id",)
    return " UNION ALL ".join(
        f"SELECT {column}, NULL FROM {name} WHERE agent_id = :agent AND {column} IN {listed('ids')}"
        for column in columns
    )


def _name_of(message: types.ExportedMessage | WholeMessage) -> str:
    return f"{message.session}\x1f{message.id}"


def _ids_of(record: ExportedRecord) -> list[str]:
    """Return the ids by which a record is found: its own id and its note's id."""
    return [name for name in (getattr(record, "id", None), getattr(record, "note_id", None)) if name is not None]


def _stored(value: Any) -> Any:
    """Return a value as it is stored: times in microseconds, lists and objects as JSON, booleans as numbers."""
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return int(value) if isinstance(value, bool) else value


def _bytes_of(hexadecimal: str) -> bytes:
    try:
        return bytes.fromhex(hexadecimal)
    except ValueError:
        return b""
