"""The work queue of a workspace: claims with a lease and a fencing token on the rows that wait at a stage.

A row waits because of its own columns (`chunked_at IS NULL` and the like); `claims` only records who works on it, how
often it failed and when it is due again. The lease of a worker that died expires; a worker that was only slow finds
its token replaced and commits nothing. Every method runs in the caller's transaction.

    fresh --claim--> claimed --finish--> done (row removed)
                       |--retry--> due later --claim--> claimed
                       |--lease expires--> suspect (crashes + 1) --claim, few at once--> claimed
                       '--bury--> dead letter (never due)

A lease that ended counts as a crash, unless a process that lives has noted that it gave the claim up.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from storage.catalogue import GOALS_TO_EMBED, ITEMS_TO_EMBED
from storage.pipeline.held_claims import HeldClaims
from storage.repository import Repository

Stage = Literal["chunk", "chunk-files", "chunk-memories", "embed", "index", "items"]

# Table, key and condition of the rows that wait at each stage. The conditions equal those of the partial indexes.
_WAITING: Final[dict[Stage, tuple[str, str, str]]] = {
    "chunk": ("messages", "row_id", "chunked_at IS NULL"),
    "chunk-files": ("files", "row_id", "chunked_at IS NULL"),
    "chunk-memories": ("memories", "row_id", "chunked_at IS NULL AND superseded_by IS NULL"),
    "embed": ("chunks", "id", "embedded_at IS NULL"),
    "index": ("chunks", "id", "embedded_at IS NOT NULL AND indexed_at IS NULL"),
    "items": ("items", "row_id", ITEMS_TO_EMBED),
}
STAGES: Final[tuple[Stage, ...]] = tuple(_WAITING)
# Messages that were handed over within an hour of being said are live; others are imported history.
LIVE_MICROS: Final = 3_600_000_000
# These conditions, too, equal those of partial indexes.
_LIVE: Final[dict[Stage, str]] = {
    "chunk": f"accepted_at < created_at + {LIVE_MICROS}",
    "embed": f"stored_at < created_at + {LIVE_MICROS}",
}
# Live rows get at most this share of a batch for themselves, so that history makes progress, too.
_LIVE_SHARE: Final = 0.75

# A lease of the embed stage grows with the batch and with the time that the worker's last ones took. Twice this is
# longer than any.
_LONGEST_LEASE_SECONDS: Final = 600.0
# A lease may end too late to have been taken by the present clock, and a next attempt may be later than the failures so
# far explain. Both were written before the clock was set back: such a lease has ended, and such an attempt is due.
# Retries wait 2 to the power of the earlier attempts in seconds, up to 300, with 10 % of jitter, and at least 5 s if
# nothing could be written.
_ENDED: Final = "token IS NOT NULL AND (lease_until <= :now OR lease_until > :now + 2 * :lease)"
_DUE: Final = (
    "token IS NULL AND (next_attempt_at <= :now"
    " OR next_attempt_at > :now + 1200000 * max(5, min(300, 1 << min(attempts, 9))))"
)
_RETRYABLE: Final = f"""
    SELECT item_id, attempts, crashes + (token IS NOT NULL) FROM claims
    WHERE stage = :stage
        AND (({_ENDED}) OR ({_DUE}))
    ORDER BY 3 DESC, next_attempt_at LIMIT :limit
"""
# No NOT EXISTS: if PostgreSQL's statistics know of no claims, it would read all claims for each waiting row.
_FRESH: Final = """
    SELECT {key} FROM {table} AS waiting WHERE {condition}
    AND (SELECT 1 FROM claims WHERE stage = :stage AND item_id = waiting.{key}) IS NULL
    ORDER BY {key} LIMIT :limit
"""
_CLAIM: Final = """
    INSERT INTO claims (stage, item_id, token, lease_until)
    SELECT :stage, CAST(value AS INTEGER), :token, :until FROM json_each(:items) WHERE true
    ON CONFLICT (stage, item_id) DO UPDATE SET token = :token, lease_until = :until,
        crashes = claims.crashes + (claims.token IS NOT NULL), next_attempt_at = NULL
