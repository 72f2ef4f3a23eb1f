"""A kind of memory for standing instructions, and an index of what is in force."""

from alembic import op

revision = "0006"
down_revision = "0005"

_OLD = "kind IN ('fact', 'preference', 'procedure', 'event', 'task', 'note')"
_NEW = "kind IN ('fact', 'preference', 'procedure', 'event', 'task', 'note', 'instruction')"


def upgrade() -> None:
    """Let the check of `kind` pass instructions, and index instructions and important preferences by owner and time.

    A table's check cannot be altered. A wider one needs no row to be written: https://sqlite.org/lang_altertable.html
    describes this way for it.
    """
    connection = op.get_bind()
    version = int(connection.exec_driver_sql("PRAGMA schema_version").scalar_one())
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = 'memories'", (_OLD, _NEW)
    )
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    # Has this connection read the schema again, as the others do by the version.
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    op.execute(
        "CREATE INDEX memories_in_force ON memories (agent_id, owner_user_id, created_at) WHERE superseded_by IS NULL"
        " AND (kind = 'instruction' OR (kind = 'preference' AND importance >= 0.8))"
    )
