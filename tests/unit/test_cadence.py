"""Cadences: what is accepted, what is refused and with which words, and what intervals and single moments do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import Rejected
from reverie.scheduling.cadence import (
    MAX_COUNTED,
    MAX_INTERVAL_SECONDS,
    Cadence,
    Cron,
    CronFields,
    Interval,
    Once,
    format_in_timezone,
    last_due,
    next_run_for_cadence,
    next_runs,
    parse_cadence,
    validate_cadence,
)

NOW = datetime(2027, 3, 27, 12, 3, 20, tzinfo=UTC)
NAIVE = NOW.replace(tzinfo=None)
ALL_OF_A_FIELD = ",".join(str(minute) for minute in range(60))


@pytest.mark.parametrize(
    ("arguments", "cadence"),
    [
        ({"cron": "0 9 * * MON"}, Cron("0 9 * * MON")),
        ({"cron": " 0\t9  * * MON ", "tz": "Europe/Lisbon"}, Cron("0 9 * * MON", "Europe/Lisbon")),
        ({"cron": "@hourly"}, Cron("0 * * * *")),
        ({"cron": "@daily"}, Cron("0 0 * * *")),
        ({"cron": "@Midnight"}, Cron("0 0 * * *")),
        ({"cron": "@weekly"}, Cron("0 0 * * 0")),
        ({"cron": "@monthly"}, Cron("0 0 1 * *")),
        ({"cron": "@yearly"}, Cron("0 0 1 1 *")),
        ({"cron": "@annually"}, Cron("0 0 1 1 *")),
        ({"at": "2027-05-01T09:30:00Z"}, Once(datetime(2027, 5, 1, 9, 30, tzinfo=UTC))),
        ({"at": "2027-05-01T09:30:00+01:00"}, Once(datetime(2027, 5, 1, 8, 30, tzinfo=UTC))),
        (
            {"at": datetime(2027, 5, 1, 9, 30, tzinfo=ZoneInfo("Europe/Lisbon")), "tz": "Europe/Lisbon"},
            Once(datetime(2027, 5, 1, 8, 30, tzinfo=UTC), "Europe/Lisbon"),
        ),
        ({"every": 3_600}, Interval(3_600)),
        ({"every": 90, "tz": "Asia/Kathmandu"}, Interval(90, "Asia/Kathmandu")),
    ],
)
def test_what_callers_give_becomes_one_of_three_cadences(arguments: dict[str, Any], cadence: Cadence) -> None:
    """Given good arguments, when parsed, then the cadence is in its plain form, and may be used."""
    assert parse_cadence(**arguments) == cadence
    validate_cadence(parse_cadence(**arguments), now=NOW)


@pytest.mark.parametrize(
    ("arguments", "field", "expected_error"),
    [
        ({}, "cron", "exactly one of cron, at and every, not none"),
        ({"cron": "@daily", "every": 60}, "every", "not cron and every"),
        ({"at": NOW, "every": 60}, "every", "not at and every"),
        ({"cron": ""}, "cron", "0 of 5 fields"),
        ({"cron": "0 9 * *"}, "cron", "4 of 5 fields: give minute, hour, day of month"),
        ({"cron": "0 0 9 * * *"}, "cron", "6 fields: seconds and years are not supported, the shortest interval is 60"),
        ({"cron": "0 0 9 * * * 2027"}, "cron", "7 fields: seconds and years"),
        ({"cron": 5}, "cron", "must be a text"),
        ({"cron": ["0 9 * * *"]}, "cron", "must be a text"),
        ({"cron": "@reboot"}, "cron", "use five fields or one of @hourly"),
        ({"cron": "@"}, "cron", "not known"),
        ({"cron": "H * * * *"}, "cron", "'H' in minute is hashed or random"),
        ({"cron": "h(0-29)/10 * * * *"}, "cron", "hashed or random"),
        ({"cron": "R * * * *"}, "cron", "hashed or random"),
        ({"cron": "0 r(0-9) * * *"}, "cron", "'R.0-9.' in hour is hashed or random"),
        ({"cron": "0 0 L * *"}, "cron", "'L' in day of month is not understood"),
        ({"cron": "0 0 15W * *"}, "cron", "not understood"),
        ({"cron": "0 0 * * MON#2"}, "cron", "'MON#2' in day of week is not understood"),
        ({"cron": "0 0 ? * *"}, "cron", "not understood"),
        ({"cron": "0 0 * * MONDAY"}, "cron", "names .SUN to SAT."),
        ({"cron": "0 0 * MON *"}, "cron", "'MON' in month is not understood"),
        ({"cron": "60 * * * *"}, "cron", "60 in minute must be from 0 to 59"),
        ({"cron": "0 24 * * *"}, "cron", "24 in hour must be from 0 to 23"),
        ({"cron": "0 0 0 * *"}, "cron", "0 in day of month must be from 1 to 31"),
        ({"cron": "0 0 32 * *"}, "cron", "32 in day of month"),
        ({"cron": "0 0 1 0 *"}, "cron", "0 in month"),
        ({"cron": "0 0 1 13 *"}, "cron", "13 in month"),
        ({"cron": "0 0 * * 8"}, "cron", "8 in day of week must be from 0 to 7"),
        ({"cron": "-1 * * * *"}, "cron", "not understood"),
        ({"cron": "1.5 * * * *"}, "cron", "not understood"),
        ({"cron": "*5 * * * *"}, "cron", "not understood"),
        ({"cron": "1,,2 * * * *"}, "cron", "'' in minute is not understood"),
        ({"cron": "1- * * * *"}, "cron", "not understood"),
        ({"cron": "*/ * * * *"}, "cron", "not understood"),
        ({"cron": "*/0 * * * *"}, "cron", "step of '\\*/0' in minute must be from 1 to 60"),
        ({"cron": "*/90 * * * *"}, "cron", "for longer steps use an interval"),
        ({"cron": "1-99999999 * * * *"}, "cron", "99999999 in minute"),
        ({"cron": "0-59/99999999999999999999 * * * *"}, "cron", "step"),
        ({"cron": "0 22-2 * * *"}, "cron", "runs backwards: write it as two ranges, 22-23,0-2"),
        ({"cron": "0 0 * * FRI-MON"}, "cron", "runs backwards: write it as two ranges, 5-6,0-1"),
        ({"cron": "0 0 30 2 *"}, "cron", "never fires: none of its months has a day 30"),
        ({"cron": "0 0 31 2,4,6,9,11 *"}, "cron", "never fires: none of its months has a day 31"),
        ({"cron": "0 0 30-31 2 */2"}, "cron", "never fires"),
        ({"cron": "0 9 * * *\n"}, "cron", "control character"),
        ({"cron": "0 9 * *\x00*"}, "cron", "control character"),
        ({"cron": "0\u00a09 * * *"}, "cron", "not ASCII"),
        ({"cron": "\uff11 9 * * *"}, "cron", "not ASCII"),
        ({"cron": f"{ALL_OF_A_FIELD} {ALL_OF_A_FIELD} * * *"}, "cron", "the limit is 256"),
        ({"cron": "*" * 10_000_000}, "cron", "10,000,000 characters"),
        ({"at": NAIVE}, "at", "needs a time zone"),
        ({"at": "2027-05-01T09:30:00"}, "at", "needs a time zone"),
        ({"at": "2027-05-01"}, "at", "not a valid time with its zone: write it as in 2027-05-01T09:30:00Z"),
        ({"at": "tomorrow at nine"}, "at", "not a valid time with its zone"),
        ({"at": "2027-02-29T09:30:00Z"}, "at", "not a valid time with its zone"),
        ({"at": 1_800_000_000}, "at", "must be a date and time, not int"),
        ({"at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "at", "outside the years 1 to 9999"),
        ({"every": 0}, "every", "more than 0"),
        ({"every": -60}, "every", "more than 0"),
        ({"every": 60.0}, "every", "whole number of seconds, not float"),
        ({"every": float("nan")}, "every", "not float"),
        ({"every": True}, "every", "not bool"),
        ({"every": "60"}, "every", "not str"),
        ({"every": MAX_INTERVAL_SECONDS + 1}, "every", "ten years"),
        ({"every": 10**30}, "every", "ten years"),
        ({"cron": "@daily", "tz": "Europe/Lisboa"}, "tz", "did you mean Europe/Lisbon.$"),
        ({"cron": "@daily", "tz": "europe/lisbon"}, "tz", "did you mean Europe/Lisbon.$"),
        ({"cron": "@daily", "tz": "Lisbon"}, "tz", "did you mean Europe/Lisbon.$"),
        ({"cron": "@daily", "tz": "new york"}, "tz", "did you mean America/New_York.$"),
        ({"cron": "@daily", "tz": "utc"}, "tz", "did you mean UTC.$"),
        ({"cron": "@daily", "tz": "Z"}, "tz", "did you mean UTC.$"),
        ({"cron": "@daily", "tz": ""}, "tz", "give an IANA name"),
        ({"cron": "@daily", "tz": "IST"}, "tz", "give an IANA name"),
        ({"cron": "@daily", "tz": "PST"}, "tz", "give an IANA name"),
        ({"cron": "@daily", "tz": "Europe"}, "tz", "is not a time zone"),
        ({"cron": "@daily", "tz": "../etc"}, "tz", "is not a time zone"),
        ({"cron": "@daily", "tz": "/etc/localtime"}, "tz", "is not a time zone"),
        ({"cron": "@daily", "tz": "localtime"}, "tz", "is not a time zone"),
        ({"cron": "@daily", "tz": "Europe/Lisbon\x00"}, "tz", "did you mean Europe/Lisbon.$"),
        ({"cron": "@daily", "tz": "\n" * 1_000_000}, "tz", "give an IANA name"),
        ({"cron": "@daily", "tz": "\ud800"}, "tz", "is not a time zone"),
        ({"cron": "@daily", "tz": None}, "tz", "must be the name of a time zone"),
        ({"at": "2027-05-01T09:30:00Z", "tz": "Mars/Base"}, "tz", "is not a time zone"),
        ({"every": 60, "tz": "Mars/Base"}, "tz", "is not a time zone"),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_with_one_line_that_names_the_field(
    arguments: dict[str, Any], field: str, expected_error: str
) -> None:
    """Given a bad argument, when parsed, then the error names it and says in one short line what to do."""
    with pytest.raises(Rejected, match=expected_error) as refused:
        parse_cadence(**arguments)
    assert refused.value.field == field
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("cadence", "field", "expected_error"),
    [
        (Cron("0 0 30 2 *"), "cron", "never fires"),
        (Cron("* * * * * *"), "cron", "6 fields"),
        (Cron(["@daily"]), "cron", "must be a text"),  # type: ignore[arg-type]
        (Cron("@daily", "Mars/Base"), "tz", "not a time zone"),
        (Cron("@daily", None), "tz", "must be the name"),  # type: ignore[arg-type]
        (Once(NOW), "at", "is in the past"),
        (Once(NOW - timedelta(microseconds=1)), "at", "is in the past: give a time after 2027-03-27T12:03:20"),
        (Once(NAIVE), "at", "needs a time zone"),
        (Once("2027-05-01T09:30:00Z"), "at", "must be a date and time"),  # type: ignore[arg-type]
        (Once(NOW + timedelta(days=1), "Mars/Base"), "tz", "not a time zone"),
        (Interval(59), "every", "59 seconds; it must be at least 60"),
        (Interval(-1), "every", "more than 0"),
        (Interval(60.5), "every", "not float"),  # type: ignore[arg-type]
        (Interval(True), "every", "not bool"),
        (Interval(60, anchor=NAIVE), "anchor", "needs a time zone"),
        (Interval(60, "Mars/Base"), "tz", "not a time zone"),
        ("@daily", "cadence", "must be a Cron, Once or Interval"),
        (None, "cadence", "must be a Cron, Once or Interval"),
    ],
)
def test_a_cadence_that_did_not_come_from_parsing_is_checked_as_well(
    cadence: Any, field: str, expected_error: str
) -> None:
    """Given a cadence made by hand or read from JSON, when validated, then the error names the field."""
    with pytest.raises(Rejected, match=expected_error) as refused:
        validate_cadence(cadence, now=NOW)
    assert refused.value.field == field


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2,4 *", "0 0 31 2 */2", "*/0 * * * *", "0 0 32 * *"])
def test_what_can_never_fire_is_refused_without_a_search(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an impossible cron, when its next time is asked for, then no search through the years even begins."""
    searches: list[object] = []
    monkeypatch.setattr(CronFields, "search_from", lambda *given: searches.append(given))
    asked: list[Callable[[], object]] = [
        lambda: parse_cadence(cron=expression),
        lambda: validate_cadence(Cron(expression), now=NOW),
        lambda: next_run_for_cadence(Cron(expression), NOW),
        lambda: next_runs(Cron(expression), NOW, 5),
        lambda: last_due(Cron(expression), NOW, NOW),
    ]
    for ask in asked:
        with pytest.raises(Rejected) as refused:
            ask()
        assert refused.value.field == "cron"
    assert searches == []


