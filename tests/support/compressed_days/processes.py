"""All processes that fire schedules, on a fast clock, and a plan by which they are killed, paused and restarted.

Three beat processes, two workers and the broker are killed at random times, sometimes all at once. A worker is paused
for longer than its lease and then continues. No process outlives the one that runs the days, to which the kernel ties
them. Call everything from the thread that created the object: a child ends with the thread that started it.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from benchmarks.harness.folders import short_folder
from benchmarks.harness.watch import Watch, watch_workspace
from memory.scheduling.executing import LEASE_MARGIN_SECONDS
from reverie.clock import now_micros, to_micros
from storage.private_files import private_folder
from support.compressed_days.fast_clock import WEBHOOK_SECONDS, FastClock, run_command, set_constants
from support.sending import new_secret
from worker.runtime import Runtime
from worker.settings import PREFIX, Settings
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.embedded_broker import broker_command
from worker.supervision.processes import has_exited, kill_group, spawn

# How long a killed process stays down, drawn each time.
_AWAY_SECONDS: Final = (0.1, 1.2)


@dataclass(frozen=True, slots=True)
class Trouble:
    """An event for a process, in seconds after the start: `kill`, or `stop` for some seconds."""

    at_seconds: float
    name: str
    how: str = "kill"
    seconds: float = 0.0


@dataclass(slots=True)
class Span:
    """The period in which a process was down, in microseconds of the machine's clock; without an end if it still is."""

    name: str
    start: int
    end: int | None = None
    stopped: bool = False


