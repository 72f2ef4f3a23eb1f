"""Calls to one destination: a slow one gets a share of a worker's threads, and never all of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from memory.scheduling.notifier import (
    MAX_CALLS,
    MAX_PER_DESTINATION,
    MAX_SLOW_CALLS,
    SLOW_AFTER_SECONDS,
    SLOW_FOR_SECONDS,
    Busy,
    Destinations,
)
from reverie.scheduling.types import Executor, LlmExecutor, TaskExecutor, WebhookExecutor

THREADS = 16
SLOW = WebhookExecutor(url="https://slow.example/a?b")
QUICK = WebhookExecutor(url="https://quick.example/a")


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begin(destinations: Destinations, executor: Executor, calls: ExitStack) -> int:
    """As many calls as may begin; returns how many."""
    for count in range(THREADS):
        try:
            calls.enter_context(destinations.calling(executor))
        except Busy:
            return count
    return THREADS


def test_a_receiver_that_hangs_leaves_threads_from_the_first_moment(clock: Clock) -> None:
    """Given more runs of one receiver than threads, all at once, then some threads are left, and for all others."""
    destinations = Destinations(clock)
    with ExitStack() as calls:
        assert begin(destinations, SLOW, calls) == MAX_PER_DESTINATION
        assert destinations.wait_seconds(SLOW) is not None
        assert destinations.wait_seconds(QUICK) is None
        assert begin(destinations, QUICK, calls) == MAX_CALLS - MAX_PER_DESTINATION < THREADS - MAX_PER_DESTINATION
        assert destinations.wait_seconds(TaskExecutor(task="mine", queue="mine")) is None


def test_one_that_was_slow_gets_a_smaller_share_for_a_while(clock: Clock) -> None:
    """Given calls that took long and ended, then fewer may begin for a minute, and as many as before after that."""
    destinations = Destinations(clock)
    with ExitStack() as calls:
        begin(destinations, SLOW, calls)
        clock.seconds += SLOW_AFTER_SECONDS
    with ExitStack() as calls:
        assert begin(destinations, SLOW, calls) == MAX_SLOW_CALLS
    clock.seconds += SLOW_FOR_SECONDS
    with ExitStack() as calls:
        assert begin(destinations, SLOW, calls) == MAX_PER_DESTINATION


@pytest.mark.parametrize(
    ("executor", "waits"),
    [
        (SLOW, True),
        (WebhookExecutor(url="https://slow.example/another"), True),
        (WebhookExecutor(url="https://slow.example:8443/a"), False),
        (QUICK, False),
        (LlmExecutor(), False),
        (TaskExecutor(task="mine", queue="mine"), False),
    ],
)
def test_who_is_slow_waits_for_itself(clock: Clock, executor: Executor, waits: bool) -> None:
    """Given calls that one receiver keeps waiting, then runs of that receiver wait, and all others do not."""
    destinations = Destinations(clock)
    with ExitStack() as calls:
        for _ in range(MAX_SLOW_CALLS):
            calls.enter_context(destinations.calling(SLOW))
        assert destinations.wait_seconds(SLOW) is None, "so far they are only under way"
        clock.seconds += SLOW_AFTER_SECONDS
        assert (destinations.wait_seconds(executor) is not None) is waits


def test_a_call_that_fails_is_over(clock: Clock) -> None:
    """Given calls that raise, then they count no longer."""
    destinations = Destinations(clock)
    for _ in range(2 * MAX_PER_DESTINATION):
        with pytest.raises(TimeoutError), destinations.calling(SLOW):
            raise TimeoutError
    assert destinations.wait_seconds(SLOW) is None


def test_a_language_model_may_take_seconds(clock: Clock) -> None:
    """Given language model calls, of which each takes seconds, then as many go on as before, and leave threads."""
    destinations = Destinations(clock)
    with ExitStack() as calls:
        first = begin(destinations, LlmExecutor(), calls)
        clock.seconds += SLOW_AFTER_SECONDS
    with ExitStack() as calls:
        assert MAX_SLOW_CALLS < begin(destinations, LlmExecutor(), calls) == first < THREADS


def test_the_more_wait_the_later_they_ask_again(clock: Clock) -> None:
    """Given very many runs of a receiver that is full, then they come back later than a few would."""
    destinations = Destinations(clock)
    with ExitStack() as calls:
        begin(destinations, SLOW, calls)
        few = [destinations.wait_seconds(SLOW) or 0.0 for _ in range(MAX_PER_DESTINATION - 1)]
        many = [destinations.wait_seconds(SLOW) or 0.0 for _ in range(1_000)]
        assert max(few) <= 3.0
        assert min(many[-100:]) > 30.0
        assert max(many) <= 120.0
