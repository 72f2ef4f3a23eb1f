"""Tracks the content of the broker, whose numbers show what was accepted before something was forgotten.

A broker that was flushed or replaced begins its numbers anew, from its clock. If the clock is behind, new items have
smaller numbers than the marks of earlier forgets. These marks are only for items that were lost with the old content,
so they end with it.
"""

from __future__ import annotations

from typing import Final

from storage.repository import Repository

# So many contents are remembered, so that a worker with items of an old content does not take it for a new one.
_REMEMBERED: Final = 10


class BrokerContent(Repository):
    """The broker's contents that a store has seen, within one transaction."""

    def follow(self, content: str) -> bool:
        """Note the content that a number came from, before it is compared or stored; return whether it is a new one.

        A new content drops the marks of the old one. An empty id, of an item that came from no broker, changes nothing.
        """
        if not content or self._value("SELECT 1 FROM broker_content WHERE id = :id", id=content) is not None:
            return False
        is_first = self._value("SELECT 1 FROM broker_content LIMIT 1") is None
        if not is_first:
            self._execute("DELETE FROM forgotten_sessions")
        self._execute(
            "INSERT INTO broker_content (id, files_before) VALUES (:id, iif(:is_first, 0, coalesce("
            "(SELECT seq FROM sqlite_sequence WHERE name = 'files'), 0)))",
            id=content,
            is_first=is_first,
        )
        self._execute(
            "DELETE FROM broker_content WHERE seq <= (SELECT max(seq) FROM broker_content) - :kept", kept=_REMEMBERED
        )
        return not is_first

    def is_file_of_earlier(self, row_id: int) -> bool:
        """Return whether a file was accepted by an earlier content: its number cannot be compared with later ones."""
        return row_id <= int(self._value("SELECT max(files_before) FROM broker_content") or 0)