class Fork:
    """A command of `reverie` in a fork of a process that has imported everything: others import it for three seconds.

    It has what is used of `subprocess.Popen`.
    """

    def __init__(self, clock: FastClock, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._process = _FORKS.Process(target=run_command, args=(clock, words, env, log))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        with suppress(ProcessLookupError):
            while os.getpgid(self.pid) != self.pid:  # signals go to the group that it leads
                time.sleep(_POLL_SECONDS)

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, or None while it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """Wait for it to exit; return its exit code."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode


_FORKS: Final = multiprocessing.get_context("forkserver")
_POLL_SECONDS: Final = 0.001


def import_for_forks(env: Mapping[str, str]) -> None:
    """Start the process whose forks run commands: it imports what they need, which depends on the environment."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        _FORKS.set_forkserver_preload(["support.compressed_days.preloaded"])
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    first = _FORKS.Process(target=os.getpid)
    first.start()  # once all is imported
    first.join()


@dataclass(slots=True)
class _Supervised:
    start: Callable[[], Fork | subprocess.Popen[bytes]]
    process: Fork | subprocess.Popen[bytes] | None = None
    start_at: float = 0.0
    resume_at: float | None = None
    away: Span | None = None

    def has_exited(self) -> bool:
        if isinstance(self.process, subprocess.Popen):
            return has_exited(self.process)
        return self.process is not None and self.process.poll() is not None


@dataclass
class KeptProcesses:
    """The processes by name, in the order in which they start. Call `step` often."""

    starts: Mapping[str, Callable[[], Fork | subprocess.Popen[bytes]]]
    logs: Path
    seed: int
    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._supervised = {name: _Supervised(start) for name, start in self.starts.items()}

    def __enter__(self) -> Self:
        for name in self._supervised:
            self._start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for entry in self._supervised.values():
            if entry.process is not None:
                kill_group(entry.process.pid)
                entry.process.wait()

    def carry_out(self, trouble: Trouble) -> bool:
        """Carry out an event. Return False if the process is not running, or is to be paused and already is."""
        entry = self._supervised[trouble.name]
        stop = trouble.how == "stop"
        if entry.process is None or entry.has_exited() or (stop and entry.resume_at is not None):
            return False
        if entry.away is None:
            entry.away = Span(trouble.name, now_micros(), stopped=stop)
            self.spans.append(entry.away)
        if stop:
            os.killpg(entry.process.pid, signal.SIGSTOP)
            entry.resume_at = time.monotonic() + trouble.seconds
        else:
            kill_group(entry.process.pid)
        return True

    def step(self) -> Iterator[str]:
        """Restart what died and resume what was paused, when its time has come. Yield what died by itself."""
        now = time.monotonic()
        for name, entry in self._supervised.items():
            if entry.process is not None and entry.has_exited():
                kill_group(entry.process.pid)  # before its pid, which is also the group's, can be reused
                code = entry.process.wait()
                entry.process, entry.resume_at = None, None
                entry.start_at = now + self._chance.uniform(*_AWAY_SECONDS)
                if entry.away is None:
                    entry.away = Span(name, now_micros())
                    self.spans.append(entry.away)
                    yield f"{name} ended by itself with {code}: see {self.logs / name}.log"
            elif entry.resume_at is not None and entry.resume_at <= now and entry.process is not None:
                os.killpg(entry.process.pid, signal.SIGCONT)
                entry.resume_at = None
                self._back(entry)
            if entry.process is None and entry.start_at <= now:
                self._start(name)

    def _start(self, name: str) -> None:
        entry = self._supervised[name]
        entry.process = entry.start()
        self._back(entry)

    def _back(self, entry: _Supervised) -> None:
        if entry.away is not None:
            entry.away.end, entry.away = now_micros(), None


_ROOT: Final = Path(__file__).resolve().parents[3]
BEATS: Final = ("beat-1", "beat-2", "beat-3")
WORKERS: Final = ("schedules-1", "schedules-2")
BROKER: Final = "broker"
# A worker reports when it is ready, and then has to be sent work. The others take this long until they are connected
# again, or have found the broker.
_FIRST_TASK_MICROS: Final = 2_000_000
_BACK_MICROS: Final = 10_000_000
_READY: Final = " ready."
_STOP_SECONDS: Final = WEBHOOK_SECONDS + LEASE_MARGIN_SECONDS + 2.0
_SHARE_OF_WORKERS: Final = 0.4
_SHARE_OF_BROKER: Final = 0.15


class Days:
    """The processes on a folder of their own; use it in a `with` statement, in the main thread."""

    def __init__(self, make_clock: Callable[[], FastClock], *, seed: int) -> None:
        """`make_clock` is called when the processes can start."""
        self.data = short_folder("rvd-")
        self._make_clock = make_clock
        self._seed = seed
        self.secret = new_secret()
        self._chosen: dict[str, Any] = {
            "data": self.data,
            "broker": embedded_broker_url(self.data),
            "embedding_provider": "none",
            "schedules_per_user": 1_000,
            "webhook_allow_private": "127.0.0.1",
            "webhook_secret": self.secret,
        }
        set_constants()
        self.settings = Settings(**self._chosen)
        self.runtime = Runtime(self.settings)

    def __enter__(self) -> Self:
        import_for_forks(self._environment())
        self.clock = self._make_clock()
        self.processes = KeptProcesses(dict(self._starts()), private_folder(self.data / "logs"), self._seed)
        self.processes.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.__exit__()
        self.runtime.close()
        shutil.rmtree(self.data, ignore_errors=True)

    def watch(self, workspace: str) -> Watch:
        """Return read access to the database of a workspace."""
        return watch_workspace(self.data, self.settings.database, workspace)

    def away(self) -> list[tuple[int, int]]:
        """Return the periods in which nothing could be fired, in microseconds of the machine's clock.

        These are the times when the broker, all workers or all beat processes were down, when a paused process may have
        held the lock of the database, and the start-up.
        """
        started = self.clock.started
        spans = [*(Span(name, started, started) for name in self.processes.starts), *self.processes.spans]
        still = [(span.start, self._back(span)) for span in spans if span.stopped]
        times: dict[str, list[tuple[int, int]]] = {name: [] for name in self.processes.starts}
        for span in spans:
            times[span.name].append((span.start, self._back(span)))
        groups = [(BROKER,), WORKERS, BEATS]
        return [*still, *(time for group in groups for time in _all_at_once([times[name] for name in group]))]

    def _back(self, span: Span) -> int:
        """Return when a process that was down worked again."""
        if span.name in WORKERS and not span.stopped:
            return next((at for at in self._ready(span.name) if at > span.start), now_micros()) + _FIRST_TASK_MICROS
        return (span.end or now_micros()) + _BACK_MICROS

    def _ready(self, name: str) -> list[int]:
        """Return the times at which a worker reported ready."""
        lines = (self.data / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        records = (msgspec.json.decode(line) for line in lines if line.startswith("{") and _READY in line)
        return [to_micros(datetime.fromisoformat(line["timestamp"])) for line in records]

    def count_log_lines(self, word: str) -> int:
        """Count the lines of the workers' logs that contain a word."""
        logs = [path.read_text(encoding="utf-8", errors="replace") for path in (self.data / "logs").glob("*.log")]
        return sum(word in line for log in logs for line in log.splitlines())

    def _starts(self) -> Iterator[tuple[str, Callable[[], Fork | subprocess.Popen[bytes]]]]:
        logs = self.data / "logs"
        yield BROKER, partial(spawn, broker_command(self.data), {}, logs / f"{BROKER}.log", signal.SIGKILL)
        for names, words in ((WORKERS, ("worker", "--queues=schedules", "--concurrency=8")), (BEATS, ("beat",))):
            for name in names:
                yield name, partial(Fork, self.clock, words, {"REVERIE_PROCESS": name}, logs / f"{name}.log")

    def _environment(self) -> dict[str, str]:
        foreign = dict.fromkeys((name for name in os.environ if name.startswith(PREFIX)), "")
        chosen = {PREFIX + name.upper(): str(value) for name, value in self._chosen.items()}
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        chosen[PREFIX + "DATABASE"] = self.settings.database or ""
        return {**foreign, **chosen, "REVERIE_CONFIG": os.devnull, "PYTHONPATH": path}


class TroublePlan:
    """A plan of kills and pauses over the days, drawn from a seed. Call `step` from the main thread."""

    def __init__(self, days: Days, *, kills: int, stops: int, all_at_once: int, seconds: float, seed: int) -> None:
        self._days = days
        self._chance = random.Random(seed)
        self.done: list[Trouble] = []
        plan = [Trouble(self._moment(seconds), self._any(), "kill") for _ in range(kills)]
        plan += [
            Trouble(self._moment(seconds), self._chance.choice(WORKERS), "stop", _STOP_SECONDS) for _ in range(stops)
        ]
        for _ in range(all_at_once):
            moment = self._moment(seconds)
            plan += [Trouble(moment, name, "kill all at once") for name in self._days.processes.starts]
        self._plan = sorted(plan, key=lambda trouble: trouble.at_seconds)

    @property
    def over(self) -> bool:
        """Return whether all of it has been carried out."""
        return not self._plan

    def by_role(self) -> dict[str, int]:
        """Count kills and pauses by kind of process."""
        return dict(Counter(_role(trouble) for trouble in self.done))

    def step(self) -> Iterator[str]:
        """Carry out what is due, and restart what died."""
        now = (now_micros() - self._days.clock.started) / 1_000_000
        while self._plan and self._plan[0].at_seconds <= now:
            trouble = self._plan.pop(0)
            if self._days.processes.carry_out(trouble):
                self.done.append(trouble)
                yield f"{now:6.1f} s  {_role(trouble)} ({trouble.name})"
        yield from self._days.processes.step()

    def _moment(self, seconds: float) -> float:
        return self._chance.uniform(0.05, 1.0) * seconds

    def _any(self) -> str:
        drawn = self._chance.random()
        if drawn < _SHARE_OF_BROKER:
            return BROKER
        return self._chance.choice(WORKERS if drawn < _SHARE_OF_BROKER + _SHARE_OF_WORKERS else BEATS)


def _all_at_once(times: Sequence[Sequence[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Return the intersection of several lists of periods."""
    first, *others = times
    found = list(first)
    for other in others:
        found = [(max(a, c), min(b, d)) for a, b in found for c, d in other if max(a, c) < min(b, d)]
    return found


def _role(trouble: Trouble) -> str:
    role = trouble.name.partition("-")[0]
    return f"{role} stopped for {trouble.seconds:.0f} s" if trouble.how == "stop" else f"{role} killed"
