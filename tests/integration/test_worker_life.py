"""Workers that live and take no tasks, and children of a pool that stand still: each is noticed and replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import psutil
import pytest
import redis
from kombu import Connection

from adapters.broker.monitor import Monitor
from benchmarks.faults.accepted import Accepted
from benchmarks.harness.stack import Stack
from memory.pipeline.faults import find_faults
from reverie import contract
from reverie.pipeline.status import PipelineStatus
from support.broker import RestartableValkey
from support.forks import Program
from support.gated_worker import PATIENCE_SECONDS, TASK, GatedWorker, wait_until
from support.ports import free_port
from worker.consumer import Transport

# What the status calls a fault comes sooner than after 20 s, and what a worker ends itself for sooner than after 40 s.
# Between them is a heartbeat, one of which comes every five seconds.
FAULT_SECONDS: Final = 6.0
SOON: Final = """
from worker import consumption
consumption._END_SECONDS = 20
"""
# A child that gives no sign is killed sooner than after 30 s.
IMPATIENT: Final = """
from worker.supervision import alive_signs
alive_signs._CHILD_SILENT_SECONDS = 15
"""
# No place is ever freed from the moment at which a file is there, as when acknowledgements are lost.
DEAF: Final = """
from worker import consumer
consumer.Transport.brpop_timeout = 1  # such a worker ends itself within seconds
consumer._Acknowledging.can_consume = lambda self: not (folder / "deaf").exists()
"""
# The loop stands still, as in a call without a time limit.
BLOCKED: Final = """
from worker import consumer
turn = consumer.QueueConsumer._note_turn
def note_turn(self):
    turn(self)
    while (folder / "deaf").exists():
        time.sleep(0.1)
consumer.QueueConsumer._note_turn = note_turn
"""

STUCK: Final = """
import sys, time
from pathlib import Path
stuck = Path(sys.argv[1]) / "stuck"
def wait():
    while stuck.exists():
        time.sleep(0.1)
"""
# Processes without a pool whose own loop can be made to stand still.
LOOPS: Final = {
    "beat": """
from worker import beat
from worker.running import run_beat
from worker.settings import load_settings
beat.CatchUpScheduler._follow_clock = lambda self: wait()
run_beat(load_settings())
""",
    "server": """
from server import __main__ as module
turn = module._Server.on_tick
async def on_tick(self, counter):
    wait()
    return await turn(self, counter)
module._Server.on_tick = on_tick
module.main()
""",
    "broker-sync": """
from worker.supervision import broker_sync
broker_sync.flush_changed = lambda *_: wait() or {}
broker_sync.main(sys.argv[1])
""",
}

# Runs `reverie up` so that its workers, which are forks, can be made deaf, and find out within seconds.
UP: Final = f"""
import runpy, sys
from pathlib import Path
from worker import consumption
folder, sys.argv = Path(sys.argv[1]), sys.argv[4:]
consumption._END_SECONDS = 4
{DEAF}
runpy.run_module("cli", run_name="__main__", alter_sys=True)
"""


def faults(monitor: Monitor) -> list[str]:
    parts = {"workers": monitor.workers(), "queues": monitor.queue_depths(), "at": datetime.now(UTC)}
    found = find_faults(Mock(spec=PipelineStatus, broker="up", inboxes=[], jobs={}, stages={}, **parts))
    return [fault for fault in found if not fault.startswith(("beat", "no worker takes tasks"))]


def expect_a_deaf_worker_is_a_fault_and_ends(folder: Path, *, concurrency: int, queue: str, before: str) -> None:
    with (
        RestartableValkey() as broker,
        redis.Redis.from_url(broker.url) as client,
        GatedWorker(folder, broker.url, queue=queue, concurrency=concurrency, before=SOON + before) as worker,
    ):
        monitor = Monitor(client, prefix=contract.DEFAULT_PREFIX)
        worker.open("first")
        worker.send("first")
        worker.wait_ended("first")
        assert faults(monitor) == []
        (folder / "deaf").touch()
        worker.send("second")
        wait_until(lambda: faults(monitor), "the fault is seen", 45)
        assert f"(pid {worker.process.pid} on " in faults(monitor)[0]
        assert "has taken no task for" in faults(monitor)[0]
        assert worker.process.wait(60) == os.EX_TEMPFAIL
        assert "worker_takes_no_tasks" in worker.log()


@pytest.fixture
def fault_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status calls a worker that takes no tasks a fault after some seconds."""
    monkeypatch.setattr("memory.pipeline.faults.STALLED_SECONDS", FAULT_SECONDS)


@pytest.mark.usefixtures("fault_comes_soon")
def test_a_worker_whose_places_are_never_freed_is_a_fault_and_ends(tmp_path: Path) -> None:
    """Given a worker that lives, beats and takes nothing, then the status names it, and it ends within a minute."""
    expect_a_deaf_worker_is_a_fault_and_ends(tmp_path, concurrency=2, queue=contract.QUEUE_INDEX, before=DEAF)


