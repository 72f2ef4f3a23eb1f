"""Compares runs of schedules with a calendar computed without Reverie, with each other, and with what was received.

Each due time must be in exactly one run. It is in a run if it is the time of the run, or if it was coalesced into it.
Coalescing needs a reason: a run of the same schedule was under way, or nothing could be fired.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from memory.scheduling.rules import FIRST_RETRY_SECONDS, ScheduleRules
from reverie.clock import rfc3339, to_micros
from reverie.scheduling.types import Cadence, Cron, Executor, Interval, Once, WebhookExecutor
from storage.scheduling.records import OPEN_STATUSES, RunRecord, ScheduleRecord
from support.compressed_days.fast_clock import FastClock
from support.compressed_days.receiver import Delivery
from support.compressed_days.schedules import Known, Stretch

# Acceptable delay between a due time and its run without a reason: one sweep interval on a busy machine.
LONGEST_DELAY_SECONDS: Final = 5.0


@dataclass(slots=True)
class CalendarAudit:
    """Findings; each list has one line for each error."""

    due: int = 0
    in_runs: int = 0
    folded_in: int = 0
    given_up: int = 0
    longest_delay_seconds: float = 0.0
    missing: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    without_reason: list[str] = field(default_factory=list)
    one_shots: list[str] = field(default_factory=list)


class CalendarAuditor:
    """Audits schedule by schedule. `away` are the periods in which nothing could be fired, by the machine's clock."""

    def __init__(self, clock: FastClock, away: Sequence[tuple[int, int]], now: int) -> None:
        self.found = CalendarAudit()
        self._clock, self._now = clock, now
        self._away = sorted((clock.at(start), clock.at(end)) for start, end in away)

    def look_at(self, known: Known, record: ScheduleRecord, runs: Sequence[RunRecord]) -> None:
        """Compare one schedule and all its runs with the calendar."""
        ordered = sorted(runs, key=lambda run: run.created_at)
        if isinstance(known.cadence, (Cron, Interval)):
            self._repeating(known, record, ordered)
        else:
            self._one_shot(known, record, ordered)

    def _repeating(self, known: Known, record: ScheduleRecord, runs: Sequence[RunRecord]) -> None:
        left = [run for run in runs if run.trigger != "manual"]
        for stretch in known.stretches:
            mine = self._stretch(record, stretch, left, runs)
            left = [run for run in left if run.id not in mine]
        self.found.outside += [f"{_called(run)} stands for no time of its calendar" for run in left]

    def _stretch(
        self, record: ScheduleRecord, stretch: Stretch, left: Sequence[RunRecord], runs: Sequence[RunRecord]
    ) -> set[str]:
        """Check the due times of one cadence. Return the ids of the runs that cover them."""
        upcoming = record.next_run_at if stretch.until is None else None
        # A schedule that failed too often ends with the last failure.
        until = upcoming or stretch.until or record.last_run_at or self._now
        calendar = firings(stretch.cadence, stretch.after, until)
        if upcoming and (not calendar or calendar.pop() != upcoming):
            self.found.outside.append(f"{record.id} fires next at {_shown(upcoming)}, which is not one of its times")
        place = {moment: number for number, moment in enumerate(calendar)}
        covered: Counter[int] = Counter()
        mine: set[str] = set()
        for run in left:
            if not (run.first_due_at in place and run.due_at in place and _within(run, stretch)):
                continue
            mine.add(run.id)
            times = calendar[place[run.first_due_at] : place[run.due_at] + 1]
            covered.update(times)
            self.found.folded_in += len(times) - 1
            if len(times) != run.coalesced + 1:
                self.found.outside.append(f"{_called(run)} says {run.coalesced} but covers {len(times) - 1} more")
            self._reason(_called(run), run.first_due_at, run.created_at, runs)
        given_up = self._compare(record, calendar, covered, open_end=upcoming is None)
        if given_up:
            ended = stretch.asked or record.last_run_at or self._now
            self._reason(f"{record.id}, given up at {_shown(ended)},", given_up[0], ended, runs)
        return mine

    def _compare(
        self, record: ScheduleRecord, calendar: Sequence[int], covered: Counter[int], *, open_end: bool
    ) -> list[int]:
        """Check that every time is in one run; if an operator ended the cadence, the last time may be in none.

        Return the number of times given up in this way.
        """
        last = max(covered, default=0)
        given_up = [moment for moment in calendar if open_end and moment > last]
        self.found.due += len(calendar)
        self.found.in_runs += len(covered)
        self.found.given_up += len(given_up)
        for moment in calendar[: len(calendar) - len(given_up)]:
            if covered[moment] > 1:
                self.found.twice.append(f"{record.id} has {covered[moment]} runs for {_shown(moment)}")
            elif not covered[moment]:
                self.found.missing.append(f"{record.id} has no run for {_shown(moment)}")
        return given_up

    def _reason(self, what: str, due: int, end: int, runs: Sequence[RunRecord]) -> None:
        """Measure how long a due time waited while it could have been fired: no run under way, nothing away."""
        before = [run.finished_at or 0 for run in runs if run.created_at < end]
        delay = self._clock.machine_seconds(self._for_no_reason(max([due, *before]), end))
        self.found.longest_delay_seconds = max(self.found.longest_delay_seconds, delay)
        if delay > LONGEST_DELAY_SECONDS:
            self.found.without_reason.append(f"{what} waited {delay:.1f} s since {_shown(due)}")

    def _for_no_reason(self, start: int, end: int) -> int:
        """Return the part of a period in which something could be fired."""
        total = 0
        for away_from, away_until in self._away:
            if away_until > start:
                total += max(0, min(away_from, end) - start)
                start = max(start, away_until)
        return total + max(0, end - start)

    def _one_shot(self, known: Known, record: ScheduleRecord, runs: Sequence[RunRecord]) -> None:
        """Check for one success at the end, preceded by the intended failures, each retried after its pause."""
        self.found.due += 1
        self.found.in_runs += bool(runs)
        statuses = [run.status for run in runs]
        failures = len(statuses) - 1
        if record.status != "completed" or record.next_run_at is not None:
            self.found.one_shots.append(f"{record.id} is {record.status}, its runs {statuses}")
        elif statuses.count("success") != 1 or statuses[-1] != "success" or failures < known.failures_first:
            self.found.one_shots.append(f"{record.id} should fail {known.failures_first} times: {statuses}")
        due = to_micros(known.cadence.at)  # type: ignore[union-attr]
        for number, run in enumerate(runs):
            trigger = "retry" if number else "schedule"
            if (run.due_at, run.coalesced, run.trigger, run.attempt) != (due, 0, trigger, number + 1):
                self.found.one_shots.append(
                    f"{_called(run)} is a {run.trigger}, attempt {run.attempt}, not at its time"
                )
            due = (run.finished_at or 0) + FIRST_RETRY_SECONDS * 2**number * 1_000_000


