"""Lets two days of schedules pass in seconds while processes are killed: each due time must be in exactly one run.

Three beat processes and two workers fire some dozens of schedules by a clock that runs thousands of times faster, in
four time zones, three of which change their clocks. Meanwhile an operator pauses, changes, deletes and runs schedules.
At the end the runs are compared with a calendar computed without Reverie, and the webhook receiver's log with the runs.
`python -m support.compressed_days` prints what was found as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from reverie.clock import now_micros, to_micros
from storage.scheduling.records import OPEN_STATUSES, RunRecord, ScheduleFilter, ScheduleRecord
from storage.stores import Store
from support.compressed_days.audit import (
    LONGEST_DELAY_SECONDS,
    CalendarAudit,
    CalendarAuditor,
    RunAudit,
    audit_deliveries,
    audit_notifications,
    audit_rows,
)
from support.compressed_days.fast_clock import FastClock
from support.compressed_days.processes import Days, TroublePlan
from support.compressed_days.receiver import Delivery, Receiver
from support.compressed_days.schedules import AGENT, WORKSPACE, MadeUpSchedules, Operator

_EVERYTHING: Final = 1_000_000
_POLL_SECONDS: Final = 0.02
# All rows are read to find out whether everything is finished.
_LOOK_SECONDS: Final = 0.3
# Time before the clock starts, in which all schedules are created.
_LEAD_MICROS: Final = 4_000_000
# Share of the days in which processes are killed; afterwards failed one-shots have time for their retries.
_SHARE_WITH_KILLS: Final = 0.9
_SEED: Final = 20_261_101
_EPOCH: Final = "2026-03-28T00:00:00+00:00"
_DAYS: Final = 2
_SECONDS: Final = 18.0
# SIGKILLs of one process. In addition, everything is killed at once, and a worker is paused past its lease.
_KILLS: Final = 6
# How long all runs may take to end after the last day.
_REST_SECONDS: Final = 120.0


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
    """Let the days pass, and print what was counted and what is wrong."""
    with Days(_clock, seed=_SEED) as processes:
        clock = processes.clock
        plan = TroublePlan(
            processes, kills=_KILLS, stops=1, all_at_once=1, seconds=_SECONDS * _SHARE_WITH_KILLS, seed=_SEED
        )
        with Receiver(processes.secret) as receiver:
            schedules = MadeUpSchedules(clock, receiver, seed=_SEED, share=0.4)
            operator = Operator(processes.runtime, clock, schedules, seed=_SEED)
            rows = _live_through(operator, plan, clock, _REST_SECONDS)
            print(json.dumps(_found(processes, plan, operator, receiver, rows)))


def _clock() -> FastClock:
    """Return the clock of the days, which begin soon."""
    return FastClock(
        started=now_micros() + _LEAD_MICROS,
        epoch=to_micros(datetime.fromisoformat(_EPOCH)),
        factor=_DAYS * 86_400 / _SECONDS,
        seconds=_SECONDS,
    )


def _live_through(operator: Operator, plan: TroublePlan, clock: FastClock, timeout_seconds: float) -> Rows:
    """Run through the days and wait until everything has finished. Return the rows at that time."""
    operator.make_all()
    operator.start()
    deadline = time.monotonic() + clock.seconds + timeout_seconds
    try:
        while True:
            for line in plan.step():
                print(line, file=sys.stderr)
            rows = _rows_after(operator.store, clock, patient=not plan.over or operator.is_alive())
            if rows is not None and (rows.at_rest or time.monotonic() > deadline):
                return rows
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


def _found(days: Days, plan: TroublePlan, operator: Operator, receiver: Receiver, rows: Rows) -> dict[str, Any]:
    # Deliveries of runs that became due after the rows were read do not count.
    deliveries = [one for one in receiver.taken() if one.due_at <= rows.at]
    times, found = _audit(days, operator, rows, deliveries)
    found.inconsistent += [f"a signature was wrong: {why}" for why in receiver.refused]
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
    return {
        "wrong": {what: lines for what, lines in wrong.items() if lines},
        "due_times": times.due,
        "runs": sum(map(len, rows.runs.values())),
        "webhooks_received": len(deliveries),
        "kills": len(plan.done),
        "tasks_crashed": days.count_log_lines("task_crashed"),
    }


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


if __name__ == "__main__":
    main()
