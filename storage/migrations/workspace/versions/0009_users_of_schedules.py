"""Whose schedules, notifications and reminders are: those of no user have none, and no longer the agent's name."""

from alembic import op

revision = "0009"
down_revision = "0008"

_OLD = "user_id TEXT NOT NULL"
_NEW = "user_id TEXT"
_USER_OF_SESSION = (
    "(SELECT s.user_id FROM sessions AS s WHERE s.agent_id = {0}.agent_id AND s.id = {0}.session_id AND NOT s.is_group)"
)
# What runs of it recalled is content of that user, so it does not follow the session into a group.
_ADOPT = (
    "UPDATE schedules SET user_id = new.user_id WHERE agent_id = new.agent_id AND session_id = new.id"
    " AND user_id IS NULL"
)
_OF_SESSION = "agent_id = old.agent_id AND session_id = old.id AND user_id IS NULL"

_STATEMENTS = (
    f"UPDATE schedules SET user_id = {_USER_OF_SESSION.format('schedules')} WHERE user_id = agent_id",
    "UPDATE notifications SET user_id = coalesce((SELECT c.user_id FROM schedules AS c"
    " WHERE c.agent_id = notifications.agent_id AND c.id = notifications.schedule_id),"
    f" {_USER_OF_SESSION.format('notifications')}) WHERE user_id = agent_id",
    # None for a reminder of the users of its session.
    "ALTER TABLE reminders ADD COLUMN user_id TEXT",
    "CREATE INDEX schedules_by_session ON schedules (agent_id, session_id) WHERE session_id IS NOT NULL",
    "CREATE INDEX notifications_by_session ON notifications (agent_id, session_id) WHERE session_id IS NOT NULL",
    "CREATE TRIGGER schedules_adopted_by_new AFTER INSERT ON sessions WHEN new.user_id IS NOT NULL"
    f" BEGIN {_ADOPT}; END",
    "CREATE TRIGGER schedules_adopted AFTER UPDATE OF user_id ON sessions"
    f" WHEN old.user_id IS NULL AND new.user_id IS NOT NULL BEGIN {_ADOPT}; END",
    # What belongs to the users of a session goes with it: without the session it would be everybody's.
    "CREATE TRIGGER sessions_scheduling_forgotten AFTER DELETE ON sessions WHEN old.user_id IS NOT NULL BEGIN"
    f" DELETE FROM schedules WHERE {_OF_SESSION}; DELETE FROM notifications WHERE {_OF_SESSION};"
    f" DELETE FROM reminders WHERE {_OF_SESSION}; END",
)


def upgrade() -> None:
    """Let schedules and notifications have no user, and give each the user of its session."""
    _allow_no_user()
    for statement in _STATEMENTS:
        op.execute(statement)


def _allow_no_user() -> None:
    """Drop NOT NULL of two columns, which needs no row to be written: see migration 0006."""
    connection = op.get_bind()
    version = int(connection.exec_driver_sql("PRAGMA schema_version").scalar_one())
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table'"
        " AND name IN ('schedules', 'notifications')",
        (_OLD, _NEW),
    )
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
