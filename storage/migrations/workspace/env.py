"""Run by alembic: uses the connection passed to it, one transaction for each migration and what follows."""

from typing import Any

from alembic import context

from reverie.clock import now_micros
from storage.migrations.recorders import record_added_columns
from storage.recall.index import create_missing_indexes

connection = context.config.attributes["connection"]


def complete(*_: Any, **__: Any) -> None:
    """Do what follows from a migration in its transaction: after a crash a store has all of it or nothing."""
    create_missing_indexes(connection, now_micros())
    record_added_columns(connection)


context.configure(
    connection=connection,
    target_metadata=None,
    transaction_per_migration=True,
    version_table=context.config.attributes.get("version_table", "alembic_version"),
    on_version_apply=complete,
)
with context.begin_transaction():
    context.run_migrations()
