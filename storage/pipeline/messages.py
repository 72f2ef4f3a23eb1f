"""Messages of one agent: stored exactly once, read in the order of their time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from reverie.errors import NotFound
from storage.pipeline.records import MessageRecord, NewMessage, SpokenMessage, WholeMessage
from storage.repository import AgentRepository
from storage.rows import insert_sql, select_list, to_parameters
from storage.viewer import is_source, of_message

_FROM: Final = (
    " FROM messages AS m JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id"
    " WHERE m.agent_id = :agent"
)
_SELECT: Final = f"SELECT {select_list(MessageRecord, 'm', session='s.id')}{_FROM}"
_SIZE: Final = " + ".join(
    f"coalesce(octet_length(m.{column}), 0)" for column in ("content", "metadata", "tool_calls", "original")
)
_PAGE_MESSAGES: Final = 1_000
# The last messages by sequence, as many as begin within some bytes, counted back from the last one.
_LAST: Final = f"""
    SELECT {select_list(WholeMessage, "m", session="s.id")}{_FROM} AND m.row_id IN (
        SELECT row_id FROM (
            SELECT row_id, sum(size_bytes) OVER (ORDER BY sequence DESC) - size_bytes AS bytes_after FROM (
                SELECT m.row_id, m.sequence, {_SIZE} AS size_bytes{_FROM} AND {{visible}}
                AND m.session_row = :row AND m.sequence < :before ORDER BY m.sequence DESC LIMIT :limit))
        WHERE bytes_after < :max_bytes)
    ORDER BY m.sequence
"""
_WHOLE: Final = (
    f"SELECT {select_list(WholeMessage, 'm', session='s.id')}{_FROM} AND m.session_row = :row"
    " AND m.id IN (SELECT value FROM json_each(:ids))"
)
# A message without a user belongs to its session's user, unless several users share the session.
_USER: Final = "coalesce(m.user_id, CASE WHEN NOT s.is_group THEN s.user_id END)"
_SPEAKER: Final = f"coalesce({_USER}, m.name, '')"
_SPOKEN: Final = f"SELECT {select_list(SpokenMessage, 'm', session='s.id', speaker=_SPEAKER)}{_FROM}"
_SOURCES: Final = f"""
    SELECT k.row_id, min(m.row_id) FROM memories AS k JOIN messages AS m ON {is_source("m", "k")}
    WHERE k.agent_id = :agent AND k.row_id IN (SELECT value FROM json_each(:rows)) GROUP BY k.row_id
"""
# Materialized and with IS: otherwise PostgreSQL reads all messages and all sessions of the agent.
_BY_ROWS: Final = f"""
    WITH chosen AS MATERIALIZED (SELECT * FROM messages WHERE row_id IN (SELECT value FROM json_each(:rows)))
    SELECT {select_list(MessageRecord, "m", session="s.id")} FROM chosen AS m
    JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id IS m.agent_id
    WHERE m.agent_id = :agent AND {{visible}} ORDER BY m.created_at, m.id
"""
# Looked up one by one: otherwise PostgreSQL reads all messages of the session.
_USED_SEQUENCES: Final = """
    SELECT j.value FROM json_each(:sequences) AS j WHERE (SELECT 1 FROM messages
        WHERE session_row = :row AND sequence = j.value AND agent_id = :agent) IS NOT NULL
