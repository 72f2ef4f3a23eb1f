"""Run workers on several hosts with PostgreSQL, break them, their links, the database and the broker, and count losses.

Each host is a network namespace with a clock of its own, which is up to two seconds wrong, a data folder of its own,
and all processes of `reverie up`: workers, beat and server. Broker and database are on another host, and the producers
on one more. At the end every acknowledged message must be in the database once and be searchable, and every schedule
must have fired once. Needs root, `ip` (iproute2) and a C compiler.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness.folders import short_folder
from benchmarks.harness.hosts import ADDRESSES, AGENTS_HOST, DATA_HOST, Broker, Faults, Hosts, Network, drawn_faults
from benchmarks.harness.load import PATIENCE_SECONDS, Audit, Load, audit_workspace
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.postgres import PostgresWatch, RunningServer, running_server
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, rounded
from benchmarks.harness.stack import WORKSPACE
from benchmarks.harness.texts import load_texts
from memory.scheduling.rules import ScheduleRules
from memory.scheduling.schedules import create_schedule
from reverie.clock import from_micros, now_micros
from reverie.errors import ReverieError
from reverie.scheduling.cadence import parse_cadence
from reverie.scheduling.types import LlmExecutor, ScheduleDraft, check_schedule
from storage.postgres.stores import PostgresStores
from storage.stores import Store

_SCHEDULES_A_USER: Final = 50
_POLL_SECONDS: Final = 0.5
_FIRED: Final = """
    SELECT s.id, count(r.id), sum(CASE WHEN r.status = 'success' THEN 1 ELSE 0 END) FROM schedules AS s
    LEFT JOIN schedule_runs AS r ON r.schedule_id = s.id GROUP BY s.id
"""
_UNSUCCESSFUL: Final = """
    SELECT r.status, r.trigger_kind, r.attempt, r.error FROM schedule_runs AS r JOIN schedules AS s
    ON s.id = r.schedule_id WHERE s.last_run_status IS NULL OR s.last_run_status <> 'success' ORDER BY r.schedule_id
