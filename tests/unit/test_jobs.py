"""Jobs that curate: one instance at a time in a store, fenced off when slow, bounded in time, an error its own line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.jobs import LEASE_SECONDS, PLANNED_SHOWN, JobRun, LeaseLost, RunOptions, run_on_store, run_on_stores
from reverie.clock import now_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import StoreUnavailable
from storage.memories.records import NewMemory
from storage.stores import Store, Stores

JOB = "tidy-up"
NOW = 1_750_000_000_000_000


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Two workspaces, and the account."""
    stores = Stores(tmp_path / "data")
    for name in ("one", "two", ACCOUNT_STORE):
        stores.workspace(name)
    yield stores
    stores.close()


def keep(run: JobRun, name: str) -> None:
    with run.writing() as tx:
        tx.for_agent("ana").memories.add(NewMemory(id=name, content=name, created_at=run.now), now=run.now)
    run.counts["kept"] += 1


def kept(store: Store) -> int:
    with store.reading() as tx:
        return len(list(tx.for_agent("ana").memories.iterate()))


def test_a_job_runs_on_every_store_the_accounts_too(stores: Stores) -> None:
    """Given two workspaces and an account, when a job runs, then each has its line and all are counted together."""
    counts = run_on_stores(stores, JOB, lambda run: keep(run, "m"), now=NOW)
    assert counts["kept"] == 3
    assert {name: line["kept"] for name, line in counts["stores"].items()} == {"one": 1, "two": 1, ACCOUNT_STORE: 1}


def test_a_second_instance_leaves_a_store_to_the_first(stores: Stores) -> None:
    """Given a job at work on a store, when another instance comes, then it does nothing there."""
    store = stores.workspace("one")
    seen: list[object] = []

    def work(run: JobRun) -> None:
        keep(run, "once")
        seen.append(dict(run_on_store(store, JOB, lambda other: keep(other, "twice"), now=NOW).counts))

    run_on_store(store, JOB, work, now=NOW)
    assert seen == [{"held_elsewhere": 1}]
    assert kept(store) == 1


def test_what_was_decided_before_another_instance_worked_is_not_written(stores: Stores) -> None:
    """Given an instance that has only read, when another works meanwhile and ends, then the first writes nothing."""
    store = stores.workspace("one")

    def work(run: JobRun) -> None:
        assert run_on_store(store, JOB, lambda other: keep(other, f"other {kept(store)}"), now=NOW).counts["kept"] == 1
        keep(run, "as decided before")

    for expected in (1, 2):  # without and with an earlier lease
        assert run_on_store(store, JOB, work, now=NOW).counts == {"held_elsewhere": 1}
        assert kept(store) == expected


def test_a_job_that_finds_nothing_to_do_writes_nothing(stores: Stores) -> None:
    """Given work that only reads, then the store's files are as they were, before and after a run that wrote."""
    store = stores.workspace("one")
    for _ in range(2):
        stamp = stores.stamp("one")
        run_on_store(store, JOB, lambda run: None, now=NOW)
        assert stores.stamp("one") == stamp
        run_on_store(store, JOB, lambda run: keep(run, "m"), now=NOW)
        assert stores.stamp("one") != stamp


def test_a_slow_instance_changes_nothing_after_its_lease_was_taken_over(stores: Stores) -> None:
    """Given an instance whose lease ended and was taken, when it writes, then it is told so and nothing is stored."""
    store = stores.workspace("one")

    def work(run: JobRun) -> None:
        keep(run, "in time")
        with store.writing() as tx:
            later = now_micros() + int(2 * LEASE_SECONDS * 1_000_000)
            assert tx.leases.acquire(JOB, now=later, seconds=LEASE_SECONDS) is not None
        with pytest.raises(LeaseLost, match="another instance"), run.writing():
            pytest.fail("a transaction was opened without the lease")
        keep(run, "too late")

    assert run_on_store(store, JOB, work, now=NOW).counts["held_elsewhere"] == 1
    assert kept(store) == 1
    with store.reading() as tx:
        held = tx.connection.exec_driver_sql("SELECT count(*) FROM job_leases").scalar_one()
    assert held == 1, "the lease of the other instance must stay"


