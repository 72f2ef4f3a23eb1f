"""Show that tenants, agents and end users are kept apart: random calls of all of them, with canaries in every text.

Two tenants with the same names of agents and users store content in every field of every call, and read by every call;
some requests name ids of others, and some have the headers of others. Schedules fire, and the periodic jobs run
meanwhile. No answer, log line, file or webhook may show anybody a canary of somebody else.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Final

import httpx2
import msgspec

from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, console, settings_of
from benchmarks.harness.stack import Stack
from benchmarks.isolation.actors import Cast
from benchmarks.isolation.driver import Driver, tokens_of
from benchmarks.isolation.made_up_calls import Requests
from benchmarks.isolation.traces import look_in_files, look_in_text
from benchmarks.isolation.webhooks import Webhooks
from server.app import endpoints
from worker.supervision.local_token import read_local_token

_JOB_ROUNDS: Final = 4
# The deterministic one: who sees what does not depend on it, and the model would take most of the time.
_EMBEDDER: Final = {"REVERIE_EMBEDDING_PROVIDER": "hash"}
_DRAIN_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.2


def main() -> None:
    """Make the calls, look everywhere, and write the result."""
    options = _options()
    operations = int(value_or_default(options.operations, quick=options.quick, tiny=400, full=50_000))
    result = Result(benchmark="isolation", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    chance = random.Random(options.seed)
    cast, tell = Cast(), Progress()
    with Webhooks(cast) as webhooks, Stack(env=webhooks.settings | _EMBEDDER, keep=options.keep) as stack:
        credentials = {"Authorization": f"Bearer {read_local_token(stack.data)}"}
        with httpx2.Client(base_url=stack.url, timeout=_DRAIN_SECONDS, headers=credentials) as operator:
            requests, tokens = Requests(chance, cast=cast, webhook=webhooks.url), tokens_of(cast, operator)
            play = Driver(cast, requests, chance, url=stack.url, tokens=tokens)
            for actor in cast.actors:
                if actor.in_group:
                    play.send(requests.in_group(actor), actor)
            for number in range(operations):
                play.step()
                tell(f"{number + 1:,} of {operations:,} calls, {play.tally.leaks} leaks")
                if (number + 1) % (operations // _JOB_ROUNDS) == 0:
                    _run_jobs(operator, cast, play, tell)
            _read_everything(cast, play, requests)
            for path in ("/metrics", "/v1/status", "/healthz"):
                look_in_text(path, operator.get(path).text, cast, play.tally)
        for place, text, found in webhooks.leaks():
            play.tally.add(place, "a webhook", text, found)
        play.close()
        stack.stop()
        files = look_in_files(stack.data, cast, play.tally)
    _conclude(result, play, files, webhooks.taken)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("isolation", __doc__, data=False)
    options.add_argument("--operations", type=int, help="number of random calls (50,000; 400 with --quick)")
    options.add_argument("--keep", action="store_true", help="keep the data folder")
    return options.parse_args()


def _run_jobs(operator: httpx2.Client, cast: Cast, play: Driver, tell: Progress) -> None:
    """Wait until everything is indexed, and run every periodic job in every workspace."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    while _waiting(operator) and time.monotonic() < deadline:
        tell("waiting for the workers")
        time.sleep(_POLL_SECONDS)
    for job in operator.get("/v1/jobs").json()["jobs"]:
        answer = operator.post(f"/v1/jobs/{job['name']}/run", json={})
        look_in_text(f"job {job['name']}", answer.text, cast, play.tally)


def _waiting(operator: httpx2.Client) -> bool:
    status = operator.get("/v1/status").json()
    stages = sum(stage["waiting"] for stage in status["stages"].values())
    return bool(stages + sum(inbox["size"] for inbox in status["inboxes"]))


def _read_everything(cast: Cast, play: Driver, requests: Requests) -> None:
    """Let every actor make every reading call a few times, when all content is there."""
    for actor in cast.actors:
        for endpoint in endpoints():
            if endpoint.kind.route.startswith("GET"):
                play.send(requests.of(endpoint.kind, actor), actor)


def _conclude(result: Result, play: Driver, files: int, webhooks: int) -> None:
    tally = play.tally
    result.add("operations", tally.calls.total())
    result.add("calls", dict(tally.calls.most_common()))
    result.add("kinds_of_calls", len(tally.calls))
    # A call that never succeeds shows nothing.
    result.add("never_succeeded", sorted(name for name in tally.calls if not tally.succeeded[name]))
    result.add("statuses", {str(status): count for status, count in sorted(tally.statuses.items())})
    result.add("attempts_on_others", tally.attacks)
    result.add("files", files)
    result.add("webhooks", webhooks)
    result.add("leaks", tally.leaks)
    result.add("examples", [msgspec.to_builtins(leak) for leak in tally.examples])
    for leak in tally.examples:
        console.print(f"leak: {leak}", markup=False)
    result.goals.append(Goal(what="canaries of others", relation="==", goal=0, figure=tally.leaks))


if __name__ == "__main__":
    run(main)
