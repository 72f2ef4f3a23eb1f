"""What is still to do, and who does it: leases with a fencing token over the rows that wait.

A row waits because the row itself says so (`chunked_at IS NULL` and the like); `claims` only says who works on it,
how often it failed and when it is due again. A worker that died leaves a lease that ends; one that was only slow
finds its token gone and commits nothing. Every method runs in the caller's transaction.

    fresh --claim--> held --finish--> done (row removed)
                      |--retry--> due later --claim--> held
                      |--lease ends--> suspect (crashes + 1) --claim, few at once--> held
                      '--bury--> dead letter (never due)
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pysqlite3
from sqlalchemy import Connection, text

from storage.engine import check_sqlite_version

Stage = Literal["chunk", "chunk-files", "chunk-memories", "embed", "index"]

# Which rows wait at each stage. The conditions equal those of the partial indexes of the schema.
_WAITING: Final[dict[Stage, tuple[str, str, str]]] = {
    "chunk": ("messages", "row_id", "chunked_at IS NULL"),
    "chunk-files": ("files", "row_id", "chunked_at IS NULL"),
    "chunk-memories": ("memories", "row_id", "chunked_at IS NULL AND superseded_by IS NULL"),
    "embed": ("chunks", "id", "embedded_at IS NULL"),
    "index": ("chunks", "id", "embedded_at IS NOT NULL AND indexed_at IS NULL"),
}
STAGES: Final[tuple[Stage, ...]] = tuple(_WAITING)

_ENDED = """
    SELECT item_id, attempts, crashes + (token IS NOT NULL) FROM claims
    WHERE stage = :stage
        AND ((token IS NOT NULL AND lease_until <= :now) OR (token IS NULL AND next_attempt_at <= :now))
    ORDER BY 3 DESC, next_attempt_at LIMIT :limit
"""
_FRESH = """
    SELECT {key} FROM {table} AS waiting WHERE {condition}
    AND NOT EXISTS (SELECT 1 FROM claims WHERE stage = :stage AND item_id = waiting.{key})
    ORDER BY {key} LIMIT :limit
"""
_HOLD = """
    INSERT INTO claims (stage, item_id, token, lease_until, attempts, crashes)
    VALUES (:stage, :item, :token, :until, :attempts, :crashes)
    ON CONFLICT (stage, item_id) DO UPDATE SET token = :token, lease_until = :until, attempts = :attempts,
        crashes = :crashes, next_attempt_at = NULL
"""
_STILL_HELD = """
    SELECT item_id FROM claims WHERE stage = :stage AND token = :token
    AND item_id IN (SELECT value FROM json_each(:items))
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """Rows of one stage that this worker holds until `lease_until`.

    `crashes` is how often the worker of these rows died while holding them: such rows are claimed in small groups
    and in the end alone, so that one that kills its worker is found without taking others with it.
    """

    stage: Stage
    token: int
    items: tuple[int, ...]
    lease_until: int
    attempts: int = 0
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class StageBacklog:
    """How much waits at a stage, and since when in microseconds (0 where nothing waits)."""

    waiting: int
    oldest: int
    held: int
    retrying: int