def test_a_killed_instance_holds_up_nobody_for_longer_than_its_lease(stores: Stores) -> None:
    """Given a lease that nobody gives back, when its time is over, then the next instance takes it."""
    store = stores.workspace("one")
    with store.writing() as tx:
        assert tx.leases.acquire(JOB, now=now_micros() - int(LEASE_SECONDS * 1_000_000) - 1, seconds=LEASE_SECONDS)
    assert run_on_store(store, JOB, lambda run: keep(run, "m"), now=NOW).counts["kept"] == 1


def test_an_instance_whose_process_has_died_holds_up_nobody(stores: Stores) -> None:
    """Given a lease that has not ended and that no living process holds, then the next instance works at once."""
    store = stores.workspace("one")
    with store.writing() as tx:
        dead = tx.leases.acquire(JOB, now=now_micros(), seconds=LEASE_SECONDS)
    assert run_on_store(store, JOB, lambda run: keep(run, "m"), now=NOW).counts == {"kept": 1}
    with store.reading() as tx:
        assert tx.leases.holder(JOB) is None, f"given back, by another than {dead}"
    assert not store.job_leases.own()


def test_the_store_at_which_a_process_died_comes_last(stores: Stores) -> None:
    """Given a job whose process died in one store, then others do not wait for it: the process may die there again."""
    for dead in ("one", "two", ACCOUNT_STORE):
        with stores.workspace(dead).writing() as tx:
            tx.leases.acquire(JOB, now=now_micros(), seconds=LEASE_SECONDS)
        seen: list[str] = []
        run_on_stores(stores, JOB, lambda run, seen=seen: seen.append(run.store.name), now=NOW)  # type: ignore[misc]
        assert (seen[-1], sorted(seen)) == (dead, sorted(("one", "two", ACCOUNT_STORE)))


def test_a_store_that_cannot_be_used_is_an_error_of_its_own_line(stores: Stores) -> None:
    """Given work that fails on one store, when the job runs on all, then the others are done and the error is told."""

    def work(run: JobRun) -> None:
        if run.store.name == "two":
            raise StoreUnavailable("the disk is full")
        keep(run, "m")

    counts = run_on_stores(stores, JOB, work, now=NOW)
    assert counts["kept"] == 2
    assert counts["errors"] == 1
    assert counts["stores"]["two"] == {"error": "the disk is full"}
    with stores.workspace("two").reading() as tx:
        assert tx.connection.exec_driver_sql("SELECT count(*) FROM job_leases").scalar_one() == 0


def test_a_job_without_time_reaches_nothing_and_says_so(stores: Stores) -> None:
    """Given a budget that is spent, when the job runs, then no store is opened and all are counted as not reached."""
    counts = run_on_stores(stores, JOB, lambda run: keep(run, "m"), now=NOW, options=RunOptions(budget_seconds=0.0))
    assert counts == {"not_reached": 3}


def test_a_dry_run_names_no_more_changes_than_can_be_read(stores: Stores) -> None:
    """Given more planned changes than are shown, then the first ones are named, with their store."""

    def plan(run: JobRun) -> None:
        for number in range(PLANNED_SHOWN + 1):
            run.plan("ana", "prune", f"m{number}", "a text")

    stores.workspace("one")
    planned = run_on_stores(stores, JOB, plan, now=NOW, options=RunOptions(dry_run=True), only=["one"])["planned"]
    assert len(planned) == PLANNED_SHOWN
    assert planned[0] == {"store": "one", "agent": "ana", "action": "prune", "about": "m0", "text": "a text"}


def test_a_run_knows_when_its_time_is_up(stores: Stores) -> None:
    """Given a deadline that passed, when a run asks, then it stops before its next batch."""
    store = stores.workspace("one")
    seen: list[bool] = []
    run_on_store(store, JOB, lambda run: seen.append(run.time_is_up), now=NOW, deadline=time.monotonic() - 1)
    run_on_store(store, JOB, lambda run: seen.append(run.time_is_up), now=NOW)
    assert seen == [True, False]


def test_progress_moves_only_from_where_it_is_thought_to_be(stores: Stores) -> None:
    """Given how far a job has come with an item, when it is moved from elsewhere, then it stays and says so."""
    with stores.workspace("one").writing() as tx:
        assert tx.leases.progress(JOB, "s") == 0
        assert tx.leases.advance(JOB, "s", after=0, to=5, now=NOW)
        assert not tx.leases.advance(JOB, "s", after=0, to=9, now=NOW)
        assert tx.leases.progress(JOB, "s") == 5
