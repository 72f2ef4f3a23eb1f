"""Dead letters of a workspace: work kept with its error until a person replays or drops it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, text

from reverie.errors import NotFound
from storage.pipeline.records import DeadLetter, NewDeadLetter

_COLUMNS: Final = "id, agent_id, session_id, stage, item_id, payload, error_type, error, attempts, trace_id, created_at"


class DeadLetters:
    """The dead letters of a workspace within one transaction; with an agent, only that agent's."""

    def __init__(self, connection: Connection, agent: str | None = None) -> None:
        self._connection = connection
        self._agent = agent

    def add(self, letters: Sequence[NewDeadLetter], *, now: int) -> None:
        """Keep work that cannot succeed. The same item of the same stage is kept once, with its newest error."""
        if not letters:
            return
        self._connection.execute(
            text(
                "INSERT INTO dead_letters (agent_id, session_id, stage, item_id, payload, error_type, error, attempts,"
                " trace_id, created_at) VALUES (:agent, :session, :stage, :item_id, :payload, :error_type, :error,"
                " :attempts, :trace, :now) ON CONFLICT (agent_id, stage, item_id) DO UPDATE SET"
                " payload = excluded.payload, error_type = excluded.error_type, error = excluded.error,"
                " attempts = excluded.attempts, created_at = excluded.created_at"
            ),
            [{**asdict(letter), "now": now} for letter in letters],
        )

    def list(self, *, limit: int = 50, offset: int = 0) -> list[DeadLetter]:
        """Dead letters, the newest first."""
        rows = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} FROM dead_letters WHERE :agent IS NULL OR agent_id = :agent"
                " ORDER BY id DESC LIMIT :limit OFFSET :offset"
            ),
            {"agent": self._agent, "limit": limit, "offset": offset},
        )
        return [DeadLetter(*row) for row in rows]

    def get(self, letter_id: int) -> DeadLetter:
        """One dead letter. Raises `NotFound`."""
        row = self._connection.execute(
            text(f"SELECT {_COLUMNS} FROM dead_letters WHERE id = :id AND (:agent IS NULL OR agent_id = :agent)"),
            {"agent": self._agent, "id": letter_id},
        ).one_or_none()
        if row is None:
            raise NotFound(f"there is no dead letter {letter_id}", field="id")
        return DeadLetter(*row)

    def remove(self, letter: DeadLetter) -> bool:
        """Drop a dead letter as it was read; False when it is gone, or has come back with a newer error."""
        gone = self._connection.execute(
            text(
                "DELETE FROM dead_letters WHERE id = :id AND created_at = :created_at"
                " AND (:agent IS NULL OR agent_id = :agent)"
            ),
            {"agent": self._agent, "id": letter.id, "created_at": letter.created_at},
        )
        return gone.rowcount > 0

    def count(self) -> int:
        """How many there are."""
        return int(
            self._connection.execute(
                text("SELECT count(*) FROM dead_letters WHERE :agent IS NULL OR agent_id = :agent"),
                {"agent": self._agent},
            ).scalar_one()
        )
