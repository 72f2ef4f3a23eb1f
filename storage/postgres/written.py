"""Which workspaces were written lately, on any host: the rows of `stores` tell."""

from __future__ import annotations

from typing import Final

from reverie.contract import ACCOUNT_STORE
from storage.postgres.engine import PostgresServer

# A write is noted when it begins. This covers the wait for other writers, and the transaction.
_WATCH_SECONDS: Final = 180.0
_WRITTEN: Final = """
    SELECT name FROM stores WHERE name <> %(account)s AND written_at >= to_timestamp(%(since)s)
"""


class PostgresWritten:
    """Tells which workspaces were written, by the clock of the database."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def note(self, name: str) -> None:
        """Do nothing: each transaction that writes notes it."""

    def since(self, moment: float | None) -> tuple[set[str] | None, float]:
        """Return the workspaces that may have been written since a moment, or None for all of them, and a new moment.

        A moment is what the previous call returned, None at first.
        """
        with self._server.writing() as connection:
            now = float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())
            if moment is None:
                return None, now
            values = {"account": ACCOUNT_STORE, "since": moment - _WATCH_SECONDS}
            return set(connection.exec_driver_sql(_WRITTEN, values).scalars()), now
