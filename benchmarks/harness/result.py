"""A result: figures with goals, and where and how they were measured."""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import psutil
import pysqlite3
from rich.console import Console
from rich.table import Table

from reverie import __version__

# The width of tables that are written to a file: they have a dozen columns, and no terminal limits them.
_FILE_COLUMNS: Final = 140
console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
BUSY_BEFORE: Final = "cpu_busy_before_percent"
_LOOK_SECONDS: Final = 0.5
# Above this load by other processes, a figure says more about them than about Reverie.
_BUSY_PERCENT: Final = 15.0


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """One goal. If `figure` is None, it was not measured, and `note` says why."""

    what: str
    relation: Literal[">=", "<=", "<", "=="]
    goal: float
    figure: float | None
    unit: str = ""
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Return whether it was reached; None if it was not measured."""
        if self.figure is None:
            return None
        match self.relation:
            case ">=":
                return self.figure >= self.goal
            case "<=":
                return self.figure <= self.goal
            case "<":
                return self.figure < self.goal
            case "==":
                return self.figure == self.goal


class Result(msgspec.Struct, kw_only=True):
    """The findings of one run of a benchmark. A `quick` run only shows that the benchmark works."""

    benchmark: str
    seed: int
    quick: bool
    settings: dict[str, Any]
    figures: dict[str, Any] = {}
    goals: list[Goal] = []
    notes: list[str] = []
    units: dict[str, str] = {}
    date: str = ""
    versions: dict[str, str] = {}
    machine: dict[str, Any] = {}

    @classmethod
    def of(cls, benchmark: str, options: Namespace) -> Result:
        """Return the result of a run with these options, still without figures."""
        return cls(benchmark=benchmark, seed=options.seed, quick=options.quick, settings=_settings_of(vars(options)))

    def add(self, name: str, value: Any, unit: str = "") -> None:
        """Add a figure."""
        self.figures[name] = value
        if unit:
            self.units[name] = unit

    def finish(self, path: Path) -> None:
        """Complete the result, write it to `path` and print it."""
        self.date = datetime.now(UTC).isoformat(timespec="seconds")
        self.versions, self.machine = versions(), machine()
        busy = self.settings.get(BUSY_BEFORE, 0.0)
        if busy > _BUSY_PERCENT:
            self.notes.append(
                f"other processes kept the processors {busy:.0f} % busy at the start: measure again on an idle machine"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        goals = [{**msgspec.to_builtins(goal), "reached": goal.reached} for goal in self.goals]
        encoded = msgspec.json.encode({**msgspec.to_builtins(self), "goals": goals})
        path.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")
        self._print(path)

    def exit_code(self) -> int:
        """Return 1 if a goal was missed, else 0. How long something takes in a quick run decides nothing: the machine
        may be busy with other tests.
        """
        decisive = [goal for goal in self.goals if not (self.quick and goal.unit in ("s", "ms"))]
        return int(any(goal.reached is False for goal in decisive))

    def _print(self, path: Path) -> None:
        title = f"{self.benchmark}{' (quick: not to be quoted)' if self.quick else ''}"
        table = Table(title=title, title_justify="left", header_style="bold")
        for column in ("figure", "value", "unit"):
            table.add_column(column, justify="right" if column == "value" else "left")
        for name, value in self.figures.items():
            if not isinstance(value, (list, dict)):
                table.add_row(name, shown(value), self.units.get(name, ""))
        console.print(table)
        goals = Table(header_style="bold")
        for column in ("goal", "wanted", "measured", "reached"):
            goals.add_column(column)
        for goal in self.goals:
            goals.add_row(
                goal.what, f"{goal.relation} {goal.goal:g} {goal.unit}", shown(goal.figure), verdict(goal.reached)
            )
        if self.goals:
            console.print(goals)
        for note in [*(goal.note for goal in self.goals if goal.note), *self.notes]:
            console.print(f"note: {note}", markup=False)
        console.print(f"written to {path}", markup=False)


def read_result(path: Path) -> Result:
    """Read a result. Raises OSError and msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=Result)


def shown(value: object) -> str:
    """Return a figure for display."""
    if value is None:
        return "not measured"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.4g}"


def verdict(reached: bool | None) -> str:
    """Return whether a goal was reached, for display."""
    return {True: "yes", False: "NO", None: "not measured"}[reached]


def _settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run for its result, and how busy other processes kept the machine before it."""
    relevant = {name: value for name, value in options.items() if name not in ("output", "seed", "quick")}
    # Of a path, only the name: the rest is about this machine.
    settings = {name: value.name if isinstance(value, Path) else value for name, value in relevant.items()}
    return {**settings, BUSY_BEFORE: psutil.cpu_percent(interval=_LOOK_SECONDS)}


_PACKAGES: Final = {
    "celery": "celery",
    "torch": "torch",
    "sentence_transformers": "sentence-transformers",
    "sqlite_vec": "sqlite-vec",
}
_FLAGS: Final = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "avx512_vnni")


def versions() -> dict[str, str]:
    """Return the versions on which a figure depends."""
    found = {"reverie": __version__, "python": platform.python_version(), "sqlite": str(pysqlite3.sqlite_version)}
    for name, package in _PACKAGES.items():
        try:
            found[name] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["valkey"] = _valkey()
    return found


def machine() -> dict[str, object]:
    """Return the processor, its features, and the memory."""
    about = _cpuinfo()
    flags = set(about.get("flags", about.get("Features", "")).split())
    return {
        "cpu": about.get("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "bf16": bool(flags & {"avx512_bf16", "amx_bf16", "bf16"}),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
    }


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _valkey() -> str:
    from worker.supervision.embedded_broker import broker_command

    with tempfile.TemporaryDirectory(prefix="rvb-version-") as name:
        binary = broker_command(Path(name))[0]
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    return next((word.removeprefix("v=") for word in done.split() if word.startswith("v=")), "unknown")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile. Raises ValueError: if the list is empty."""
    if not values:
        raise ValueError("no values, so no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """Return the median, rounded for display."""
    return rounded(statistics.median(values))


def rounded(value: float) -> float:
    """Return a figure with five digits: measurements are not more precise."""
    return float(f"{value:.5g}")
