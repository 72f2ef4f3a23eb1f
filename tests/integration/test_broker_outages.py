"""A broker that goes away during tasks: whatever a worker was doing then, it takes tasks again afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import redis

from benchmarks.faults.accepted import Accepted
from benchmarks.harness import steps
from benchmarks.harness.stack import Stack
from reverie import contract
from reverie.errors import Unavailable
from support.broker import RestartableValkey
from support.gated_worker import PATIENCE_SECONDS, GatedWorker, wait_until

Outage = Callable[[RestartableValkey], AbstractContextManager[None]]
# What a worker logs when it finds that it cannot settle a message, or that its connection is lost.
NOTICED: Final = ("Couldn't ack", "Couldn't reject", "Connection to broker lost")
LONG: Final = "long"


@contextmanager
def killed(broker: RestartableValkey) -> Iterator[None]:
    """The process is killed, and started again on its files."""
    broker.kill()
    yield
    broker.start()


@contextmanager
def stopped(broker: RestartableValkey) -> Iterator[None]:
    """The process stands still, with all its connections open."""
    broker.process.send_signal(signal.SIGSTOP)
    yield
    broker.process.send_signal(signal.SIGCONT)


@contextmanager
def refusing(broker: RestartableValkey) -> Iterator[None]:
    """The process answers, and refuses each write, as with a full disk."""
    with redis.Redis.from_url(broker.url) as client:
        client.config_set("min-replicas-to-write", 1)
        yield
        client.config_set("min-replicas-to-write", 0)


OUTAGES: Final = [
    pytest.param(outage, queue, concurrency, id=f"{outage.__name__} {queue} {concurrency}")
    for outage, queue, concurrency in (
        (killed, contract.QUEUE_INDEX, 1),
        (killed, contract.QUEUE_INDEX, 2),
        (killed, contract.QUEUE_SCHEDULES, 2),  # threads
        (stopped, contract.QUEUE_INDEX, 1),
        (stopped, contract.QUEUE_SCHEDULES, 2),
        (refusing, contract.QUEUE_INDEX, 2),
    )
]


def noticed(worker: GatedWorker) -> None:
    """Wait until the worker has met the outage."""
    wait_until(lambda: any(text in worker.log() for text in NOTICED), "the worker meets the outage")


def takes_as_many_tasks(worker: GatedWorker, concurrency: int) -> bool:
    """Return whether the same worker still has each of its places, once as many tasks have begun and ended.

    Raises `AssertionError` when they do not begin, or do not end.
    """
    later = [f"later-{number}" for number in range(concurrency)]
    worker.send(*later)
    worker.wait_begun(*later)
    worker.open(*later)
    worker.wait_ended(*later)
    return worker.process.poll() is None


@pytest.mark.parametrize(("outage", "queue", "concurrency"), OUTAGES)
def test_tasks_that_end_during_an_outage_leave_the_worker_all_its_places(
    tmp_path: Path, outage: Outage, queue: str, concurrency: int
) -> None:
    """Given a worker without a free place, when its tasks end while the broker is away, then it takes as many again."""
    first = [f"first-{number}" for number in range(concurrency)]
    with (
        RestartableValkey() as broker,
        GatedWorker(tmp_path, broker.url, queue=queue, concurrency=concurrency) as worker,
    ):
        worker.send(*first)
        worker.wait_begun(*first)
        with outage(broker):
            worker.open(*first)
            worker.wait_ended(*first)
            noticed(worker)
        assert takes_as_many_tasks(worker, concurrency)


@pytest.mark.parametrize(("outage", "queue", "concurrency"), OUTAGES)
def test_tasks_that_outlast_an_outage_leave_the_worker_all_its_places(
    tmp_path: Path, outage: Outage, queue: str, concurrency: int
) -> None:
    """Given a task that began before an outage and ends after it, then the worker takes as many as before."""
    with (
        RestartableValkey() as broker,
        GatedWorker(tmp_path, broker.url, queue=queue, concurrency=concurrency) as worker,
    ):
        worker.send(LONG)
        worker.wait_begun(LONG)
        with outage(broker):
            if concurrency > 1:  # a worker without a free place asks for nothing
                noticed(worker)
        worker.open(LONG)
        worker.wait_ended(LONG)
        assert takes_as_many_tasks(worker, concurrency)


@pytest.mark.parametrize("limit_seconds", [1, 60], ids=["at its time limit", "by a signal"])
def test_a_child_that_is_killed_during_an_outage_leaves_the_worker_its_place(
    tmp_path: Path, limit_seconds: int
) -> None:
    """Given a child that dies while its message cannot be put back, then its place is given to another task."""
    with (
        RestartableValkey() as broker,
        GatedWorker(tmp_path, broker.url, limit_seconds=limit_seconds) as worker,
    ):
        worker.send(LONG)
        worker.wait_begun(LONG)
        with killed(broker):
            if limit_seconds > 1:
                os.kill(worker.begun(LONG)[0], signal.SIGKILL)
            noticed(worker)
        worker.open(LONG)
        assert takes_as_many_tasks(worker, 1)


def test_children_that_stand_still_during_an_outage_go_on_after_it(tmp_path: Path) -> None:
    """Given all children of a worker stopped while the broker is killed, when all go on, then more tasks are taken."""
    first = ["first-0", "first-1"]
    with RestartableValkey() as broker, GatedWorker(tmp_path, broker.url, concurrency=2) as worker:
        worker.send(*first)
        worker.wait_begun(*first)
        children = [worker.begun(name)[0] for name in first]
        for child in children:
            os.kill(child, signal.SIGSTOP)
        with killed(broker):
            for child in children:
                os.kill(child, signal.SIGCONT)
            worker.open(*first)
            worker.wait_ended(*first)
            noticed(worker)
        assert takes_as_many_tasks(worker, 2)


def test_what_was_accepted_is_searchable_after_an_outage_at_each_step_of_a_task(tmp_path: Path) -> None:
    """Given a broker that is killed at one step after the other, when it is back, then all goes on with all workers."""
    environment = {"REVERIE_EMBEDDING_PROVIDER": "hash", "REVERIE_SWEEP_INTERVAL_SECONDS": "2"}
    with (
        RestartableValkey() as broker,
        Stack(env=environment, broker=broker.url, prefix=(*steps.PREFIX, str(tmp_path))) as stack,
    ):

        def notices() -> int:
            return sum(log.read_text("utf-8").count(text) for log in stack.data.glob("logs/*.log") for text in NOTICED)

        accepted, workers = Accepted(stack), stack.processes()
        for step in steps.STEPS:
            seen, place = notices(), steps.kill_at(step, tmp_path, broker.process.pid)
            contents = [f"the lantern at the step {step}"]
            with suppress(Unavailable):  # a sweep came to the step first
                accepted.send(contents)
                contents = []
            wait_until(lambda: not place.exists() and notices() > seen, f"a worker meets the outage at {step}")  # noqa: B023
            broker.kill()
            broker.start()
            if contents:
                accepted.send(contents)
        assert accepted.await_searchable(PATIENCE_SECONDS) is not None
        assert stack.processes() == workers
