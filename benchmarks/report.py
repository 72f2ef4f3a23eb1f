"""Write the latest figures into `docs/benchmarks.md`, between its markers: `python -m benchmarks.report`.

Results of quick runs, and of studies whose programs are gone, are ignored.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.__main__ import BENCHMARKS
from benchmarks.harness.options import RESULTS, ROOT
from benchmarks.harness.result import Goal, Result, read_result, shown

BEGIN: Final = "<!-- figures:begin -->"
END: Final = "<!-- figures:end -->"
_PAGE: Final = ROOT / "docs" / "benchmarks.md"
_REACHED: Final = {True: "", False: ", **missed**", None: ", not measured"}
_RELATIONS: Final = {">=": "at least ", "<=": "at most ", "<": "under ", "==": ""}


def main() -> None:
    """Render the results and write them into the page."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.report", description=(__doc__ or "").split("\n")[0])
    options.add_argument("--results", type=Path, default=RESULTS, help="the folder with the results")
    options.add_argument("--page", type=Path, default=_PAGE, help="the page with the markers")
    options.add_argument("--print", action="store_true", help="print the block instead of changing the page")
    arguments = options.parse_args()
    block = "\n".join(render(_results(arguments.results)))
    if arguments.print:
        print(block)
        return
    try:
        page = arguments.page.read_text(encoding="utf-8")
        arguments.page.write_text(placed(page, block), encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.exit(f"{arguments.page}: {error}")


def placed(page: str, block: str) -> str:
    """Return the page with the block between its markers. Raises ValueError: if they are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs a line {BEGIN} and, below it, a line {END}")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def render(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of the block: the goals, then when and where each benchmark ran.

    The result files have every single figure, and notes on the runs that are marked.
    """
    if not results:
        yield "No results yet: run `make bench`."
        return
    yield "| benchmark | goal | target | measured |"
    yield "| --- | --- | --- | --- |"
    for result in results:
        for goals in _alike(result.goals):
            yield _goal_row(result.benchmark, goals)
    yield ""
    for run, names in _by_run(results).items():
        yield f"- {run}: {', '.join(names)}."


def _alike(goals: Sequence[Goal]) -> Iterator[list[Goal]]:
    """Yield the goals that share a row: one figure with one target in several cases, and counts that must be 0."""
    groups: dict[tuple[object, ...], list[Goal]] = {}
    for goal in goals:
        zero = goal.relation == "==" and goal.goal == 0
        what = "" if zero else goal.what.rpartition(": ")[2]
        groups.setdefault((what, goal.relation, goal.goal, goal.unit, goal.reached), []).append(goal)
    yield from groups.values()


def _goal_row(benchmark: str, goals: Sequence[Goal]) -> str:
    worst = max(goals, key=lambda goal: (-1 if goal.relation == ">=" else 1) * (goal.figure or 0))
    what = worst.what if len(goals) == 1 else f"{_shared(goals)} (worst of {len(goals)})"
    target = f"{_RELATIONS[worst.relation]}{worst.goal:,g} {worst.unit}".strip()
    measured = f"{shown(worst.figure)} {worst.unit}".strip() if worst.figure is not None else worst.note or "-"
    return f"| `{benchmark}` | {what} | {target} | {measured}{_REACHED[worst.reached]} |"


def _shared(goals: Sequence[Goal]) -> str:
    """Return what several goals measure, without their cases; of more than three different ones the first three."""
    names = list(dict.fromkeys(goal.what.rpartition(": ")[2] for goal in goals))
    return "; ".join([*names[:3], "..."] if len(names) > 3 else names)


def _by_run(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the benchmarks by the day and the machine of their run."""
    runs: dict[str, list[str]] = {}
    for result in results:
        about = result.machine
        numbers = ", bfloat16" if about["bf16"] else ""
        where = f"{result.date[:10]}, {about['cpu']}, {about['cores']} cores{numbers}, {about['memory_gib']} GiB"
        runs.setdefault(where, []).append(f"`{result.benchmark}`" + ("*" if result.notes else ""))
    return runs


def _results(folder: Path) -> list[Result]:
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            result = read_result(path)
        except msgspec.DecodeError as error:
            sys.exit(f"{path} is not a result of a benchmark: {error}")
        if not result.quick and result.benchmark in BENCHMARKS:
            found.append(result)
    return found


if __name__ == "__main__":
    main()
