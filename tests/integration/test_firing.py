"""The sweep that fires schedules, on a real broker: to the second, over all workspaces, whatever one of them does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from memory.scheduling.due_runs import LOST_AFTER_SECONDS, claim_due
from memory.scheduling.schedules import create_schedule
from reverie import contract
from reverie.clock import from_micros, new_id, now_micros
from reverie.errors import Unavailable
from reverie.scheduling.cadence import Once
from reverie.scheduling.types import ScheduleDraft, WebhookExecutor
from storage.scheduling.records import RunRecord
from storage.stores import Store
from support.telling import Clock
from worker.runtime import Runtime
from worker.scheduling.jobs import fire_due

SECOND = 1_000_000
# The shortest pause of the loop, by its own clock.
LATE_SECONDS = 0.001


def add(here: Runtime, store: Store, *, in_seconds: float) -> str:
    draft = ScheduleDraft(
        id=new_id(),
        user="ana",
        goal="water the plants",
        cadence=Once(from_micros(here.now() + round(in_seconds * SECOND))),
        executor=WebhookExecutor(url="https://example.org/hook"),
    )
    made = create_schedule(
        store, draft, agent="ana", rules=here.settings.schedule_rules, check_url=lambda _: None, now=here.now()
    )
    return made.id


def runs_of(store: Store, schedule: str) -> list[RunRecord]:
    with store.reading() as tx:
        return tx.for_agent("ana").runs.history(schedule, limit=100)


def tasks_sent(here: Runtime) -> int:
    return here.monitor.queue_depths()[contract.QUEUE_SCHEDULES]


def overdue(here: Runtime, store: Store) -> str:
    """A schedule whose time has come."""
    schedule = add(here, store, in_seconds=60)
    with store.writing() as tx:
        tx.connection.execute(
            text("UPDATE schedules SET next_run_at = :at WHERE id = :id"), {"at": here.now(), "id": schedule}
        )
    return schedule


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock by which runtimes made with it wait without taking time."""
    return Clock().drive_loops(monkeypatch)


def test_what_becomes_due_meanwhile_fires_in_its_moment(make_runtime: Callable[..., Runtime], clock: Clock) -> None:
    """Given schedules due within the time of a sweep and after it, then the first are fired when due, with a task."""
    runtime = make_runtime(clock=clock)
    store = runtime.store("ws")
    soon, later, last = (add(runtime, store, in_seconds=seconds) for seconds in (0.4, 1.2, 3_600.0))
    assert fire_due(runtime, wait_seconds=2.0)["runs"] == 2
    for schedule in (soon, later):
        (run,) = runs_of(store, schedule)
        assert 0 <= (run.created_at - run.due_at) / SECOND <= LATE_SECONDS
    assert runs_of(store, last) == []
    assert tasks_sent(runtime) == 2


