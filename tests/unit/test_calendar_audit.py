"""The audit of the compressed days finds what is wrong: what it says of a run is worth something only if it would."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from memory.scheduling.rules import ScheduleRules
from reverie.clock import from_micros, rfc3339, to_micros
from reverie.scheduling.cadence import Cron, next_runs
from storage.scheduling.records import RunRecord, ScheduleRecord
from support.compressed_days.audit import (
    CalendarAudit,
    CalendarAuditor,
    RunAudit,
    audit_deliveries,
    audit_notifications,
    audit_rows,
    cron_firings,
    interval_firings,
)
from support.compressed_days.fast_clock import AFTERWARDS, FastClock
from support.compressed_days.receiver import Delivery
from support.compressed_days.schedules import Known, Stretch

pytestmark = pytest.mark.slow

EPOCH = to_micros(datetime(2026, 3, 28, tzinfo=UTC))
HOUR = 3_600_000_000
CLOCK = FastClock(started=0, epoch=EPOCH, factor=3_600.0, seconds=48.0)
HOURLY = Cron(expression="0 * * * *")
RULES = ScheduleRules()


def schedule_with(**changed: object) -> ScheduleRecord:
    """An hourly schedule that has fired three times."""
    record = ScheduleRecord(
        id="s", agent="a", user="u", name=None, goal="g", cadence="{}", policy="always", status="active",
        executor='{"type":"webhook","url":"http://127.0.0.1/ok"}', timeout_seconds=600, recall_limit=0, channel=None,
        session=None, created_at=EPOCH, updated_at=EPOCH, next_run_at=EPOCH + 4 * HOUR,
        last_run_at=EPOCH + 3 * HOUR + 2, last_run_status="success", consecutive_failures=0, retries=0, revision=3,
        goal_vector=None, goal_model=None,
    )  # fmt: skip
    return replace(record, **changed)  # type: ignore[arg-type]


def run_at(hour: int, *, first: int | None = None, **changed: object) -> RunRecord:
    """A run that stands for an hour, and for those since another, and succeeded at once."""
    due, first_due = EPOCH + hour * HOUR, EPOCH + (hour if first is None else first) * HOUR
    record = RunRecord(
        id=f"r{hour}", agent="a", schedule="s", due_at=due, first_due_at=first_due,
        coalesced=(due - first_due) // HOUR, trigger="schedule", attempt=1, status="success", created_at=due,
        started_at=due + 1, finished_at=due + 2, summary="", output="", error="", turn_count=0, cost=0.0,
        notified=False, trace="", tries=0, crashes=0, deadline=None,
    )  # fmt: skip
    return replace(record, **changed)  # type: ignore[arg-type]


def known_with(**changed: object) -> Known:
    """What was done with the schedule from outside: it was made."""
    return replace(Known("s", [Stretch(HOURLY, EPOCH)]), **changed)  # type: ignore[arg-type]


def looked_at(
    runs: list[RunRecord],
    record: ScheduleRecord | None = None,
    known: Known | None = None,
    away: list[tuple[int, int]] | None = None,
) -> CalendarAudit:
    """What the auditor finds."""
    auditor = CalendarAuditor(CLOCK, away or [], EPOCH + 3 * HOUR + HOUR // 2)
    auditor.look_at(known or known_with(), record or schedule_with(), runs)
    return auditor.found


def test_runs_that_share_out_the_calendar_are_right() -> None:
    """Given a run for one hour and one for two, when they are held against the calendar, then nothing is wrong."""
    found = looked_at([run_at(1), run_at(3, first=2)])

    assert (found.due, found.in_runs, found.folded_in, found.given_up) == (3, 3, 1, 0)
    assert [found.missing, found.twice, found.outside, found.without_reason] == [[], [], [], []]


@pytest.mark.parametrize(
    ("runs", "wrong"),
    [
        ([run_at(1), run_at(3)], "missing"),
        ([run_at(1), run_at(2)], "missing"),
        ([run_at(1), run_at(2), run_at(3, first=2)], "twice"),
        ([run_at(1), run_at(2), run_at(3), run_at(0)], "outside"),
        ([run_at(1), run_at(2), run_at(3), run_at(3, id="x", due_at=EPOCH + 3 * HOUR - 1)], "outside"),
        ([run_at(1), run_at(3, first=2, coalesced=0)], "outside"),
        ([run_at(1), run_at(3, first=2, created_at=EPOCH + 9 * HOUR)], "without_reason"),
    ],
)
def test_what_is_wrong_with_the_runs_is_found(runs: list[RunRecord], wrong: str) -> None:
    """Given a time in no run, in two, a run for no time, or one that came late, when it is looked at, it is named."""
    assert len(getattr(looked_at(runs), wrong)) == 1


def test_a_next_time_that_is_none_is_found() -> None:
    """Given a schedule that fires next at half past, when it is held against the calendar, then that is named."""
    found = looked_at([run_at(1), run_at(2), run_at(3)], schedule_with(next_run_at=EPOCH + 4 * HOUR + HOUR // 2))

    assert found.outside


def test_a_late_run_has_a_reason_while_everything_was_away_or_another_was_under_way() -> None:
    """Given a run nine hours late, when all was away for eight, or the one before took as long, then it is in order."""
    late = run_at(3, first=2, created_at=EPOCH + 11 * HOUR)
    slow = run_at(1, finished_at=EPOCH + 10 * HOUR)

    assert not looked_at([run_at(1), late], away=[(3_000_000, 10_000_000)]).without_reason
    assert not looked_at([slow, late]).without_reason


def test_what_was_due_when_somebody_paused_may_be_given_up_and_nothing_before_it() -> None:
    """Given a pause, when what was due last has no run, then it was given up; a gap before the last run is a miss."""
    paused = known_with(stretches=[Stretch(HOURLY, EPOCH, EPOCH + 3 * HOUR, EPOCH + 3 * HOUR + 1)])
    record = schedule_with(status="paused", next_run_at=None)

    assert looked_at([run_at(1), run_at(2)], record, paused).given_up == 1
    assert len(looked_at([run_at(1), run_at(3)], record, paused).missing) == 1


def test_what_was_given_up_long_after_it_was_due_has_no_reason() -> None:
    """Given a pause ten hours after a time that has no run, when nothing was away meanwhile, then that is named."""
    paused = known_with(stretches=[Stretch(HOURLY, EPOCH, EPOCH + 13 * HOUR, EPOCH + 13 * HOUR + 1)])
    record = schedule_with(status="paused", next_run_at=None)

    assert looked_at([run_at(1), run_at(2)], record, paused).without_reason
    assert not looked_at([run_at(1), run_at(2)], record, paused, away=[(0, 60_000_000)]).without_reason


def test_rows_that_contradict_each_other_are_found() -> None:
    """Given runs and a schedule, when the last run, the failures or a time do not fit, then each is named."""
    runs = [run_at(1), run_at(2), run_at(3)]
    cases = {
        "last run": (schedule_with(last_run_status="failed"), runs),
        "in a row": (schedule_with(consecutive_failures=1), runs),
        "should be active": (schedule_with(status="disabled", next_run_at=None), runs),
        "before its time": (schedule_with(), [*runs[:2], run_at(3, created_at=EPOCH)]),
        "never started": (schedule_with(), [*runs[:2], run_at(3, started_at=None)]),
        "by hand": (schedule_with(), [*runs[:2], run_at(3, trigger="manual")]),
    }
    for expected_text, (record, rows) in cases.items():
        found = RunAudit()
        audit_rows(known_with(), record, rows, RULES, found)
        assert [line for line in found.inconsistent if expected_text in line], expected_text
    right = RunAudit()
    audit_rows(known_with(), schedule_with(), runs, RULES, right)
    assert right == RunAudit()


def test_a_run_that_was_told_twice_or_not_at_all_is_found() -> None:
    """Given runs, when one of them is told twice, another never, and an alert too many, then each is named."""
    found = RunAudit()

    audit_notifications(
        known_with(), [run_at(1), run_at(2)], [("run", "r1"), ("run", "r1"), ("alert", "r2")], RULES, found
    )

    assert len(found.inconsistent) == 3


def test_what_was_delivered_is_held_against_the_runs() -> None:
    """Given a run that was not received, one received as another, and a stranger, when compared, then each is named."""
    runs = {run.id: run for run in (run_at(1), run_at(2))}
    deliveries = [delivery("r1", run_at(2)), delivery("r1", run_at(1)), delivery("x", run_at(3))]
    found = RunAudit()

    audit_deliveries(deliveries, {"s": schedule_with()}, runs, set(), found)

    assert found.unknown_to_receiver == ["run r2 of s"]
    assert found.unknown_to_us == ["x of schedule s"]
    assert len(found.inconsistent) == 1
    assert found.sent_again == 1


def delivery(message: str, run: RunRecord) -> Delivery:
    """What a receiver was told of a run, under an id."""
    data = {"schedule_id": "s", "due_at": rfc3339(run.due_at), "coalesced": 0, "trigger": "schedule", "attempt": 1}
    return Delivery(message, data, 200)


@pytest.mark.parametrize("zone", ["Europe/Lisbon", "Australia/Sydney", "Australia/Lord_Howe", "Asia/Kathmandu"])
@pytest.mark.parametrize(
    "expression", ["30 1 * * *", "*/30 1-3 * * *", "45 1,2,3 * * *", "0 0 1 * 1", "5 8-18/2 * * 0,6", "30 2 * * 1-5"]
)
def test_the_plain_calendar_and_the_cadences_agree(zone: str, expression: str) -> None:
    """Given two weeks with clock changes, when they are walked minute by minute, then Reverie's firings come out."""
    until = EPOCH + 14 * 24 * HOUR

    firings = next_runs(Cron(expression=expression, tz=zone), from_micros(EPOCH), 1_000)

    assert cron_firings(expression, zone, EPOCH, until) == [m for m in map(to_micros, firings) if m <= until]


def test_an_interval_keeps_its_phase_from_its_anchor() -> None:
    """Given an anchor in the past, when an interval is laid out, then its times are whole multiples from there."""
    assert interval_firings(7_200, EPOCH - HOUR, EPOCH, EPOCH + 4 * HOUR) == [EPOCH + HOUR, EPOCH + 3 * HOUR]


def test_the_fast_clock_holds_runs_and_slows_down() -> None:
    """Given a clock, when the machine's is before its start, within the days and after them, then it shows so."""
    ends = timedelta(seconds=CLOCK.seconds) // timedelta(microseconds=1)

    assert CLOCK.at(-1) == EPOCH
    assert CLOCK.at(1_000_000) == EPOCH + HOUR
    assert CLOCK.at(ends + 1_000_000) == CLOCK.end + AFTERWARDS * 1_000_000
    assert CLOCK.machine_seconds(HOUR) == 1.0
