"""What a scenario is: a fault, the limits it has to stay within, and what the run gives it to work with."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from benchmarks.faults.accepted import Accepted
from benchmarks.faults.others import Others
from benchmarks.faults.setting import Setting, plain
from benchmarks.harness.progress import Progress
from benchmarks.harness.stack import Stack

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    """The goals of a scenario; None if the fault allows no promise. Nothing may ever be lost or doubled."""

    others_stored_seconds: float | None = 1.0
    """The longest time until a message of another user is searchable."""
    others_recalled_seconds: float | None = 1.0
    """The longest time until a recall of another user is answered."""
    recovery_seconds: float | None = 30.0
    dead_letters: int = 0


@dataclass(slots=True)
class Scene:
    """What a fault gets: a running stack, another user who works on it, and a record of what was accepted."""

    stack: Stack
    setting: Setting
    others: Others
    accepted: Accepted
    chance: random.Random
    quick: bool
    tell: Progress
    figures: dict[str, float] = field(default_factory=dict)
    """Further figures of this scenario, by name with the unit at the end (`answered_after_seconds`)."""
    broken: list[str] = field(default_factory=list)
    """Promises that this scenario found broken and that no figure shows, as sentences."""

    def wait_until(self, condition: Callable[[], bool], otherwise: str, timeout_seconds: float = 120.0) -> None:
        """Wait until a condition holds. Raises `TimeoutError` with the text `otherwise`: if it takes too long."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{otherwise} within {timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault: `cause` brings it about and ends it. The run waits for the recovery and counts afterwards."""

    name: str
    what: str
    cause: Callable[[Scene], None]
    limits: Limits = Limits()
    env: Mapping[str, str] = field(default_factory=dict)
    setting: Callable[[], AbstractContextManager[Setting]] = plain
    """What its stack runs on. Raises `NotHere`: it cannot be measured on this machine."""
