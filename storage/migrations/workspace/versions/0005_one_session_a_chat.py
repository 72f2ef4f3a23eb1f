"""A chat of a provider belongs to one session of an agent."""

from alembic import op

revision = "0005"
down_revision = "0004"

_STATEMENTS = (
    # Of several sessions with one chat, messages that named only the chat went to the first: it keeps the chat.
    """
    UPDATE sessions SET provider = NULL, chat_id = NULL
    WHERE provider IS NOT NULL AND chat_id IS NOT NULL AND EXISTS (
        SELECT 1 FROM sessions AS first WHERE first.agent_id = sessions.agent_id
        AND first.provider = sessions.provider AND first.chat_id = sessions.chat_id
        AND first.row_id < sessions.row_id)
    """,
    "DROP INDEX sessions_by_chat",
    "CREATE UNIQUE INDEX sessions_by_chat ON sessions (agent_id, provider, chat_id)"
    " WHERE provider IS NOT NULL AND chat_id IS NOT NULL",
)


def upgrade() -> None:
    """Leave each chat to one session, and have the index refuse a second one."""
    for statement in _STATEMENTS:
        op.execute(statement)
