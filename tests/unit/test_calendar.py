"""Crons across clock changes, held against every minute of two years walked one by one."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reverie.scheduling.cadence import MAX_COUNTED, Cron, last_due, next_run_for_cadence, next_runs, parse_cadence
from support.plain_cron import WalkedClock, walked_clock

pytestmark = pytest.mark.slow

TWO_YEARS = ("2027-01-01", "2029-01-01")
# Lisbon leaves out 01:00 and repeats it, New York 02:00 and 01:00, Lord Howe half an hour from 02:00 and from 01:30.
ZONES = ("Europe/Lisbon", "America/New_York", "Australia/Lord_Howe")
EXPRESSIONS = (
    "0 0-3 * * *",
    "30 1 * * *",
    "15,45 1-2 * * *",
    "*/10 1-3 * 3,4,10,11 *",
    "59 0 * * *",
    "0 2 * * *",
    "0 3 * * SUN",
    "29-31 1,2 * * 0,7",
    "0 9 13 * FRI",
    "30 2 */2 * MON-FRI",
    "0 0 29 2 *",
    "5/25 22-23 31 * *",
    "0 12 1-7 JAN-JUN/2 5-7",
)
# A week with a clock change that is not like the usual ones. Of countries that may give up their rule, it is one of
# the past: new time zone data would change the others.
ODD_WEEKS = (
    ("Pacific/Apia", "2011-12-27", "2012-01-03"),  # no 30 December
    ("America/Sao_Paulo", "2017-10-12", "2017-10-19"),  # a day that begins at 01:00
    ("America/Sao_Paulo", "2018-02-15", "2018-02-22"),  # a day whose last hour comes twice
    ("Africa/Casablanca", "2024-03-07", "2024-03-14"),  # back for Ramadan
    ("Africa/Casablanca", "2024-04-11", "2024-04-18"),  # and forth after it
    ("America/Havana", "2024-03-07", "2024-03-14"),  # begins at 01:00
    ("Antarctica/Troll", "2027-03-25", "2027-04-01"),  # two hours forth
    ("Antarctica/Troll", "2027-10-28", "2027-11-04"),  # two hours back
    ("Pacific/Chatham", "2027-04-01", "2027-04-08"),  # at 03:45
    ("Asia/Pyongyang", "2018-05-02", "2018-05-09"),  # half an hour forth for good
    ("America/Caracas", "2007-12-06", "2007-12-13"),  # half an hour back for good
    ("Pacific/Kwajalein", "1993-08-18", "1993-08-25"),  # no 21 August
    ("Europe/Dublin", "2027-10-28", "2027-11-04"),  # its winter is the exception
)


def chained(cron: Cron, after: datetime, until: datetime) -> list[datetime]:
    """All firings up to a moment, each asked for from the one before it."""
    found = []
    at = next_run_for_cadence(cron, after)
    while at is not None and at <= until:
        found.append(at)
        at = next_run_for_cadence(cron, at)
    return found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_all_firings_of_two_years_are_those_of_a_clock_walked_minute_by_minute(expression: str, zone: str) -> None:
    """Given a cron in a zone whose clocks change, when two years pass, then exactly the expected times fire."""
    clock = walked_clock(zone, *TWO_YEARS)
    expected = clock.firings(expression)
    cron = Cron(expression, zone)
    assert next_runs(cron, clock.start, len(expected)) == expected
    # Asked for one by one, they are the same where it matters: on the days around each change of the clock.
    assert len(clock.changes) == 4
    for change in clock.changes:
        first, last = change - timedelta(days=4), change + timedelta(days=4)
        assert chained(cron, first, last) == expected[bisect_right(expected, first) : bisect_right(expected, last)]


@pytest.mark.parametrize(("zone", "first_day", "last_day"), ODD_WEEKS)
@pytest.mark.parametrize("expression", ["* * * * *", "*/7 * * * *", "0,30 0,12,23 * * *", "15 0 30 12 *", "5 2 * * *"])
def test_odd_clock_changes_fire_as_the_walked_clock_does(
    expression: str, zone: str, first_day: str, last_day: str
) -> None:
    """Given a week with an odd clock change, then each firing of it comes, and is counted, as on the walked clock."""
    clock = walked_clock(zone, first_day, last_day)
    assert clock.changes
    expected = clock.firings(expression)
    cron = Cron(expression, zone)
    assert next_runs(cron, clock.start, len(expected)) == expected
    for change in clock.changes:
        assert_agreement_at_random_moments(cron, clock, expected, around=change, count=15)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["* 1-2 * * *", "20 * * * *", "*/15 1-3 * * SUN", "0 4 1 * *", "30 1 * * *"])
def test_next_and_last_firings_at_random_moments_are_those_of_the_walked_clock(expression: str, zone: str) -> None:
    """Given random moments, most of them in gaps and double hours, then what comes next and what was last is right."""
    clock = walked_clock(zone, *TWO_YEARS)
    expected = clock.firings(expression)
    cron = Cron(expression, zone)
    assert_agreement_at_random_moments(cron, clock, expected, around=None, count=40)
    for change in clock.changes:
        assert_agreement_at_random_moments(cron, clock, expected, around=change, count=40)


def assert_agreement_at_random_moments(
    cron: Cron, clock: WalkedClock, expected: list[datetime], *, around: datetime | None, count: int
) -> None:
    """Assert that the next and the last firing are the expected ones, on the second and between two minutes."""
    random = Random(repr((cron, around)))
    for _ in range(count):
        if around is None:
            now = clock.start + timedelta(seconds=random.randrange(int((clock.end - clock.start).total_seconds())))
        else:
            now = around + timedelta(seconds=random.choice((1, 60)) * random.randrange(-150, 150))
        now += timedelta(microseconds=random.choice((0, 0, 1, 999_999)))
        place = bisect_right(expected, now)
        if place < len(expected):
            assert next_run_for_cadence(cron, now) == expected[place], now
        if place:
            first = random.randrange(max(0, place - random.choice((3, 300, 12_000))), place)
            counted = min(place - first, MAX_COUNTED)
            assert last_due(cron, expected[first], now) == (expected[place - 1], counted), (expected[first], now)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Expressions of all shapes: lists, ranges, steps and names."""

    def field(low: int, high: int) -> str:
        value = st.integers(low, high)
        ends = st.tuples(value, value).map(sorted).map(lambda pair: f"{pair[0]}-{pair[1]}")
        steps = st.integers(1, high - low + 1).map(lambda step: f"/{step}")
        parts = st.one_of(value.map(str), ends, st.tuples(ends, steps).map("".join), steps.map("*{}".format))
        return draw(st.one_of(st.just("*"), st.lists(parts, min_size=1, max_size=3).map(",".join)))

    weekday = draw(st.sampled_from(["*", "*", "*/2", "MON-FRI", "fri-7", "0", "7", "2-7/2", "SAT,SUN", "1-1"]))
    month = draw(st.sampled_from(["*", "*", "*/3", "JAN-MAR", "3,10", "apr,11", "2"]))
    return f"{field(0, 59)} {field(0, 23)} {field(1, 28)} {month} {weekday}"


