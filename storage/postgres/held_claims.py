"""Notes of claims that every host sees: locks in the database server.

A lock on a number needs neither space on a disk nor a row, so it can be taken when nothing can be written, and the
server gives it back when the process that holds it ends. Notes in a file are seen on their own host only.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any, Final

import psycopg
from sqlalchemy import PoolProxiedConnection

from reverie.errors import ReverieError
from storage.pipeline.held_claims import HeldClaims
from storage.postgres.engine import PostgresServer, has_ended
from storage.postgres.errors import translate_errors

_HOLD: Final = "SELECT pg_try_advisory_lock(%s)"
_RELEASE: Final = "SELECT pg_advisory_unlock(%s)"
_IS_HELD: Final = """
    SELECT EXISTS (
        SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = (%(token)s >> 32)::oid AND objid = (%(token)s & 4294967295)::oid
    )
"""


class HeldTokens:
    """The tokens that this process holds in the database, by one connection outside of the pool, while there are any.

    Thread-safe.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._guard = threading.Lock()
        self._wanted: set[int] = set()
        self._connection: PoolProxiedConnection | None = None

    def hold(self, token: int) -> None:
        """Hold a token until `release`, or the end of the process. Raises `StoreUnavailable`, and holds it later."""
        with self._guard, translate_errors(self._server.name):
            is_new = token not in self._wanted
            self._wanted.add(token)
            connected = self._is_connected()
            raw = self._raw()
            if is_new and connected:
                raw.execute(_HOLD, [token])

    def release(self, token: int) -> None:
        """Give a token back. Raises `StoreUnavailable` when it is given back by the loss of the connection."""
        with self._guard, translate_errors(self._server.name):
            self._wanted.discard(token)
            if self._is_connected():
                self._raw().execute(_RELEASE, [token])
            self._disconnect_if_idle()

    def is_held(self, token: int) -> bool:
        """Return whether a process on any host holds a token. Raises `StoreUnavailable` when that cannot be asked."""
        with self._guard, translate_errors(self._server.name):
            row = self._raw().execute(_IS_HELD, {"token": token}).fetchone()
            self._disconnect_if_idle()
            return bool(row and row[0])

    def _is_connected(self) -> bool:
        return self._connection is not None and not has_ended(self._driver_of(self._connection))

    def _raw(self) -> psycopg.Connection[Any]:
        """Return the connection. A new one holds all that was held by one that ended, as at a restart of the server."""
        if self._connection is None or not self._is_connected():
            self._connection = None
            connection = self._server.engine.raw_connection()
            connection.detach()
            raw = self._driver_of(connection)
            raw.autocommit = True
            self._connection = connection
            for token in self._wanted:
                raw.execute(_HOLD, [token])
        return self._driver_of(self._connection)

    def _disconnect_if_idle(self) -> None:
        if self._connection is not None and not self._wanted:
            self._connection.close()
            self._connection = None

    @staticmethod
    def _driver_of(connection: PoolProxiedConnection) -> psycopg.Connection[Any]:
        raw = connection.dbapi_connection
        assert isinstance(raw, psycopg.Connection)
        return raw


class PostgresHeldClaims(HeldClaims):
    """Notes that processes of every host see, and of this one also while the database cannot be reached."""

    def __init__(self, path: Path, tokens: HeldTokens) -> None:
        super().__init__(path)
        self._held = tokens

    def note(self, token: int) -> None:
        """Note that this process has given up the claim of a token, or will settle it by itself."""
        super().note(token)
        # Without a connection nobody else can take the claim over, and the next note or look takes the lock.
        with contextlib.suppress(ReverieError):
            self._held.hold(token)

    def forget(self, token: int) -> None:
        """Remove a note of this process, after what it stands for was written."""
        is_own = token in self.own()
        super().forget(token)
        if is_own:
            with contextlib.suppress(ReverieError):  # then the server has given it back
                self._held.release(token)

    def is_noted(self, token: int) -> bool:
        """Return whether a process that lives has noted a token. Raises `StoreUnavailable` when nobody can tell."""
        return super().is_noted(token) or self._held.is_held(token)