"""
_INSERT: Final = insert_sql(
    "messages", NewMessage, session_row=":session_row", sequence=":sequence", stored_at=":stored_at"
)


class Messages(AgentRepository):
    """The messages of one agent within one transaction."""

    def whole(self, session_row: int, ids: Iterable[str]) -> list[WholeMessage]:
        """Return a session's messages with these ids, as far as they exist, regardless of the viewer."""
        return self._records(WholeMessage, _WHOLE, row=session_row, ids=ids)

    def row(self, session_row: int, message_id: str) -> int | None:
        """Return the row of a message of a session, or None."""
        sql = "SELECT row_id FROM messages WHERE agent_id = :agent AND session_row = :row AND id = :id"
        row: int | None = self._value(sql, row=session_row, id=message_id)
        return row

    def used_sequences(self, session_row: int, sequences: Iterable[int]) -> set[int]:
        """Return which of these sequences a message of the session has already."""
        return set(self._values(_USED_SEQUENCES, row=session_row, sequences=sequences))

    def insert(self, session_row: int, numbered: Sequence[tuple[int, NewMessage]], *, now: int) -> None:
        """Store messages, each with its sequence; ids and sequences must be free."""
        self._execute_many(
            _INSERT,
            [
                {**to_parameters(message), "session_row": session_row, "sequence": sequence, "stored_at": now}
                for sequence, message in numbered
            ],
        )

    def in_session(
        self, session_row: int, *, limit: int, newest: bool = False, offset: int = 0, until: int | None = None
    ) -> list[MessageRecord]:
        """Return messages in the order of `created_at`, then id: the first ones, or with `newest` the last ones.

        With `until`, a time in microseconds, only those that were said by then; likewise in the methods below.
        """
        direction = "DESC" if newest else "ASC"
        found = self._messages(
            f"m.session_row = :row{_said_by(until)}"
            f" ORDER BY m.created_at {direction}, m.id {direction} LIMIT :limit OFFSET :offset",
            until=until,
            row=session_row,
            limit=limit,
            offset=offset,
        )
        return found[::-1] if newest else found

    def last(self, session_row: int, *, before: int, limit: int, max_bytes: int) -> list[WholeMessage]:
        """Return the last messages below a sequence, in the order in which they were stored.

        At most `limit`, and only messages that begin within `max_bytes`, but always at least one.
        """
        sql = _LAST.format(visible=of_message(self._viewer, "m", "s"))
        return self._records(WholeMessage, sql, row=session_row, before=before, limit=limit, max_bytes=max_bytes)

    def spoken(self, *, user: str | None = None, session: str | None = None) -> Iterator[SpokenMessage]:
        """Yield all messages, or those of a user or a session, session by session in their order, read in pages."""
        row = sequence = -1
        while page := self._records(
            SpokenMessage,
            f"{_SPOKEN} AND (m.session_row, m.sequence) > (:row, :sequence) AND (:user IS NULL OR {_USER} = :user)"
            " AND (:session IS NULL OR s.id = :session) ORDER BY m.session_row, m.sequence LIMIT :limit",
            row=row,
            sequence=sequence,
            user=user,
            session=session,
            limit=_PAGE_MESSAGES,
        ):
            yield from page
            row, sequence = page[-1].session_row, page[-1].sequence

    def originals(self, row_ids: Iterable[int]) -> dict[int, str]:
        """Return the originals of the given messages by row; not every message has one."""
        rows = self._execute(
            "SELECT row_id, original FROM messages WHERE row_id IN (SELECT value FROM json_each(:rows))"
            " AND original IS NOT NULL",
            rows=row_ids,
        )
        return {int(row[0]): str(row[1]) for row in rows}

    def position(self, session_row: int, message_id: str) -> int:
        """Return how many messages of a session come before one of them. Raises `NotFound`."""
        found = self._messages("m.session_row = :row AND m.id = :id", row=session_row, id=message_id)
        if not found:
            raise NotFound(f"the session has no message {message_id!r}", field="around")
        visible = of_message(self._viewer, "m", "s")
        sql = (
            "SELECT count(*) FROM messages AS m JOIN sessions AS s ON s.row_id = m.session_row"
            f" WHERE m.session_row = :row AND {visible} AND (m.created_at, m.id) < (:at, :id)"
        )
        return int(self._value(sql, row=session_row, at=found[0].created_at, id=message_id))

    def count_until(self, session_row: int, until: int) -> int:
        """Return how many messages of a session had been said by a time in microseconds."""
        sql = f"SELECT count(*) FROM messages AS m WHERE m.session_row = :row{_said_by(until)}"
        return int(self._value(sql, row=session_row, until=until))

    def important(
        self,
        session_row: int,
        *,
        min_importance: float,
        limit: int,
        exclude: Iterable[str],
        until: int | None = None,
    ) -> list[MessageRecord]:
        """Return the newest messages of at least this importance, newest first, except those with these ids."""
        return self._messages(
            f"m.session_row = :row AND m.importance >= :min_importance{_said_by(until)}"
            " AND m.id NOT IN (SELECT value FROM json_each(:exclude))"
            " ORDER BY m.created_at DESC, m.id DESC LIMIT :limit",
            row=session_row,
            min_importance=min_importance,
            until=until,
            exclude=exclude,
            limit=limit,
        )

    def newest_with_role(self, session_row: int, role: str, *, until: int | None = None) -> MessageRecord | None:
        """Return the last message of a session in this role."""
        condition = (
            f"m.session_row = :row AND m.role = :role{_said_by(until)} ORDER BY m.created_at DESC, m.id DESC LIMIT 1"
        )
        return next(iter(self._messages(condition, row=session_row, role=role, until=until)), None)

    def with_ids(self, session_row: int, ids: Iterable[str]) -> dict[str, MessageRecord]:
        """Return a session's messages with these ids, as far as they exist, by id."""
        found = self._messages(
            "m.session_row = :row AND m.id IN (SELECT value FROM json_each(:ids))", row=session_row, ids=ids
        )
        return {message.id: message for message in found}

    def with_id(self, message_id: str) -> list[MessageRecord]:
        """Return the messages with an id, which several sessions may have."""
        return self._messages("m.id = :id", id=message_id)

    def sources_of(self, memory_rows: Iterable[int]) -> dict[int, MessageRecord]:
        """Return the messages that memories came from, by the rows of the memories."""
        pairs = {int(row[0]): int(row[1]) for row in self._execute(_SOURCES, rows=memory_rows)}
        messages = {message.row_id: message for message in self.by_rows(pairs.values())}
        return {memory: messages[row] for memory, row in pairs.items() if row in messages}

    def preceding_texts(self, row_ids: Iterable[int]) -> dict[int, str]:
        """Return, for each of these messages, the content of the message just before it in its session, by row."""
        rows = self._execute(
            """
            SELECT m.row_id, b.content FROM messages AS m
            JOIN messages AS b ON b.row_id = (
                SELECT row_id FROM messages WHERE session_row = m.session_row AND sequence < m.sequence
                ORDER BY sequence DESC LIMIT 1)
            WHERE m.agent_id = :agent AND m.row_id IN (SELECT value FROM json_each(:rows))
            """,
            rows=row_ids,
        )
        return {int(row[0]): str(row[1]) for row in rows}

    def said_next(self, message: MessageRecord) -> str:
        """Return the content of the next message of the same speaker in the session; empty if there is none."""
        found = self._value(
            "SELECT content FROM messages WHERE session_row = (SELECT session_row FROM messages WHERE row_id = :row)"
            " AND agent_id = :agent AND sequence > :sequence AND role = :role AND name IS :name AND user_id IS :user"
            " ORDER BY sequence LIMIT 1",
            row=message.row_id,
            sequence=message.sequence,
            role=message.role,
            name=message.name,
            user=message.user,
        )
        return str(found or "")

    def by_rows(self, row_ids: Iterable[int]) -> list[MessageRecord]:
        """Return the messages in these rows, as far as they exist, in the order of `created_at`, then id."""
        sql = _BY_ROWS.format(visible=of_message(self._viewer, "m", "s"))
        return self._records(MessageRecord, sql, rows=row_ids)

    def _messages(self, condition: str, **values: Any) -> list[MessageRecord]:
        visible = of_message(self._viewer, "m", "s")
        return self._records(MessageRecord, f"{_SELECT} AND {visible} AND {condition}", **values)


def _said_by(until: int | None) -> str:
    return "" if until is None else " AND m.created_at <= :until"
