"""What nobody swept in time: it is one run, and no due time is in two of them or in none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from memory.scheduling.schedules import pause_schedule, resume_schedule
from reverie.clock import to_micros
from reverie.scheduling.cadence import Cadence, Cron, Interval, next_runs
from support.plain_cron import walked_clock
from support.scheduled import BAD, GOOD, PATIENT, SECOND, Scheduled, assert_partition

pytestmark = pytest.mark.slow


@pytest.fixture
def time(tmp_path: Path) -> Iterator[Scheduled]:
    """A workspace without schedules."""
    time = Scheduled(tmp_path / "data", **PATIENT)
    yield time
    time.close()


CADENCES: tuple[Cadence, ...] = (
    Cron("*/7 * * * *"),
    Cron("30 1 * * *", "Europe/Lisbon"),
    Cron("0,30 0-3 * * *", "America/New_York"),
    Cron("15 */5 * * MON-FRI", "Australia/Lord_Howe"),
    Cron("0 9 1,15 * *", "Asia/Kathmandu"),
    Interval(97),
    Interval(3_600, "Europe/Lisbon"),
    Interval(86_399),
)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cadence", CADENCES, ids=repr)
def test_with_random_down_times_the_runs_divide_the_calendar_among_them(
    time: Scheduled, cadence: Cadence, seed: int
) -> None:
    """Given sweeps that stay away for seconds or days, and runs that take as long, then each time is in one run."""
    random = Random(repr((cadence, seed)))
    time.now = to_micros(datetime.fromisoformat("2027-03-10T00:00Z")) + random.randrange(86_400 * SECOND)
    schedule = time.add(cadence, agent="ana")
    began = time.moment()
    for _ in range(60):
        time.advance(random.choice((1, 30, 600, 7_200, 86_400, 500_000)) * random.random())
        before = time.now
        for sent in time.claim():
            run = time.run(sent.run)
            assert run.first_due_at <= run.due_at <= time.now
            assert time.schedule(schedule).next_run_at > before  # type: ignore[operator]
            assert time.claim() == []
            time.advance(random.choice((0, 0, 5, 5_000, 200_000)) * random.random())
            time.execute(sent.run, random.choice((GOOD, BAD)))
    time.claim()
    stored = time.schedule(schedule).cadence
    anchored = Interval(cadence.seconds, anchor=began) if isinstance(cadence, Interval) else cadence
    assert isinstance(cadence, Cron) or began.isoformat()[:19] in stored
    assert_partition(time.runs(schedule), calendar_of(anchored, began, time.moment()))


@pytest.mark.parametrize("expression", ["30 1 * * *", "*/20 0-3 * * *", "0 2 * * SUN"])
def test_across_a_clock_change_the_runs_divide_the_walked_calendar(time: Scheduled, expression: str) -> None:
    """Given Lisbon at the end of March 2027, walked minute by minute, then sweeps miss and double none of it."""
    clock = walked_clock("Europe/Lisbon", "2027-03-25", "2027-04-01")
    random = Random(expression)
    time.now = to_micros(clock.start)
    schedule = time.add(Cron(expression, "Europe/Lisbon"))
    while time.now < to_micros(clock.end) - 7_200 * SECOND:
        time.advance(random.choice((60, 1_200, 7_000)) * random.random())
        for sent in time.claim():
            time.execute(sent.run)
    assert_partition(time.runs(schedule), [at for at in clock.firings(expression) if at <= time.moment()])


def calendar_of(cadence: Cadence, after: datetime, until: datetime) -> list[datetime]:
    """All firings after one moment, up to another."""
    count = 1
    while len(found := next_runs(cadence, after, count)) == count and found[-1] <= until:
        count *= 4
    return [at for at in found if at <= until]


def test_an_interval_keeps_its_phase_however_late_its_runs_are(time: Scheduled) -> None:
    """Given an interval whose runs are always late, then its due times are whole steps from its beginning."""
    schedule, began = time.every(600), time.now
    for late in (17, 590, 3, 100_000, 1):
        due = time.schedule(schedule).next_run_at
        assert due is not None
        time.now = max(time.now, due) + late * SECOND
        (sent,) = time.claim()
        time.advance(55)
        time.execute(sent.run)
    assert {(run.due_at - began) % (600 * SECOND) for run in time.runs(schedule)} == {0}
    pause_schedule(time.store, schedule, agent="ana", now=time.now)
    time.advance(123_456)
    resume_schedule(time.store, schedule, agent="ana", rules=time.rules, now=time.now)
    next_at = time.schedule(schedule).next_run_at
    assert next_at is not None
    assert (next_at - began) % (600 * SECOND) == 0
    assert 0 < next_at - time.now <= 600 * SECOND


def test_after_years_what_was_missed_is_one_run(time: Scheduled) -> None:
    """Given a schedule of every minute that was down for ten years, then it is claimed at once, and then is on time."""
    schedule = time.add(Cron("* * * * *", "Europe/Lisbon"))
    time.advance(10 * 365 * 86_400)
    (sent,) = time.claim()
    run = time.run(sent.run)
    assert run.due_at == time.now // (60 * SECOND) * 60 * SECOND
    assert run.coalesced == 9_999, "counted up to 10,000"
    assert time.schedule(schedule).next_run_at == run.due_at + 60 * SECOND