@settings(max_examples=150)
@given(expression=expressions(), zone=st.sampled_from(ZONES), minute=st.integers(0, 700 * 1_440))
def test_any_expression_fires_as_on_the_walked_clock(expression: str, zone: str, minute: int) -> None:
    """Given any expression and any moment, then the next ten firings and the last one are those expected."""
    clock = walked_clock(zone, *TWO_YEARS)
    due = clock.due(expression)
    now = clock.start + timedelta(minutes=minute)
    place = int(np.searchsorted(due, minute, side="right"))
    cron = Cron(expression, zone)
    soon = clock.moments(due[place : place + 10])
    assert next_runs(cron, now, len(soon)) == soon
    if place:
        before = clock.moments(due[max(0, place - 50) : place])
        assert last_due(cron, before[0], now) == (before[-1], len(before))


@settings(max_examples=150)
@given(
    expression=expressions(),
    zone=st.sampled_from([*ZONES, "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca", "Africa/Monrovia"]),
    after=st.datetimes(datetime(1950, 1, 1), datetime(2150, 1, 1), timezones=st.just(UTC)),
)
def test_nothing_fires_between_a_moment_and_the_next_firing(expression: str, zone: str, after: datetime) -> None:
    """Given any cron at any time, then its firings are in order, and the last due of each stretch is its first end."""
    cron = Cron(expression, zone)
    runs = next_runs(cron, after, 5)
    assume(runs)
    assert after < runs[0]
    assert runs == sorted(set(runs))
    assert next_run_for_cadence(cron, runs[0] - timedelta(microseconds=1)) == runs[0]
    for number, (run, following) in enumerate(pairwise(runs), start=1):
        assert next_run_for_cadence(cron, run) == following
        assert last_due(cron, runs[0], run) == (run, number)
        assert last_due(cron, runs[0], following - timedelta(microseconds=1)) == (run, number)


