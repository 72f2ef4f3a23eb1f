"""What is kept of a database: read again when it was written, by whomever, and how few statements a recall needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.contract import ACCOUNT_STORE
from storage.stores import Stores
from storage.written import FRESH_SECONDS, KeptReads
from support.pipeline import Pipeline
from support.work import noted_statements


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path / "data")
    yield made
    made.close()


def age(stores: Stores, seconds: float) -> None:
    """Make the files look as if they had been written so long ago."""
    for path in stores.data_dir.glob("account.db*"):
        at = path.stat().st_mtime - seconds
        os.utime(path, (at, at))


def test_a_change_by_another_process_is_seen_within_a_second(stores: Stores) -> None:
    """Given a tenant that was read, when another process sets another, then it is read again after half a second."""
    clock, reads = Clock(), list[str]()
    kept: KeptReads[str, str] = KeptReads(lambda: stores.stamp(ACCOUNT_STORE), monotonic=clock)

    def read() -> str:
        reads.append(stores.tenants().of("w"))
        return reads[-1]

    stores.tenants().set("w", "acme")
    age(stores, 60)
    assert [kept.get("w", read) for _ in range(3)] == ["acme"] * 3
    clock.seconds += FRESH_SECONDS
    assert kept.get("w", read) == "acme"
    assert reads == ["acme"]  # nothing was written since: the file was only looked at
    other = Stores(stores.data_dir)
    other.tenants().set("w", "beta")
    other.close()
    assert kept.get("w", read) == "acme"
    clock.seconds += FRESH_SECONDS
    assert kept.get("w", read) == "beta"
    assert reads == ["acme", "beta"]


@pytest.mark.sqlite("the times of its files may lag behind writes")
def test_a_file_that_was_written_a_moment_ago_is_read_again(stores: Stores) -> None:
    """Given a value read from a file of this very moment, then its times prove nothing: it is read again."""
    clock, reads = Clock(), list[int]()
    kept: KeptReads[str, int] = KeptReads(lambda: stores.stamp(ACCOUNT_STORE), monotonic=clock)
    stores.tenants().set("w", "acme")
    age(stores, -60)  # on a busy machine this moment could be over before the reads
    for _ in range(3):
        kept.get("w", lambda: reads.append(1) or 1)  # type: ignore[func-returns-value]
        clock.seconds += FRESH_SECONDS
    assert len(reads) == 3


def test_a_change_by_this_process_is_seen_at_once(stores: Stores) -> None:
    """Given a known tenant, when this process sets another, then the next call has it."""
    assert stores.tenant_of("w") == "local"
    stores.tenants().set("w", "acme")
    assert stores.tenant_of("w") == "acme"


def test_a_recall_needs_few_statements(tmp_path: Path) -> None:
    """Given an agent whose index is in memory, then a recall asks the database once for each thing it needs."""
    pipe, statements = Pipeline(tmp_path / "data"), list[str]()
    pipe.say("I moved to Lisbon", "I take the tram")
    pipe.settle()
    expected = pipe.found("Lisbon")

    with noted_statements(lambda statement, _: statements.append(statement)):
        assert pipe.found("Lisbon") == expected
    pipe.close()
    assert sum("FROM indexes" in one for one in statements) == 2  # one for each of the two transactions
    assert not any("forward_changes WHERE" in one for one in statements)
    assert len(statements) <= 8, statements
