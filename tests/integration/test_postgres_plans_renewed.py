"""The plans that a PostgreSQL server keeps for a connection: made once, and made anew as the tables grow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine

from storage.postgres.engine import RENEW_SECONDS, PostgresServer, renew_plans
from support.postgres import TestServer

# So often that the server keeps the plan.
USES = 12
QUERY = "SELECT id FROM things WHERE store_id = %(store)s AND id = %(id)s"
PLAN_OF_EMPTY_TABLE = "Seq Scan"
PLAN_OF_LARGE_TABLE = "Index Only Scan using things_pkey"


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@pytest.fixture
def database(server: TestServer, empty: str) -> str:
    """The name of a database with one table, which nobody analyses."""
    with server.admin(empty) as connection:
        connection.execute("CREATE TABLE things (store_id bigint, id bigint, PRIMARY KEY (store_id, id))")
        connection.execute("ALTER TABLE things SET (autovacuum_enabled = off)")
        connection.execute("GRANT ALL ON things TO reverie")
        connection.execute("VACUUM things")
    return empty


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(server: TestServer, database: str, clock: Clock) -> Iterator[Engine]:
    made = create_engine(server.url(database), pool_size=1, max_overflow=0)
    renew_plans(made, monotonic=clock)
    yield made
    made.dispose()


def test_a_plan_is_kept_for_a_while_and_then_made_for_the_table_as_it_is(
    server: TestServer, database: str, engine: Engine, clock: Clock
) -> None:
    assert PLAN_OF_EMPTY_TABLE in _plan(engine)
    _fill(server, database)
    clock.now = RENEW_SECONDS - 0.1
    assert PLAN_OF_EMPTY_TABLE in _plan(engine)
    clock.now = RENEW_SECONDS
    assert PLAN_OF_LARGE_TABLE in _plan(engine)


def test_a_connection_that_was_lost_when_its_plans_are_renewed_is_replaced(
    server: TestServer, database: str, engine: Engine, clock: Clock
) -> None:
    with engine.connect() as connection:
        first = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    with server.admin() as connection_of_admin:
        connection_of_admin.execute("SELECT pg_terminate_backend(%s, 10000)", (first,))
    clock.now = RENEW_SECONDS
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one() != first


def test_renewal_begins_no_transaction(engine: Engine, clock: Clock) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
    clock.now = RENEW_SECONDS
    with engine.connect() as connection:
        limited = connection.execution_options(isolation_level="REPEATABLE READ")
        with limited.begin():
            assert limited.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "repeatable read"


def test_connections_to_stores_renew_their_plans(
    server: TestServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.postgres.engine.RENEW_SECONDS", 0.0)
    opened = PostgresServer(server.url(database))
    try:
        assert PLAN_OF_EMPTY_TABLE in _plan(opened.engine)
        _fill(server, database)
        assert PLAN_OF_LARGE_TABLE in _plan(opened.engine)
    finally:
        opened.close()


def _plan(engine: Engine) -> str:
    """Run the query as often as it takes to keep its plan; return the plan that the server has for it then."""
    for number in range(USES):
        with engine.connect() as connection, connection.begin():
            connection.exec_driver_sql(QUERY, {"store": 1, "id": number}).all()
            name = connection.exec_driver_sql(
                "SELECT max(name) FROM pg_prepared_statements WHERE statement LIKE 'SELECT id FROM things%%'"
            ).scalar_one()
    with engine.connect() as connection, connection.begin():
        return "\n".join(connection.exec_driver_sql(f"EXPLAIN EXECUTE {name}(1, 1)").scalars())


def _fill(server: TestServer, database: str) -> None:
    with server.admin(database) as connection:
        connection.execute("INSERT INTO things SELECT 1, number FROM generate_series(1, 20000) AS number")
