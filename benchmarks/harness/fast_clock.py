"""A process of Reverie whose days pass in seconds: `python -m benchmarks.harness.fast_clock CLOCK worker ...`.

What schedules go by runs faster, from a moment that is given. Leases, deadlines and the signing of webhooks stay on the
machine's clock, as everywhere in Reverie: a dead worker is not dead any sooner because the days are short.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from reverie.clock import now_micros
from storage.stores import FileStamp
from worker.cli import main as command_line
from worker.runtime import Runtime

# Once the days are over the clock goes on so much faster than the machine's: what failed last is tried again after
# seconds, and the next firing of anything is far enough away to find everything at rest.
AFTERWARDS: Final = 30


class FastClock(msgspec.Struct, frozen=True, kw_only=True):
    """Shows `epoch` when the machine's clock shows `started`, then runs `factor` times as fast for so many seconds."""

    started: int
    epoch: int
    factor: float
    seconds: float

    def now(self) -> int:
        """The present in microseconds; each call of a process returns a larger number."""
        return self.at(now_micros())

    def at(self, machine: int) -> int:
        """What it shows when the machine's clock shows this, both in microseconds."""
        passed = max(0, machine - self.started)
        fast = min(passed, int(self.seconds * 1_000_000))
        return self.epoch + int(fast * self.factor) + (passed - fast) * AFTERWARDS

    @property
    def end(self) -> int:
        """What it shows when the days are over."""
        return self.epoch + int(self.seconds * 1_000_000 * self.factor)

    def machine_seconds(self, micros: float) -> float:
        """How long so many of its microseconds take."""
        return micros / self.factor / 1_000_000

    def as_argument(self) -> str:
        """The clock as it is written on a command line."""
        return msgspec.json.encode(self).decode()


def run_by(clock: FastClock) -> None:
    """Have every `Runtime` of this process go by a clock."""
    settled_by = FileStamp.is_settled

    def now(self: Runtime) -> int:
        del self
        return clock.now()

    def settled(self: FileStamp, now: int) -> bool:
        del now
        return settled_by(self, now_micros())  # files are stamped by the machine

    Runtime.now = now  # type: ignore[method-assign]
    FileStamp.is_settled = settled  # type: ignore[method-assign]


if __name__ == "__main__":
    run_by(msgspec.json.decode(sys.argv[1], type=FastClock))
    sys.argv[:] = ["reverie", *sys.argv[2:]]
    command_line()
