"""Leases that let one instance of a job run at a time in a workspace, and the progress that jobs note."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from storage.engines import Connection
from storage.repository import Repository

_EXPIRED: Final = "job_leases.lease_until <= :now OR job_leases.lease_until > :now + 2 * :length"


def new_token() -> int:
    """Return a fencing token that no other lease has."""
    return 1 + secrets.randbits(62)


class JobLeases(Repository):
    """The leases and the progress of jobs within one transaction. Times are microseconds of the machine's clock."""

    def last_token(self, job: str, *, now: int, seconds: float) -> int | None:
        """Return the token of the last lease on a job, 0 without one; None while another instance holds the lease."""
        found = self._value(
            f"SELECT CASE WHEN {_EXPIRED} THEN token ELSE -1 END FROM job_leases WHERE job = :job",
            job=job,
            now=now,
            length=int(seconds * 1_000_000),
        )
        return None if found == -1 else int(found or 0)

    def holder(self, job: str) -> int | None:
        """Return the token of the lease on a job that nobody has given back, expired or not; None without one."""
        token: int | None = self._value("SELECT token FROM job_leases WHERE job = :job AND lease_until > 0", job=job)
        return token

    def acquire(
        self, job: str, *, now: int, seconds: float, after: int | None = None, token: int | None = None
    ) -> int | None:
        """Acquire a lease on a job and return its fencing token; None while another instance holds an unexpired lease.

        With `after`, a token from `last_token`, also None if any lease was taken since. A lease that ends later than a
        lease taken now would was taken before the clock was set back: it counts as expired. `token` is one from
        `new_token`, and is made here without one.
        """
        token = token or new_token()
        acquired = self._execute(
            "INSERT INTO job_leases (job, token, lease_until) VALUES (:job, :token, :until)"
            " ON CONFLICT (job) DO UPDATE SET token = :token, lease_until = :until"
            f" WHERE ({_EXPIRED}) AND coalesce(:after, job_leases.token) = job_leases.token",
            job=job,
            after=after,
            token=token,
            until=now + int(seconds * 1_000_000),
            length=int(seconds * 1_000_000),
            now=now,
        )
        return token if acquired.rowcount else None

    def renew(self, job: str, token: int, *, now: int, seconds: float) -> bool:
        """Extend a lease; False when another has acquired it."""
        renewed = self._execute(
            "UPDATE job_leases SET lease_until = :until WHERE job = :job AND token = :token",
            job=job,
            token=token,
            until=now + int(seconds * 1_000_000),
        )
        return renewed.rowcount > 0

    def release(self, job: str, token: int) -> None:
        """Give up a lease, unless another worker has acquired it."""
        self._execute("UPDATE job_leases SET lease_until = 0 WHERE job = :job AND token = :token", job=job, token=token)

    def progress(self, job: str, item: str) -> int:
        """Return the position that a job noted for an item; 0 without one."""
        position = self._value(
            "SELECT position FROM job_progress WHERE job = :job AND item = :item", job=job, item=item
        )
        return int(position or 0)

    def items(self, job: str) -> list[str]:
        """Return the items for which a job noted a position."""
        return self._values("SELECT item FROM job_progress WHERE job = :job ORDER BY item", job=job)

    def drop(self, job: str, item: str) -> None:
        """Remove the position that a job noted for an item."""
        self._execute("DELETE FROM job_progress WHERE job = :job AND item = :item", job=job, item=item)

    def advance(self, job: str, item: str, *, after: int, to: int, now: int) -> bool:
        """Move a job's position for an item; False, without a change, when it is no longer at `after`."""
        if self.progress(job, item) != after:
            return False
        self.set(job, item, to, now=now)
        return True

    def set(self, job: str, item: str, position: int, *, now: int) -> None:
        """Set a job's position for an item."""
        self._execute(
            "INSERT INTO job_progress (job, item, position, at) VALUES (:job, :item, :position, :now)"
            " ON CONFLICT (job, item) DO UPDATE SET position = excluded.position, at = excluded.at",
            job=job,
            item=item,
            position=position,
            now=now,
        )


# The names under which attempts are noted begin with it: names of positions do not.
READING: Final = "reading "


class Attempts(Repository):
    """How often workers have begun with something without an end, by its name, within one transaction.

    If a worker dies, its attempt stays. So what kills workers is found, if it is tried alone after the first death.
    """

    def __init__(self, connection: Connection, job: str) -> None:
        super().__init__(connection)
        self._job = job
        self._progress = JobLeases(connection)

    def begin(self, names: Sequence[str], *, now: int) -> None:
        """Count an attempt at each of these. `now` is in microseconds."""
        for name in names:
            item = f"{READING}{name}"
            self._progress.set(self._job, item, self._progress.progress(self._job, item) + 1, now=now)

    def end(self, names: Sequence[str]) -> None:
        """Remove the counts of `begin`: no worker has died."""
        for name in names:
            self._progress.drop(self._job, f"{READING}{name}")

    def deaths(self) -> dict[str, int]:
        """Return how often workers died, by name. Attempts that are going on are included."""
        found = self._execute(
            "SELECT item, position FROM job_progress WHERE job = :job AND item >= :first AND item < :last",
            job=self._job,
            first=READING,
            last=f"{READING}\uffff",
        )
        return {str(item).removeprefix(READING): int(position) for item, position in found}


_CONTENT: Final = """
    SELECT concat_ws(' ',
        (SELECT max(row_id) FROM messages), (SELECT max(id) FROM recall_events), (SELECT max(id) FROM curation_log),
        (SELECT max(undone_at) FROM curation_log),
        (SELECT concat_ws(' ', count(*), max(row_id), max(updated_at), max(accessed_at), sum(access_count),
            count(superseded_by), sum(pinned)) FROM memories),
        (SELECT concat_ws(' ', count(*), max(row_id), max(updated_at), max(ended_at), sum(summary_epoch)) FROM sessions)
    )
"""


class ContentMark(Repository):
    """Reads a mark of the messages, memories, sessions, recalls and undone changes of a store."""

    def read(self) -> str:
        """Return a text that differs after every change that matters to jobs."""
        return str(self._value(_CONTENT))
