"""A PostgreSQL server that fails while messages come, with a standby that both addresses of the setting lead to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis
from sqlalchemy import make_url

from reverie.errors import StoreUnavailable
from support.failing_server import assert_all_stored, pipeline_on, run_while
from support.pipeline import Pipeline
from support.postgres import TestServer, running_postgres

# `MORE` than are stored before the server fails, some of which may be stored until it is killed.
BEFORE, MORE = 20, 60
DEADLINE_SECONDS = 120


def test_messages_that_come_while_a_standby_takes_over_are_stored_once(
    tmp_path: Path, valkey_url: str, broker_prefix: str
) -> None:
    """Given synchronous replication, when the primary fails under load, then its standby goes on with all of it."""
    broker = redis.Redis.from_url(valkey_url)
    with running_postgres() as primary:
        name = primary.database()
        with _synchronous_standby(primary) as standby:
            address = _address_of_both(primary.url(name), standby.url(name))
            with pipeline_on(address, tmp_path, broker=broker, prefix=broker_prefix) as pipe:
                pipe.say("zanzibar first")
                pipe.settle()

                def fail_over() -> None:
                    before = _await_messages(pipe, BEFORE)
                    primary.kill()
                    with standby.admin() as connection:
                        assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
                    _await_messages(pipe, before + MORE)

                sent, errors, recalled = run_while(pipe, fail_over)
                assert errors == []
                assert recalled > 0
                assert_all_stored(pipe, 1 + sent)


@contextmanager
def _synchronous_standby(primary: TestServer) -> Iterator[TestServer]:
    """Start a standby without which the primary commits nothing."""
    standby = primary.standby(primary.folder.parent / "standby")
    try:
        primary.set(synchronous_standby_names="'*'")
        yield standby
    finally:
        standby.stop()


def _address_of_both(one: str, other: str) -> str:
    hosts = (str(make_url(url).query["host"]) for url in (one, other))
    query = {"host": ",".join(hosts), "target_session_attrs": "read-write"}
    return make_url(one).set(query=query).render_as_string(hide_password=False)


def _await_messages(pipe: Pipeline, least: int) -> int:
    """Wait until this many messages are stored; return how many are."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        with suppress(StoreUnavailable):
            found = pipe.count("messages", "1 = 1")
            if found >= least:
                return found
    raise AssertionError(f"less than {least} messages are stored after {DEADLINE_SECONDS} s")
