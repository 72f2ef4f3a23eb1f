"""Write the latest figures into `docs/benchmarks.md`, between its markers: `python -m benchmarks.report`.

Results of quick runs are ignored.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness.options import RESULTS, ROOT
from benchmarks.harness.result import Goal, Result, read_result, shown

BEGIN: Final = "<!-- figures:begin -->"
END: Final = "<!-- figures:end -->"
_PAGE: Final = ROOT / "docs" / "benchmarks.md"
_REACHED: Final = {True: "reached", False: "**missed**", None: "not measured"}
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
    """Yield the lines of the block: the goals first, then every figure with its machine."""
    if not results:
        yield "No results yet: run `make bench`."
        return
    yield "| benchmark | goal | target | measured | |"
    yield "| --- | --- | --- | --- | --- |"
    for result in results:
        for goal in result.goals:
            yield _goal_row(result.benchmark, goal)
    for result in results:
        yield ""
        yield from _figures(result)


def _goal_row(benchmark: str, goal: Goal) -> str:
    target = f"{_RELATIONS[goal.relation]}{goal.goal:,g} {goal.unit}".strip()
    measured = f"{shown(goal.figure)} {goal.unit}".strip() if goal.figure is not None else goal.note or "-"
    return f"| `{benchmark}` | {goal.what} | {target} | {measured} | {_REACHED[goal.reached]} |"


def _figures(result: Result) -> Iterator[str]:
    about = result.machine
    where = f"{about['cpu']}, {about['cores']} cores{', bfloat16' if about['bf16'] else ''}, {about['memory_gib']} GiB"
    with_what = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    yield f"### {result.benchmark}"
    yield f"{result.date[:10]}, {where}; {with_what}; seed {result.seed}."
    yield ""
    yield "| figure | value |"
    yield "| --- | --- |"
    for name, value in result.figures.items():
        if isinstance(value, dict) or (isinstance(value, list) and not all(isinstance(v, (int, float)) for v in value)):
            continue
        values = ", ".join(shown(number) for number in value) if isinstance(value, list) else shown(value)
        yield f"| {name.replace('_', ' ')} | {values} {result.units.get(name, '')} |"
    for note in result.notes:
        yield f"\nNote: {note}"


def _results(folder: Path) -> list[Result]:
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            result = read_result(path)
        except msgspec.DecodeError as error:
            sys.exit(f"{path} is not a result of a benchmark: {error}")
        if not result.quick:
            found.append(result)
    return found


if __name__ == "__main__":
    main()