def local(zone: str, text: str, fold: int = 0) -> datetime:
    """The instant of a wall time in a zone."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


def test_all_times_that_a_gap_leaves_out_fire_once_at_its_end() -> None:
    """Given crons in the hour that Lisbon leaves out, then they fire at 02:00, as one with what is due there anyway."""
    gap_ends = local("Europe/Lisbon", "2027-03-28T02:00")
    before = local("Europe/Lisbon", "2027-03-28T00:59:59")
    for expression in ("30 1 * * *", "*/5 1 * * *", "*/5 1,2 * * *", "0 2 * * *", "0,30 1-2 * * *"):
        assert next_run_for_cadence(Cron(expression, "Europe/Lisbon"), before) == gap_ends
    runs = next_runs(Cron("0,30 1-2 * * *", "Europe/Lisbon"), before, 2)
    assert runs == [gap_ends, gap_ends + timedelta(minutes=30)]
    assert last_due(Cron("* 1 * * *", "Europe/Lisbon"), gap_ends, gap_ends + timedelta(hours=3)) == (gap_ends, 1)


def test_a_time_that_comes_twice_fires_in_the_first_pass_only() -> None:
    """Given a cron within the double hour, when asked in the second pass, then the first pass was its firing."""
    cron = Cron("30 1 * * *", "Europe/Lisbon")
    first = local("Europe/Lisbon", "2027-10-31T01:30", fold=0)
    second = local("Europe/Lisbon", "2027-10-31T01:30", fold=1)
    assert second - first == timedelta(hours=1)
    assert next_run_for_cadence(cron, first - timedelta(seconds=1)) == first
    assert next_run_for_cadence(cron, first) == local("Europe/Lisbon", "2027-11-01T01:30")
    assert last_due(cron, first, second - timedelta(minutes=15)) == (first, 1)
    assert last_due(cron, first, second) == (first, 1)


def test_in_the_second_pass_of_an_hour_the_last_due_is_the_end_of_the_first_pass() -> None:
    """Given a cron of every minute, when its clock shows an hour once more, then nothing fires until it is over."""
    cron = Cron("* * * * *", "America/New_York")
    now = local("America/New_York", "2027-11-07T01:10", fold=1)
    last_of_first_pass = local("America/New_York", "2027-11-07T01:59", fold=0)
    assert last_due(cron, last_of_first_pass, now) == (last_of_first_pass, 1)
    assert next_run_for_cadence(cron, now) == local("America/New_York", "2027-11-07T02:00")


def test_a_skipped_day_fires_once_where_the_next_one_begins() -> None:
    """Given Apia, which had no 30 December 2011, then what was due on it fires at the first instant of the 31st."""
    begins = local("Pacific/Apia", "2011-12-31T00:00")
    cron = Cron("*/20 * 30 12 *", "Pacific/Apia")
    assert next_run_for_cadence(cron, begins - timedelta(days=3)) == begins
    assert next_run_for_cadence(cron, begins) == local("Pacific/Apia", "2012-12-30T00:00")


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 13 * FRI", [1, 8, 13, 15, 22, 29]),  # either, as both are restricted
        ("0 0 */2 * FRI", [1, 15, 29]),  # both, as one begins with a star
        ("0 0 13 * */5", []),  # Sunday and Friday: the 13th was a Wednesday
        ("0 0 1-31 * FRI", list(range(1, 32))),  # a range is no star, even of all days
        ("0 0 * * 7", [3, 10, 17, 24, 31]),
        ("0 0 * * 0", [3, 10, 17, 24, 31]),
        ("0 0 * * 5-7", [1, 2, 3, 8, 9, 10, 15, 16, 17, 22, 23, 24, 29, 30, 31]),
        ("0 0 * * FRI-SUN", [1, 2, 3, 8, 9, 10, 15, 16, 17, 22, 23, 24, 29, 30, 31]),
        ("0 0 * * 1-1", [4, 11, 18, 25]),  # which croniter alone would take for every day
        ("0 0 5-5 JAN-JAN *", [5]),
        ("0 0 28/2 * *", [28, 30]),
        ("0 0 * * 5/1", [1, 2, 8, 9, 15, 16, 22, 23, 29, 30]),
        ("0 0 */31 * *", [1]),
    ],
)
def test_days_of_month_and_of_week_are_read_as_vixie_cron_reads_them(expression: str, days: list[int]) -> None:
    """Given an expression, then it fires on these days of January 2027, which began on a Friday."""
    runs = next_runs(Cron(expression), datetime(2026, 12, 31, 12, tzinfo=UTC), 40)
    assert [run.day for run in runs if (run.year, run.month) == (2027, 1)] == days


def test_a_leap_day_fires_across_the_year_that_has_none() -> None:
    """Given the 29th of February, then 2096 is followed by 2104, and one that must be a Sunday by 40 years."""
    leap_days = Cron("0 12 29 2 *", "Europe/Lisbon")
    after = datetime(2092, 3, 1, tzinfo=UTC)
    runs = next_runs(leap_days, after, 3)
    assert [run.year for run in runs] == [2096, 2104, 2108]
    assert last_due(leap_days, runs[0], datetime(2107, 1, 1, tzinfo=UTC)) == (runs[1], 2)
    assert [run.year for run in next_runs(Cron("0 0 29 2 */7"), after - timedelta(days=2_000), 2)] == [2088, 2128]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Adak"])
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 29 2 *", "59 23 31 12 *"])
def test_at_the_end_of_the_calendar_nothing_more_fires(expression: str, zone: str) -> None:
    """Given the last days of the year 9999, then firings end, and what was last due is still found."""
    cron = Cron(expression, zone)
    end = datetime.max.replace(tzinfo=UTC)
    assert next_run_for_cadence(cron, end) is None
    assert len(next_runs(cron, end - timedelta(minutes=10), 100)) <= 10
    first = datetime(9996, 1, 1, tzinfo=UTC)
    at, count = last_due(cron, first, end)
    assert first <= at <= end
    assert count >= 1


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Adak"])
def test_at_the_beginning_of_the_calendar_nothing_crashes(zone: str) -> None:
    """Given the first moment of the year 1, then a cron either fires after it or not at all."""
    begin = datetime.min.replace(tzinfo=UTC)
    run = next_run_for_cadence(Cron("0 * * * *", zone), begin)
    assert run is None or run > begin
    assert last_due(Cron("0 0 1 1 *", zone), begin, begin) == (begin, 1)


def test_what_was_missed_in_years_is_counted_up_to_the_limit() -> None:
    """Given a cron of every minute that was down for ten years, then it is counted up to 10,000, and found at once."""
    cron = Cron("* * * * *", "Europe/Lisbon")
    first = datetime(2027, 1, 1, tzinfo=UTC)
    now = datetime(2037, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert last_due(cron, first, now) == (datetime(2037, 1, 1, tzinfo=UTC), MAX_COUNTED)
    assert last_due(cron, first, first + timedelta(minutes=9_998))[1] == 9_999
    assert last_due(cron, first, first + timedelta(minutes=9_999))[1] == 10_000
    assert last_due(cron, first, first + timedelta(minutes=10_000))[1] == 10_000


def test_a_first_due_time_that_the_rules_no_longer_know_is_kept() -> None:
    """Given a due time that was stored under other rules, then nothing before it is returned."""
    cron = Cron("0 9 * * *", "Europe/Lisbon")
    stored = datetime(2027, 3, 29, 8, 30, tzinfo=UTC)
    assert last_due(cron, stored, stored + timedelta(minutes=5)) == (stored, 1)
    assert last_due(cron, stored, stored + timedelta(days=1)) == (datetime(2027, 3, 30, 8, tzinfo=UTC), 2)


def test_the_zone_of_the_moment_asked_from_does_not_matter() -> None:
    """Given the same moment in several zones, then the next firing is the same, and in UTC."""
    cron = parse_cadence(cron="30 2 * * *", tz="America/New_York")
    moment = datetime(2027, 3, 14, 6, 30, tzinfo=UTC)
    runs = {next_run_for_cadence(cron, moment.astimezone(ZoneInfo(zone))) for zone in (*ZONES, "UTC")}
    assert runs == {datetime(2027, 3, 14, 7, 0, tzinfo=UTC)}
    assert {run.tzinfo for run in runs if run} == {UTC}