@pytest.mark.parametrize(
    ("expression", "shortest"),
    [
        ("* * * * *", 60),
        ("*/7 * * * *", 240),  # from 56 to the full hour
        ("0,50 * * * *", 600),
        ("0,20,40,55 */2,23 * * *", 300),  # only from 22:55 to 23:00, of 52 firings a day
        ("0 0,23 * * *", 3_600),
        ("30 * * * *", 3_600),  # although half an hour lies between two of them in the night of the change
        ("0 0 * * *", 86_400),
        ("0 0 * * 1", 604_800),
        ("0 0 1 * *", 28 * 86_400),
        ("0 0 1 1 *", 365 * 86_400),
    ],
)
def test_the_shortest_interval_is_looked_for_beyond_the_next_two_firings(expression: str, shortest: int) -> None:
    """Given a cron, when validated, then a minimum up to its shortest interval passes, and a longer one does not."""
    for zone in ("UTC", "Europe/Lisbon"):
        validate_cadence(Cron(expression, zone), now=NOW, min_interval_seconds=shortest)
        with pytest.raises(
            Rejected, match=f"fires {shortest:,} seconds apart; the shortest interval allowed"
        ) as refused:
            validate_cadence(Cron(expression, zone), now=NOW, min_interval_seconds=shortest + 1)
        assert refused.value.field == "cron"


