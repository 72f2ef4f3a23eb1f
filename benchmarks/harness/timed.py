"""Ask one question after the other and say how long each took: the same for a call in process and one over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Final, NamedTuple

import msgspec

# An index of a million chunks is made in the background within minutes; what takes longer is broken.
_READY_SECONDS: Final = 900.0
_AGAIN_SECONDS: Final = 0.5


class Asked(NamedTuple):
    """One question to one agent."""

    agent: str
    text: str


# Asks, and returns why the answer is less than it should be: empty when it is not.
Ask = Callable[[Asked], str]


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """The first answers of a fresh process, one for each agent: how long each took, and until it was a full one."""

    first_seconds: list[float]
    ready_seconds: list[float]
    degraded: str = ""


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """How long each answer took, and how many were degraded."""

    seconds: list[float]
    degraded: int = 0
    why: str = ""


def warm_up(ask: Ask, questions: Sequence[Asked]) -> WarmUp:
    """Ask each agent its first question until the answer is a full one: its index is made meanwhile."""
    first, ready, still = [], [], ""
    for question in {question.agent: question for question in questions}.values():
        started = time.perf_counter()
        degraded = ask(question)
        first.append(time.perf_counter() - started)
        while degraded and time.perf_counter() - started < _READY_SECONDS:
            time.sleep(_AGAIN_SECONDS)
            degraded = ask(question)
        ready.append(time.perf_counter() - started)
        still = degraded or still
    return WarmUp(first_seconds=first, ready_seconds=ready, degraded=still)


def timed(ask: Ask, questions: Sequence[Asked], *, at_least_seconds: float = 0.0) -> Timings:
    """Ask all, one after the other, and then from the first again until the time is over."""
    seconds: list[float] = []
    degraded: list[str] = []
    end = time.perf_counter() + at_least_seconds
    for question in cycle(questions):
        started = time.perf_counter()
        if len(seconds) >= len(questions) and started >= end:
            break
        why = ask(question)
        seconds.append(time.perf_counter() - started)
        if why:
            degraded.append(why)
    return Timings(seconds=seconds, degraded=len(degraded), why=degraded[0] if degraded else "")
