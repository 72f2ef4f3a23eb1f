"""Dead letters of a workspace: failed work, kept with its error until a person replays or deletes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reverie.errors import NotFound
from storage.engines import Connection
from storage.pipeline.records import DeadLetter, NewDeadLetter
from storage.pipeline.work import STAGES, waiting_row_sql
from storage.repository import Repository
from storage.rows import insert_sql, select_list, to_parameters

_SELECT: Final = f"SELECT {select_list(DeadLetter)} FROM dead_letters WHERE coalesce(:agent, agent_id) = agent_id"
_INSERT: Final = f"""
    {insert_sql("dead_letters", NewDeadLetter, created_at=":now")}
    ON CONFLICT (agent_id, stage, item_id, variant) DO UPDATE SET payload = excluded.payload,
        error_type = excluded.error_type, error = excluded.error, created_at = excluded.created_at,
        attempts = dead_letters.attempts + excluded.attempts
"""

# A stage's letter is obsolete if its row is gone or was worked on since.
_OBSOLETE: Final = " OR ".join(
    f"(l.stage = '{stage}' AND NOT EXISTS ({waiting_row_sql(stage, 'CAST(l.item_id AS INTEGER)')}))" for stage in STAGES
)


class DeadLetters(Repository):
    """The dead letters of a workspace within one transaction; with an agent, only that agent's."""

    def __init__(self, connection: Connection, agent: str | None = None) -> None:
        super().__init__(connection)
        self._bound = {"agent": agent}

    def add(self, letters: Sequence[NewDeadLetter], *, now: int) -> None:
        """Store dead letters; one letter is kept for each item of a stage, with its newest error and all attempts."""
        self._execute_many(_INSERT, [{**to_parameters(letter), "now": now} for letter in letters])

    def list(self, *, limit: int = 50, offset: int = 0) -> list[DeadLetter]:
        """Return dead letters, newest first."""
        sql = f"{_SELECT} ORDER BY id DESC LIMIT :limit OFFSET :offset"
        return self._records(DeadLetter, sql, limit=limit, offset=offset)

    def find(self, letter_id: int) -> DeadLetter | None:
        """Return one dead letter, or None."""
        return self._record(DeadLetter, f"{_SELECT} AND id = :id", id=letter_id)

    def get(self, letter_id: int) -> DeadLetter:
        """Return one dead letter of the agent. Raises `NotFound`."""
        letter = self.find(letter_id)
        if letter is None:
            raise NotFound(f"agent {self._bound['agent']} has no dead letter {letter_id}", field="id")
        return letter

    def remove_of_items(self, stage: str, items: Sequence[tuple[str, str, str]]) -> None:
        """Delete the dead letters of items that succeeded, each an agent, an item id and a variant."""
        if items and self._value("SELECT 1 FROM dead_letters LIMIT 1") is not None:
            self._execute_many(
                "DELETE FROM dead_letters WHERE agent_id = :agent AND stage = :stage AND item_id = :item"
                " AND variant = :variant",
                [{"stage": stage, "agent": agent, "item": item, "variant": variant} for agent, item, variant in items],
            )

    def remove(self, letter: DeadLetter) -> bool:
        """Delete a dead letter as it was read; False when it is gone, or was stored again with a newer error."""
        sql = (
            "DELETE FROM dead_letters WHERE id = :id AND created_at = :created_at"
            " AND coalesce(:agent, agent_id) = agent_id"
        )
        return self._execute(sql, id=letter.id, created_at=letter.created_at).rowcount > 0

    def remove_of_stage(self, stage: str) -> int:
        """Delete the dead letters of a stage, whose items are worked on again; returns how many."""
        sql = "DELETE FROM dead_letters WHERE stage = :stage AND coalesce(:agent, agent_id) = agent_id"
        return self._execute(sql, stage=stage).rowcount

    def remove_obsolete(self, *, limit: int) -> int:
        """Delete dead letters of rows that are gone, or that have been worked on since; returns how many."""
        return self._remove_rows(f"SELECT l.id FROM dead_letters AS l WHERE {_OBSOLETE} LIMIT :limit", limit=limit)

    def remove_old(self, *, before: int, limit: int) -> int:
        """Delete dead letters from before a time in microseconds; returns how many."""
        old = "SELECT id FROM dead_letters WHERE created_at < :before ORDER BY id LIMIT :limit"
        return self._remove_rows(old, before=before, limit=limit)

    def remove_beyond(self, kept: int, *, limit: int) -> int:
        """Delete the oldest dead letters beyond a number; returns how many."""
        return self._remove_rows(
            "SELECT id FROM dead_letters ORDER BY id LIMIT"
            " min(:limit, max(0, (SELECT count(*) FROM dead_letters) - :kept))",
            kept=kept,
            limit=limit,
        )

    def _remove_rows(self, rows: str, **values: int) -> int:
        return self._execute(f"DELETE FROM dead_letters WHERE id IN ({rows})", **values).rowcount

    def count(self) -> int:
        """Return the number of dead letters."""
        return int(self._value("SELECT count(*) FROM dead_letters WHERE coalesce(:agent, agent_id) = agent_id"))