def test_a_cadence_that_has_no_time_left_is_refused() -> None:
    """Given the end of the year 9999, when a cron or an interval is validated, then it says that it will not fire."""
    end = datetime(9999, 12, 31, 23, 59, 30, tzinfo=UTC)
    for cadence, field in ((Cron("* * * * *"), "cron"), (Interval(60), "every")):
        with pytest.raises(Rejected, match="before the year 10000") as refused:
            validate_cadence(cadence, now=end)
        assert refused.value.field == field
        assert next_run_for_cadence(cadence, end) is None
        validate_cadence(cadence, now=end - timedelta(minutes=2))
    with pytest.raises(Rejected, match="before the year 10000"):
        validate_cadence(Cron("0 * * * *", "Pacific/Kiritimati"), now=end, min_interval_seconds=600)


@pytest.mark.parametrize("ask", [next_run_for_cadence, lambda c, m: next_runs(c, m, 1), lambda c, m: last_due(c, m, m)])
def test_a_moment_without_a_zone_is_refused_not_guessed(ask: Callable[[Cadence, datetime], object]) -> None:
    """Given a naive moment to ask from, then it is refused, for whose clock it follows is not known."""
    for cadence in (Cron("* * * * *"), Interval(60)):
        with pytest.raises(Rejected, match="needs a time zone"):
            ask(cadence, NAIVE)


