"""Runs commands of Reverie in processes whose days pass in seconds.

The clock of schedules runs faster, from a given time. Leases, deadlines and webhook signatures stay on the machine's
clock, as everywhere in Reverie: a short day does not make a worker die sooner.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from beat_schedule import PERIODIC_JOBS
from cli import main as command_line
from memory.scheduling import executing
from memory.scheduling.executing import AttemptLimits
from memory.scheduling.rules import ScheduleRules
from reverie import contract
from reverie.clock import now_micros
from storage.stores import FileStamp
from worker import runtime
from worker.runtime import Runtime
from worker.scheduling import jobs, services
from worker.supervision.processes import set_parent_death_signal

# Once the days are over, the clock runs this much faster than the machine's: late failures are retried after seconds,
# and the next firing is far enough away for everything to finish.
AFTERWARDS: Final = 30
# Constants of the days, in the machine's seconds: between two sweeps, and for a receiver or a model to answer.
SWEEP_SECONDS: Final = 0.4
WEBHOOK_SECONDS: Final = 2.0


class FastClock(msgspec.Struct, frozen=True, kw_only=True):
    """A clock that shows `epoch` when the machine's clock shows `started`, then runs `factor` times faster for
    `seconds`.
    """

    started: int
    epoch: int
    factor: float
    seconds: float

    def now(self) -> int:
        """Return the time in microseconds; each call in a process returns a larger number."""
        return self.at(now_micros())

    def at(self, machine: int) -> int:
        """Return what it shows at a time of the machine's clock, both in microseconds."""
        passed = max(0, machine - self.started)
        fast = min(passed, int(self.seconds * 1_000_000))
        return self.epoch + int(fast * self.factor) + (passed - fast) * AFTERWARDS

    @property
    def end(self) -> int:
        """Return what it shows when the days are over."""
        return self.epoch + int(self.seconds * 1_000_000 * self.factor)

    def machine_seconds(self, micros: float) -> float:
        """Return the machine seconds that a number of its microseconds takes."""
        return micros / self.factor / 1_000_000


def run_by(clock: FastClock) -> None:
    """Make every `Runtime` of this process use a clock."""
    settled_by = FileStamp.is_settled

    def now(self: Runtime) -> int:
        del self
        return clock.now()

    def settled(self: FileStamp, now: int) -> bool:
        del now
        return settled_by(self, now_micros())  # file times come from the machine

    Runtime.now = now  # type: ignore[method-assign]
    Runtime.steady = now  # type: ignore[method-assign]  # its days are real: nothing has jumped
    FileStamp.is_settled = settled  # type: ignore[method-assign]


def set_constants() -> None:
    """Sweep and give up as often as days of some seconds need, and keep all runs for the audit."""
    vars(runtime)["SCHEDULE_SECONDS"] = 1.0  # between two looks at every store
    for module in (jobs, services):
        vars(module)["SCHEDULE_SECONDS"] = SWEEP_SECONDS
    for job in PERIODIC_JOBS:
        if job.task in (contract.RUN_DUE_SCHEDULES, contract.DELIVER_REMINDERS):
            object.__setattr__(job, "interval", timedelta(seconds=SWEEP_SECONDS))
    vars(executing)["WEBHOOK_ATTEMPTS"] = 2
    rules, limits = ScheduleRules(runs_kept=1_000_000), AttemptLimits(WEBHOOK_SECONDS, WEBHOOK_SECONDS)
    ScheduleRules.__init__.__defaults__ = astuple(rules)
    AttemptLimits.__init__.__defaults__ = astuple(limits)


def run_command(clock: FastClock, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
    """Run a command of `reverie` by a clock in this process, a fork of one that has imported `preloaded`.

    As the processes of `reverie up`, it leads a session, and does not outlive its parent.
    """
    os.setsid()
    set_parent_death_signal(signal.SIGKILL)
    os.environ.update(env)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    run_by(clock)
    sys.argv[:] = ["reverie", *words]
    command_line()
