"""Run all benchmarks one after the other and print a summary: `python -m benchmarks` (`make bench`).

Each runs in a process of its own. One that fails is reported at the end and does not stop the others. `python -m
benchmarks NAME` runs one of them, with its own options.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table

from benchmarks.harness.options import DEFAULT_SEED, RESULTS, run
from benchmarks.harness.result import console, read_result, shown, verdict

BENCHMARKS: Final = (
    "ingest", "accept", "lag", "recall_quality", "context_quality", "updates", "recall_speed", "erasure", "workspaces",
    "hosts", "faults", "chaos", "soak",
)  # fmt: skip
# Which of the options that name a file or folder each benchmark takes.
_PATHS: Final = {
    "ingest": ("data",), "accept": ("data",), "lag": ("data",), "recall_quality": ("locomo", "longmemeval"),
    "context_quality": ("locomo", "longmemeval"), "updates": ("factconsolidation", "forgeteval"),
    "recall_speed": ("data", "stores"), "workspaces": ("data",),
    "hosts": ("data",), "chaos": ("data",),
}  # fmt: skip


def main() -> None:
    """Run all. Exit with 1 if one failed, or if a full run missed a goal."""
    if sys.argv[1:2] and sys.argv[1] in BENCHMARKS:
        alone = [sys.executable, "-m", f"benchmarks.{sys.argv[1]}", *sys.argv[2:]]
        sys.exit(subprocess.run(alone, check=False).returncode)
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    options.add_argument("--only", nargs="*", choices=BENCHMARKS, default=BENCHMARKS, help="run only these")
    options.add_argument("--output", type=Path, default=RESULTS, help="the folder for results")
    options.add_argument("--seed", type=int, default=DEFAULT_SEED)
    options.add_argument("--quick", action="store_true", help="tiny inputs, only to see that all of them run")
    options.add_argument("--data", type=Path, help="LoCoMo conversations as JSON; synthetic turns by default")
    options.add_argument("--locomo", type=Path, help="LoCoMo for the benchmarks of quality; --data by default")
    options.add_argument("--longmemeval", type=Path, help="LongMemEval-S for the same")
    options.add_argument("--factconsolidation", type=Path, help="FactConsolidation for updates")
    options.add_argument("--forgeteval", type=Path, help="ForgetEval for updates")
    options.add_argument("--stores", type=Path, help="folder in which recall_speed keeps large stores for the next run")
    arguments = options.parse_args()
    arguments.locomo = arguments.locomo or arguments.data
    failed = [name for name in arguments.only if _run(name, arguments) != 0]
    missed = _summary(arguments.output, arguments.only)
    for name in failed:
        console.print(f"{name} failed")
    sys.exit(1 if failed or (missed and not arguments.quick) else 0)


def _run(name: str, arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    command = [sys.executable, "-m", f"benchmarks.{name}", "--output", str(output / f"{name}.json")]
    command += ["--seed", str(arguments.seed)]
    for option in _PATHS.get(name, ()):
        if value := getattr(arguments, option):
            command += [f"--{option}", str(value)]
    if arguments.quick:
        command.append("--quick")
    console.print(f"== {name}")
    return subprocess.run(command, check=False).returncode


def _summary(folder: Path, names: tuple[str, ...]) -> int:
    table = Table(title="goals", title_justify="left", header_style="bold")
    for column in ("benchmark", "goal", "target", "measured", "reached"):
        table.add_column(column)
    missed = 0
    for name in names:
        try:
            result = read_result(folder / f"{name}.json")
        except (OSError, msgspec.DecodeError) as error:
            table.add_row(name, str(error), "", "", "no result")
            continue
        for goal in result.goals:
            missed += goal.reached is False
            target = f"{goal.relation} {goal.goal:g} {goal.unit}"
            table.add_row(name, goal.what, target, shown(goal.figure), verdict(goal.reached))
    console.print(table)
    return missed


if __name__ == "__main__":
    run(main)
