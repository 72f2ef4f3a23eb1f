"""Measure what very many workspaces cost: created, listed, looked at, left idle for a day, and recalled in turn.

The day is not waited for. Each periodic job is run with the clock set ahead by its period each time: until it finds
nothing more, as after an upgrade; then in a new process, as after a restart; then often enough to know what a run costs
when nothing has changed; and a week later, when all workspaces are looked at again in any case. A day has as many runs
as the period makes, a seventh of the weekly look, and two restarts. Workers and server share what they know of the
workspaces in the same way as in operation.
"""

from __future__ import annotations

import argparse
import os
import resource
import secrets
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from beat_schedule import PERIODIC_JOBS, PeriodicJob
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, rounded
from benchmarks.harness.texts import Texts, load_texts
from memory.idle_stores import KEEP_SECONDS, IdleFiles, IdleStores
from memory.pipeline.broker_status import read_broker
from memory.sessions.sessions import list_workspaces
from memory.status import StatusReader
from retrieval.query import RecallRequest
from reverie import contract
from reverie.clock import now_micros
from reverie.contract import MessagePayload
from server.metrics import Metrics
from storage.stores import Stores
from storage.written import LOOK_SECONDS, WrittenStores
from worker import app as worker_app
from worker.job_runs import registered_jobs
from worker.runtime import Runtime
from worker.settings import load_settings
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.embedded_broker import broker_command, wait_until_ready

DAY_SECONDS: Final = 86_400
# In microseconds, as all times of the product.
SECOND: Final = 1_000_000
_RESTARTS_A_DAY: Final = 2
_DAYS_BETWEEN_LOOKS: Final = 7
_IDLE_RUNS: Final = 5
# A run that takes more CPU time than the first number still finds work. After the second, it counts as the usual one.
_SETTLED_SECONDS: Final = 0.3
_MOST_SECONDS: Final = 600.0


class SimulatedTime(Runtime):
    """A runtime whose clock is set ahead. Its jobs trust the clock at once, which otherwise they do after a while."""

    def steady(self) -> int:
        """Return the simulated time in microseconds, as if all of it had passed: so the clock was never set."""
        return self.clock()

    @cached_property
    def idle_stores(self) -> IdleStores:
        """The idle stores as in operation, except that they are written to their file by the simulated time."""
        folder = self.settings.data / "run" / "idle"
        return IdleStores(IdleFiles(folder, "simulated", monotonic=lambda: self.clock() / SECOND))


@dataclass(slots=True)
class JobCost:
    """CPU seconds of one job, which runs every `every` seconds."""

    every: float
    # The sum of the runs until the first that finds nothing.
    first: float = 0.0
    # One run when nothing has changed.
    usual: float = 0.0
    # The sums of the runs a week later, and in a new process, until the first that finds nothing.
    weekly: float = 0.0
    restart: float = 0.0

    @property
    def of_a_day(self) -> float:
        """The cost of a day with two restarts."""
        runs = self.usual * DAY_SECONDS / self.every
        return runs + self.weekly / _DAYS_BETWEEN_LOOKS + self.restart * _RESTARTS_A_DAY