def test_what_is_made_while_it_waits_is_fired(
    make_runtime: Callable[..., Runtime], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a sweep that waits with nothing in sight, when a schedule is made that is due soon, then it is fired."""
    runtime = make_runtime(clock=clock)
    store = runtime.store("ws")
    made: list[str] = []
    forward = clock.forward

    def make_one(seconds: float) -> None:
        forward(seconds)
        if not made:
            made.append(add(runtime, store, in_seconds=0.3))

    monkeypatch.setattr(clock, "forward", make_one)
    clock.drive_loops(monkeypatch)
    assert fire_due(runtime, wait_seconds=3.0)["runs"] == 1
    assert [run.status for run in runs_of(store, made[0])] == ["pending"]


def test_a_sweep_that_waits_asks_the_broker_once(
    make_runtime: Callable[..., Runtime], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a sweep that finds nothing for seconds, then it does not ask at each look how many tasks wait."""
    runtime = make_runtime(clock=clock)
    runtime.store("ws")
    asked: list[str] = []

    def queue_depth(queue: str) -> int:
        asked.append(queue)
        return 0

    monkeypatch.setattr(runtime.monitor, "queue_depth", queue_depth)
    assert fire_due(runtime, wait_seconds=5.0).get("runs", 0) == 0
    assert asked == [contract.QUEUE_SCHEDULES]


def test_a_run_of_a_dead_worker_is_taken_up_where_nothing_is_due(runtime: Runtime) -> None:
    """Given a lease that ended in a store in which nothing else is due, when one sweep looks, then the run is sent."""
    store = runtime.store("ws")
    schedule = overdue(runtime, store)
    for _ in claim_due(store, now=runtime.now(), clock=now_micros()):
        pass
    (run,) = runs_of(store, schedule)
    with store.writing() as tx:
        clock = now_micros()
        assert tx.open_runs.start(
            run.id, now=runtime.now(), clock=clock, lease_until=clock, deadline=clock + 60 * SECOND
        )
    assert fire_due(runtime, wait_seconds=0.0)["resent"] == 1
    assert [(one.status, one.crashes) for one in runs_of(store, schedule)] == [("pending", 1)]
    assert tasks_sent(runtime) == 1


@pytest.mark.sqlite("damages a file")
def test_a_workspace_that_cannot_be_read_holds_up_no_other(runtime: Runtime) -> None:
    """Given a damaged workspace beside a good one, then the good one fires, and the other is named."""
    good = runtime.store("good")
    bad = runtime.stores.database_path("bad")
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"this is no database, and much longer than its header would be: " * 20)
    schedule = overdue(runtime, good)
    counts = fire_due(runtime, wait_seconds=0.0)
    assert counts["runs"] == 1
    assert "bad" in counts["unreadable"]
    assert len(runs_of(good, schedule)) == 1


def test_without_a_broker_runs_are_made_and_sent_later(
    make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a broker that takes no task, when a schedule is due, then its run waits, and is sent when one takes it."""
    here = make_runtime()
    store = here.store("ws")
    schedule = overdue(here, store)

    def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable("the broker did not accept the task")

    with monkeypatch.context() as patched:
        patched.setattr(here.task_sender, "send", refuse)
        assert fire_due(here, wait_seconds=0.0)["runs"] == 1
    assert tasks_sent(here) == 0
    with store.writing() as tx:  # as if so much time had passed
        tx.connection.execute(
            text("UPDATE schedule_runs SET sent_at = sent_at - :lost"), {"lost": LOST_AFTER_SECONDS * SECOND}
        )
    assert fire_due(here, wait_seconds=0.0)["resent"] == 1
    assert tasks_sent(here) == 1
    assert [run.status for run in runs_of(store, schedule)] == ["pending"]


def test_while_tasks_wait_in_the_queue_no_more_are_sent_for_their_runs(runtime: Runtime) -> None:
    """Given a run whose task still waits behind others after 15 s, when a sweep looks, then it sends no second one."""
    store = runtime.store("ws")
    overdue(runtime, store)
    fire_due(runtime, wait_seconds=0.0)
    assert tasks_sent(runtime) == 1
    with store.writing() as tx:
        tx.connection.execute(
            text("UPDATE schedule_runs SET sent_at = sent_at - :lost"), {"lost": 2 * LOST_AFTER_SECONDS * SECOND}
        )
    assert fire_due(runtime, wait_seconds=0.0).get("resent", 0) == 0
    assert tasks_sent(runtime) == 1


def test_two_sweeps_of_a_process_take_turns(
    make_runtime: Callable[..., Runtime], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a sweep that begins while another one waits, then it takes over, and what is due then is fired once."""
    runtime = make_runtime(clock=clock)
    store = runtime.store("ws")
    schedule = add(runtime, store, in_seconds=1.0)
    found: list[dict[str, Any]] = []
    second = threading.Thread(target=lambda: found.append(fire_due(runtime, wait_seconds=1.2)))
    forward = clock.forward

    def begin_second(seconds: float) -> None:
        if second.ident is None:
            second.start()
        forward(seconds)

    monkeypatch.setattr(clock, "forward", begin_second)
    clock.drive_loops(monkeypatch)
    first = fire_due(runtime, wait_seconds=0.6)
    second.join()
    assert first.get("runs", 0) == 0
    assert [counts.get("runs", 0) for counts in found] == [1]
    assert len(runs_of(store, schedule)) == 1
