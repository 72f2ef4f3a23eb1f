"""Measure how long twenty commands take, as whole processes that ask a running server.

Each is measured from the start of its process to its end, several rounds in turn. The CPU time is reported beside it:
unlike the seconds it hardly depends on other programs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from rich.table import Table

from benchmarks.harness.figures import median
from benchmarks.harness.options import ROOT, parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, console, settings_of, shown
from benchmarks.harness.stack import WORKSPACE, Stack
from reverie import Reverie

_AGENT: Final = "bench"
_SESSION: Final = "first"
_WORD: Final = "bike"
# The commands, in the order of the table, and what a user waits for at most.
_LOCAL: Final = ("--version", "--help")
_LOCAL_SECONDS: Final = 0.3
_CALLS: Final = (
    "recall --help",
    f"recall {_WORD}",
    f"context {_SESSION} {_WORD}",
    "memory list",
    f"memory search {_WORD}",
    "memory add bought",
    "sessions list",
    f"sessions show {_SESSION}",
    f"sessions search {_WORD}",
    "status",
    "agents list",
    "workspaces list",
    "facts list",
    "notes list",
    "schedules list",
    "reminders list",
    "curation list",
    "dead-letters list",
)
_CALL_SECONDS: Final = 0.5
_MESSAGES: Final = 100


def main() -> None:
    """Measure and write the result."""
    options = _options()
    rounds = int(value_or_default(options.rounds, quick=options.quick, tiny=1, full=5))
    result = Result(benchmark="commands", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings["rounds"] = rounds
    tell = Progress()
    seconds: dict[str, list[float]] = {command: [] for command in (*_LOCAL, *_CALLS)}
    cpu_seconds: dict[str, list[float]] = {command: [] for command in seconds}
    with Stack() as stack:
        if not stack.wait_server():
            raise RuntimeError("the server does not answer, so no command can be measured")
        _fill(stack)
        environment = _environment(stack)
        for number in range(1, rounds + 1):
            for command in seconds:
                wall, cpu = _time(command.split(), environment)
                seconds[command].append(wall)
                cpu_seconds[command].append(cpu)
                tell(f"round {number} of {rounds}: {command}")
    for command in seconds:
        result.add(command, median(seconds[command]), "s")
        result.add(f"{command}, CPU", median(cpu_seconds[command]), "s")
    for what, commands, goal in (("--version, --help", _LOCAL, _LOCAL_SECONDS), ("any call", _CALLS, _CALL_SECONDS)):
        slowest = max(result.figures[command] for command in commands)
        result.goals.append(Goal(what=f"the slowest of {what}", relation="<", goal=goal, figure=slowest, unit="s"))
    _print(result.figures, list(seconds))
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("commands", __doc__)
    options.add_argument("--rounds", type=int, help="times that each command is run (5)")
    return options.parse_args()


def _fill(stack: Stack) -> None:
    said = [{"role": "user", "content": f"On day {day} I went to work by bike."} for day in range(_MESSAGES)]
    with Reverie(_AGENT, url=stack.url, broker=stack.broker_url, workspace=WORKSPACE) as client:
        client.ingest(_SESSION, said, wait="searchable", timeout_seconds=60)


def _environment(stack: Stack) -> dict[str, str]:
    of_commands = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "client"), str(ROOT)]),
        "REVERIE_AGENT": _AGENT,
        "REVERIE_CONFIG": os.devnull,
        "REVERIE_DATA": str(stack.data),
        "REVERIE_WORKSPACE": WORKSPACE,
    }
    # A user's Python keeps compiled modules; without them each command would compile its own again.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **of_commands}


def _time(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Run a command; return its seconds, and those of the processor. Raises RuntimeError: if it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"`reverie {' '.join(arguments)}` failed with exit code {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime


def _print(figures: Mapping[str, float], commands: Sequence[str]) -> None:
    table = Table(title="commands", title_justify="left", header_style="bold")
    table.add_column("command")
    for column in ("goal", "seconds", "of the processor"):
        table.add_column(column, justify="right")
    for command in commands:
        goal = _LOCAL_SECONDS if command in _LOCAL else _CALL_SECONDS
        table.add_row(command, shown(goal), shown(figures[command]), shown(figures[f"{command}, CPU"]))
    console.print(table)


if __name__ == "__main__":
    run(main)