"""
# How long a schedule that is due waits at most for its run: one that failed is tried again after some minutes.
_LATE_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class _Installation:
    """All that runs."""

    network: Network
    database: RunningServer
    broker: Broker
    hosts: Hosts
    watch: PostgresWatch
    url: str
    folder: Path

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """Open the workspace in the database."""
        stores = PostgresStores(self.folder, self.url)
        try:
            yield stores.workspace(WORKSPACE)
        finally:
            stores.close()


def main() -> None:
    """Measure and write the result. Exit with 1 if something was lost or done twice."""
    options = _options()
    count = int(value_or_default(options.messages, quick=options.quick, tiny=300, full=30_000))
    faults = int(value_or_default(options.faults, quick=options.quick, tiny=3, full=40))
    seconds = value_or_default(options.seconds, quick=options.quick, tiny=10, full=240)
    schedules = int(value_or_default(options.schedules, quick=options.quick, tiny=10, full=300))
    number = int(value_or_default(options.hosts, quick=options.quick, tiny=2, full=3))
    result = Result.of("hosts", options)
    result.settings.update(messages=count, faults=faults, seconds=seconds, schedules=schedules, hosts=number)
    texts = load_texts(options.data, count, seed=options.seed)
    tell = Progress()
    with _running(number) as installation:
        tell.step(f"{number} hosts run")
        hosts, watch = installation.hosts, installation.watch
        last_due = _make_schedules(installation, schedules, seconds, options.seed)
        # The links of the agents and of the database may be cut one after the other.
        patience = PATIENCE_SECONDS + 2 * options.longest_cut
        load = Load(
            hosts, texts, count, seconds=seconds, producers=options.producers, seed=options.seed, patience=patience
        )
        plan = drawn_faults(faults, seconds, number, longest_cut=options.longest_cut, seed=options.seed)
        harm = Faults(hosts, installation.network, installation.database, installation.broker, plan, options.seed)
        began = time.monotonic()
        _send(load, harm, tell)
        quiet = time.monotonic()
        ended = _await_searchable(load, watch, options.timeout, tell)
        tell.step("comparing the database with what was acknowledged")
        with installation.opened() as store:
            found = audit_workspace(watch, store, load)
        fired = _await_schedules(watch, last_due, tell)
        deaf = hosts.count_workers_without_tasks()
        result.notes += [f"unsuccessful run: {', '.join(map(str, row))}" for row in watch.rows(_UNSUCCESSFUL)[:10]]
    result.settings["done"] = dict(harm.done_by_kind)
    if ended is not None:
        result.add("recovery", rounded(ended - quiet), "s")
        result.add("ingest", rounded(count / (ended - began)), "messages/s")
    _conclude(result, load, found, {**fired, "workers_that_took_no_tasks": deaf})
    result.finish(options.output)
    sys.exit(result.exit_code())


def _options() -> argparse.Namespace:
    options = parser("hosts", __doc__)
    options.add_argument("--hosts", type=int, help="hosts that run workers, beat and server (3; 2 with --quick)")
    options.add_argument("--messages", type=int, help="messages to send (30,000; 300 with --quick)")
    options.add_argument("--faults", type=int, help="number of faults (40; 3 with --quick)")
    options.add_argument("--seconds", type=float, help="seconds over which both are spread (240; 10 with --quick)")
    options.add_argument("--schedules", type=int, help="schedules, due at random seconds (300; 10 with --quick)")
    options.add_argument("--producers", type=int, default=3, help="threads that send; the last one waits for `stored`")
    options.add_argument(
        "--longest-cut", type=float, default=15, help="the most seconds for which a link or host is away"
    )
    options.add_argument("--timeout", type=float, default=300, help="seconds to wait for the recovery")
    return options.parse_args()


@contextmanager
def _running(count: int) -> Iterator[_Installation]:
    """Build the network with all that runs in it, and put this process on the host of the agents."""
    if os.geteuid() or shutil.which("ip") is None:
        raise SystemExit("this benchmark makes network namespaces: run it as root, with iproute2 installed")
    folder = short_folder("rvb-")
    with ExitStack() as held:
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        network = held.enter_context(Network())
        address = network.add(DATA_HOST)
        network.add(AGENTS_HOST)
        database = held.enter_context(running_server(partial(network.inside, DATA_HOST)))
        held.enter_context(network.inside(AGENTS_HOST))
        broker = Broker(network, address, folder)
        held.callback(broker.stop)
        broker.start()
        url = database.listen(address, ADDRESSES)
        environment = {"REVERIE_DATABASE": url, "REVERIE_EMBEDDING_PROVIDER": "hash"}
        hosts = Hosts(network, count, environment, broker.url, folder)
        held.callback(hosts.stop)
        hosts.start()
        watch = held.enter_context(PostgresWatch(url, folder / "watch", WORKSPACE))
        yield _Installation(network, database, broker, hosts, watch, url, folder / "here")


def _make_schedules(installation: _Installation, count: int, seconds: float, seed: int) -> int:
    """Create schedules that are due once, at random seconds of the load; return the time of the last one."""
    chance = random.Random(seed)
    now = now_micros()
    times = [now + int((5 + chance.random() * seconds) * 1_000_000) for _ in range(count)]
    with installation.opened() as store:
        for number, at in enumerate(times):
            draft = ScheduleDraft(
                goal=f"Say what became of errand {number}",
                user=f"user-{number // _SCHEDULES_A_USER}",
                cadence=parse_cadence(at=from_micros(at)),
                executor=LlmExecutor(),
            )
            create_schedule(
                store,
                check_schedule(draft),
                agent="bench",
                rules=ScheduleRules(max_per_user=_SCHEDULES_A_USER),
                check_url=lambda _: None,
                now=now,
            )
    return max(times)


def _send(load: Load, harm: Faults, tell: Progress) -> None:
    """Send and break until both are done."""
    started = time.monotonic()
    load.start()
    try:
        while not (load.done and harm.done):
            now = time.monotonic() - started
            for line in harm.step(now):
                tell.step(f"{now:6.1f} s  {line}")
            tell(f"{now:5.0f} s  {load.acknowledged_count:,} acknowledged, {load.resent:,} sent again")
            time.sleep(0.02)
    finally:
        load.stop()


def _await_searchable(load: Load, watch: PostgresWatch, timeout_seconds: float, tell: Progress) -> float | None:
    """Wait until all that was acknowledged is searchable; return the monotonic time of that, or None."""
    deadline = time.monotonic() + timeout_seconds
    wanted = load.acknowledged_count
    while time.monotonic() < deadline:
        with suppress(ReverieError):
            stored, waiting = watch.messages(), watch.waiting()
            if stored >= wanted and waiting == 0:
                return time.monotonic()
            tell(f"{stored:,} of {wanted:,} stored, {waiting:,} rows wait")
        time.sleep(_POLL_SECONDS)
    return None


def _await_schedules(watch: PostgresWatch, last_due: int, tell: Progress) -> dict[str, int]:
    """Wait until all schedules have fired; return how many have not, have more than once, and have not succeeded."""
    deadline = time.monotonic() + max(0.0, (last_due - now_micros()) / 1_000_000) + _LATE_SECONDS
    while True:
        runs: Sequence[tuple[str, int, int | None]] = watch.rows(_FIRED)
        unfinished = sum(not succeeded for _, _, succeeded in runs)
        if not unfinished or time.monotonic() > deadline:
            return {
                "schedules": len(runs),
                "schedules_not_fired": sum(not count for _, count, _ in runs),
                "schedules_fired_twice": sum((succeeded or 0) > 1 for _, _, succeeded in runs),
                "schedules_without_success": unfinished,
            }
        tell(f"{unfinished} schedules have not succeeded yet")
        time.sleep(_POLL_SECONDS)


def _conclude(result: Result, load: Load, found: Audit, counts: dict[str, int]) -> None:
    result.add("acknowledged", load.acknowledged_count)
    result.add("sent_again", load.resent)
    for name in ("stored", "lost", "doubled", "dead_letters", "not_searchable"):
        result.add(name, getattr(found, name))
    for name, number in counts.items():
        result.add(name, number)
    result.notes += [*found.wrong, *found.dead_reasons, *load.surprises[:10]]
    numbers = {
        "messages lost": found.lost,
        "messages stored twice": found.doubled,
        "messages set aside": found.dead_letters,
        "messages not searchable": found.not_searchable,
        "findings of verify, and unexpected errors": len(found.wrong) + len(load.surprises),
        "schedules that did not fire": counts["schedules_not_fired"],
        "schedules that fired twice": counts["schedules_fired_twice"],
        "schedules without a success": counts["schedules_without_success"],
        "workers that took no tasks": counts["workers_that_took_no_tasks"],
    }
    result.goals += [Goal(what=what, relation="==", goal=0, figure=number) for what, number in numbers.items()]


if __name__ == "__main__":
    run(main)
