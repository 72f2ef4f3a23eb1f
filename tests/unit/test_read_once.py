"""What a command that only reads a data folder opens: the same answers, without the engine of those who write."""

from __future__ import annotations

import socket
from pathlib import Path

import pysqlite3
import pytest
import redis

from reverie.errors import Unavailable
from reverie.pipeline.broker import call_broker, connect
from storage.stores import Stores, StoresReadOnce
from worker.supervision.broker_address import refused_connection

NOW = 1_800_000_000_000_000


def filled(data: Path) -> None:
    """Make a data folder with a workspace, a run of a job, a quota and a tenant."""
    stores = Stores(data)
    stores.workspace("default")
    stores.jobs().claim("reverie.decay", period=1, now=NOW)
    stores.quotas().set("workspace", "default", {"messages": 7})
    stores.tenants().set("default", "acme")
    stores.close()


def answers(stores: Stores) -> list[object]:
    """Return what the status reads of the account and of each workspace."""
    found = [
        stores.jobs().last_runs(now=NOW),
        stores.usage().last_days(30, now=NOW),
        stores.known_quotas(),
        stores.known_tenants(),
        stores.tenant_of("default"),
        stores.all_names(),
        *(stores.counts(name) for name in stores.all_names()),
    ]
    stores.close()
    return found


@pytest.mark.sqlite("files are opened in two ways, a database in one")
def test_stores_that_are_read_once_answer_as_opened_ones(tmp_path: Path) -> None:
    """Given a data folder with rows of every kind that a status shows, then both ways of reading say the same."""
    filled(tmp_path)
    assert answers(StoresReadOnce(tmp_path)) == answers(Stores(tmp_path))


@pytest.mark.sqlite("files are opened in two ways, a database in one")
def test_reading_an_empty_folder_creates_nothing(tmp_path: Path) -> None:
    """Given a folder without stores, then they are read as empty, and no file is made."""
    assert answers(StoresReadOnce(tmp_path)) == [{}, [], [], {}, "local", []]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sqlite("files of an older schema")
def test_an_older_account_is_migrated_to_be_read(tmp_path: Path) -> None:
    """Given an account whose newest migration is missing, then it is applied as by every other process."""
    filled(tmp_path)
    expected = answers(Stores(tmp_path))
    raw = pysqlite3.connect(tmp_path / "account.db")
    raw.execute("UPDATE schema_version SET version = '0100' WHERE line = 'workspace'")
    raw.commit()
    raw.close()
    assert answers(StoresReadOnce(tmp_path)) == expected


@pytest.mark.parametrize("stale", [False, True])
def test_a_socket_on_which_nobody_listens_is_told_in_the_words_of_the_client(tmp_path: Path, stale: bool) -> None:
    """Given a socket that is missing, or left by a broker that was killed, then the reason is what redis-py says."""
    path = tmp_path / "run" / "b.sock"
    path.parent.mkdir()
    if stale:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    url = f"unix://{path}?db=0"
    broker = connect(url)
    with pytest.raises(redis.ConnectionError) as told:
        broker.ping()
    assert refused_connection(url) == str(told.value)
    with pytest.raises(Unavailable):
        call_broker(broker.ping)
    broker.close()


def test_a_socket_with_a_listener_and_a_broker_by_tcp_are_left_to_the_client(tmp_path: Path) -> None:
    """Given somebody who listens, or an address of another kind, then no connection was refused."""
    path = tmp_path / "b.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert refused_connection(f"unix://{path}") == ""
    assert refused_connection("redis://127.0.0.1:1/0") == ""
