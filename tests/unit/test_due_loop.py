"""The loop behind firing and delivery: rounds, pauses, deadlines, and errors of single workspaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.idle_stores import IdleStores
from memory.scheduling.due_runs import MAX_PAUSE_SECONDS, DueLoop, LoopJob, LoopRun
from reverie.errors import StoreUnavailable
from storage.stores import Store, Stores
from support.telling import BEGAN, SECOND, Clock

Work = Callable[[Store, LoopRun], None]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    for name in ("a", "b"):
        stores.workspace(name)
    yield stores
    stores.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def loop(stores: Stores, clock: Clock, pauses: list[float] | None = None) -> DueLoop:
    def sleep(seconds: float) -> None:
        if pauses is not None:
            pauses.append(seconds)
        clock.forward(seconds)

    return DueLoop(
        stores=stores, idle_stores=IdleStores(), now=clock, clock=clock, turn_seconds=0.0,
        monotonic=lambda: clock() / SECOND, sleep=sleep,
    )  # fmt: skip


def job(due: dict[str, int], work: Work, **more: Any) -> LoopJob:
    def due_at(store: Store, *, now: int, clock: int) -> int | None:
        return due.get(store.name)

    return LoopJob("job", due_at, work, **more)


def count(_: Store, run: LoopRun) -> None:
    run.counts["done"] += 1


def test_work_that_never_ends_stops_after_its_rounds(stores: Stores, clock: Clock) -> None:
    """Given a workspace that is always due, then a run that may not wait works on it `max_rounds` times."""
    endless = job({"a": BEGAN}, count, max_rounds=3)
    assert loop(stores, clock).run(lambda: endless, wait_seconds=0.0) == {"done": 3}


def test_a_run_sleeps_until_work_is_due_and_looks_again_in_between(stores: Stores, clock: Clock) -> None:
    """Given work that is due in 1.2 seconds, then it is done then, and no pause is longer than half a second."""
    due, pauses, at = {"a": BEGAN + 1_200_000}, [], []

    def work(store: Store, _: LoopRun) -> None:
        at.append(clock() - BEGAN)
        del due[store.name]

    waiting = job(due, work)
    loop(stores, clock, pauses).run(lambda: waiting, wait_seconds=5.0)
    assert at == [1_200_000]
    assert max(pauses) <= MAX_PAUSE_SECONDS
    assert clock() == BEGAN + 5 * SECOND


def test_an_error_in_one_workspace_is_named_and_left_to_the_next_run(stores: Stores, clock: Clock) -> None:
    """Given a workspace whose work fails, then it is tried once in a run, and the other is worked on."""
    due, tried = {"a": BEGAN, "b": BEGAN}, []

    def work(store: Store, run: LoopRun) -> None:
        tried.append(store.name)
        if store.name == "a":
            raise StoreUnavailable("the disk is full")
        count(store, run)
        del due["b"]

    failing, found = job(due, work), loop(stores, clock)
    assert found.run(lambda: failing, wait_seconds=2.0) == {"done": 1, "unreadable": {"a": "the disk is full"}}
    assert sorted(tried) == ["a", "b"]
    assert "a" in found.run(lambda: failing, wait_seconds=0.0)["unreadable"]


def test_a_second_run_of_a_process_is_skipped(stores: Stores, clock: Clock) -> None:
    """Given a run that does not end in time, when another begins, then that one does nothing."""
    due, found, results = {"a": BEGAN}, loop(stores, clock), []

    def work(store: Store, run: LoopRun) -> None:
        results.append(found.run(lambda: nested, wait_seconds=0.0))
        count(store, run)
        due.clear()

    nested = job(due, work)
    assert found.run(lambda: nested, wait_seconds=0.0) == {"done": 1}
    assert results == [{"skipped": 1}]


def test_what_the_job_is_may_change_between_checks(stores: Stores, clock: Clock) -> None:
    """Given a job that is asked for anew before each check, then the latest one decides whether the run goes on."""
    jobs = iter([job({"a": BEGAN}, count), job({}, count, should_stop=lambda run: run.counts["done"] > 0)])
    assert loop(stores, clock).run(lambda: next(jobs), wait_seconds=60.0) == {"done": 1}
    assert clock() == BEGAN
