"""Real processes that are killed, or paused and resumed, and restarted shortly after they died.

Invariant: none of them outlives the benchmark, which is the parent that the kernel ties them to. Call everything from
the thread that created the object: a child ends with the thread that started it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from reverie.clock import now_micros
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


@dataclass(slots=True)
class _Supervised:
    argv: list[str]
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0
    resume_at: float | None = None
    away: Span | None = None


@dataclass
class KeptProcesses:
    """The processes by name, in the order in which they start. Call `step` often."""

    commands: Mapping[str, Sequence[str]]
    env: Mapping[str, str]
    logs: Path
    seed: int
    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._supervised = {name: _Supervised(list(argv)) for name, argv in self.commands.items()}

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
        if entry.process is None or has_exited(entry.process) or (stop and entry.resume_at is not None):
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
            if entry.process is not None and has_exited(entry.process):
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
        env = {**self.env, "REVERIE_PROCESS": name}
        entry.process = spawn(entry.argv, env, self.logs / f"{name}.log", signal.SIGKILL)
        self._back(entry)

    def _back(self, entry: _Supervised) -> None:
        if entry.away is not None:
            entry.away.end, entry.away = now_micros(), None