"""
_RELEASE_NOTED: Final = """
    UPDATE claims SET token = NULL, lease_until = NULL, attempts = attempts + 1, next_attempt_at = :now
    WHERE token IN (SELECT value FROM json_each(:tokens))
"""
_OWN_CLAIMS: Final = "stage = :stage AND token = :token AND item_id IN (SELECT value FROM json_each(:items))"
_STILL_CLAIMED: Final = f"SELECT item_id FROM claims WHERE {_OWN_CLAIMS}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Rows of one stage that a worker may work on until `lease_until`.

    `crashes` is how often workers died with these rows. Such rows are claimed in ever smaller groups and finally alone,
    to find a row that kills its worker without affecting others. `is_all` is true if nothing else was due.
    """

    stage: Stage
    token: int
    items: tuple[int, ...]
    lease_until: int
    attempts: int = 0
    crashes: int = 0
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class StageBacklog:
    """How many rows wait at a stage, and since when in microseconds (0 if none waits).

    `moved_at` is when one was last worked on, 0 where only the workers' finished tasks tell it. `suspects` were in hand
    when a worker died before; `leased_until` is when the first lease ends, 0 without one: by then its worker has died.
    """

    waiting: int
    oldest: int
    claimed: int
    retrying: int
    moved_at: int = 0
    suspects: int = 0
    leased_until: int = 0