class IdleDay:
    """Runs the periodic jobs of a runtime on a clock that it sets ahead. `start` is in microseconds.

    `runtime` is the present one: a restart closes it and makes another. The caller closes the last one.
    """

    def __init__(self, runtime: SimulatedTime, start: int, tell: Progress) -> None:
        self.runtime = runtime
        self.costs: dict[str, JobCost] = {}
        self._now = start
        self._tell = tell
        self._follow_clock()

    def measure(self) -> None:
        """Fill `costs`, by the name of each job's task."""
        for job in PERIODIC_JOBS:
            cost = self.costs[job.task] = JobCost(job.every(self.runtime.settings).total_seconds())
            cost.first = self._until_settled(job, cost.every)
            if cost.every < KEEP_SECONDS:  # what a frequent job finds is written only every few minutes
                self._run(job, KEEP_SECONDS)
            # Restart for each job, not once after all: the runs of daily jobs take more than a week of simulated time,
            # after which every workspace is looked at again.
            self._restart()
            cost.restart = self._until_settled(job, cost.every)
            cost.usual = statistics.median(self._run(job, cost.every) for _ in range(_IDLE_RUNS))
            self._tell(
                f"{job.task}: first {cost.first:.2f} s, then {cost.usual * 1e3:.2f} ms,"
                f" after a restart {cost.restart:.2f} s"
            )
        self._now += (_DAYS_BETWEEN_LOOKS * DAY_SECONDS + 1) * SECOND
        for job in PERIODIC_JOBS:
            cost = self.costs[job.task]
            cost.weekly = self._until_settled(job, cost.every)
            self._tell(f"{job.task}: a week later {cost.weekly:.2f} s")

    def pass_one(self) -> None:
        """Let a day pass, and run every job once."""
        self._now += (DAY_SECONDS + 1) * SECOND
        for job in PERIODIC_JOBS:
            self._run(job, 0.0)

    def looking(self) -> float:
        """Return the CPU seconds of looking at the file of every workspace once."""
        names = self.runtime.stores.names()
        cpu = time.process_time()
        for name in names:
            self.runtime.stores.stamp(name)
        return time.process_time() - cpu

    def _until_settled(self, job: PeriodicJob, every: float) -> float:
        """Run a job until a run finds nothing more, and return the CPU seconds of all runs."""
        costs = [self._run(job, every)]
        # A new process that has much to look at needs several runs.
        while costs[-1] > _SETTLED_SECONDS and sum(costs) < _MOST_SECONDS:
            costs.append(self._run(job, every))
        return sum(costs)

    def _run(self, job: PeriodicJob, every: float) -> float:
        """Run a job `every` seconds later, and return its CPU seconds."""
        self._now += int((every + 1) * SECOND)
        cpu = time.process_time()
        with worker_app.use_runtime(self.runtime):
            registered_jobs[job.task].run(self.runtime, manual=False)
        return time.process_time() - cpu

    def _restart(self) -> None:
        self.runtime.close()
        self.runtime = SimulatedTime(self.runtime.settings)
        self._follow_clock()

    def _follow_clock(self) -> None:
        runtime = self.runtime
        runtime.clock = lambda: self._now
        runtime.schedules.waits_for_due = False
        runtime.stores.written = WrittenStores(
            runtime.settings.data, runtime.stores.names, runtime.stores.stamp, monotonic=lambda: self._now / SECOND
        )


_AGENT: Final = "bench"
_TEMPLATE: Final = "template"
_LARGE: Final = "large"
# In most of the workspaces; those that are recalled in turn have more.
_MESSAGES: Final = 20
# How long the workspaces have been idle when the day begins.
_DAYS_BEFORE: Final = 4
# Processes that look for what was written: maintenance, two for schedules, and the server.
_LOOKING_PROCESSES: Final = 4
_MOST_DAYS_TO_SETTLE: Final = 7
_GOAL_SHARE: Final = 0.01
_GOAL_TURN: Final = 1.5
# The tasks of the stages that a message goes through.
_STAGES: Final = (
    contract.INGEST_MESSAGES,
    contract.CHUNK_MESSAGES,
    contract.EMBED_CHUNKS,
    contract.INDEX_CHUNKS,
)
# Where `PRAGMA application_id` is in the header of a file: each copy is a store of its own.
_IDENTITY: Final = slice(68, 72)


