"""Sends SIGKILL to random processes of a stack at random times drawn in advance."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from benchmarks.harness.stack import Stack

# All are equally likely; a child is one process of a worker's pool.
ROLES = (
    "pipeline", "pipeline child", "embed", "embed child", "maintenance", "maintenance child", "schedules", "beat",
    "server", "broker",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL: its target, and its time in seconds from the start of the load."""

    at_seconds: float
    role: str
    pid: int


@dataclass(slots=True)
class _Due:
    at_seconds: float
    role: str


@dataclass
class Killer:
    """The plan of all kills, and which of them have happened. Call `step` from one thread."""

    stack: Stack
    count_wanted: int
    seconds: float
    seed: int
    kills: list[Kill] = field(default_factory=list)
    last_at: float | None = None

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        times = sorted(self._chance.uniform(0.02, 1.0) * self.seconds for _ in range(self.count_wanted))
        self._plan = [_Due(moment, self._chance.choice(ROLES)) for moment in times]

    @property
    def count(self) -> int:
        """Return the number of kills."""
        return len(self.kills)

    @property
    def done(self) -> bool:
        """Return whether the plan is finished."""
        return not self._plan

    def by_role(self) -> dict[str, int]:
        """Count the kills by kind of process."""
        return dict(Counter(kill.role for kill in self.kills))

    def step(self, now_seconds: float) -> Iterator[Kill]:
        """Carry out what is due; a process that is just restarting is killed as soon as it runs."""
        while self._plan and self._plan[0].at_seconds <= now_seconds:
            pid = self._kill(self._plan[0].role)
            if pid is None:
                # It may be down for a while (a restart with backoff): the next in the plan does not wait for it.
                self._plan[0].role = self._chance.choice(ROLES)
                return
            kill = Kill(now_seconds, self._plan.pop(0).role, pid)
            self.kills.append(kill)
            self.last_at = time.monotonic()
            yield kill

    def _kill(self, role: str) -> int | None:
        name, _, child = role.partition(" ")
        pid = next((process.pid for process in self.stack.processes() if process.name == name), None)
        if pid is None:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if child:
                children = process.children()
                if not children:
                    return None
                process = self._chance.choice(children)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            process.kill()
            return process.pid
        return None