class WorkQueue(Repository):
    """The work of one workspace within one transaction. It crosses agents: for workers only. Times are microseconds."""

    def claim(
        self, stage: Stage, *, now: int, lease_seconds: float, limit: int, given_up: HeldClaims | None = None
    ) -> Claim | None:
        """Claim up to `limit` rows, first rows to be tried again, then fresh ones; None when nothing is due.

        Claims that were noted in `given_up` are due again, and no crash is counted for them.
        """
        if given_up is not None:
            self._release_noted(stage, given_up, now, lease_seconds)
        found = self._retryable(stage, now, limit, lease_seconds)
        if found and found[0][2]:
            crashes = found[0][2]
            found = [row for row in found if row[2] == crashes][: _suspects_at_once(crashes, limit)]
        items = tuple(item for item, _, _ in found) or self.fresh(stage, limit)
        if not items:
            return None
        attempts = max((attempts for _, attempts, _ in found), default=0)
        crashes = found[0][2] if found else 0
        until = now + int(lease_seconds * 1_000_000)
        is_all = not found and len(items) < limit
        claim = Claim(stage, secrets.randbits(62), items, until, attempts, crashes, is_all)
        self._execute(_CLAIM, stage=stage, items=items, token=claim.token, until=claim.lease_until)
        return claim

    def _release_noted(self, stage: Stage, given_up: HeldClaims, now: int, lease_seconds: float) -> None:
        """Release the noted claims of this process, and those of other processes whose lease has ended."""
        ended = self._values(
            f"SELECT DISTINCT token FROM claims WHERE stage = :stage AND {_ENDED}",
            stage=stage,
            now=now,
            lease=_longest_lease(stage, lease_seconds),
        )
        noted = given_up.own() | {token for token in ended if given_up.is_noted(token)}
        if noted:
            self._execute(_RELEASE_NOTED, tokens=sorted(noted), now=now)

    def still_claimed(self, claim: Claim, items: Sequence[int] | None = None) -> set[int]:
        """Return which rows of a claim are still this worker's: only those may be changed."""
        return set(self._values(_STILL_CLAIMED, stage=claim.stage, token=claim.token, items=items or claim.items))

    def finish(self, claim: Claim, items: Sequence[int]) -> None:
        """Remove the claims, and earlier dead letters, of rows whose result is written in this transaction."""
        self._end_claims(claim, items)
        if self._value("SELECT 1 FROM dead_letters LIMIT 1") is not None:
            self._execute(
                "DELETE FROM dead_letters WHERE stage = :stage AND item_id IN (SELECT value FROM json_each(:items))"
                f" AND NOT EXISTS ({waiting_row_sql(claim.stage, 'CAST(dead_letters.item_id AS INTEGER)')})",
                stage=claim.stage,
                items=[str(item) for item in items],
            )

    def release(self, claim: Claim) -> None:
        """Give rows back as if they had never been claimed."""
        self._end_claims(claim, claim.items)

    def _end_claims(self, claim: Claim, items: Sequence[int]) -> None:
        self._execute(f"DELETE FROM claims WHERE {_OWN_CLAIMS}", stage=claim.stage, token=claim.token, items=items)

    def retry(self, claim: Claim, items: Sequence[int], *, at: int, error: str) -> None:
        """Give rows back after a transient failure: with one more attempt, due again at `at`."""
        self._execute(
            "UPDATE claims SET token = NULL, lease_until = NULL, attempts = max(attempts, :attempts) + 1,"
            f" next_attempt_at = :at, error = :error WHERE {_OWN_CLAIMS}",
            at=at,
            error=error[:500],
            stage=claim.stage,
            attempts=claim.attempts,
            token=claim.token,
            items=items,
        )

    def bury(self, claim: Claim, items: Sequence[int], *, error: str) -> None:
        """Stop claiming rows that become dead letters in this transaction."""
        self._execute(
            "UPDATE claims SET token = NULL, lease_until = NULL, next_attempt_at = NULL, error = :error"
            f" WHERE {_OWN_CLAIMS}",
            error=error[:500],
            stage=claim.stage,
            token=claim.token,
            items=items,
        )

    def revive(self, stage: Stage, item: int) -> bool:
        """Make a buried row fresh again; False when it is gone or was not buried."""
        revived = self._execute(
            "DELETE FROM claims WHERE stage = :stage AND item_id = :item AND token IS NULL AND next_attempt_at IS NULL",
            stage=stage,
            item=item,
        )
        return revived.rowcount > 0

    def has_buried(self, stage: Stage) -> bool:
        """Return whether a stage has rows that became dead letters."""
        sql = "SELECT 1 FROM claims WHERE stage = :stage AND token IS NULL AND next_attempt_at IS NULL LIMIT 1"
        return self._value(sql, stage=stage) is not None

    def revive_all(self, stage: Stage) -> list[int]:
        """Make all buried rows of a stage fresh again, and return them."""
        return self._values(
            "DELETE FROM claims WHERE stage = :stage AND token IS NULL AND next_attempt_at IS NULL RETURNING item_id",
            stage=stage,
        )

    def is_done(self, stage: Stage, item: int) -> bool:
        """Return whether a row does not wait at a stage any more."""
        table, key, condition = _WAITING[stage]
        return self._value(f"SELECT 1 FROM {table} WHERE {key} = :item AND {condition}", item=item) is None

    def owner(self, stage: Stage, item: int) -> tuple[str, str | None]:
        """Return the agent and the session of a row."""
        table, key, _ = _WAITING[stage]
        if stage == "items":  # they belong to no session
            return str(self._value("SELECT agent_id FROM items WHERE row_id = :item", item=item)), None
        row = self._execute(
            f"SELECT r.agent_id, s.id FROM {table} AS r LEFT JOIN sessions AS s ON s.row_id = r.session_row"
            f" WHERE r.{key} = :item",
            item=item,
        ).one()
        return str(row[0]), row[1]

    def is_waiting(self, stage: Stage, *, now: int) -> bool:
        """Return whether a task of this stage would find something to do now."""
        return bool(self._retryable(stage, now, 1, _LONGEST_LEASE_SECONDS) or self.fresh(stage, 1))

    def has_only_fresh(self, stage: Stage, *, now: int) -> bool:
        """Return whether rows wait at a stage, and none of them is to be tried again."""
        return bool(self.fresh(stage, 1)) and not self._retryable(stage, now, 1, _LONGEST_LEASE_SECONDS)

    def is_idle(self, stages: Sequence[Stage]) -> bool:
        """Return whether nothing is left at these stages, due now or later; dead letters do not count."""
        return all(self._value(unfinished_sql(stage), stage=stage) is None for stage in stages)

    def backlog(self, stage: Stage) -> StageBacklog:
        """Count what waits at a stage; dead letters do not count."""
        waiting, claims = backlog_sql(stage)
        count, oldest = self._execute(waiting, stage=stage).one()
        claimed, retrying, suspects, leased_until = self._execute(claims, stage=stage).one()
        ends = int(leased_until or 0)
        return StageBacklog(count, int(oldest or 0), claimed, retrying, suspects=suspects, leased_until=ends)

    def fresh(self, stage: Stage, limit: int) -> tuple[int, ...]:
        """Return the first rows that wait at a stage and were never claimed, live ones before history.

        An import of a million messages must not delay the messages that are said meanwhile.
        """
        oldest = self._fresh(stage, limit)
        if stage not in _LIVE or len(oldest) < limit:
            return oldest
        live = self._fresh(stage, max(1, int(limit * _LIVE_SHARE)), _LIVE[stage])
        return tuple(dict.fromkeys((*live, *oldest)))[:limit]

    def _fresh(self, stage: Stage, limit: int, also: str = "true") -> tuple[int, ...]:
        table, key, condition = _WAITING[stage]
        sql = _FRESH.format(table=table, key=key, condition=f"{condition} AND {also}")
        return tuple(self._values(sql, stage=stage, limit=limit))

    def _retryable(self, stage: Stage, now: int, limit: int, lease_seconds: float) -> list[tuple[int, int, int]]:
        """Return rows whose lease expired or that are due again: item, attempts, crashes."""
        lease = _longest_lease(stage, lease_seconds)
        rows = self._execute(_RETRYABLE, stage=stage, now=now, limit=limit, lease=lease)
        return [(int(row[0]), int(row[1]), int(row[2])) for row in rows]


