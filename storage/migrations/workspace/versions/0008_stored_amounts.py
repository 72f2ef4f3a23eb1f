"""How much is stored, counted by triggers in the transaction of each change."""

from alembic import op

revision = "0008"
down_revision = "0007"

# For each table: what its rows count as and when, the columns whose sizes count as bytes, and whose they are. In the
# account's file memories belong to a tenant.
_TABLES = {
    "messages": ("messages", "1", ("content", "metadata", "tool_calls"), "''"),
    "files": ("messages", "1", ("content", "metadata"), "''"),
    "memories": (
        "memories",
        "{row}.superseded_by IS NULL",
        ("content", "value", "metadata"),
        "coalesce({row}.tenant, '')",
    ),
    "scratchpads": ("", "0", ("key", "value"), "''"),
    "scratchpad_lists": ("", "0", ("items",), "''"),
    "schedules": ("schedules", "1", ("goal", "cadence", "executor"), "''"),
    "reminders": ("schedules", "{row}.delivered_at IS NULL", ("message",), "''"),
}
# What changes a row's part of the counts, besides the columns that are measured.
_WATCHED = {"memories": ("superseded_by", "tenant"), "reminders": ("delivered_at",)}
_AMOUNTS = ("messages", "memories", "schedules")


def _bytes(columns: tuple[str, ...], row: str) -> str:
    return " + ".join(f"coalesce(octet_length({row}.{column}), 0)" for column in columns)


def _change(table: str, row: str, sign: str) -> str:
    """Return a statement that adds a row of a table to the counts, or takes it away."""
    name, counts, columns, tenant = _TABLES[table]
    numbers = {amount: f"{sign}({counts.format(row=row)})" if amount == name else "0" for amount in _AMOUNTS}
    values = {**numbers, "bytes": f"{sign}({_bytes(columns, row)})"}
    sums = ", ".join(f"{amount} = {amount} + excluded.{amount}" for amount in values if values[amount] != "0")
    return (
        f"INSERT INTO stored_amounts (tenant, {', '.join(values)})"
        f" VALUES ({tenant.format(row=row)}, {', '.join(values.values())})"
        f" ON CONFLICT (tenant) DO UPDATE SET {sums};"
    )


def _triggers(table: str) -> tuple[str, ...]:
    columns = ", ".join((*_TABLES[table][2], *_WATCHED.get(table, ())))
    added, removed = _change(table, "new", "+"), _change(table, "old", "-")
    return (
        f"CREATE TRIGGER {table}_insert_counted AFTER INSERT ON {table} BEGIN {added} END",
        f"CREATE TRIGGER {table}_delete_counted AFTER DELETE ON {table} BEGIN {removed} END",
        f"CREATE TRIGGER {table}_update_counted AFTER UPDATE OF {columns} ON {table} BEGIN {removed} {added} END",
    )


def _present(table: str) -> str:
    """Return a statement that adds all rows of a table."""
    name, counts, columns, tenant = _TABLES[table]
    number = f", {name}" if name else ""
    total = f", sum({counts.format(row='t')})" if name else ""
    more = f"{name} = {name} + excluded.{name}, " if name else ""
    return (
        f"INSERT INTO stored_amounts (tenant, bytes{number})"
        f" SELECT {tenant.format(row='t')}, sum({_bytes(columns, 't')}){total} FROM {table} AS t WHERE true GROUP BY 1"
        f" ON CONFLICT (tenant) DO UPDATE SET {more}bytes = bytes + excluded.bytes"
    )


def upgrade() -> None:
    """Create the table, count what is stored, and create the triggers."""
    op.execute(
        """
        CREATE TABLE stored_amounts (
            tenant TEXT PRIMARY KEY,
            messages INTEGER NOT NULL DEFAULT 0,
            memories INTEGER NOT NULL DEFAULT 0,
            schedules INTEGER NOT NULL DEFAULT 0,
            bytes INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID
        """
    )
    op.execute("INSERT INTO stored_amounts (tenant) VALUES ('')")
    for table in _TABLES:
        op.execute(_present(table))
        for trigger in _triggers(table):
            op.execute(trigger)
