"""What a restored database must not do by itself: call addresses that the backup names."""

from __future__ import annotations

from storage.rows import execute
from storage.transaction import Transaction

_OF_WEBHOOKS = "executor ->> '$.type' = 'webhook'"


def pause_webhooks(tx: Transaction, *, now: int) -> int:
    """Pause all active schedules that call a webhook, and cancel their open runs; return how many. Safe to repeat."""
    execute(
        tx.connection,
        "UPDATE schedule_runs AS r SET status = 'cancelled', finished_at = :now, error = 'restored from a backup'"
        " WHERE r.status IN ('pending', 'running') AND EXISTS (SELECT 1 FROM schedules AS s"
        f" WHERE s.agent_id = r.agent_id AND s.id = r.schedule_id AND s.{_OF_WEBHOOKS})",
        now=now,
    )
    paused = execute(
        tx.connection,
        "UPDATE schedules SET status = 'paused', next_run_at = NULL, updated_at = :now, revision = revision + 1"
        f" WHERE status = 'active' AND {_OF_WEBHOOKS}",
        now=now,
    )
    return int(paused.rowcount)
