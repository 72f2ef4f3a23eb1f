"""Servers over a runtime, clients of them, visitors of the memory page, and databases of a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from reverie import Reverie
from server.authentication import Access
from support.browsing import TOKEN, MakeVisitor, Visitor, running_chromium
from support.http import running_server
from support.postgres import MakeHost, TestServer, running_postgres
from worker.runtime import Runtime


@pytest.fixture
def url(here: Runtime) -> Iterator[str]:
    """The address of a server over the runtime."""
    with running_server(here) as address:
        yield address


@pytest.fixture
def ana(url: str) -> Iterator[Reverie]:
    """A client of the agent ana."""
    with Reverie("ana", url=url) as client:
        yield client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One Chromium for the tests of a file; each visitor has cookies of its own.

    While it runs, an event loop does, too, so tests of other files could not start one.
    """
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def page_url(runtime: Runtime) -> Iterator[str]:
    """The address of a server that asks for the token of its operator."""
    with running_server(runtime, access=Access(tokens={"operator": TOKEN})) as address:
        yield address


@pytest.fixture
def make_visitor(chromium: Browser, page_url: str) -> Iterator[MakeVisitor]:
    """Makes visitors, who are logged in unless told otherwise. None may have made the browser complain."""
    visitors: list[Visitor] = []

    def make(*, token: str | None = TOKEN, agent: str = "ana", **context: Any) -> Visitor:
        visitors.append(Visitor(chromium.new_context(**context), page_url, agent=agent))
        if token is not None:
            visitors[-1].log_in(token)
        return visitors[-1]

    yield make
    for visitor in visitors:
        visitor.context.close()
    assert [complaint for visitor in visitors for complaint in visitor.complaints] == []


@pytest.fixture
def visitor(make_visitor: MakeVisitor) -> Visitor:
    """A visitor who has logged in with the token of the operator, and has opened no page yet."""
    visitor = make_visitor(token=None)
    visitor.log_in_unseen()
    return visitor


@pytest.fixture
def operator(page_url: str) -> Iterator[Reverie]:
    """A client of the agent ana on the server of the page."""
    with Reverie("ana", url=page_url, token=TOKEN) as client:
        yield client


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    """One PostgreSQL server for the tests of a file."""
    with running_postgres() as running:
        yield running


@pytest.fixture
def database(server: TestServer) -> Iterator[str]:
    """The name of a database with the schema."""
    name = server.database()
    yield name
    server.drop(name)


@pytest.fixture
def empty(server: TestServer) -> Iterator[str]:
    """The name of a database without a schema."""
    name = server.empty_database()
    yield name
    server.drop(name)


@pytest.fixture
def database_url(server: TestServer, database: str) -> str:
    """The address of a database with the schema."""
    return server.url(database)


@pytest.fixture
def make_host(make_runtime: Callable[..., Runtime], database_url: str, tmp_path: Path) -> MakeHost:
    """Makes a runtime on one of the hosts of the database, each with a data folder of its own."""

    def make(name: str) -> Runtime:
        return make_runtime(data=tmp_path / name, database=database_url)

    return make
