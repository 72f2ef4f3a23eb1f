"""Run for half an hour under load while the machine misbehaves at random, and see what is left.

Processes are killed and stopped, the broker hangs, the disk is full, and the clock is wrong, each for a while and at
random times. Somebody stores and recalls all the time. At the end everything that was accepted must be searchable once,
the databases must be consistent, memory must have stayed within its bound, and no key or file may be left over.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import psutil

from benchmarks.faults.accepted import Accepted
from benchmarks.faults.others import Others
from benchmarks.faults.setting import NotHere, Setting, small_disk, stepped_clock
from benchmarks.harness.figures import rounded
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import Stack
from reverie.errors import ReverieError
from reverie.pipeline.broker import call_broker, connect

_DISK_MEGABYTES: Final = 4_000
_MEMORY_MIB: Final = 1_536
_RECOVERY_SECONDS: Final = 300.0
_BATCH: Final = 10
# A fault lasts at most so long, and at least as long a pause follows, in which it recovers.
_PAUSE_SECONDS: Final = 20.0
_LONGEST_SECONDS: Final = 15.0
_SAMPLE_SECONDS: Final = 2.0
_MIB: Final = 1024 * 1024
_CLOCK_STEPS: Final = (365 * 86_400.0, 3_600.0, -300.0, -2_400.0)
# Keys that stay in an idle broker: of queues, heartbeats, numbers and limits. Measured 25 to 40 with two workspaces.
_MOST_KEYS: Final = 100
_KILLED: Final = ("pipeline", "embed", "maintenance", "schedules", "beat", "server", "broker")


@dataclass(slots=True)
class Seen:
    """What was sampled while it ran."""

    longest_mib: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    refused: int = 0


def main() -> None:
    """Run and write the result. Exit with 1 if a promise was broken."""
    options = _options()
    seconds = value_or_default(options.seconds, quick=options.quick, tiny=15, full=1_800)
    result = Result(benchmark="soak", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings["seconds"] = seconds
    tell, seen, chance = Progress(), Seen(), random.Random(options.seed)
    with _setting(result) as setting, Stack(env=setting.env, folder=setting.folder) as stack:
        stack.wait_server()
        accepted = Accepted(stack)
        with Others(stack, accepted):
            _run(_Trouble(stack, setting, chance, seen), accepted, options.rate, seconds, tell)
            tell.step("waiting for the recovery")
            recovery = accepted.await_searchable(_RECOVERY_SECONDS)
        accepted.await_searchable(_RECOVERY_SECONDS)
        found = accepted.outcome()
        keys = _keys(stack)
        result.settings["embedder"] = stack.embedder
    result.add("accepted", found.accepted)
    result.add("refused_calls", seen.refused)
    result.add("faults", sum(seen.faults.values()))
    result.add("faults_by_kind", dict(seen.faults))
    result.add("memory_at_most", rounded(seen.longest_mib), "MiB")
    result.add("broker_keys_at_the_end", keys)
    result.add("recovery", None if recovery is None else rounded(recovery), "s")
    result.notes += [*found.wrong, *found.reasons]
    for what, figure, relation, goal, unit in (
        ("lost, doubled or not searchable", found.lost + found.doubled + found.not_searchable, "==", 0, ""),
        ("dead letters", found.dead_letters, "==", 0, ""),
        ("verify: things wrong", len(found.wrong), "==", 0, ""),
        ("memory of all processes at most", rounded(seen.longest_mib), "<=", _MEMORY_MIB, "MiB"),
        ("keys in the broker at the end", keys, "<=", _MOST_KEYS, ""),
        ("all searchable after the last fault", rounded(recovery or _RECOVERY_SECONDS), "<=", 120, "s"),
    ):
        result.goals.append(Goal(what=what, relation=relation, goal=goal, figure=figure, unit=unit))  # type: ignore[arg-type]
    result.finish(options.output)
    sys.exit(0 if all(goal.reached for goal in result.goals) else 1)


def _options() -> argparse.Namespace:
    options = parser("soak", __doc__, data=False)
    options.add_argument("--seconds", type=float, help="how long it runs (1,800; 15 with --quick)")
    options.add_argument("--rate", type=float, default=30.0, help="messages per second; half of what two cores embed")
    return options.parse_args()


@contextlib.contextmanager
def _setting(result: Result) -> Iterator[Setting]:
    """Run on a disk that can be filled and a clock that can be moved, as far as the machine has the means."""
    setting = Setting()
    with ExitStack() as entered:
        for name, make in (("disk", small_disk(_DISK_MEGABYTES)), ("clock", stepped_clock())):
            try:
                part = entered.enter_context(make)
            except NotHere as error:
                result.notes.append(f"without faults of the {name}: {error}")
                continue
            setting.folder = setting.folder or part.folder
            setting.env = {**setting.env, **part.env}
            setting.disk, setting.clock = setting.disk or part.disk, setting.clock or part.clock
        yield setting


class _Trouble:
    """Brings about one fault after the other at random, and ends each."""

    def __init__(self, stack: Stack, setting: Setting, chance: random.Random, seen: Seen) -> None:
        self.stack = stack
        self.seen = seen
        self._setting = setting
        self._chance = chance
        self._kinds = [
            "kill",
            "kill",
            "stop",
            *(["disk"] if setting.disk else []),
            *(["clock"] if setting.clock else []),
        ]

    def repeat(self, halt: threading.Event) -> None:
        """Go on until told to stop; every fault has ended then."""
        while not halt.wait(self._chance.uniform(_LONGEST_SECONDS, _LONGEST_SECONDS + _PAUSE_SECONDS)):
            kind = self._chance.choice(self._kinds)
            self.seen.faults[kind] += 1
            with contextlib.suppress(psutil.NoSuchProcess):
                self._bring_about(kind, halt)

    def _bring_about(self, kind: str, halt: threading.Event) -> None:
        lasts = self._chance.uniform(1.0, _LONGEST_SECONDS)
        if kind == "kill":
            self._process().kill()
        elif kind == "stop":
            process = self._process()
            process.suspend()
            halt.wait(lasts)
            process.resume()
        elif kind == "disk" and self._setting.disk is not None:
            self._setting.disk.fill()
            halt.wait(lasts)
            self._setting.disk.empty()
        elif self._setting.clock is not None:
            self._setting.clock.move(self._chance.choice(_CLOCK_STEPS))
            halt.wait(lasts)
            self._setting.clock.move(0)

    def _process(self) -> psutil.Process:
        pids = {entry.name: entry.pid for entry in self.stack.processes() if entry.pid}
        name = self._chance.choice([name for name in _KILLED if name in pids])
        return psutil.Process(pids[name])


def _run(trouble: _Trouble, accepted: Accepted, rate: float, seconds: float, tell: Progress) -> None:
    """Send at a rate for so long while there is trouble, and sample the memory."""
    halt, seen = threading.Event(), trouble.seen
    thread = threading.Thread(target=trouble.repeat, args=(halt,), name="trouble")
    thread.start()
    started = time.monotonic()
    sampled = number = 0.0
    try:
        while (now := time.monotonic() - started) < seconds:
            texts = [f"message {number + index:.0f} of a long day at the harbour" for index in range(_BATCH)]
            try:
                accepted.send(texts, session=f"s{number % 7:.0f}", timeout_seconds=5.0)
            except ReverieError:
                seen.refused += 1
            number += _BATCH
            if now - sampled > _SAMPLE_SECONDS:
                sampled = now
                seen.longest_mib = max(seen.longest_mib, _memory_mib(trouble.stack))
            tell(f"{now:5.0f} s  {number:,.0f} sent, {dict(seen.faults)}, {seen.longest_mib:,.0f} MiB at most")
            time.sleep(max(0.0, started + number / rate - time.monotonic()))
    finally:
        halt.set()
        thread.join()


def _memory_mib(stack: Stack) -> float:
    """Return the memory of all processes, pages that they share counted once."""
    total = 0
    supervisor = psutil.Process(stack.supervisor_pid)
    for process in (supervisor, *supervisor.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            about = process.memory_full_info()
            total += getattr(about, "pss", 0) or about.rss
    return total / _MIB


def _keys(stack: Stack) -> int:
    with connect(stack.broker_url) as broker:
        return int(call_broker(broker.dbsize))


if __name__ == "__main__":
    run(main)
