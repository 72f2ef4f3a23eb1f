"""Send odd payloads of every kind to a running stack, all made from a seed.

Requests, queries, items of the inbox, messages in the queues and keys of the broker go to one stack; files are read in
processes of their own. None may be answered 500 and none may end a process. In the end a message of somebody else
becomes searchable, and the inbox is empty. Before, texts that are derived from each regular expression of the product
are searched.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from benchmarks.fuzz.kinds import KINDS
from benchmarks.fuzz.sending import TOKEN, Found, Scene, crashed_tasks, deaths, inbox_left, processes_of
from benchmarks.harness.figures import rounded
from benchmarks.harness.options import parser, run
from benchmarks.harness.patterns import find_patterns
from benchmarks.harness.progress import Progress
from benchmarks.harness.pumping import pumps_of, slow_pumps
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.errors import ReverieError

_PAYLOADS: Final = 100_000
_QUICK_PAYLOADS: Final = 600
_DRAIN_SECONDS: Final = 120.0
_ENVIRONMENT: Final = {"REVERIE_EMBEDDING_PROVIDER": "hash", "REVERIE_TOKEN": TOKEN}
# Of all payloads.
_SHARES: Final[Mapping[str, float]] = {
    "requests": 0.3,
    "queries": 0.15,
    "items": 0.15,
    "tasks": 0.15,
    "keys": 0.1,
    "files": 0.15,
}


def main() -> None:
    """Measure and write the result."""
    options = _options()
    result = Result(benchmark="fuzz", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    tell = Progress()
    if not options.only:
        _pump(result, options.seed, quick=options.quick)
        tell.step("patterns searched")
    counts = _counts(options)
    with Stack(env=_ENVIRONMENT) as stack:
        stack.wait_server()
        before = processes_of(stack)
        scene = Scene(stack, options.seed, tell)
        found: dict[str, Found] = {}
        for kind, count in counts.items():
            tell.step(f"{kind}: {count:,}")
            found[kind] = KINDS[kind](scene, count)
        stored, waiting = _is_stored(stack), inbox_left(stack, _DRAIN_SECONDS)
        dead, crashed = deaths(stack, before), crashed_tasks(stack)
    _add(result, found)
    result.add("tasks_that_met_a_bug", crashed)
    result.notes += [*(f"died: {name}" for name in dead[:10])]
    failures = [failure for each in found.values() for failure in each.failures]
    total = sum(each.sent for each in found.values())
    result.goals += [
        Goal(
            what=f"answers 500 and other failures, of {total:,} odd payloads",
            relation="==",
            goal=0,
            figure=len(failures),
        ),
        Goal(what="processes that ended", relation="==", goal=0, figure=len(dead)),
        Goal(what="items left in the inbox", relation="==", goal=0, figure=waiting),
        Goal(what="messages of somebody else that are searchable afterwards", relation="==", goal=1, figure=stored),
    ]
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("fuzz", __doc__, data=False)
    options.add_argument(
        "--payloads", type=int, default=None, help=f"how many of all kinds together; {_PAYLOADS:,} by default"
    )
    options.add_argument(
        "--only", nargs="*", choices=list(KINDS), default=None, metavar="KIND", help=f"only these: {', '.join(KINDS)}"
    )
    return options.parse_args()


def _counts(options: argparse.Namespace) -> dict[str, int]:
    """Return how many payloads of each kind to send."""
    count = options.payloads or (_QUICK_PAYLOADS if options.quick else _PAYLOADS)
    chosen = {kind: share for kind, share in _SHARES.items() if not options.only or kind in options.only}
    return {kind: round(count * share / sum(chosen.values())) for kind, share in chosen.items()}


def _pump(result: Result, seed: int, *, quick: bool) -> None:
    found, _ = find_patterns()
    limit, characters = (4, 200) if quick else (60, 4_000)
    slow = [
        f"{one.where}: {pumped}"
        for one in found
        for pumped in slow_pumps(one.pattern, pumps_of(one.pattern, seed=seed, limit=limit), characters=characters)
    ]
    result.add("patterns", len(found))
    result.notes += slow[:10]
    result.goals.append(Goal(what="patterns that are not linear", relation="==", goal=0, figure=len(slow)))


def _add(result: Result, found: Mapping[str, Found]) -> None:
    for kind, each in found.items():
        result.add(f"{kind}", each.sent)
        result.add(f"{kind}_seconds_for_1000", rounded(each.seconds / max(1, each.sent) * 1_000), "s")
        for outcome, number in sorted(each.outcomes.items()):
            result.add(f"{kind}_{outcome.replace(' ', '_')}", number)
        result.notes += [f"{kind}: {failure}" for failure in each.failures[:10]]


def _is_stored(stack: Stack) -> int:
    """Return 1 if a message of somebody else becomes searchable, else 0."""
    with Reverie(
        "lif", broker=stack.broker_url, url=stack.url, workspace="others", token=TOKEN, timeout_seconds=60
    ) as client:
        try:
            client.ingest("s", {"role": "user", "content": "a lantern on the quay"}, wait="searchable")
            return int(bool(client.recall("lantern on the quay").results))
        except ReverieError:
            return 0


if __name__ == "__main__":
    run(main)
