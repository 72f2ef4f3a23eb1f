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

from benchmarks.harness.options import DEFAULT_SEED, RESULTS, ROOT, run
from benchmarks.harness.result import console, read_result, shown, verdict

BENCHMARKS: Final = (
    "ingest", "accept", "lag", "recall_quality", "languages", "context_quality", "recall_speed", "consolidate",
    "schedules", "calendar", "writers", "backups", "isolation", "erasure", "footprint", "startup", "commands",
    "workspaces", "engines", "recall_postgres", "hosts", "long_texts", "page_speed", "fuzz", "faults", "chaos", "soak",
)  # fmt: skip
_WITH_PEERS: Final = ("ingest", "recall_speed")
_PEERS: Final = ROOT / ".venv-peers" / "bin" / "python"


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
    options.add_argument("--locomo", type=Path, help="LoCoMo for recall_quality; --data by default")
    options.add_argument("--longmemeval", type=Path, help="LongMemEval-S for recall_quality")
    options.add_argument("--madial", type=Path, help="MADial-Bench for languages")
    options.add_argument(
        "--stores", type=Path, help="folder in which benchmarks of recall keep large stores for the next run"
    )
    options.add_argument(
        "--peers", type=Path, default=_PEERS, help="the peers' Python; peers are skipped if it does not exist"
    )
    arguments = options.parse_args()
    failed = [name for name in arguments.only if _run(name, arguments) != 0]
    missed = _summary(arguments.output, arguments.only)
    for name in failed:
        console.print(f"{name} failed")
    sys.exit(1 if failed or (missed and not arguments.quick) else 0)


def _run(name: str, arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    command = [sys.executable, "-m", f"benchmarks.{name}", "--output", str(output / f"{name}.json")]
    command += ["--seed", str(arguments.seed)]
    for option, value in _paths(name, arguments).items():
        if value is not None:
            command += [f"--{option}", str(value)]
    if arguments.quick:
        command.append("--quick")
    console.print(f"== {name}")
    return subprocess.run(command, check=False).returncode


def _paths(name: str, arguments: argparse.Namespace) -> dict[str, Path | None]:
    """Return the options of one benchmark that name a file or folder."""
    if name in ("recall_quality", "context_quality"):
        return {"locomo": arguments.locomo or arguments.data, "longmemeval": arguments.longmemeval}
    if name == "languages":
        return {"madial": arguments.madial}
    if name in ("isolation", "erasure", "fuzz", "faults", "soak"):
        return {}
    if name == "recall_postgres":
        return {"stores": arguments.stores}
    paths: dict[str, Path | None] = {"data": arguments.data}
    if name in _WITH_PEERS and arguments.peers.exists():
        paths["peers"] = arguments.peers
    if name == "recall_speed":
        paths["stores"] = arguments.stores
    return paths


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