def main() -> None:
    """Measure and write the result."""
    options = _options()
    count = int(value_or_default(options.workspaces, quick=options.quick, tiny=24, full=10_000))
    in_turn = int(value_or_default(options.in_turn, quick=options.quick, tiny=8, full=200))
    texts = load_texts(options.data, 400 if not options.quick else 60, seed=options.seed)
    result = Result.of("workspaces", options)
    result.settings.update(workspaces=count, in_turn=in_turn, messages_each=len(texts.turns))
    tell = Progress()
    worker_app.app.loader.import_default_modules()  # the tasks
    with tempfile.TemporaryDirectory(prefix="rvb-") as name, _broker(Path(name)) as broker:
        runtime = _runtime(Path(name) / "data", broker)
        with worker_app.use_runtime(runtime):
            _create(runtime, count, result)
            tell.step("a workspace created by the product, many times")
            _fill(runtime, _TEMPLATE, texts.payloads(agent=_AGENT)[:_MESSAGES])
            _fill(runtime, _LARGE, texts.payloads(agent=_AGENT))
            _copy(runtime.settings.data, _TEMPLATE, [f"w{number:05d}" for number in range(count - in_turn)])
            _copy(runtime.settings.data, _LARGE, [f"large{number:05d}" for number in range(in_turn)])
            runtime.close()
        runtime = _runtime(Path(name) / "data", broker)
        with worker_app.use_runtime(runtime):
            tell.step(f"{count:,} workspaces with messages")
            _measure_reading(runtime, result)
            tell.step("listing, status and metrics")
            runtime = _measure_day(runtime, result, tell)
            _measure_recall(runtime, texts, in_turn, result)
        runtime.close()
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("workspaces", __doc__)
    options.add_argument("--workspaces", type=int, help="how many there are (10,000)")
    options.add_argument("--in-turn", type=int, help="how many are recalled in turn (200)")
    return options.parse_args()


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    process = subprocess.Popen(broker_command(folder), stdout=subprocess.DEVNULL)
    try:
        url = embedded_broker_url(folder)
        wait_until_ready(url, 20)
        yield url
    finally:
        process.kill()
        process.wait()


def _runtime(data: Path, broker: str) -> SimulatedTime:
    return SimulatedTime(load_settings(data=data, broker=broker, embedding_provider="hash"))


def _create(runtime: Runtime, count: int, result: Result) -> None:
    """Measure how long the product takes for a new workspace."""
    created = min(count, 200)
    began, cpu = time.perf_counter(), time.process_time()
    for number in range(created):
        runtime.stores.workspace(f"new{number:05d}")
    result.add("create", rounded((time.perf_counter() - began) / created * 1e3), "ms")
    result.add("create_cpu", rounded((time.process_time() - cpu) / created * 1e3), "ms")
    for number in range(created):
        runtime.stores.delete_workspace(f"new{number:05d}")


def _fill(runtime: Runtime, workspace: str, payloads: Sequence[MessagePayload]) -> None:
    """Take messages through the whole pipeline into one workspace."""
    runtime.inbox.accept(workspace, payloads)
    for task in _STAGES:
        for _ in range(4):
            worker_app.app.tasks[task].body(workspace=workspace)
    began = now_micros()
    for day in range(1, _DAYS_BEFORE):  # until the jobs have extracted, summarised and closed what there is
        runtime.clock = partial(_later, began, day)
        for periodic in PERIODIC_JOBS:
            registered_jobs[periodic.task].run(runtime, manual=True)
    runtime.stores.workspace(workspace).database.truncate_log()


def _later(began: int, days: int) -> int:
    return began + days * DAY_SECONDS * SECOND


def _copy(data: Path, template: str, names: Sequence[str]) -> None:
    content = bytearray((data / "workspaces" / template / "memory.db").read_bytes())
    long_ago = time.time() - 2 * DAY_SECONDS
    for name in names:
        content[_IDENTITY] = (1 + secrets.randbelow(2**31 - 1)).to_bytes(4, "big")
        folder = data / "workspaces" / name
        folder.mkdir(mode=0o700)
        path = folder / "memory.db"
        path.write_bytes(content)
        os.utime(path, (long_ago, long_ago))


