"""One instance of a job at a time in a workspace: a lease in its own database, with a token against the slow."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, text


class JobLeases:
    """The leases and the progress of jobs within one transaction. Times are microseconds of the machine's clock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def take(self, job: str, *, now: int, seconds: float) -> int | None:
        """The token of a lease on a job; None while another holds it. One whose time is over is taken over."""
        token = secrets.randbits(62)
        taken = self._connection.execute(
            text(
                "INSERT INTO job_leases (job, token, lease_until) VALUES (:job, :token, :until)"
                " ON CONFLICT (job) DO UPDATE SET token = :token, lease_until = :until WHERE lease_until <= :now"
            ),
            {"job": job, "token": token, "until": now + int(seconds * 1_000_000), "now": now},
        )
        return token if taken.rowcount else None

    def renew(self, job: str, token: int, *, now: int, seconds: float) -> bool:
        """Hold a lease for longer; False when another has taken it over."""
        renewed = self._connection.execute(
            text("UPDATE job_leases SET lease_until = :until WHERE job = :job AND token = :token"),
            {"job": job, "token": token, "until": now + int(seconds * 1_000_000)},
        )
        return renewed.rowcount > 0

    def release(self, job: str, token: int) -> None:
        """Let go of a lease; one that another has taken over stays theirs."""
        self._connection.execute(
            text("DELETE FROM job_leases WHERE job = :job AND token = :token"), {"job": job, "token": token}
        )

    def progress(self, job: str, item: str) -> int:
        """How far a job has come with an item; 0 where it has not begun."""
        found = self._connection.execute(
            text("SELECT position FROM job_progress WHERE job = :job AND item = :item"), {"job": job, "item": item}
        ).scalar()
        return int(found or 0)

    def items(self, job: str) -> list[str]:
        """Everything that the job has noted something of."""
        rows = self._connection.execute(
            text("SELECT item FROM job_progress WHERE job = :job ORDER BY item"), {"job": job}
        )
        return [str(item) for item in rows.scalars()]

    def drop(self, job: str, item: str) -> None:
        """Forget what the job has noted of an item."""
        self._connection.execute(
            text("DELETE FROM job_progress WHERE job = :job AND item = :item"), {"job": job, "item": item}
        )

    def advance(self, job: str, item: str, *, after: int, to: int, now: int) -> bool:
        """Note how far a job has come; False, and nothing changed, when it is no longer at `after`."""
        if self.progress(job, item) != after:
            return False
        self._connection.execute(
            text(
                "INSERT INTO job_progress (job, item, position, at) VALUES (:job, :item, :position, :now)"
                " ON CONFLICT (job, item) DO UPDATE SET position = :position, at = :now"
            ),
            {"job": job, "item": item, "position": to, "now": now},
        )
        return True
