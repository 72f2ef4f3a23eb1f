"""Compare the runs of schedules with a calendar computed without Reverie: each due time must be in exactly one run.

A due time is in a run if it is the run's time, or if it was coalesced into it. Coalescing needs a reason: a run of the
same schedule was under way, or nothing could be fired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.harness.fast_clock import FastClock
from benchmarks.harness.made_up_schedules import Known, Stretch
from benchmarks.harness.plain_calendar import cron_firings, interval_firings
from memory.scheduling.rules import FIRST_RETRY_SECONDS
from reverie.clock import rfc3339, to_micros
from reverie.scheduling.cadence_types import Cadence, Cron, Interval
from storage.scheduling.records import RunRecord, ScheduleRecord

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
