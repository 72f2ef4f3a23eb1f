"""A pooler between Reverie and PostgreSQL: one that shares sessions between transactions is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from reverie.errors import StoreUnusable
from storage.postgres.engine import PostgresServer
from storage.postgres.schema import check_sessions
from support.postgres import TestServer, running_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with running_postgres() as running:
        yield running


class Client:
    """A client's connection to a pooler, which has a session of the server from `take` until `give` gets it back."""

    def __init__(self, take: Callable[[], psycopg.Connection], give: Callable[[psycopg.Connection], None]) -> None:
        self.info = SimpleNamespace(backend_pid=1)  # what a pooler tells its clients
        self._take, self._give = take, give
        self._session: psycopg.Connection | None = None

    def execute(self, *statement: Any) -> psycopg.Cursor:
        self._session = self._session or self._take()
        return self._session.execute(*statement)

    def commit(self) -> None:
        assert self._session is not None
        self._session.commit()
        self._give(self._session)
        self._session = None


class Pooler:
    """Looks to `check_sessions` like a database behind a pooler; `order` is the place of the session to take next."""

    name = "postgresql://pooler/reverie"

    def __init__(self, url: str, *, shares: bool, order: int) -> None:
        self._open = ExitStack()
        self._idle = [self._open.enter_context(psycopg.connect(url)) for _ in range(3)]
        self._shares, self._order = shares, order

    @contextmanager
    def connect(self) -> Iterator[Any]:
        if self._shares:
            client = Client(lambda: self._idle.pop(self._order), self._idle.append)
        else:
            session = self._idle.pop()
            client = Client(lambda: session, lambda _: None)
        yield SimpleNamespace(connection=SimpleNamespace(driver_connection=client))

    def close(self) -> None:
        self._open.close()


@pytest.mark.parametrize("order", [0, -1], ids=["in turn", "the last one first"])
@pytest.mark.parametrize("shares", [False, True])
def test_a_pooler_that_shares_sessions_is_refused(server: TestServer, shares: bool, order: int) -> None:
    """Given a pooler, when sessions are shared by transactions, then it is refused with what to set, else it is not."""
    pooler = Pooler(server.admin_url(), shares=shares, order=order)
    try:
        if not shares:
            check_sessions(cast("PostgresServer", pooler))
            return
        with pytest.raises(StoreUnusable, match="pool_mode = session"):
            check_sessions(cast("PostgresServer", pooler))
    finally:
        pooler.close()


def test_the_server_itself_is_no_pooler(server: TestServer) -> None:
    """Given the address of PostgreSQL, then nothing is refused."""
    direct = PostgresServer(server.url(server.empty_database()))
    check_sessions(direct)
    direct.close()
