"""Check the rows of schedules against each other, against the notifications, and against what the receiver got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from benchmarks.harness.made_up_schedules import Known
from benchmarks.harness.webhook_receiver import Delivery
from memory.scheduling.rules import ScheduleRules
from reverie.clock import rfc3339
from reverie.scheduling.cadence_types import Once
from reverie.scheduling.schedule_types import Executor, WebhookExecutor
from storage.scheduling.records import OPEN_STATUSES, RunRecord, ScheduleRecord

_FAILURES = ("failed", "timed_out")


@dataclass(slots=True)
class RunAudit:
    """Findings; each list has one line for each error."""

    unended: list[str] = field(default_factory=list)
    inconsistent: list[str] = field(default_factory=list)
    unknown_to_us: list[str] = field(default_factory=list)
    unknown_to_receiver: list[str] = field(default_factory=list)
    sent_again: int = 0


def audit_rows(
    known: Known, record: ScheduleRecord, runs: Sequence[RunRecord], rules: ScheduleRules, found: RunAudit
) -> None:
    """Check the runs of a schedule one by one, and the schedule against its runs."""
    found.unended += [f"run {run.id} is {run.status}" for run in runs if run.status in OPEN_STATUSES]
    ended = sorted((run for run in runs if run.finished_at is not None), key=lambda run: run.finished_at or 0)
    found.inconsistent += [f"run {run.id}: {what}" for run in runs for what in _wrong_of(run)]
    found.inconsistent += [f"schedule {record.id}: {what}" for what in _wrong_with(known, record, ended, rules)]
    by_hand = {run.id for run in runs if run.trigger == "manual"}
    if by_hand != known.by_hand:
        found.inconsistent.append(f"schedule {record.id}: {len(known.by_hand)} runs by hand, there are {len(by_hand)}")
    cancelled = {run.id for run in runs if run.status == "cancelled"}
    if cancelled != known.cancelled:
        found.inconsistent.append(f"schedule {record.id}: cancelled {known.cancelled}, there are {cancelled}")


def audit_notifications(
    known: Known,
    runs: Sequence[RunRecord],
    notifications: Sequence[tuple[str, str | None]],
    rules: ScheduleRules,
    found: RunAudit,
) -> None:
    """Check that each run was notified once, and failures in a row when their number required it.

    `notifications` are pairs of kind and run. If two workers had ended one run, it would have been notified twice.
    """
    times = Counter(run for kind, run in notifications if kind == "run")
    for run in runs:
        expected = 0 if run.status in ("cancelled", *OPEN_STATUSES) else 1
        if times[run.id] != expected:
            found.inconsistent.append(f"run {run.id}, {run.status}, was notified {times[run.id]} times")
    rows = [_failures_at(known, run, runs) for run in runs if run.status in _FAILURES]
    counts = Counter(kind for kind, _ in notifications)
    once = isinstance(known.cadence, Once)
    for kind, number in (
        ("alert", rules.alert_after_failures),
        ("disabled", 10**9 if once else rules.disable_after_failures),
    ):
        if counts[kind] != rows.count(number):
            found.inconsistent.append(f"schedule {known.id}: {counts[kind]} {kind}, {rows.count(number)} are due")


def audit_deliveries(
    deliveries: Sequence[Delivery],
    records: Mapping[str, ScheduleRecord],
    runs: Mapping[str, RunRecord],
    deleted: set[str],
    found: RunAudit,
) -> None:
    """Check that the receiver got each successful run, with the content of its row, and nothing else."""
    well: set[str] = set()
    for delivery in deliveries:
        run = runs.get(delivery.id)
        if run is None and delivery.data["schedule_id"] not in deleted:
            found.unknown_to_us.append(f"{delivery.id} of schedule {delivery.data['schedule_id']}")
        elif run is not None and (sent := _sent_content(delivery)) != (stored := _stored_content(run)):
            found.inconsistent.append(f"run {run.id} was sent as {sent}, and is {stored}")
        found.sent_again += delivery.id in well
        if delivery.status == 200:
            well.add(delivery.id)
    webhooks = {record.id for record in records.values() if _is_webhook(record)}
    found.unknown_to_receiver += [
        f"run {run.id} of {run.schedule}"
        for run in runs.values()
        if run.status == "success" and run.schedule in webhooks and run.id not in well
    ]


def _wrong_of(run: RunRecord) -> Iterator[str]:
    if run.created_at < run.due_at and run.trigger != "manual":
        yield f"made at {rfc3339(run.created_at)}, before its time {rfc3339(run.due_at)}"
    if run.status == "success" and run.started_at is None:
        yield "succeeded and never started"
    if run.status != "cancelled" and (run.finished_at or run.created_at) < (run.started_at or run.created_at):
        yield "ended before it started"


def _wrong_with(
    known: Known, record: ScheduleRecord, ended: Sequence[RunRecord], rules: ScheduleRules
) -> Iterator[str]:
    last = ended[-1] if ended else None
    if last is not None and (record.last_run_status, record.last_run_at) != (last.status, last.finished_at):
        yield f"its last run is recorded as {record.last_run_status}, and is {last.status}"
    resumed_since = last is not None and any(asked > (last.finished_at or 0) for asked, _ in known.resumed)
    failures = 0 if last is None or resumed_since else _failures_at(known, last, ended)
    if record.consecutive_failures != failures:
        yield f"{record.consecutive_failures} failures in a row are counted, and were {failures}"
    expected = "disabled" if failures >= rules.disable_after_failures else "active"
    if isinstance(known.cadence, Once):
        expected = "completed"
    if record.status != expected or (record.next_run_at is None) != (expected != "active"):
        yield f"it is {record.status} and fires next at {record.next_run_at}; it should be {expected}"


def _failures_at(known: Known, run: RunRecord, runs: Sequence[RunRecord]) -> int:
    """Return the number of failures in a row after a run; resuming a schedule resets it."""
    at = run.finished_at or 0
    begun = max((until for _, until in known.resumed if until <= at), default=0)
    ended = [one for one in runs if one.finished_at is not None and begun < one.finished_at <= at]
    count = 0
    for one in sorted(ended, key=lambda one: one.finished_at or 0, reverse=True):
        if one.status == "success":
            break
        count += one.status in _FAILURES
    return count


def _sent_content(delivery: Delivery) -> tuple[object, ...]:
    data = delivery.data
    return (data["schedule_id"], rfc3339(delivery.due_at), data["coalesced"], data["trigger"], data["attempt"])


def _stored_content(run: RunRecord) -> tuple[object, ...]:
    return (run.schedule, rfc3339(run.due_at), run.coalesced, run.trigger, run.attempt)


def _is_webhook(record: ScheduleRecord) -> bool:
    return isinstance(msgspec.json.decode(record.executor, type=Executor), WebhookExecutor)
