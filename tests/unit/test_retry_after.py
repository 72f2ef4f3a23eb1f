"""What an endpoint may say of when to come back, and what is made of it."""

from __future__ import annotations

import pytest

from adapters.calls import MAX_RETRY_AFTER_SECONDS, retry_after_seconds


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        ("-5", 0.0),
        ("soon", None),
        ("9" * 400, None),
        ("Fri, 31 Dec 2027 23:59:59 +99999999999999", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("86400", MAX_RETRY_AFTER_SECONDS),
        ("Thu, 01 Jan 2099 00:00:00 GMT", MAX_RETRY_AFTER_SECONDS),
    ],
)
def test_a_header_is_seconds_or_nothing(header: str | None, seconds: float | None) -> None:
    """Given a Retry-After of any kind, then it is a wait that is not negative, or none, and never an error."""
    assert retry_after_seconds(header) == seconds


@pytest.mark.parametrize("year", [1999, 2024, 2091])
def test_a_date_is_compared_with_the_other_sides_clock(year: int) -> None:
    """Given a date two minutes after that of the answer, then it is a wait of two minutes, whatever this clock says."""
    header, answered_at = f"Wed, 05 Mar {year} 10:02:00 GMT", f"Wed, 05 Mar {year} 10:00:00 GMT"
    assert retry_after_seconds(header, answered_at=answered_at) == 120.0
    assert retry_after_seconds("30", answered_at=answered_at) == 30.0
    assert retry_after_seconds(header, answered_at="tomorrow") is None
