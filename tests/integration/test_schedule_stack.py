"""Schedules on the real stack, with receivers of every bad kind: each fails for itself, and the good ones go on."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from benchmarks.harness.stack import Stack
from reverie import Reverie, ScheduleRun
from storage.stores import Stores
from support.agents import until
from support.ports import free_port
from support.quick_schedules import ATTEMPTS, DISABLED_AFTER, PREFIX, WEBHOOK_SECONDS
from support.receiver import Receiver, Talk, receiving, talking

SECRET = "whsec_" + "cmV2ZXJpZSB0ZXN0cyBzaWduIGJ5IHRoaXMga2V5IQ=="
WORKSPACE = "stack"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Everything that `reverie up` starts, where schedules may fire every second and give up soon."""
    settings = {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "REVERIE_EMBEDDING_PROVIDER": "hash",
        "REVERIE_WEBHOOK_ALLOW_PRIVATE": "127.0.0.1",
        "REVERIE_WEBHOOK_SECRET": SECRET,
    }
    with Stack(env=settings, prefix=PREFIX) as running:
        assert running.wait_server(180)
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Reverie]:
    """The client of an agent of its own."""
    with Reverie(f"ana-{os.urandom(4).hex()}", url=stack.url, workspace=WORKSPACE) as reverie:
        yield reverie


def every_second(client: Reverie, url: str, **more: Any) -> str:
    return client.schedules.add("look after the plants", every=1, webhook=url, **more).id


def all_runs(client: Reverie, schedule: str) -> list[ScheduleRun]:
    """All runs of a schedule, the oldest first."""
    found: list[ScheduleRun] = []
    while page := client.runs.list(schedule, limit=100, offset=len(found)):
        found += page
    return found[::-1]


def stop(client: Reverie, schedule: str) -> list[ScheduleRun]:
    """Pause a schedule, wait for the end of what is under way, and return all its runs."""
    client.schedules.pause(schedule)
    until(
        lambda: all(run.status not in ("pending", "running") for run in client.runs.list(schedule, limit=2)),
        "a run does not end",
    )
    return all_runs(client, schedule)


def move_to(stack: Stack, schedule: str, url: str) -> None:
    """Have a schedule go to an address that was allowed when it was made, and is not any more."""
    stores = Stores(stack.data)
    with stores.workspace(WORKSPACE).writing() as tx:
        executor = json.dumps({"type": "webhook", "url": url})
        tx.connection.execute(
            text("UPDATE schedules SET executor = :executor WHERE id = :id"), {"executor": executor, "id": schedule}
        )
    stores.close()


def hanging(good: Receiver, meanwhile: list[int]) -> Talk:
    """A talk that says nothing until the client gives up, and counts what the good receiver got meanwhile."""

    def talk(connection: socket.socket, over: threading.Event) -> None:
        before = len(good.received)
        connection.settimeout(0.02)
        while not over.is_set():
            with suppress(TimeoutError):
                if not connection.recv(1):
                    meanwhile.append(len(good.received) - before)
                    return

    return talk


@contextmanager
def bad_receivers(good: Receiver, meanwhile: list[int]) -> Iterator[dict[str, str]]:
    """A receiver of each bad kind. `meanwhile` gets what the good one got during each call to one that hangs."""
    with ExitStack() as open_ones:

        def receiver(**answer: Any) -> str:
            return open_ones.enter_context(receiving(SECRET, **answer)).url

        yield {
            "hangs": open_ones.enter_context(talking(hanging(good, meanwhile))),
            "runs out of time": open_ones.enter_context(talking(hanging(good, meanwhile))),
            "answers 500": receiver(status=500, content=b"out of order", Content_Type="text/plain"),
            "says too much": receiver(content=b"x" * 10_000_000, Content_Type="text/plain"),
            "invalid JSON": receiver(content=b'{"output": ', Content_Type="application/json"),
            "redirects": receiver(status=302, content=b"", Location="http://10.0.0.1/internal"),
            "refused": receiver(),
            "nobody there": f"http://127.0.0.1:{free_port()}/hook",
        }


# What each run of them ends as, and what its error says.
EXPECTED = {
    "hangs": ("failed", f"did not answer within {WEBHOOK_SECONDS} s"),
    "runs out of time": ("timed_out", "no time is left to try again"),
    "answers 500": ("failed", f"answered 500: out of order ({ATTEMPTS} attempts)"),
    "says too much": ("failed", "1,048,576 bytes"),
    "invalid JSON": ("failed", "JSON that is not a report of a run"),
    "redirects": ("failed", "redirect to http://10.0.0.1/internal: redirects are never followed"),
    "refused": ("failed", "10.1.2.3"),
    "nobody there": ("failed", "refused"),
}


