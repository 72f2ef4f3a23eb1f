"""Who and when a question speaks of: names of speakers, and times resolved to days."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ranking.parsing import (
    Period,
    asks_for_a_time,
    fit_periods,
    periods_in,
    with_days_meant,
    without_names,
)
from reverie.clock import to_micros

# A Wednesday.
TODAY = datetime(2024, 5, 15, 12, tzinfo=UTC)
DAY = 86_400_000_000
YEARS = (2023, 2024)


def day(year: int, month: int, number: int) -> Period:
    return Period(date(year, month, number), date(year, month, number))


def span(first: str, last: str, vague: float = 0.0) -> Period:
    return Period(date.fromisoformat(first), date.fromisoformat(last), vague)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("on 2024-02-29", [day(2024, 2, 29)]),
        ("at 2024-02-29T10:30:00Z", [day(2024, 2, 29)]),
        ("2023-02-29 was no day", []),
        ("in 2023-08", [span("2023-08-01", "2023-08-31")]),
        ("2023-13 and 2023-00 and 0000-01", []),
        ("call 555-2023-14x", []),
        ("31 February 2024", []),
        ("in February 2024", [span("2024-02-01", "2024-02-29")]),
        ("in february", [span("2023-02-01", "2023-02-28"), span("2024-02-01", "2024-02-29")]),
        ("29 February", [day(2024, 2, 29)]),
        ("December 2023", [span("2023-12-01", "2023-12-31")]),
        ("December 9999", [span("9999-12-01", "9999-12-31")]),
        ("3 June 2023", [day(2023, 6, 3)]),
        ("the 3rd of June, 2023", [day(2023, 6, 3)]),
        ("June 3rd, 2023", [day(2023, 6, 3)]),
        ("june 3", [day(2023, 6, 3), day(2024, 6, 3)]),
        ("Sept. 2023", [span("2023-09-01", "2023-09-30")]),
        ("Sep 2023", [span("2023-09-01", "2023-09-30")]),
        ("JUNE of 2023", [span("2023-06-01", "2023-06-30")]),
        ("june 2023 and june 2023", [span("2023-06-01", "2023-06-30")]),
        ("You may go, and might march", [span("2023-03-01", "2023-03-31"), span("2024-03-01", "2024-03-31")]),
        ("What may I do?", []),
        ("Who left in May?", [span("2023-05-01", "2023-05-31"), span("2024-05-01", "2024-05-31")]),
        ("5 may", [day(2023, 5, 5), day(2024, 5, 5)]),
        ("in 2023", [span("2023-01-01", "2023-12-31")]),
        ("in 1823", []),
        ("since 2022 or in 2023", [span("2022-01-01", "2022-12-31"), span("2023-01-01", "2023-12-31")]),
        ("june 2023 rather than in 2022", [span("2023-06-01", "2023-06-30")]),
        ("today", [day(2024, 5, 15)]),
        ("Yesterday?", [day(2024, 5, 14)]),
        ("last night", [day(2024, 5, 14)]),
        ("this night", [day(2024, 5, 15)]),
        ("this week", [span("2024-05-13", "2024-05-19")]),
        ("last   week", [span("2024-05-06", "2024-05-12")]),
        ("last weekend", [span("2024-05-11", "2024-05-12")]),
        ("this month", [span("2024-05-01", "2024-05-15")]),
        ("last month", [span("2024-04-01", "2024-04-30")]),
        ("past year", [span("2023-01-01", "2023-12-31")]),
        ("last Wednesday", [day(2024, 5, 8)]),
        ("this Wednesday", [day(2024, 5, 15)]),
        ("last Tuesday", [day(2024, 5, 14)]),
        ("last thursday", [day(2024, 5, 9)]),
        ("a week ago", [span("2024-05-07", "2024-05-09", 1.0)]),
        ("a couple of weeks ago", [span("2024-04-30", "2024-05-02", 1.0)]),
        ("a few days ago", [span("2024-05-11", "2024-05-13", 1.0)]),
        ("10 days ago", [span("2024-05-04", "2024-05-06", 1.0)]),
        ("0 days ago", [span("2024-05-14", "2024-05-16", 1.0)]),
        ("an year ago", [span("2023-02-14", "2023-08-15", 91.0)]),
        ("999 years ago", [span("1025-10-14", "1026-04-14", 91.0)]),
        ("9999 years ago", []),
        ("the last supper of yesteryear, a while ago", []),
        ("", []),
    ],
)
def test_a_phrase_means_these_days(query: str, expected: list[Period]) -> None:
    """Given a question on a Wednesday in May 2024, then the times in it are these."""
    assert periods_in(query, newest=to_micros(TODAY), years=YEARS) == expected


@pytest.mark.parametrize(
    ("newest", "query", "expected"),
    [
        (
            datetime(1, 1, 1, tzinfo=UTC),
            "yesterday, last year, last month, last night, 3 years ago, today",
            [day(1, 1, 1)],
        ),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), "this week or today", [day(9999, 12, 31)]),
        (datetime(9999, 12, 31, tzinfo=UTC), "last year", [span("9998-01-01", "9998-12-31")]),
        (datetime(2024, 3, 1, tzinfo=UTC), "yesterday", [day(2024, 2, 29)]),
        (datetime(2024, 1, 1, tzinfo=UTC), "last month", [span("2023-12-01", "2023-12-31")]),
        (datetime(2024, 1, 1, tzinfo=UTC), "last week", [span("2023-12-25", "2023-12-31")]),
        (datetime(2023, 3, 31, tzinfo=UTC), "last month", [span("2023-02-01", "2023-02-28")]),
    ],
)
def test_what_is_relative_stays_within_the_calendar(newest: datetime, query: str, expected: list[Period]) -> None:
    """Given the newest message at an end of a month, of a year or of the calendar, then only real days are meant."""
    assert periods_in(query, newest=to_micros(newest), years=(newest.year, newest.year)) == expected


@given(st.text(alphabet="0123456789- tmayjunelsgo", max_size=60), st.datetimes())
def test_no_text_and_no_time_is_too_odd(query: str, newest: datetime) -> None:
    """Given any text at any time, then there are periods or none, each with its days in order."""
    periods = periods_in(query, newest=to_micros(newest.replace(tzinfo=UTC)), years=YEARS)
    assert all(period.first <= period.last for period in periods)


@pytest.mark.parametrize(
    "unit", ["may ", "june ", "2023-01-01 ", "2023-", "1 ", "a ", "3 ", "today ", "1 day ago ", "in 5 "]
)
def test_100_kb_of_times_mean_a_few(unit: str) -> None:
    """Given a query that repeats a time 10,000 times and more, then each time is meant once."""
    text = unit * (100_000 // len(unit))
    assert len(periods_in(text, newest=to_micros(TODAY), years=(2015, 2024))) <= 10


def test_a_query_of_all_days_there_are_means_the_first_hundred() -> None:
    """Given 9,000 dates in a query, then not all of them are held against every chunk."""
    text = " ".join(f"{1000 + number}-05-05" for number in range(8_900))
    periods = periods_in(text, newest=to_micros(TODAY), years=YEARS)
    assert periods[0] == day(1000, 5, 5)
    assert len(periods) == 100


def test_blanks_without_end_are_passed_over() -> None:
    for text in ("in 5 may" + " " * 100_000, "3" + " " * 100_000 + "x", "last" + " " * 100_000, "5" + " " * 99_999):
        assert len(periods_in(text, newest=to_micros(TODAY), years=YEARS)) <= 2


def test_a_time_fits_within_and_fades_after() -> None:
    """Given the 10th to the 12th, then these days fit wholly, later ones ever less, earlier ones not at all."""
    june = [to_micros(datetime(2023, 6, number, 23, 59, tzinfo=UTC)) for number in range(9, 21)]
    fits = fit_periods([span("2023-06-10", "2023-06-12")], np.array(june))
    assert fits[:4].tolist() == [0.0, 1.0, 1.0, 1.0]
    assert (np.diff(fits[3:]) < 0).all()
    assert fits[-2] == pytest.approx(np.exp(-1), abs=1e-6)


def test_a_vague_time_fades_to_both_sides_and_the_best_of_several_counts() -> None:
    """Given a vague period and an exact one, then each time has the better of its two fits."""
    times = np.array([to_micros(datetime(2023, 6, number, tzinfo=UTC)) for number in (8, 10, 12, 25)])
    fits = fit_periods([span("2023-06-10", "2023-06-10", 2.0), day(2023, 6, 25)], times)
    assert fits.tolist() == pytest.approx([np.exp(-1), 1.0, np.exp(-1), 1.0])
    assert fit_periods([], times).tolist() == [0.0] * 4


def test_times_before_1970_and_at_the_ends_fit_too() -> None:
    times = np.array([to_micros(datetime(1, 1, 1, tzinfo=UTC)), to_micros(datetime(9999, 12, 31, 23, tzinfo=UTC)), -1])
    assert fit_periods([day(1, 1, 1)], times).tolist()[0] == 1.0
    assert fit_periods([day(9999, 12, 31)], times).tolist() == [0.0, 1.0, 0.0]
    assert fit_periods([day(1969, 12, 31)], times).tolist()[2] == 1.0


@pytest.mark.parametrize(
    ("query", "speakers", "text", "named"),
    [
        ("What did Ada say?", ["Ada", "Ben"], "What did say?", {0}),
        ("What is Ada's job?", ["Ada"], "What is job?", {0}),
        ("What is Ada\u2019s job?", ["Ada"], "What is job?", {0}),
        ("Is it Adam's or Adas?", ["Ada"], "Is it Adam's or Adas?", set()),
        ("Ada'sx and Ada's", ["Ada"], "'sx and", {0}),
        ("Ada and Ben met", ["Ada Byron", "Ben"], "and met", {0, 1}),
        ("Byron met", ["Ada Byron", "Byron Ives"], "met", {0, 1}),
        ("Ada?", ["Ada"], "Ada?", {0}),
        ("what did ada say", ["Ada"], "what did say", {0}),
        ("Will he go, will he?", ["Will"], "he go, will he?", {0}),
        ("I hope he will", ["Will"], "I hope he will", set()),
        ("what about c3po", ["C3PO"], "what about", {0}),
        ("A b", ["A", "b"], "A b", set()),
        ("Ask a.b (c) [x .*", ["a.b", "(c", "[x", ".*", "", "😀", "_"], "Ask a.b (c) [x .*", set()),
        ("Ask Jean-Luc", ["Jean-Luc"], "Ask -", {0}),
        ("田中 said", ["田中"], "said", {0}),
        ("Émile said", ["Émile"], "said", {0}),
        ("what", [], "what", set()),
        ("", ["Ada"], "", set()),
    ],
)
def test_names_of_speakers_are_taken_out(query: str, speakers: list[str], text: str, named: set[int]) -> None:
    """Given a query and who speaks, then the names are out of it, and whom it names is known."""
    question = without_names(query, speakers)
    assert (question.text, question.named) == (text, named)


def test_a_query_of_names_only_keeps_its_text_and_has_no_words() -> None:
    question = without_names("Ada Ben", ["Ada", "Ben"])
    assert (question.text, question.words, question.named) == ("Ada Ben", (), {0, 1})


@given(st.text(max_size=50), st.lists(st.text(max_size=10), max_size=5))
def test_any_query_and_any_names_will_do(query: str, speakers: list[str]) -> None:
    """Given anything at all, then those named are speakers, and without a name the query stays as it is."""
    question = without_names(query, speakers)
    assert question.named <= set(range(len(speakers)))
    if not question.named:
        assert question.text == query


def test_ten_thousand_speakers_and_100_kb_are_no_burden() -> None:
    """Given as many names and words as there can be, then the one that is meant is found.

    One pattern of all names was tried at every word: half a second for each new speaker.
    """
    speakers = [f"Speaker{number} {'n' * 200}{number}" for number in range(10_000)]
    question = without_names("What did Speaker77 say? " * 4_000, speakers)
    assert question.named == {77}
    assert set(question.words) == {"what", "did", "say"}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("I moved yesterday.", "I moved yesterday (7 May 2023)."),
        ("Last Friday we met", "Last Friday (5 May 2023) we met"),
        ("See you next monday, or tomorrow", "See you next monday (15 May 2023), or tomorrow (9 May 2023)"),
        ("last month, next month", "last month (Apr 2023), next month (Jun 2023)"),
        ("last year, next year", "last year (2022), next year (2024)"),
        ("See you next Wednesday", "See you next Wednesday (17 May 2023)"),
        ("User moved yesterday (7 May 2023).", "User moved yesterday (7 May 2023)."),
        ("the last one", "the last one"),
    ],
)
def test_a_relative_day_is_told_with_the_day_meant(said: str, shown: str) -> None:
    """Given what was said on Monday, 8 May 2023, then the day that it means stands behind it."""
    assert with_days_meant(said, to_micros(datetime(2023, 5, 8, 12, tzinfo=UTC))) == shown


@pytest.mark.parametrize("year", [1, 9999])
def test_a_day_outside_the_calendar_is_not_told(year: int) -> None:
    """Given the first or the last year there is, then a year before or after it is left as it was said."""
    said_at = to_micros(datetime(year, 6, 1, tzinfo=UTC))
    assert with_days_meant("last year" if year == 1 else "next year", said_at) in ("last year", "next year")


def test_questions_for_a_time_are_told_from_others() -> None:
    """Given questions, then those that begin with when or how long, or ask for how many years, ask for a time."""
    asking = ["When did she move?", "how long was it?", "In what year did it end?", "For how many weeks?"]
    assert all(map(asks_for_a_time, asking))
    assert not any(map(asks_for_a_time, ["Whenever she likes?", "What did she do when he left?", ""]))