@pytest.mark.usefixtures("fault_comes_soon")
def test_a_worker_whose_loop_stands_still_is_a_fault_and_ends(tmp_path: Path) -> None:
    """Given a worker with threads whose event loop hangs, then the status names it, and it ends within a minute."""
    expect_a_deaf_worker_is_a_fault_and_ends(tmp_path, concurrency=2, queue=contract.QUEUE_SCHEDULES, before=BLOCKED)


def test_a_worker_grows_while_tasks_wait(tmp_path: Path) -> None:
    """Given one process that may become three, when three tasks are sent, then each begins before another has ended."""
    names = ("one", "two", "three")
    with RestartableValkey() as broker, GatedWorker(tmp_path, broker.url, autoscale=3) as worker:
        worker.send(*names)
        worker.wait_begun(*names)
        assert len({pid for name in names for pid in worker.begun(name)}) == 3
        worker.open(*names)
        worker.wait_ended(*names)


def test_plain_workers_are_told_apart_and_those_with_one_name_are_a_fault(tmp_path: Path) -> None:
    """Given three workers of `celery -A worker.app`, two with one name, then each name is shown, and the fault told.

    Each line of their logs is JSON, from the first to the last.
    """
    logs = {number: tmp_path / f"{number}.log" for number in range(3)}
    with RestartableValkey() as broker, redis.Redis.from_url(broker.url) as client, ExitStack() as running:
        monitor = Monitor(client, prefix=contract.DEFAULT_PREFIX)
        environment = {**os.environ, "REVERIE_DATA": str(tmp_path / "data"), "REVERIE_BROKER": broker.url,
                       "REVERIE_EMBEDDING_PROVIDER": "none", "PYTHONPATH": ":".join(sys.path)}  # fmt: skip
        workers = []
        for number, log in logs.items():
            name = "other" if number == 0 else "extra"
            argv = [sys.executable, "-m", "celery", "-A", "worker.app", "worker", "-n", f"{name}@here", "-l", "INFO"]
            if number == 0:
                argv += [f"--logfile={log}"]
            output = running.enter_context((tmp_path / "output" if number == 0 else log).open("wb"))
            workers.append(subprocess.Popen([*argv, "-c", "1"], env=environment, stdout=output, stderr=output))
            running.callback(workers[-1].kill)
        names = {"other@here", "extra@here"}
        wait_until(lambda: {worker.name for worker in monitor.workers()} == names, "both names are shown")
        wait_until(lambda: any("two workers" in fault for fault in faults(monitor)), "the fault is told")
        (fault,) = faults(monitor)
        assert all(f"pid {worker.pid} on " in fault for worker in workers[1:])
        workers[1].terminate()
        workers[1].wait(60)
        wait_until(lambda: faults(monitor) == [], "the fault has gone")
        for worker in workers:
            worker.terminate()
            worker.wait(60)
    for log in logs.values():
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        assert lines[0]["process"].endswith("@here")
        assert {"worker: Warm shutdown (MainProcess)"} <= {line["event"] for line in lines}
    assert "worker_name_is_taken" in logs[1].read_text("utf-8") + logs[2].read_text("utf-8")


@pytest.mark.parametrize("code", LOOPS.values(), ids=LOOPS)
def test_a_process_whose_loop_stands_still_gives_its_supervisor_no_sign(code: str, tmp_path: Path) -> None:
    """Given beat, the server or the sync of the broker, when its loop stands still, then its signs of life end."""
    sign = tmp_path / "alive"
    with RestartableValkey() as broker:
        environment = {**os.environ, "REVERIE_DATA": str(tmp_path), "REVERIE_BROKER": broker.url,
                       "REVERIE_EMBEDDING_PROVIDER": "none", "REVERIE_PORT": str(free_port()),
                       "REVERIE_ALIVE_FILE": str(sign), "PYTHONPATH": ":".join(sys.path)}  # fmt: skip
        process = Program(STUCK + code, [str(tmp_path)], environment, tmp_path / "log")
        try:
            wait_until(sign.exists, "the first sign")
            first = sign.stat().st_mtime_ns
            wait_until(lambda: sign.stat().st_mtime_ns != first, "another sign")
            (tmp_path / "stuck").touch()
            wait_until(lambda: time.time() - sign.stat().st_mtime > 8, "the signs end", 40)
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()


def test_a_worker_that_ended_because_it_was_deaf_is_started_again(tmp_path: Path) -> None:
    """Given workers of `reverie up` that go deaf, then they are started again, and do what was sent meanwhile."""
    prefix = (sys.executable, "-c", UP, str(tmp_path))
    with Stack(env={"REVERIE_EMBEDDING_PROVIDER": "hash"}, prefix=prefix) as stack:
        accepted, before = Accepted(stack), {worker.name: worker.pid for worker in stack.processes()}
        (tmp_path / "deaf").touch()
        accepted.send(["the lantern"])
        wait_until(lambda: f"pipeline died (exit code {os.EX_TEMPFAIL})" in stack.output(), "the worker is restarted")
        (tmp_path / "deaf").unlink()
        assert accepted.await_searchable(PATIENCE_SECONDS) is not None
        assert {worker.name: worker.pid for worker in stack.processes()}["pipeline"] != before["pipeline"]


