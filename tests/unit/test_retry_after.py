"""What an endpoint may say of when to come back, and what is made of it."""

from __future__ import annotations

import pytest

from adapters.endpoint import retry_after_seconds


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
    ],
)
def test_a_header_is_seconds_or_nothing(header: str | None, seconds: float | None) -> None:
    """Given a Retry-After of any kind, then it is a wait that is not negative, or none, and never an error."""
    assert retry_after_seconds(header) == seconds
