"""Scheduling: schedules, their runs, reminders and notifications."""

from alembic import op

revision = "0004"
down_revision = "0003"

_STATEMENTS = (
    # `revision` counts changes: a claim that was computed from an older one is not made. `retries` are those of a
    # one-shot that failed. The goal's vector is kept, so that recalling for a run needs no model.
    """
    CREATE TABLE schedules (
        id TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        user_id TEXT NOT NULL,
        name TEXT,
        goal TEXT NOT NULL CHECK (goal <> ''),
        cadence TEXT NOT NULL,
        executor TEXT NOT NULL,
        notification_policy TEXT NOT NULL
            CHECK (notification_policy IN ('always', 'on_failure', 'conditional', 'never')),
        status TEXT NOT NULL CHECK (status IN ('active', 'paused', 'completed', 'failed', 'disabled')),
        timeout_seconds INTEGER NOT NULL,
        recall_limit INTEGER NOT NULL,
        channel_id TEXT,
        session_id TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        next_run_at INTEGER,
        last_run_at INTEGER,
        last_run_status TEXT,
        consecutive_failures INTEGER NOT NULL DEFAULT 0,
        retries INTEGER NOT NULL DEFAULT 0,
        revision INTEGER NOT NULL DEFAULT 0,
        goal_vector BLOB,
        goal_model TEXT,
        PRIMARY KEY (agent_id, id)
    )
    """,
    "CREATE INDEX schedules_due ON schedules (next_run_at) WHERE status = 'active' AND next_run_at IS NOT NULL",
    "CREATE INDEX schedules_by_user ON schedules (agent_id, user_id, status)",
    "CREATE INDEX schedules_by_time ON schedules (agent_id, created_at)",
    # `sent_at` is when a task was last sent for the run; `not_before` when to try again; `tries` counts what was sent
    # to a webhook, `crashes` workers that died over it. While it runs, `token` says who may end it; `lease_until`
    # bounds the worker, `deadline` the whole run. All of these by the machine's clock.
    """
    CREATE TABLE schedule_runs (
        id TEXT NOT NULL PRIMARY KEY,
        agent_id TEXT NOT NULL,
        schedule_id TEXT NOT NULL,
        due_at INTEGER NOT NULL,
        first_due_at INTEGER NOT NULL,
        coalesced INTEGER NOT NULL DEFAULT 0,
        trigger_kind TEXT NOT NULL CHECK (trigger_kind IN ('schedule', 'retry', 'manual')),
        attempt INTEGER NOT NULL DEFAULT 1,
        status TEXT NOT NULL
            CHECK (status IN ('pending', 'running', 'success', 'failed', 'cancelled', 'timed_out')),
        created_at INTEGER NOT NULL,
        started_at INTEGER,
        finished_at INTEGER,
        summary TEXT NOT NULL DEFAULT '',
        output TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT '',
        turn_count INTEGER NOT NULL DEFAULT 0,
        cost REAL NOT NULL DEFAULT 0,
        notified INTEGER NOT NULL DEFAULT 0,
        trace_id TEXT NOT NULL DEFAULT '',
        sent_at INTEGER NOT NULL,
        not_before INTEGER,
        tries INTEGER NOT NULL DEFAULT 0,
        crashes INTEGER NOT NULL DEFAULT 0,
        token INTEGER,
        lease_until INTEGER,
        deadline INTEGER,
        UNIQUE (agent_id, schedule_id, due_at),
        FOREIGN KEY (agent_id, schedule_id) REFERENCES schedules (agent_id, id) ON DELETE CASCADE
    )
    """,
    # One open run per schedule at a time, whoever starts it.
    "CREATE UNIQUE INDEX schedule_runs_open ON schedule_runs (agent_id, schedule_id)"
    " WHERE status IN ('pending', 'running')",
    "CREATE INDEX schedule_runs_started ON schedule_runs (started_at) WHERE started_at IS NOT NULL",
    "CREATE INDEX schedule_runs_failed ON schedule_runs (finished_at) WHERE status IN ('failed', 'timed_out')",
    """
    CREATE TABLE reminders (
        id TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        channel_id TEXT,
        recipient TEXT NOT NULL,
        message TEXT NOT NULL CHECK (message <> ''),
        delivery TEXT NOT NULL CHECK (delivery IN ('auto', 'pull', 'push')),
        due_at INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        claimed_at INTEGER,
        claim_until INTEGER,
        token INTEGER,
        not_before INTEGER,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT NOT NULL DEFAULT '',
        delivered_at INTEGER,
        PRIMARY KEY (agent_id, id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX reminders_due ON reminders (agent_id, due_at) WHERE delivered_at IS NULL",
    "CREATE INDEX reminders_to_push ON reminders (due_at) WHERE delivered_at IS NULL AND delivery <> 'pull'",
    "CREATE INDEX reminders_delivered ON reminders (delivered_at) WHERE delivered_at IS NOT NULL",
    "CREATE INDEX reminders_by_session ON reminders (agent_id, session_id)",
    """
    CREATE TABLE notifications (
        id TEXT NOT NULL PRIMARY KEY,
        agent_id TEXT NOT NULL,
        user_id TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('run', 'alert', 'disabled')),
        schedule_id TEXT NOT NULL,
        schedule_name TEXT,
        run_id TEXT,
        run_status TEXT,
        channel_id TEXT,
        session_id TEXT,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        claim_until INTEGER,
        token INTEGER,
        not_before INTEGER,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT NOT NULL DEFAULT '',
        delivered_at INTEGER,
        acknowledged_at INTEGER
    )
    """,
    "CREATE INDEX notifications_new ON notifications (agent_id, created_at) WHERE acknowledged_at IS NULL",
    "CREATE INDEX notifications_by_time ON notifications (created_at)",
    "CREATE INDEX notifications_to_push ON notifications (created_at)"
    " WHERE delivered_at IS NULL AND acknowledged_at IS NULL",
)


def upgrade() -> None:
    """Create the tables."""
    for statement in _STATEMENTS:
        op.execute(statement)