def _measure_reading(runtime: Runtime, result: Result) -> None:
    """Time the answers that users and monitoring ask for, first as in a new process and then again."""
    reader = StatusReader(runtime.stores, partial(read_broker, runtime.inbox, runtime.monitor), runtime.embedder)
    metrics = Metrics(lambda: reader.read(now=now_micros()))
    asked: dict[str, Callable[[], Any]] = {
        "start": lambda: Stores(runtime.settings.data).account(),
        "names": runtime.stores.names,
        "page_of_workspaces": lambda: list_workspaces(runtime.stores, now=now_micros(), limit=50, offset=0),
        "status": lambda: reader.read(now=now_micros()),
        "status_again": lambda: reader.read(now=now_micros()),
        "metrics": metrics.text,
    }
    for name, ask in asked.items():
        began = time.perf_counter()
        ask()
        result.add(name, rounded((time.perf_counter() - began) * 1e3), "ms")
    result.goals.append(
        Goal(what="the first status", relation="<", goal=5_000, figure=result.figures["status"], unit="ms")
    )


def _measure_day(runtime: SimulatedTime, result: Result, tell: Progress) -> SimulatedTime:
    """Add up the CPU time of a day without activity, and what has grown; return the runtime after the last restart."""
    day = IdleDay(runtime, _later(now_micros(), _DAYS_BEFORE), tell)
    day.measure()
    for task, cost in day.costs.items():
        result.add(task.removeprefix("reverie."), rounded(cost.of_a_day), "CPU s a day")
    looking = day.looking() * _LOOKING_PROCESSES * DAY_SECONDS / LOOK_SECONDS
    result.add("looking_at_all_files", rounded(looking), "CPU s a day")
    total = looking + sum(cost.of_a_day for cost in day.costs.values())
    # The simulated days before give jobs work, such as a dream about what was recalled, and other jobs then look at
    # what it wrote. After some days nothing more may be written.
    for _ in range(_MOST_DAYS_TO_SETTLE):
        before = _sizes(runtime.settings.data)
        day.pass_one()
        grown = sum(1 for path, size in _sizes(runtime.settings.data).items() if size != before.get(path))
        if not grown:
            break
    result.add("idle_day", rounded(total), "CPU s")
    result.add("after_an_upgrade", rounded(sum(cost.first for cost in day.costs.values())), "CPU s, once")
    result.add("workspaces_written", grown)
    share = rounded(total / DAY_SECONDS)
    result.goals += [
        Goal(what="share of a core that idle workspaces cost", relation="<", goal=_GOAL_SHARE, figure=share),
        Goal(what="workspaces that a round of all jobs wrote", relation="==", goal=0, figure=float(grown)),
    ]
    return day.runtime


def _sizes(data: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in (data / "workspaces").glob("*/memory.db"):
        state = path.stat()
        found[path.parent.name] = (state.st_size, state.st_mtime_ns)
    return found


def _measure_recall(runtime: Runtime, texts: Texts, in_turn: int, result: Result) -> None:
    """Compare recalls of many workspaces in turn with as many of one."""
    names = [name for name in runtime.stores.names() if name.startswith(_LARGE) and name != _LARGE][:in_turn]
    queries = [turn.text for turn in texts.turns]

    def recall(name: str, number: int) -> float:
        began = time.perf_counter()
        runtime.recaller.recall(name, RecallRequest(query=queries[number % len(queries)], agent=_AGENT))
        return (time.perf_counter() - began) * 1e3

    for number, name in enumerate(names):  # the first recall of each makes its index
        recall(name, number)
    one = statistics.median(recall(names[0], number) for number in range(2 * in_turn))
    many = statistics.median(recall(names[number % in_turn], number) for number in range(2 * in_turn))
    result.add("recall_of_one", rounded(one), "ms")
    result.add("recall_in_turn", rounded(many), "ms")
    result.add("open_files", len(list(Path("/proc/self/fd").glob("*"))))
    result.add("peak_memory", rounded(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), "MiB")
    what = f"recall of {in_turn} workspaces in turn, against one"
    result.goals.append(Goal(what=what, relation="<=", goal=_GOAL_TURN, figure=rounded(many / one), unit="times"))


if __name__ == "__main__":
    run(main)