def test_a_moment_comes_once() -> None:
    """Given a single moment, then it is next before it, and nothing is next at it or after it."""
    once = Once(datetime(2027, 5, 1, 10, 30, tzinfo=timezone(timedelta(hours=1))))
    at = datetime(2027, 5, 1, 9, 30, tzinfo=UTC)
    found = next_run_for_cadence(once, NOW)
    assert found == at
    assert found.tzinfo is UTC
    assert next_runs(once, NOW, 5) == [at]
    assert next_run_for_cadence(once, at) is None
    assert next_runs(once, at, 5) == []
    assert last_due(once, at, at + timedelta(days=400)) == (at, 1)


def test_an_interval_without_an_anchor_counts_from_the_moment_asked_from() -> None:
    """Given an interval alone, then it fires so many seconds after the moment, to the microsecond."""
    moment = NOW + timedelta(microseconds=7)
    assert next_runs(Interval(90), moment, 3) == [moment + timedelta(seconds=90 * n) for n in (1, 2, 3)]
    assert last_due(Interval(90), moment, moment + timedelta(seconds=269)) == (moment + timedelta(seconds=180), 3)


def test_an_anchored_interval_fires_first_at_its_anchor() -> None:
    """Given an anchor that is still to come, then it is the first firing, and the others follow in its phase."""
    anchor = NOW + timedelta(days=1, seconds=11)
    every = Interval(3_600, anchor=anchor)
    assert next_runs(every, NOW, 2) == [anchor, anchor + timedelta(hours=1)]
    assert next_run_for_cadence(every, anchor) == anchor + timedelta(hours=1)


