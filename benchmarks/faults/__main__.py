"""Bring about one bad day after the other on a running stack, and count what was lost, doubled, set aside and late.

Each scenario has a stack of its own. Somebody else stores and recalls on it all the time. When the cause has gone,
everything that was accepted must be searchable once, and the databases must be consistent.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.table import Table

from benchmarks.faults.accepted import Accepted, Outcome
from benchmarks.faults.others import Others
from benchmarks.faults.scenario import Scenario, Scene
from benchmarks.faults.scenarios import SCENARIOS
from benchmarks.faults.setting import NotHere, Setting
from benchmarks.harness.options import parser, run
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, console, rounded, shown
from benchmarks.harness.stack import Stack

_RECOVERY_SECONDS: Final = 300.0
# The hash embedder: the figures do not depend on the vectors, and a model would take most of the time.
_ENVIRONMENT: Final = {"REVERIE_EMBEDDING_PROVIDER": "hash"}


@dataclass(slots=True)
class _Ran:
    """One scenario as it went."""

    scenario: Scenario
    outcome: Outcome = field(default_factory=Outcome)
    others_stored: float = 0.0
    others_recalled: float = 0.0
    recovery: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    not_here: str = ""


def main() -> None:
    """Run the scenarios and write the result. Exit with 1 if a promise was broken."""
    options = _options()
    result = Result.of("faults", options)
    tell = Progress()
    ran = []
    for number, scenario in enumerate(chosen := _chosen(options.only), 1):
        tell.step(f"{number} of {len(chosen)}: {scenario.name}: {scenario.what}")
        ran.append(_run(scenario, options.seed, quick=options.quick, tell=tell))
    for each in ran:
        _add(result, each)
    console.print(_table(ran))
    result.finish(options.output)
    sys.exit(result.exit_code())


def _options() -> argparse.Namespace:
    options = parser("faults", __doc__, data=False)
    names = [scenario.name for scenario in SCENARIOS]
    options.add_argument("--only", nargs="*", choices=names, default=None, metavar="NAME", help=", ".join(names))
    return options.parse_args()


def _chosen(names: Sequence[str] | None) -> list[Scenario]:
    return [scenario for scenario in SCENARIOS if names is None or scenario.name in names]


def _run(scenario: Scenario, seed: int, *, quick: bool, tell: Progress) -> _Ran:
    ran = _Ran(scenario)
    try:
        with scenario.setting() as setting:
            _run_on(setting, ran, seed, quick=quick, tell=tell)
    except NotHere as error:
        ran.not_here = str(error)
        tell.step(f"{scenario.name}: {error}")
    return ran


def _run_on(setting: Setting, ran: _Ran, seed: int, *, quick: bool, tell: Progress) -> None:
    scenario = ran.scenario
    with Stack(env={**_ENVIRONMENT, **scenario.env, **setting.env}, folder=setting.folder) as stack:
        stack.wait_server()
        accepted = Accepted(stack)
        with Others(stack, accepted) as others:
            scene = Scene(stack, setting, others, accepted, random.Random(seed), quick, tell)
            began = time.monotonic()
            try:
                scenario.cause(scene)
            except TimeoutError as error:
                ran.broken.append(str(error))
            tell("the cause has gone: waiting for the recovery")
            ran.recovery = accepted.await_searchable(_RECOVERY_SECONDS)
            ran.others_stored = others.longest_wait("store", began)
            ran.others_recalled = others.longest_wait("recall", began)
        # Wait for the last messages of the other users, too.
        accepted.await_searchable(_RECOVERY_SECONDS)
        ran.outcome = accepted.outcome()
    ran.figures, ran.broken = scene.figures, [*ran.broken, *scene.broken]


def _add(result: Result, ran: _Ran) -> None:
    """Add the figures and goals of one scenario to the result."""
    scenario, found, limits = ran.scenario, ran.outcome, ran.scenario.limits
    if ran.not_here:
        what = f"{scenario.what}: lost, doubled or wrong"
        result.goals.append(Goal(what=what, relation="==", goal=0, figure=None, note=ran.not_here))
        return
    set_aside = abs(found.dead_letters - limits.dead_letters)
    bad = found.lost + found.doubled + found.not_searchable + set_aside + len(ran.broken) + len(found.wrong)
    result.goals.append(Goal(what=f"{scenario.what}: lost, doubled or wrong", relation="==", goal=0, figure=bad))
    seconds = {
        "others_stored": (ran.others_stored, limits.others_stored_seconds, "a message of others is searchable"),
        "others_recalled": (ran.others_recalled, limits.others_recalled_seconds, "a recall of others is answered"),
        "recovery": (ran.recovery, limits.recovery_seconds, "all is searchable after the cause has gone"),
    }
    counts = {
        "accepted": found.accepted,
        "lost": found.lost + found.not_searchable,
        "doubled": found.doubled,
        "dead_letters": found.dead_letters,
    }
    for name, count in counts.items():
        result.add(f"{scenario.name}_{name}", count)
    for name, (figure, limit, what) in seconds.items():
        measured = rounded(_RECOVERY_SECONDS if figure is None else figure)
        result.add(f"{scenario.name}_{name}", measured, "s")
        if limit is not None:
            goal = Goal(what=f"{scenario.what}: {what}", relation="<=", goal=limit, figure=measured, unit="s")
            result.goals.append(goal)
    for figure_name, value in ran.figures.items():
        result.add(f"{scenario.name}_{figure_name}", rounded(value))
    result.notes += [f"{scenario.name}: {line}" for line in [*ran.broken, *found.wrong, *found.reasons]]


def _table(ran: Sequence[_Ran]) -> Table:
    table = Table(title="what happened (seconds: the longest)", title_justify="left", header_style="bold")
    columns = ("fault", "accepted", "lost", "doubled", "dead letters", "others stored", "others recalled", "recovery")
    for column in columns:
        table.add_column(column, justify="left" if column == "fault" else "right")
    for each in ran:
        if each.not_here:
            table.add_row(each.scenario.name, *["not measured"] * (len(columns) - 1))
            continue
        found = each.outcome
        counts = (found.accepted, found.lost + found.not_searchable, found.doubled, found.dead_letters)
        seconds = (each.others_stored, each.others_recalled, each.recovery)
        values = [*counts, *(None if value is None else rounded(value) for value in seconds)]
        table.add_row(each.scenario.name, *(shown(value) for value in values))
    return table


if __name__ == "__main__":
    run(main)
