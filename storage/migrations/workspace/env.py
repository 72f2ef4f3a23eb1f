"""Run by alembic: uses the connection passed to it, with one transaction for each migration and its indexes."""

from typing import Any

from alembic import context

from reverie.clock import now_micros
from storage.recall.index import create_missing_indexes

connection = context.config.attributes["connection"]


def create_indexes(*_: Any, **__: Any) -> None:
    """Create the full-text index in the transaction of the migration: after a crash a store has both or neither."""
    create_missing_indexes(connection, now_micros())


context.configure(
    connection=connection,
    target_metadata=None,
    transaction_per_migration=True,
    version_table=context.config.attributes.get("version_table", "alembic_version"),
    on_version_apply=create_indexes,
)
with context.begin_transaction():
    context.run_migrations()