def test_an_interval_goes_by_elapsed_time_across_a_clock_change() -> None:
    """Given an anchor with a zone whose clocks change, then a day is 24 hours, and the clock shows another time."""
    anchor = datetime(2027, 3, 27, 9, tzinfo=ZoneInfo("Europe/Lisbon"))
    every = Interval(86_400, "Europe/Lisbon", anchor)
    runs = next_runs(every, anchor, 2)
    assert runs == [datetime(2027, 3, 28, 9, tzinfo=UTC), datetime(2027, 3, 29, 9, tzinfo=UTC)]
    assert last_due(every, anchor, runs[1].astimezone(ZoneInfo("Europe/Lisbon"))) == (runs[1], 3)
    assert format_in_timezone(runs[0], every) == "Sun 2027-03-28 10:00 WEST (Europe/Lisbon)"


@given(
    seconds=st.integers(1, 400_000),
    phase=st.integers(-(10**15), 10**15),
    waited=st.integers(0, 10**15),
)
def test_an_interval_keeps_its_phase_however_late_it_is_asked(seconds: int, phase: int, waited: int) -> None:
    """Given any anchor and any moment after it, then the firings are whole intervals from the anchor, none left out."""
    anchor = NOW + timedelta(microseconds=phase)
    now = anchor + timedelta(microseconds=waited)
    every = Interval(seconds, anchor=anchor)
    step = timedelta(seconds=seconds)
    following = next_run_for_cadence(every, now)
    assert following is not None
    assert now < following <= now + step
    assert (following - anchor) % step == timedelta(0)
    latest, count = last_due(every, anchor, now)
    assert latest == following - step
    assert count == min((latest - anchor) // step + 1, MAX_COUNTED)


@pytest.mark.parametrize(
    "cadence",
    [
        Cron("0 9 * * MON-FRI", "Europe/Lisbon"),
        Once(datetime(2027, 5, 1, 9, 30, 0, 123_456, tzinfo=UTC), "Europe/Lisbon"),
        Once(datetime(2027, 5, 1, 9, 30, tzinfo=timezone(timedelta(hours=5, minutes=45)))),
        Interval(3_600),
        Interval(3_600, "Asia/Kathmandu", NOW),
    ],
)
def test_a_cadence_comes_back_from_json_as_it_was(cadence: Cadence) -> None:
    """Given a cadence, when written as JSON and read again, then it is the same, and says its type."""
    written = msgspec.json.encode(cadence)
    assert msgspec.json.decode(written, type=Cadence) == cadence
    assert msgspec.json.decode(written)["type"] == type(cadence).__name__.lower()
    assert hash(cadence) == hash(msgspec.json.decode(written, type=Cadence))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"cron"}',
        b'{"type":"cron","expression":"@daily","timezone":"Europe/Lisbon"}',
        b'{"type":"interval","seconds":true}',
        b'{"type":"interval","seconds":60.5}',
        b'{"type":"once","at":"tomorrow"}',
        b'{"type":"sometimes"}',
        b'{"expression":"@daily"}',
    ],
)
def test_json_that_is_no_cadence_is_not_read_as_one(raw: bytes) -> None:
    """Given JSON with a wrong type, a misspelt name or a missing one, then it is refused rather than guessed."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Cadence)


@pytest.mark.parametrize(
    ("at", "cadence", "shown"),
    [
        (datetime(2027, 3, 29, 8, tzinfo=UTC), "Europe/Lisbon", "Mon 2027-03-29 09:00 WEST (Europe/Lisbon)"),
        (datetime(2027, 3, 28, 0, 59, tzinfo=UTC), "Europe/Lisbon", "Sun 2027-03-28 00:59 WET (Europe/Lisbon)"),
        (
            datetime(2027, 3, 29, 8, 0, 5, 9, tzinfo=UTC),
            "Europe/Lisbon",
            "Mon 2027-03-29 09:00:05 WEST (Europe/Lisbon)",
        ),
        (
            datetime(2027, 3, 29, 8, tzinfo=UTC),
            Cron("@daily", "America/Sao_Paulo"),
            "Mon 2027-03-29 05:00 -03 (America/Sao_Paulo)",
        ),
        (datetime(2027, 3, 29, 8, tzinfo=ZoneInfo("Asia/Tokyo")), Interval(60), "Sun 2027-03-28 23:00 UTC"),
        (datetime(987, 1, 2, 8, tzinfo=UTC), "UTC", "Tue 0987-01-02 08:00 UTC"),
    ],
)
def test_a_moment_is_shown_as_the_clock_of_the_zone_shows_it(at: datetime, cadence: Cadence | str, shown: str) -> None:
    """Given a moment and a zone, or a cadence that has one, then the text has day, date, clock and zone."""
    assert format_in_timezone(at, cadence) == shown


@pytest.mark.parametrize(
    ("at", "zone", "field"),
    [
        (NAIVE, "UTC", "at"),
        (NOW, "Europe/Lisboa", "tz"),
        (datetime.max.replace(tzinfo=UTC), "Pacific/Kiritimati", "at"),
        (datetime.min.replace(tzinfo=UTC), "America/New_York", "at"),
    ],
)
def test_a_moment_that_cannot_be_shown_is_refused(at: datetime, zone: str, field: str) -> None:
    """Given a naive moment, an unknown zone or a date that the zone cannot write, then the error names the field."""
    with pytest.raises(Rejected) as refused:
        format_in_timezone(at, zone)
    assert refused.value.field == field


def test_importing_cadences_does_not_import_croniter() -> None:
    """Given a process that parses a cadence and needs no firing, then croniter was not loaded for it."""
    code = (
        "import sys, reverie\n"
        "assert 'zoneinfo' not in sys.modules\n"
        "from reverie.scheduling.cadence import parse_cadence\n"
        "parse_cadence(cron='0 9 * * MON', tz='Europe/Lisbon')\n"
        "assert not {'croniter', 'dateutil', 'difflib'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
