"""Messages whose time is over: part of their session's summary, and older than the operator keeps them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from storage.recall.index import SearchIndex

# Session by session, by the index over (session_row, sequence): what no summary covers is never looked at. Both times
# count: a conversation that was brought in late is kept for as long as one that was had here.
_OVER: Final = """
    SELECT m.row_id, s.row_id, s.agent_id, s.id FROM sessions AS s
    CROSS JOIN messages AS m ON m.session_row = s.row_id AND m.sequence <= s.summary_upper_sequence
    WHERE s.row_id >= :from_session AND s.summary_upper_sequence > 0 AND coalesce(s.summary_text, '') <> ''
    AND m.consolidated_at IS NOT NULL AND m.created_at < :before AND m.stored_at < :before
    ORDER BY s.row_id, m.sequence LIMIT :limit
"""
_STILL_OVER: Final = """
    DELETE FROM messages WHERE row_id IN (SELECT value FROM json_each(:rows)) AND consolidated_at IS NOT NULL
    AND EXISTS (SELECT 1 FROM sessions AS s WHERE s.row_id = messages.session_row
        AND messages.sequence <= s.summary_upper_sequence AND coalesce(s.summary_text, '') <> '')
    RETURNING row_id
"""


@dataclass(frozen=True, slots=True)
class OldMessage:
    """A message whose time is over, by its row, and whose session it is."""

    row_id: int
    session_row: int
    agent: str
    session: str


class Retention:
    """Old messages of a workspace within one transaction. It crosses agents: only jobs use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def count(self, *, before: int) -> int:
        """How many messages are over."""
        found = self._connection.execute(
            text(f"SELECT count(*) FROM ({_OVER})"), {"before": before, "from_session": 0, "limit": -1}
        )
        return int(found.scalar_one())

    def over(self, *, before: int, limit: int, from_session: int = 0) -> list[OldMessage]:
        """The first messages that are over: summarised, and said and stored before a time in microseconds.

        Sessions are looked at in the order of their rows, from one of them on.
        """
        rows = self._connection.execute(text(_OVER), {"before": before, "from_session": from_session, "limit": limit})
        return [OldMessage(*row) for row in rows]

    def remove(self, row_ids: Sequence[int]) -> tuple[int, int]:
        """Delete those of these messages that are still in their summary; returns how many messages and chunks went.

        A chunk that another message of the session shares stays.
        """
        rows = json.dumps(list(row_ids))
        chunks = list(
            self._connection.execute(
                text(
                    "SELECT DISTINCT chunk_id FROM message_chunks"
                    " WHERE message_row IN (SELECT value FROM json_each(:rows))"
                ),
                {"rows": rows},
            ).scalars()
        )
        gone = len(self._connection.execute(text(_STILL_OVER), {"rows": rows}).all())
        return gone, self._remove_unused(chunks)

    def _remove_unused(self, chunk_ids: Sequence[int]) -> int:
        unused = list(
            self._connection.execute(
                text(
                    "SELECT id FROM chunks WHERE id IN (SELECT value FROM json_each(:ids)) AND file_row IS NULL"
                    " AND memory_row IS NULL AND NOT EXISTS (SELECT 1 FROM message_chunks WHERE chunk_id = chunks.id)"
                ),
                {"ids": json.dumps(list(chunk_ids))},
            ).scalars()
        )
        SearchIndex(self._connection).remove_vectors(unused)
        self._connection.execute(
            text("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(:ids))"), {"ids": json.dumps(unused)}
        )
        return len(unused)