def test_bad_receivers_fail_for_themselves_and_good_ones_fire_to_the_second(stack: Stack, client: Reverie) -> None:
    """Given receivers of every bad kind, then each run of theirs is recorded as failed with its reason and they are
    disabled, while one beside them fires each second: nothing lost, nothing doubled."""
    meanwhile: list[int] = []
    with (
        receiving(SECRET, content=b'{"output": "done"}', Content_Type="application/json") as good,
        bad_receivers(good, meanwhile) as urls,
    ):
        healthy = every_second(client, good.url)
        bad = {
            kind: every_second(client, url, timeout_seconds=WEBHOOK_SECONDS + 1 if kind == "runs out of time" else 60)
            for kind, url in urls.items()
        }
        move_to(stack, bad["refused"], "http://10.1.2.3/hook")
        until(
            lambda: all(client.schedules.get(schedule).status == "disabled" for schedule in bad.values()),
            "not all of them are disabled",
            seconds=240,  # two runs of two attempts
        )
        until(lambda: len(good.received) >= 10, "the good one does not go on")
        runs = stop(client, healthy)

    for kind, schedule in bad.items():
        status, error = EXPECTED[kind]
        failed = all_runs(client, schedule)
        assert len(failed) == DISABLED_AFTER, kind
        for run in failed:
            assert (run.status, run.output) == (status, ""), kind
            assert error in run.error, f"{kind}: {run.error}"
            assert "\n" not in run.error
            assert len(run.error) < 300
            assert run.finished_at is not None
        _assert_nothing_lost(failed)

    assert {run.status for run in runs} == {"success"}
    assert {run.output for run in runs} == {"done"}
    assert _ids(good) == sorted(run.id for run in runs), "each run was sent once"
    _assert_nothing_lost(runs)
    lags = [(run.started_at - run.due_at).total_seconds() for run in runs if run.started_at is not None]
    assert min(lags) >= 0
    # How late runs are is measured by the benchmark `schedules`. Here they must not wait for those that hang.
    assert sum(count > 0 for count in meanwhile) >= DISABLED_AFTER, meanwhile

    notifications = [
        one for one in client.notifications.list(limit=1_000).notifications if one.schedule_id in bad.values()
    ]
    assert sum(one.kind == "disabled" for one in notifications) == len(bad)
    assert sum(one.kind == "run" for one in notifications) == DISABLED_AFTER * len(bad)


def test_a_worker_that_is_killed_over_runs_loses_and_doubles_none(stack: Stack, client: Reverie) -> None:
    """Given SIGKILL of the worker that carries schedules out, while a receiver holds one of its runs, then that run is
    sent again under its id and succeeds once, and those of another schedule go on."""
    held, let_go = threading.Event(), threading.Event()

    def hold_the_first(connection: socket.socket, over: threading.Event) -> None:
        if not held.is_set():
            held.set()
            let_go.wait(60)
            return
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\ndone")

    with receiving(SECRET) as good, talking(hold_the_first) as url:
        try:
            healthy = every_second(client, good.url)
            once = client.schedules.add("only once", every=3_600, webhook=url).id
            run = client.schedules.run_now(once)
            assert held.wait(60)
            (worker,) = [one.pid for one in stack.processes() if one.name == "schedules" and one.pid is not None]
            os.kill(worker, signal.SIGKILL)
        finally:
            let_go.set()
        until(lambda: client.runs.get(run.id).status == "success", "the run is not taken up again")
        before = len(good.received)
        until(lambda: len(good.received) > before + 2, "the other one does not go on")
        runs = stop(client, healthy)

    assert client.runs.get(run.id).output == "done"
    assert len(all_runs(client, once)) == 1
    assert {one.status for one in runs} == {"success"}
    assert set(_ids(good)) == {one.id for one in runs}
    _assert_nothing_lost(runs)


def _ids(receiver: Receiver) -> list[str]:
    """The runs that a receiver got; it has verified what each of them said."""
    ids = [one.headers["webhook-id"] for one in receiver.received]
    assert ids == [one.body["data"]["run_id"] for one in receiver.received]
    return sorted(ids)


def _assert_nothing_lost(runs: list[ScheduleRun]) -> None:
    """Each second between the first and the last is the time of one run, or part of the one after it."""
    for before, after in pairwise(runs):
        assert after.due_at - before.due_at == timedelta(seconds=1 + after.coalesced)
