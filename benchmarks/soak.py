"""Run for an hour under load while the machine misbehaves at random, and see what is left.

The faults come at random times, each for a while: processes and children of pools are killed or stopped, the broker is
away or hangs for up to a minute, beginning at a chosen step of a task, the disk is full, and the clock is wrong. Texts
come in bursts, so that tasks take long. Another user stores and recalls all the time. Nothing may stand still for a
minute while `reverie status --check` finds nothing wrong. At the end all that was accepted must be searchable once, the
databases must be consistent, memory must have stayed within its bound, and no key or file may be left over.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from benchmarks.faults.accepted import Accepted
from benchmarks.faults.others import OTHERS, Others
from benchmarks.faults.setting import NotHere, Setting, small_disk, stepped_clock
from benchmarks.faults.standing import STILL_SECONDS, Standing
from benchmarks.harness import steps
from benchmarks.harness.folders import short_folder
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, rounded
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.texts import load_texts
from reverie.errors import ReverieError
from reverie.pipeline.broker import call_broker, connect

_DISK_MEGABYTES: Final = 4_000
_MEMORY_MIB: Final = 1_536
_RECOVERY_SECONDS: Final = 300.0
# Each burst has the messages of this many seconds, so that tasks take long.
_BURST_SECONDS: Final = 10.0
# A text is made of 1 to 20 turns of some hundred characters each, drawn from 1,000 turns.
_TURNS: Final = (1, 20)
_TURNS_TO_DRAW: Final = 1_000
# How long a fault lasts, and the pause after it.
_FAULT_SECONDS: Final = (2.0, 60.0)
_PAUSE_SECONDS: Final = (15.0, 35.0)
_STEP_SECONDS: Final = 20.0
_AGAIN_SECONDS: Final = 0.05
_SAMPLE_SECONDS: Final = 2.0
_MIB: Final = 1024 * 1024
_CLOCK_STEPS: Final = (365 * 86_400.0, 3_600.0, -300.0, -2_400.0)
# Keys that stay in an idle broker: of queues, heartbeats, numbers and limits. Measured 25 to 40 with two workspaces.
_MOST_KEYS: Final = 100
_POOLS: Final = ("pipeline", "embed", "maintenance", "extraction")
_KILLED: Final = (*_POOLS, "schedules", "beat", "server", "broker")


@dataclass(slots=True)
class Seen:
    """What was sampled while it ran."""

    longest_mib: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    refused: int = 0


def main() -> None:
    """Run and write the result. Exit with 1 if a promise was broken."""
    options = _options()
    seconds = value_or_default(options.seconds, quick=options.quick, tiny=15, full=3_600)
    result = Result.of("soak", options)
    result.settings["seconds"] = seconds
    tell, seen, chance = Progress(), Seen(), random.Random(options.seed)
    with (
        _setting(result) as (setting, places),
        Stack(env=setting.env, folder=setting.folder, prefix=(*steps.PREFIX, str(places))) as stack,
    ):
        stack.wait_server()
        accepted = Accepted(stack)
        with Others(stack, accepted), Standing(stack, (WORKSPACE, OTHERS), tell.step) as standing:
            _run(_Trouble(stack, setting, places, chance, tell, seen), accepted, options.rate, seconds, tell)
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
    result.add("checks", standing.checks)
    result.add("checks_that_found_faults", standing.checks_failed)
    result.add("checks_without_an_answer", standing.checks_hanging)
    result.add("stood_still_at_most", rounded(standing.longest), "s")
    result.add("stood_still_unnoticed_at_most", rounded(standing.unnoticed), "s")
    result.notes += [*found.wrong, *found.reasons, *standing.cases]
    for what, figure, relation, goal, unit in (
        ("lost, doubled or not searchable", found.lost + found.doubled + found.not_searchable, "==", 0, ""),
        ("dead letters", found.dead_letters, "==", 0, ""),
        ("stood still while `status --check` found nothing", rounded(standing.unnoticed), "<=", STILL_SECONDS, "s"),
        ("verify: things wrong", len(found.wrong), "==", 0, ""),
        ("memory of all processes at most", rounded(seen.longest_mib), "<=", _MEMORY_MIB, "MiB"),
        ("keys in the broker at the end", keys, "<=", _MOST_KEYS, ""),
        ("all searchable after the last fault", rounded(recovery or _RECOVERY_SECONDS), "<=", 120, "s"),
    ):
        result.goals.append(Goal(what=what, relation=relation, goal=goal, figure=figure, unit=unit))  # type: ignore[arg-type]
    result.finish(options.output)
    sys.exit(result.exit_code())


def _options() -> argparse.Namespace:
    options = parser("soak", __doc__, data=False)
    options.add_argument("--seconds", type=float, help="how long it runs (3,600; 15 with --quick)")
    options.add_argument("--rate", type=float, default=8.0, help="messages per second; half of what two cores embed")
    return options.parse_args()


@contextlib.contextmanager
def _setting(result: Result) -> Iterator[tuple[Setting, Path]]:
    """Run on a disk that can be filled and a clock that can be moved, as far as the machine has the means.

    The folder is where faults at a step of a task are noted.
    """
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
        places = short_folder("rvs-")
        entered.callback(shutil.rmtree, places)
        yield setting, places


class _Trouble:
    """Brings about one fault after the other at random, and ends each."""

    def __init__(
        self, stack: Stack, setting: Setting, places: Path, chance: random.Random, tell: Progress, seen: Seen
    ) -> None:
        self.stack = stack
        self.seen = seen
        self._setting, self._places, self._chance, self._tell = setting, places, chance, tell
        self._halt = threading.Event()
        kinds = [self._kill, self._kill_child, self._stop, self._stop_child]
        kinds += [self._hang_broker, self._take_broker_away, *[self._take_broker_away_at_a_step] * 2]
        self._kinds = [*kinds, *([self._fill] if setting.disk else []), *([self._set_clock] if setting.clock else [])]

    def repeat(self) -> None:
        """Go on until `end` is called; every fault has ended then."""
        while not self._halt.wait(self._chance.uniform(*_PAUSE_SECONDS)):
            kind, seconds = self._chance.choice(self._kinds), self._chance.uniform(*_FAULT_SECONDS)
            name = kind.__name__.lstrip("_").replace("_", " ")
            self.seen.faults[name] += 1
            with contextlib.suppress(psutil.NoSuchProcess):
                what = kind(seconds)
                self._tell.step(f"{name} {what} {seconds:.0f} s")

    def end(self) -> None:
        self._halt.set()

    def _kill(self, _seconds: float) -> str:
        name, process = self._process()
        process.kill()
        return name

    def _kill_child(self, _seconds: float) -> str:
        name, process = self._child()
        process.kill()
        return name

    def _stop(self, seconds: float) -> str:
        name, process = self._process()
        process.suspend()
        self._halt.wait(seconds)
        process.resume()
        return name

    def _stop_child(self, _seconds: float) -> str:
        """Stop a child of a pool for good: its worker has to replace it."""
        name, process = self._child()
        process.suspend()
        return name

    def _hang_broker(self, seconds: float) -> str:
        _, process = self._process("broker")
        process.suspend()
        self._halt.wait(seconds)
        process.resume()
        return ""

    def _take_broker_away(self, seconds: float) -> str:
        """Kill the broker, and again whenever its supervisor has started it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._halt.wait(_AGAIN_SECONDS):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process("broker")[1].kill()
        return ""

    def _take_broker_away_at_a_step(self, seconds: float) -> str:
        step = self._chance.choice(steps.STEPS)
        place = steps.kill_at(step, self._places, self._process("broker")[1].pid)
        until = time.monotonic() + _STEP_SECONDS
        while place.exists() and time.monotonic() < until:
            self._halt.wait(_AGAIN_SECONDS)
        place.unlink(missing_ok=True)
        self._take_broker_away(seconds)
        return step

    def _fill(self, seconds: float) -> str:
        assert self._setting.disk is not None
        self._setting.disk.fill()
        self._halt.wait(seconds)
        self._setting.disk.empty()
        return ""

    def _set_clock(self, seconds: float) -> str:
        assert self._setting.clock is not None
        self._setting.clock.move(step := self._chance.choice(_CLOCK_STEPS))
        self._halt.wait(seconds)
        self._setting.clock.move(0)
        return f"by {step:.0f} s"

    def _process(self, *names: str) -> tuple[str, psutil.Process]:
        """Return one of the processes of these names that run, or of all."""
        running = {entry.name: entry.pid for entry in self.stack.processes() if entry.pid}
        chosen = [name for name in names or _KILLED if name in running]
        if not chosen:
            raise psutil.NoSuchProcess(0)
        name = self._chance.choice(chosen)
        return name, psutil.Process(running[name])

    def _child(self) -> tuple[str, psutil.Process]:
        name, process = self._process(*_POOLS)
        children = process.children()
        if not children:
            raise psutil.NoSuchProcess(process.pid)
        return name, self._chance.choice(children)


