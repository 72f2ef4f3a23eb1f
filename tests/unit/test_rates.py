"""The rates of tokens: what a minute allows, when to try again, and who is not limited."""

from __future__ import annotations

import pytest

from memory.trust.tokens import OPERATOR, Principal
from reverie.errors import Limited
from server.authentication import Rates

ANA = Principal("ana", token="t1")
BEN = Principal("ben", token="t2")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(clock: Clock) -> Rates:
    return Rates({"messages": 60, "bytes": 1_000, "memories": 0}, monotonic=clock)


def test_a_burst_may_use_a_minute_and_then_it_fills_steadily(rates: Rates, clock: Clock) -> None:
    """Given 60 messages at once, then the next is refused for a second, and there is room for ten after ten."""
    rates.take(ANA, {"messages": 60})
    with pytest.raises(Limited, match="60 messages a minute") as limited:
        rates.take(ANA, {"messages": 1})
    assert (limited.value.retry_after_seconds, limited.value.field) == (1, "messages")
    with pytest.raises(Limited) as limited:
        rates.take(ANA, {"messages": 10})
    assert limited.value.retry_after_seconds == 10
    clock.now = 10
    rates.take(ANA, {"messages": 10})
    with pytest.raises(Limited):
        rates.take(ANA, {"messages": 1})


def test_a_call_takes_all_or_nothing(rates: Rates) -> None:
    """Given a call that is within one rate and beyond another, then it takes from neither."""
    rates.take(ANA, {"bytes": 900})
    with pytest.raises(Limited):
        rates.take(ANA, {"messages": 50, "bytes": 200})
    rates.take(ANA, {"messages": 60, "bytes": 100})


def test_a_call_that_is_larger_than_a_minute_passes_when_nothing_else_did(rates: Rates, clock: Clock) -> None:
    """Given a call of two minutes' amount, then it is admitted once, and it takes two minutes until the next."""
    rates.take(ANA, {"messages": 120})
    clock.now = 60
    with pytest.raises(Limited):
        rates.take(ANA, {"messages": 1})
    clock.now = 61
    rates.take(ANA, {"messages": 1})


def test_tokens_do_not_use_up_the_rates_of_others(rates: Rates) -> None:
    """Given a token without anything left, then another and the operator go on, and so does what has no limit."""
    rates.take(ANA, {"messages": 60})
    rates.take(BEN, {"messages": 60})
    for _ in range(3):
        rates.take(OPERATOR, {"messages": 1_000_000})
        rates.take(ANA, {"memories": 1_000_000, "schedules": 1_000_000})
    for token in (ANA, BEN):
        with pytest.raises(Limited):
            rates.take(token, {"messages": 1})