def test_a_child_that_stands_still_in_a_task_is_replaced_and_the_others_go_on(tmp_path: Path) -> None:
    """Given one of two children stopped in its task, then the other works on, and the task is done by a new child."""
    with RestartableValkey() as broker, GatedWorker(tmp_path, broker.url, concurrency=2, before=IMPATIENT) as worker:
        worker.send("stopped")
        worker.wait_begun("stopped")
        child = worker.begun("stopped")[0]
        os.kill(child, signal.SIGSTOP)
        worker.open("stopped", "other")
        worker.send("other")
        worker.wait_ended("other")
        assert psutil.pid_exists(child)
        wait_until(lambda: len(worker.begun("stopped")) == 2, "the task begins again", 60)
        worker.wait_ended("stopped")
        assert not psutil.pid_exists(child)
        assert "pool_child_stopped" in worker.log()
        assert worker.process.poll() is None


def test_a_child_that_stands_still_without_a_task_is_replaced(tmp_path: Path) -> None:
    """Given the only child stopped between two tasks, then the next one is done by a new child of the same worker."""
    with RestartableValkey() as broker, GatedWorker(tmp_path, broker.url, before=IMPATIENT) as worker:
        worker.open("first", "second")
        worker.send("first")
        worker.wait_ended("first")
        os.kill(worker.begun("first")[0], signal.SIGSTOP)
        worker.send("second")
        worker.wait_ended("second")
        assert worker.begun("second") != worker.begun("first")
        assert worker.process.poll() is None


def test_a_child_that_dies_in_its_task_is_told_with_its_task(tmp_path: Path) -> None:
    """Given a child that is killed twice in its task, then each death is told, and the second one is a fault."""
    with (
        RestartableValkey() as broker,
        redis.Redis.from_url(broker.url) as client,
        GatedWorker(tmp_path, broker.url) as worker,
    ):
        monitor = Monitor(client, prefix=contract.DEFAULT_PREFIX)
        worker.send("deadly")
        for deaths in (1, 2):
            wait_until(lambda deaths=deaths: len(worker.begun("deadly")) == deaths, "the task begins")
            assert faults(monitor) == []
            os.kill(worker.begun("deadly")[-1], signal.SIGKILL)
            wait_until(lambda deaths=deaths: len(monitor.workers()[0].deaths) == deaths, "the death is told")
        assert {death.task for death in monitor.workers()[0].deaths} == {TASK}
        assert ["in test-gated (2 deaths lately)" in fault for fault in faults(monitor)] == [True]


def test_a_task_that_fails_is_no_progress(tmp_path: Path) -> None:
    """Given tasks that fail at once, as those of a store whose database is away, then only others are counted."""
    fails = "def note(what, name):\n    assert name != 'failing'\n    (folder / what).open('a').write(f'{name} 0\\n')"
    with (
        RestartableValkey() as broker,
        redis.Redis.from_url(broker.url) as client,
        GatedWorker(tmp_path, broker.url, before=fails) as worker,
    ):
        monitor = Monitor(client, prefix=contract.DEFAULT_PREFIX)
        worker.open("failing", "other")
        worker.send("failing", "failing", "other")
        worker.wait_ended("other")
        wait_until(lambda: monitor.workers() and monitor.workers()[0].tasks_done, "the task is counted")
        assert monitor.workers()[0].tasks_done == 1
        assert worker.log().count("task_crashed") == 2


@pytest.mark.parametrize(("queues_expire", "wakes"), [(False, False), (True, True)])
def test_no_timer_wakes_a_worker_every_second_for_queues_that_expire_if_there_are_none(
    queues_expire: bool, wakes: bool
) -> None:
    """Given a connection of a worker, then only remote control, whose queues expire, has a timer of a second."""
    loop, timers = Mock(), dict[float, list[Mock]]()

    def call_repeatedly(seconds: float, *_: object) -> Mock:
        timers.setdefault(seconds, []).append(Mock(cancel=Mock()))
        return timers[seconds][-1]

    loop.call_repeatedly = call_repeatedly
    connection = Connection("redis://127.0.0.1:1/0")
    transport = type("_Transport", (Transport,), {"consumption": Mock(), "queues_expire": queues_expire})(connection)
    transport.register_with_event_loop(Mock(client=connection), loop)
    assert any(not timer.cancel.called for timer in timers[1]) is wakes
    assert all(not timer.cancel.called for seconds, several in timers.items() if seconds != 1 for timer in several)
