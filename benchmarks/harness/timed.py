"""Recall questions one after the other and measure each: the same for calls in process and over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Final, NamedTuple

import msgspec

# An index of a million chunks is built in the background within minutes; beyond that something is broken.
_READY_SECONDS: Final = 900.0
_AGAIN_SECONDS: Final = 0.5


class Asked(NamedTuple):
    """One question to one agent."""

    agent: str
    text: str


# Recalls, and returns why the answer is degraded, or an empty string.
Ask = Callable[[Asked], str]


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """First answers of a fresh process, one per agent: the time of each, and the time until a full one."""

    first_seconds: list[float]
    ready_seconds: list[float]
    degraded: str = ""


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """The time of each answer, and the number of degraded ones."""

    seconds: list[float]
    degraded: int = 0
    why: str = ""


def warm_up(ask: Ask, questions: Sequence[Asked]) -> WarmUp:
    """Ask each agent its first question until the answer is a full one: meanwhile its index is being built."""
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
    """Ask all questions, one after the other, and then again from the first until the time is over."""
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