def _run(trouble: _Trouble, accepted: Accepted, rate: float, seconds: float, tell: Progress) -> None:
    """Send at a rate for `seconds` while there is trouble, and sample the memory."""
    seen, chance = trouble.seen, random.Random(seconds)
    turns = [turn.text for turn in load_texts(None, _TURNS_TO_DRAW, seed=0).turns]
    thread = threading.Thread(target=trouble.repeat, name="trouble")
    thread.start()
    started = time.monotonic()
    sampled = number = 0.0
    try:
        while (now := time.monotonic() - started) < seconds:
            if now >= number / rate:
                burst = max(1, round(rate * _BURST_SECONDS))
                texts = [
                    " ".join([f"message {number + index:.0f}", *chance.choices(turns, k=chance.randrange(*_TURNS))])
                    for index in range(burst)
                ]
                try:
                    accepted.send(texts, session=f"s{number % 7:.0f}", timeout_seconds=5.0)
                except ReverieError:
                    seen.refused += 1
                number += burst
            if now - sampled > _SAMPLE_SECONDS:
                sampled = now
                seen.longest_mib = max(seen.longest_mib, _memory_mib(trouble.stack))
            tell(f"{now:5.0f} s  {number:,.0f} sent, {dict(seen.faults)}, {seen.longest_mib:,.0f} MiB at most")
            time.sleep(_AGAIN_SECONDS)
    finally:
        trouble.end()
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
