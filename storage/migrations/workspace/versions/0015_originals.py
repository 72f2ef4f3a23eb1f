"""The form that a caller keeps a message in, stored beside the message."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"

_COLUMNS = ("content", "metadata", "tool_calls", "original")


def _change(row: str, sign: str) -> str:
    """Return a statement that adds a message to the counts of what is stored, or takes it away."""
    size = " + ".join(f"coalesce(octet_length({row}.{column}), 0)" for column in _COLUMNS)
    return (
        f"INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', {sign}1, 0, 0,"
        f" {sign}({size})) ON CONFLICT (tenant) DO UPDATE SET messages = messages + excluded.messages,"
        " bytes = bytes + excluded.bytes;"
    )


def upgrade() -> None:
    """Add the column, and count its bytes as those of the message."""
    op.execute("ALTER TABLE messages ADD COLUMN original TEXT")
    added, removed = _change("new", "+"), _change("old", "-")
    for event, body in (
        ("INSERT", added),
        ("DELETE", removed),
        (f"UPDATE OF {', '.join(_COLUMNS)}", f"{removed} {added}"),
    ):
        name = f"messages_{event.partition(' ')[0].lower()}_counted"
        op.execute(f"DROP TRIGGER {name}")
        op.execute(f"CREATE TRIGGER {name} AFTER {event} ON messages BEGIN {body} END")