def _longest_lease(stage: Stage, lease_seconds: float) -> int:
    """Return how long a lease of a stage may be, in microseconds: each worker's own at the embed stage."""
    return int((_LONGEST_LEASE_SECONDS if stage == "embed" else lease_seconds) * 1_000_000)


def _suspects_at_once(crashes: int, limit: int) -> int:
    """Return how many rows whose worker died are tried together: a sixteenth of a batch after one crash, then one.

    So a row that kills its worker is alone at its third crash, and a batch of 256 whose worker an operator killed
    costs 16 small batches instead of 256 of one row.
    """
    return max(1, limit // 16) if crashes == 1 else 1


def backlog_sql(stage: Stage) -> tuple[str, str]:
    """Return two statements about waiting rows and claims.

    How many rows wait and since when; how many are claimed, wait for a retry, and were in hand when a worker died, and
    when the first lease ends.

    At the stage `embed` the goals of schedules wait, too, as after a change of model.
    """
    table, key, condition = _WAITING[stage]
    others = ""
    if stage == "embed":
        others = f" UNION ALL SELECT updated_at FROM schedules WHERE {GOALS_TO_EMBED}"
    waiting = (
        f"SELECT count(*), min(stored_at) FROM (SELECT waiting.stored_at FROM {table} AS waiting WHERE {condition}"
        f" AND (SELECT 1 FROM claims WHERE stage = :stage AND item_id = waiting.{key}"
        f" AND token IS NULL AND next_attempt_at IS NULL) IS NULL{others}) AS every"
    )
    claims = (
        "SELECT count(token), count(next_attempt_at), count(CASE WHEN crashes > 0"
        " AND coalesce(token, next_attempt_at) IS NOT NULL THEN 1 END), min(lease_until) FROM claims"
        " WHERE stage = :stage"
    )
    return waiting, claims


def waiting_row_sql(stage: Stage, item: str) -> str:
    """Return a query that finds a row if an item still waits at a stage; `item` is an SQL expression."""
    table, key, condition = _WAITING[stage]
    return f"SELECT 1 FROM {table} WHERE {key} = {item} AND {condition}"


def unfinished_sql(stage: Stage) -> str:
    """Return a query that finds a row if a stage has work left that is no dead letter."""
    table, key, condition = _WAITING[stage]
    others = ""
    if stage == "embed":
        others = f"SELECT 1 FROM schedules WHERE {GOALS_TO_EMBED} UNION ALL "
    return (
        f"{others}SELECT 1 FROM {table} AS waiting WHERE {condition} AND (SELECT 1 FROM claims WHERE stage = :stage"
        f" AND item_id = waiting.{key} AND token IS NULL AND next_attempt_at IS NULL) IS NULL LIMIT 1"
    )