class WorkQueue:
    """The work of one workspace as seen within one transaction. It crosses agents: only workers use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def claim(self, stage: Stage, *, now: int, lease_seconds: float, limit: int) -> Claim | None:
        """Hold up to `limit` rows: first what has to be tried again, then fresh ones; None when nothing is due."""
        found = self._ended(stage, now, limit)
        if found and found[0][2]:
            crashes = found[0][2]
            found = [row for row in found if row[2] == crashes][: _suspects_at_once(crashes, limit)]
        items = tuple(item for item, _, _ in found) or self.fresh(stage, limit)
        if not items:
            return None
        attempts = max((attempts for _, attempts, _ in found), default=0)
        crashes = found[0][2] if found else 0
        claim = Claim(stage, secrets.randbits(62), items, now + int(lease_seconds * 1_000_000), attempts, crashes)
        previous = {item: (tried, died) for item, tried, died in found}
        self._connection.execute(
            text(_HOLD),
            [
                {
                    "stage": stage,
                    "item": item,
                    "token": claim.token,
                    "until": claim.lease_until,
                    "attempts": previous.get(item, (0, 0))[0],
                    "crashes": previous.get(item, (0, 0))[1],
                }
                for item in items
            ],
        )
        return claim

    def still_held(self, claim: Claim, items: Sequence[int] | None = None) -> set[int]:
        """Which rows of a claim are still this worker's: only those may be changed."""
        rows = self._connection.execute(
            text(_STILL_HELD),
            {"stage": claim.stage, "token": claim.token, "items": json.dumps(list(items or claim.items))},
        )
        return set(rows.scalars())

    def finish(self, claim: Claim, items: Sequence[int]) -> None:
        """Let go of rows whose result is written in this same transaction."""
        self._connection.execute(
            text(
                "DELETE FROM claims WHERE stage = :stage AND token = :token"
                " AND item_id IN (SELECT value FROM json_each(:items))"
            ),
            {"stage": claim.stage, "token": claim.token, "items": json.dumps(list(items))},
        )

    def release(self, claim: Claim) -> None:
        """Give rows back as if they had never been claimed."""
        self.finish(claim, claim.items)

    def retry(self, claim: Claim, items: Sequence[int], *, at: int, error: str) -> None:
        """Give rows back after a passing failure: one attempt more, due again at `at`."""
        self._connection.execute(
            text(
                "UPDATE claims SET token = NULL, lease_until = NULL, attempts = attempts + 1, next_attempt_at = :at,"
                " error = :error WHERE stage = :stage AND token = :token"
                " AND item_id IN (SELECT value FROM json_each(:items))"
            ),
            {
                "at": at,
                "error": error[:500],
                "stage": claim.stage,
                "token": claim.token,
                "items": json.dumps(list(items)),
            },
        )

    def bury(self, claim: Claim, items: Sequence[int], *, error: str) -> None:
        """Never claim these rows again by itself: they have become dead letters in this same transaction."""
        self._connection.execute(
            text(
                "UPDATE claims SET token = NULL, lease_until = NULL, next_attempt_at = NULL, error = :error"
                " WHERE stage = :stage AND token = :token AND item_id IN (SELECT value FROM json_each(:items))"
            ),
            {
                "error": error[:500],
                "stage": claim.stage,
                "token": claim.token,
                "items": json.dumps(list(items)),
            },
        )

    def revive(self, stage: Stage, item: int) -> bool:
        """Make a buried row fresh again; False when it is gone or was not buried."""
        gone = self._connection.execute(
            text(
                "DELETE FROM claims WHERE stage = :stage AND item_id = :item"
                " AND token IS NULL AND next_attempt_at IS NULL"
            ),
            {"stage": stage, "item": item},
        )
        return gone.rowcount > 0

    def is_waiting(self, stage: Stage, *, now: int) -> bool:
        """Return whether a task of this stage would find something to do now."""
        return bool(self._ended(stage, now, 1) or self.fresh(stage, 1))

    def is_idle(self, stages: Sequence[Stage]) -> bool:
        """Whether nothing at all is left at these stages, due now or later; dead letters do not count."""
        return not any(
            self._connection.execute(text(_unfinished_sql(stage)), {"stage": stage}).scalar() for stage in stages
        )

    def backlog(self, stage: Stage) -> StageBacklog:
        """Counts for the status page; what waits for a person (dead letters) is not among them."""
        waiting, claims = backlog_sql(stage)
        count, oldest = self._connection.execute(text(waiting), {"stage": stage}).one()
        held, retrying = self._connection.execute(text(claims), {"stage": stage}).one()
        return StageBacklog(int(count), int(oldest or 0), int(held), int(retrying))

    def _ended(self, stage: Stage, now: int, limit: int) -> list[tuple[int, int, int]]:
        rows = self._connection.execute(text(_ENDED), {"stage": stage, "now": now, "limit": limit})
        return [(int(row[0]), int(row[1]), int(row[2])) for row in rows]

    def fresh(self, stage: Stage, limit: int) -> tuple[int, ...]:
        """The first rows that wait at a stage and that nobody has tried yet."""
        table, key, condition = _WAITING[stage]
        statement = _FRESH.format(table=table, key=key, condition=condition)
        rows = self._connection.execute(text(statement), {"stage": stage, "limit": limit})
        return tuple(int(item) for item in rows.scalars())


def _suspects_at_once(crashes: int, limit: int) -> int:
    """How many rows whose worker died are tried together: a sixteenth of a batch after the first death, then one.

    So a row that kills its worker is alone when it does it for the third time, and a batch of 256 that only stood
    near when an operator killed the worker costs 16 small batches and not 256 of one.
    """
    return max(1, limit // 16) if crashes == 1 else 1


def backlog_sql(stage: Stage) -> tuple[str, str]:
    """Two statements: how many rows wait and since when; how many are held and how many are to be tried again."""
    table, key, condition = _WAITING[stage]
    waiting = (
        f"SELECT count(*), min(waiting.stored_at) FROM {table} AS waiting WHERE {condition} AND NOT EXISTS"
        f" (SELECT 1 FROM claims WHERE stage = :stage AND item_id = waiting.{key}"
        " AND token IS NULL AND next_attempt_at IS NULL)"
    )
    return waiting, "SELECT count(token), count(next_attempt_at) FROM claims WHERE stage = :stage"


def is_idle_file(path: Path, stages: Sequence[Stage]) -> bool:
    """Whether a database has no work left, by one short look; False also where that cannot be said this way."""
    check_sqlite_version()
    try:
        raw = pysqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=1.0)
        try:
            raw.execute("PRAGMA query_only = ON")
            return not any(raw.execute(_unfinished_sql(stage), {"stage": stage}).fetchone() for stage in stages)
        finally:
            raw.close()
    except pysqlite3.Error:
        return False  # damaged, or of another schema: whoever opens it in earnest will say so


def _unfinished_sql(stage: Stage) -> str:
    table, key, condition = _WAITING[stage]
    return (
        f"SELECT 1 FROM {table} AS waiting WHERE {condition} AND NOT EXISTS (SELECT 1 FROM claims"
        f" WHERE stage = :stage AND item_id = waiting.{key} AND token IS NULL AND next_attempt_at IS NULL) LIMIT 1"
    )