def firings(cadence: Cadence, after: int, until: int) -> list[int]:
    """Return what is due after one time and up to another by a recurring cadence."""
    if isinstance(cadence, Cron):
        return cron_firings(cadence.expression, cadence.tz, after, until)
    assert isinstance(cadence, Interval)
    assert cadence.anchor is not None
    return interval_firings(cadence.seconds, to_micros(cadence.anchor), after, until)


def _within(run: RunRecord, stretch: Stretch) -> bool:
    return stretch.until is None or run.created_at <= stretch.until


def _called(run: RunRecord) -> str:
    return f"run {run.id} of {run.schedule} for {_shown(run.due_at)}"


def _shown(moment: int | None) -> str:
    return "never" if moment is None else rfc3339(moment)


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


_MINUTE = timedelta(minutes=1)
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def cron_firings(expression: str, zone: str, after: int, until: int) -> list[int]:
    """Return every firing after one time up to another, in microseconds.

    Fields have numbers, `*`, lists, ranges, steps.
    """
    minute, hour, day, month, weekday = expression.split()
    minutes, hours = _numbers(minute, 0, 59), _numbers(hour, 0, 23)
    days, months = _numbers(day, 1, 31), _numbers(month, 1, 12)
    weekdays = {number % 7 for number in _numbers(weekday, 0, 7)}
    either = day != "*" and weekday != "*"
    found = []
    for instant, walls in _first_shown(zone, after, until):
        for wall in walls:
            fits_day, fits_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
            fits = fits_day or fits_weekday if either else fits_day and fits_weekday
            if fits and wall.minute in minutes and wall.hour in hours and wall.month in months:
                found.append(instant)
                break
    return found


def interval_firings(seconds: int, anchor: int, after: int, until: int) -> list[int]:
    """Return every multiple of an interval from its anchor on, after one time and up to another, in microseconds."""
    step, instant, found = seconds * 1_000_000, anchor, []
    while instant <= until:
        if instant > after:
            found.append(instant)
        instant += step
    return found


def _first_shown(zone: str, after: int, until: int) -> list[tuple[int, list[datetime]]]:
    """Return the minutes after one time and up to another."""
    first, last = (_ZERO + timedelta(microseconds=moment) for moment in (after, until))
    # By whole months, so that one pass serves all schedules of a zone.
    first -= timedelta(days=first.day - 1)
    last += timedelta(days=32 - last.day)
    shown = _walk(zone, first.date().isoformat(), last.date().isoformat())
    return shown[bisect_right(shown, after, key=_instant) : bisect_right(shown, until, key=_instant)]


@cache
def _walk(zone: str, first_day: str, last_day: str) -> list[tuple[int, list[datetime]]]:
    """Return each minute of some months with the wall times that the zone's clock first shows at it, or has skipped."""
    where = ZoneInfo(zone)
    instant, end = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in (first_day, last_day))
    latest = instant.astimezone(where).replace(tzinfo=None)
    shown = []
    while instant < end:
        instant += _MINUTE
        wall = instant.astimezone(where).replace(tzinfo=None)
        walls = []
        while latest < wall:
            latest += _MINUTE
            walls.append(latest)
        shown.append(((instant - _ZERO) // timedelta(microseconds=1), walls))
    return shown


def _instant(minute: tuple[int, list[datetime]]) -> int:
    return minute[0]


def _numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        start, _, end = span.partition("-")
        if start == "*":
            start, end = str(low), str(high)
        found |= set(range(int(start), int(end or start) + 1, int(step or 1)))
    return found
