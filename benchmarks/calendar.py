"""Check that each due time is in exactly one run, over days of schedules in minutes, while processes are killed.

Three beat processes and two workers fire some dozens of schedules by a clock that runs thousands of times faster, in
four time zones, three of which change their clocks. Meanwhile an operator pauses, changes, deletes and runs schedules.
At the end the runs are compared with a calendar computed without Reverie, and the webhook receiver's log with the runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from benchmarks.harness.calendar_audit import LONGEST_DELAY_SECONDS, CalendarAudit, CalendarAuditor
from benchmarks.harness.days_chaos import Days, TroublePlan
from benchmarks.harness.fast_clock import FastClock
from benchmarks.harness.figures import percentile, rounded
from benchmarks.harness.made_up_schedules import MadeUpSchedules
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.run_audit import RunAudit, audit_deliveries, audit_notifications, audit_rows
from benchmarks.harness.schedule_operator import AGENT, WORKSPACE, Operator
from benchmarks.harness.webhook_receiver import Delivery, Receiver
from reverie.clock import now_micros, to_micros
from storage.scheduling.records import OPEN_STATUSES, RunRecord, ScheduleFilter, ScheduleRecord
from storage.stores import Store

_EVERYTHING: Final = 1_000_000
_POLL_SECONDS: Final = 0.02
# All rows are read to find out whether everything is finished.
_LOOK_SECONDS: Final = 0.3
# Time before the clock starts, in which all schedules are created.
_LEAD_MICROS: Final = 4_000_000
# Share of the days in which processes are killed; afterwards failed one-shots have time for their retries.
_SHARE_WITH_KILLS: Final = 0.9
_LINES: Final = 10


@dataclass(frozen=True, slots=True)
class Rows:
    """All schedules and their runs at one time of the fast clock."""

    at: int
    schedules: dict[str, ScheduleRecord]
    runs: dict[str, list[RunRecord]]

    @property
    def at_rest(self) -> bool:
        """Return whether no run is open, nothing is due, and no retry is pending."""
        waits = any(
            one.status == "active" and one.next_run_at is not None and (one.next_run_at <= self.at or one.retries > 0)
            for one in self.schedules.values()
        )
        return not waits and all(one.status not in OPEN_STATUSES for runs in self.runs.values() for one in runs)


def main() -> None:
    """Measure and write the result. Exit with 1 if a due time was missed or run twice, or any other check failed."""
    options = _options()
    quick = options.quick
    days = value_or_default(options.days, quick=quick, tiny=2, full=10)
    seconds = value_or_default(options.seconds, quick=quick, tiny=26, full=200)
    kills = int(value_or_default(options.kills, quick=quick, tiny=6, full=40))
    result = Result(benchmark="calendar", seed=options.seed, quick=quick, settings=settings_of(vars(options)))
    result.settings.update(days=days, seconds=seconds, kills=kills)
    clock = FastClock(
        started=now_micros() + _LEAD_MICROS,
        epoch=to_micros(datetime.fromisoformat(options.epoch)),
        factor=days * 86_400 / seconds,
        seconds=seconds,
    )
    with Days(clock, seed=options.seed, interval_seconds=options.interval) as processes:
        plan = TroublePlan(
            processes,
            kills=kills,
            stops=1 if quick else options.stops,
            all_at_once=1 if quick else options.all_at_once,
            seconds=seconds * _SHARE_WITH_KILLS,
            seed=options.seed,
        )
        with Receiver(processes.secret) as receiver:
            schedules = MadeUpSchedules(clock, receiver, seed=options.seed, share=0.4 if quick else 1.0)
            operator = Operator(processes.runtime, clock, schedules, seed=options.seed)
            rows = _live_through(operator, plan, clock, options.timeout)
            _conclude(result, processes, plan, operator, receiver, rows)
    result.finish(options.output)
    sys.exit(0 if all(goal.reached for goal in result.goals) else 1)


def _options() -> argparse.Namespace:
    options = parser("calendar", __doc__)  # --data is accepted but unused: there are no messages
    options.add_argument("--days", type=float, help="simulated days (10; 2 with --quick)")
    options.add_argument("--seconds", type=float, help="duration in seconds (200; 26 with --quick)")
    options.add_argument("--epoch", default="2026-03-28T00:00:00+00:00", help="start of the simulation, with offset")
    options.add_argument("--kills", type=int, help="SIGKILLs of one process (40; 6 with --quick)")
    options.add_argument(
        "--stops", type=int, default=3, help="how often a worker is paused past its lease (1 with --quick)"
    )
    options.add_argument(
        "--all-at-once", type=int, default=2, help="how often everything is killed at once (1 with --quick)"
    )
    options.add_argument("--interval", type=float, default=0.4, help="seconds between the sweeps of each beat")
    options.add_argument(
        "--timeout", type=float, default=120, help="seconds to wait for the end of all runs after the last day"
    )
    return options.parse_args()


def _live_through(operator: Operator, plan: TroublePlan, clock: FastClock, timeout_seconds: float) -> Rows:
    """Run through the days and wait until everything has finished. Return the rows at that time."""
    tell = Progress()
    operator.make_all()
    operator.start()
    deadline = time.monotonic() + clock.seconds + timeout_seconds
    try:
        while True:
            for line in plan.step():
                tell.step(line)
            rows = _rows_after(operator.store, clock, patient=not plan.over or operator.is_alive())
            if rows is not None and (rows.at_rest or time.monotonic() > deadline):
                return rows
            tell(f"{(clock.now() - clock.epoch) / 86_400_000_000:5.2f} days, {len(plan.done)} kills")
            time.sleep(_POLL_SECONDS if rows is None else _LOOK_SECONDS)
    finally:
        operator.stop()


def _rows_after(store: Store, clock: FastClock, *, patient: bool) -> Rows | None:
    """Return all rows of one time, or None while the days are not over."""
    if patient or clock.now() <= clock.end:
        return None
    with store.reading() as tx:
        rows = tx.for_agent(AGENT)
        schedules = {one.id: one for one in rows.schedules.search(ScheduleFilter(), limit=_EVERYTHING, offset=0)}
        runs = {one: rows.runs.history(one, limit=_EVERYTHING) for one in schedules}
    return Rows(clock.now(), schedules, runs)


def _conclude(
    result: Result, days: Days, plan: TroublePlan, operator: Operator, receiver: Receiver, rows: Rows
) -> None:
    # Deliveries of runs that became due after the rows were read do not count.
    deliveries = [one for one in receiver.taken() if one.due_at <= rows.at]
    times, found = _audit(days, operator, rows, deliveries)
    found.inconsistent += [f"a signature was wrong: {why}" for why in receiver.refused]
    runs = [run for runs in rows.runs.values() for run in runs]
    result.add("machine_seconds_a_day", rounded(86_400 / days.clock.factor), "s")
    result.add("factor", rounded(days.clock.factor), "times the machine's clock")
    result.add("schedules", len(operator.known))
    result.add("what_the_operator_did", dict(operator.done))
    result.add("kills", len(plan.done))
    result.add("kills_by_role", plan.by_role())
    result.add("due_times", times.due)
    result.add("runs", len(runs))
    result.add("due_times_coalesced", times.folded_in)
    result.add("due_times_given_up_by_the_operator", times.given_up)
    result.add("runs_of_dead_workers", sum(run.crashes for run in runs))
    result.add("ends_of_superseded_workers", days.count_log_lines("superseded"))
    result.add("tasks_crashed", days.count_log_lines("task_crashed"))
    result.add("webhooks_received", len(deliveries))
    result.add("webhooks_received_again", found.sent_again)
    _add_lag(result, days.clock, runs)
    result.add("longest_delay_without_a_reason", rounded(times.longest_delay_seconds), "s")
    _judge(result, times, found, operator)


def _audit(
    days: Days, operator: Operator, rows: Rows, deliveries: Sequence[Delivery]
) -> tuple[CalendarAudit, RunAudit]:
    """Compare all rows with the calendar, with each other, and with the deliveries."""
    auditor, found = CalendarAuditor(days.clock, days.away(), rows.at), RunAudit()
    notifications, rules = _told(days), days.settings.schedule_rules
    known = {one.id: one for one in operator.known.values() if not one.deleted}
    if set(known) != set(rows.schedules):
        found.inconsistent.append(f"{len(known)} schedules should exist, but there are {len(rows.schedules)}")
    for one in (known[schedule] for schedule in rows.schedules if schedule in known):
        record, runs = rows.schedules[one.id], rows.runs[one.id]
        auditor.look_at(one, record, runs)
        audit_rows(one, record, runs, rules, found)
        audit_notifications(one, runs, notifications[one.id], rules, found)
    by_id = {run.id: run for runs in rows.runs.values() for run in runs}
    audit_deliveries(deliveries, rows.schedules, by_id, set(operator.known) - set(known), found)
    return auditor.found, found


def _told(days: Days) -> dict[str, list[tuple[str, str | None]]]:
    """Return kind and run of each notification, by schedule."""
    found: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    with days.watch(WORKSPACE) as watch:
        for schedule, kind, run_id in watch.rows("SELECT schedule_id, kind, run_id FROM notifications"):
            found[schedule].append((kind, run_id))
    return found


def _add_lag(result: Result, clock: FastClock, runs: Sequence[RunRecord]) -> None:
    """Add the time from due to started, for runs while the clock was fast."""
    lags = [
        clock.machine_seconds(run.started_at - run.due_at)
        for run in runs
        if run.trigger == "schedule" and run.started_at is not None and run.started_at <= clock.end
    ]
    for name, share in (("lag_p50", 0.5), ("lag_p99", 0.99)):
        result.add(name, rounded(percentile(lags, share)) if lags else None, "s from due to started, kills and all")


def _judge(result: Result, times: CalendarAudit, found: RunAudit, operator: Operator) -> None:
    wrong = {
        "due times in no run": times.missing,
        "due times in two runs": times.twice,
        "runs for no time of the calendar": times.outside,
        f"runs later than {LONGEST_DELAY_SECONDS:g} s for no reason": times.without_reason,
        "one-shots without exactly one success": times.one_shots,
        "runs that never ended": found.unended,
        "webhooks of runs that are not there": found.unknown_to_us,
        "runs that succeeded and were not received": found.unknown_to_receiver,
        "rows that contradict each other": found.inconsistent,
        "what the operator could not do": operator.surprises,
    }
    for what, lines in wrong.items():
        result.goals.append(Goal(what=what, relation="==", goal=0, figure=len(lines)))
        result.notes += [f"{what}: {line}" for line in lines[:_LINES]]


if __name__ == "__main__":
    run(main)
