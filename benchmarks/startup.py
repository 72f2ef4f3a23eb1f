"""Measure how long `reverie up` takes on an empty folder: to the first accepted message, keyword and semantic recall.

Each round starts the stack as a user does, in an empty folder, and asks over HTTP until each step succeeds. The CPU
time of all processes up to each step is reported beside it: unlike the seconds it hardly depends on other programs.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable
from typing import Final

import psutil

from benchmarks.harness.figures import median
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import WORKSPACE, Stack
from reverie import Reverie
from reverie.errors import ReverieError

_MESSAGE: Final = {"role": "user", "content": "The dentist appointment is on Tuesday at nine."}
_BY_WORDS: Final = "dentist appointment"
_BY_MEANING: Final = "When does somebody look at my teeth?"
_TIMEOUT_SECONDS: Final = 120.0
# Short against the goals, and long enough for the questions not to be what the processors do.
_POLL_SECONDS: Final = 0.05
_STEPS: Final = ("answers", "accepted", "keyword_recall", "semantic_recall")


def main() -> None:
    """Measure and write the result."""
    options = _options()
    rounds = int(value_or_default(options.rounds, quick=options.quick, tiny=1, full=5))
    result = Result(benchmark="startup", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings["rounds"] = rounds
    tell = Progress()
    seconds: dict[str, list[float]] = {step: [] for step in _STEPS}
    cpu_seconds: dict[str, list[float]] = {step: [] for step in _STEPS}
    for number in range(1, rounds + 1):
        with contextlib.closing(_Start()) as start:
            for step, succeeded in start.steps().items():
                seconds[step].append(start.wait(succeeded))
                cpu_seconds[step].append(start.cpu_seconds())
        tell.step(f"round {number}: " + ", ".join(f"{step} {found[-1]:.1f} s" for step, found in seconds.items()))
    for step in _STEPS:
        result.add(step, median(seconds[step]), "s")
        result.add(f"{step}_rounds", sorted(seconds[step]), "s")
        result.add(f"{step}_cpu", median(cpu_seconds[step]), "s")
    for step, goal in (("accepted", 3.0), ("semantic_recall", 8.0)):
        what = f"from `reverie up` to the first {step.replace('_', ' ').replace('accepted', 'accepted message')}"
        result.goals.append(Goal(what=what, relation="<", goal=goal, figure=result.figures[step], unit="s"))
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("startup", __doc__)
    options.add_argument("--rounds", type=int, help="times that the stack is started (5)")
    return options.parse_args()


class _Start:
    """A stack that is being started, and the first calls to it."""

    def __init__(self) -> None:
        self._stack = Stack()
        self._client = Reverie(agent="bench", url=self._stack.url, workspace=WORKSPACE, timeout_seconds=10)
        self._began = time.monotonic()
        self._stack.launch()

    def steps(self) -> dict[str, Callable[[], bool]]:
        """Return what must succeed, in order."""
        client = self._client
        return {
            "answers": self._stack.server_answers,
            "accepted": lambda: bool(client.ingest("first", _MESSAGE)),
            "keyword_recall": lambda: bool(client.recall(_BY_WORDS).results),
            "semantic_recall": self._recalls_by_meaning,
        }

    def wait(self, succeeded: Callable[[], bool]) -> float:
        """Ask until it succeeds; return the seconds since the start."""
        while True:
            self._stack.check_alive(self._began + _TIMEOUT_SECONDS)
            with contextlib.suppress(ReverieError):  # not up yet
                if succeeded():
                    return round(time.monotonic() - self._began, 3)
            time.sleep(_POLL_SECONDS)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes of the stack so far."""
        total = 0.0
        supervisor = psutil.Process(self._stack.supervisor_pid)
        for process in (supervisor, *supervisor.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return round(total, 2)

    def close(self) -> None:
        self._client.close()
        self._stack.__exit__()

    def _recalls_by_meaning(self) -> bool:
        found = self._client.recall(_BY_MEANING)
        return bool(found.results) and not found.degraded


if __name__ == "__main__":
    run(main)
