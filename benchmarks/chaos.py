"""Kill workers, their children, beat, server and broker at random under load, and count lost and duplicate messages.

Producers keep going: messages that a call could not confirm are sent again with the same ids. At the end every
acknowledged message must be in the database once and be searchable, and the database must be consistent.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from benchmarks.harness.load import Audit, Load, audit
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, rounded
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.texts import load_texts
from benchmarks.harness.watch import Watch
from reverie.errors import Unavailable

# All are equally likely; a child is one process of a worker's pool.
ROLES = (
    "pipeline", "pipeline child", "embed", "embed child", "maintenance", "maintenance child", "extraction",
    "schedules", "beat", "server", "broker",
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
                # It may be down for a while (a restart with backoff): kill another kind of process instead.
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


_POLL_SECONDS = 0.1


@dataclass(slots=True)
class Recovery:
    """Seconds from the last kill until everything was searchable; None if it was not in time."""

    seconds: float | None
    last_kill: float
    missing: list[str] = field(default_factory=list)


def main() -> None:
    """Measure and write the result. Exit with 1 if a guarantee was broken."""
    options = _options()
    count = int(value_or_default(options.messages, quick=options.quick, tiny=300, full=30_000))
    kills = int(value_or_default(options.kills, quick=options.quick, tiny=3, full=40))
    seconds = value_or_default(options.seconds, quick=options.quick, tiny=6, full=120)
    result = Result.of("chaos", options)
    texts = load_texts(options.data, count, seed=options.seed)
    result.settings.update(messages=count, kills=kills, seconds=seconds, texts=texts.source)
    tell = Progress()
    with Stack() as stack:
        load = Load(stack, texts, count, seconds=seconds, producers=options.producers, seed=options.seed)
        killer = Killer(stack, kills, seconds=seconds, seed=options.seed)
        _run(load, killer, tell)
        recovery = _await_recovery(stack, load, killer, options.timeout, tell)
        tell.step("comparing the database with what was acknowledged")
        found = audit(stack, WORKSPACE, load)
        result.settings["embedder"] = stack.embedder
        result.add("restarts", sum(process.restarts for process in stack.processes()))
    _conclude(result, load, killer, recovery, found)
    result.finish(options.output)
    sys.exit(1 if found.broken or recovery.seconds is None or load.surprises else 0)


def _options() -> argparse.Namespace:
    options = parser("chaos", __doc__)
    options.add_argument("--messages", type=int, help="messages to send (30,000; 300 with --quick)")
    options.add_argument("--kills", type=int, help="number of SIGKILLs (40; 3 with --quick)")
    options.add_argument("--seconds", type=float, help="seconds over which they are spread (120; 6 with --quick)")
    options.add_argument("--producers", type=int, default=3, help="threads that send; the last one waits for `stored`")
    options.add_argument("--timeout", type=float, default=300, help="seconds to wait for the recovery")
    return options.parse_args()


def _run(load: Load, killer: Killer, tell: Progress) -> None:
    """Send and kill until both are done."""
    started = time.monotonic()
    load.start()
    try:
        while not (load.done and killer.done):
            now = time.monotonic() - started
            for kill in killer.step(now):
                tell.step(f"{kill.at_seconds:6.1f} s  SIGKILL {kill.role} (pid {kill.pid})")
            tell(
                f"{now:5.0f} s  {load.acknowledged_count:,} acknowledged, {load.resent:,} sent again,"
                f" {killer.count} kills"
            )
            time.sleep(0.02)
    finally:
        load.stop()


def _await_recovery(stack: Stack, load: Load, killer: Killer, timeout_seconds: float, tell: Progress) -> Recovery:
    """Wait until everything acknowledged is searchable or a dead letter."""
    recovery = Recovery(None, killer.last_at or time.monotonic())
    expected = load.acknowledged()
    deadline = recovery.last_kill + timeout_seconds
    with stack.watch() as watch:
        while True:
            now = time.monotonic()
            if watch.waiting() == 0 and (now > deadline or not _missing(watch, expected)) and not _inbox_size(stack):
                recovery.missing = _missing(watch, expected)
                recovery.seconds = None if recovery.missing else now - recovery.last_kill
                return recovery
            if now > deadline:
                recovery.missing = _missing(watch, expected)
                return recovery
            tell(f"{now - recovery.last_kill:5.0f} s after the last kill: {watch.waiting():,} rows wait")
            time.sleep(_POLL_SECONDS)


def _missing(watch: Watch, expected: set[str]) -> list[str]:
    stored = {str(row[0]) for row in watch.rows("SELECT id FROM messages UNION SELECT item_id FROM dead_letters")}
    return sorted(expected - stored)


def _inbox_size(stack: Stack) -> int:
    """Return the number of items in the inbox; 1 if the broker does not answer."""
    try:
        return stack.inbox().stats(WORKSPACE).size
    except Unavailable:
        return 1


def _conclude(result: Result, load: Load, killer: Killer, recovery: Recovery, found: Audit) -> None:
    result.add("acknowledged", load.acknowledged_count)
    result.add("acknowledged_as_stored", load.stored_count)
    result.add("calls_unavailable", load.unavailable)
    result.add("messages_sent_again", load.resent)
    result.add("kills", killer.count)
    result.add("kills_by_role", killer.by_role())
    result.add("kill_log", [f"{kill.at_seconds:.2f} s {kill.role}" for kill in killer.kills])
    result.add("stored", found.stored)
    result.add("lost", found.lost)
    result.add("doubled", found.doubled)
    result.add("dead_letters", found.dead_letters)
    result.add("stored_and_not_searchable", found.not_searchable)
    result.add("recovery", None if recovery.seconds is None else rounded(recovery.seconds), "s after the last kill")
    result.add("verify", found.wrong)
    result.notes += [f"verify: {line}" for line in found.wrong]
    result.notes += [f"dead letter: {line}" for line in found.dead_reasons]
    result.notes += [f"a producer failed: {line}" for line in load.surprises[:10]]
    result.goals += [
        Goal(what="acknowledged and lost", relation="==", goal=0, figure=found.lost),
        Goal(what="doubled", relation="==", goal=0, figure=found.doubled),
        Goal(what="verify: things wrong", relation="==", goal=0, figure=len(found.wrong)),
        Goal(what="set aside as dead letters", relation="==", goal=0, figure=found.dead_letters),
        Goal(
            what="all searchable after the last kill",
            relation="<=",
            goal=60,
            figure=None if recovery.seconds is None else rounded(recovery.seconds),
            unit="s",
            note="" if recovery.seconds is not None else "not everything was searchable within the timeout",
        ),
    ]


if __name__ == "__main__":
    run(main)
