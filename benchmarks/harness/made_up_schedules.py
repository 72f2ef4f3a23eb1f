"""Some dozens of schedules of all kinds, drawn from a seed, and what is known of each from outside."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from benchmarks.harness.fast_clock import FastClock
from benchmarks.harness.webhook_receiver import Receiver
from reverie.clock import from_micros, new_id
from reverie.scheduling.cadence_types import Cadence, Cron, Interval, Once
from reverie.scheduling.schedule_types import Executor, LlmExecutor, ScheduleDraft, WebhookExecutor

# In late March and early April 2026 Lisbon skips an hour, Sydney repeats one and Lord Howe half of one; Kathmandu is
# 5:45 ahead of UTC.
ZONES: Final = ("Europe/Lisbon", "Australia/Sydney", "Australia/Lord_Howe", "Asia/Kathmandu")
_CRONS: Final = (
    "30 1 * * *", "*/30 * * * *", "15 * * * *", "30 2 * * *", "45 1,2,3 * * *", "10 */3 * * *", "0 9 * * 1-5",
    "0 0 1 * 1", "45 23 * * *", "5 8-18/2 * * 0,6", "0,15 1-3 * * *",
)  # fmt: skip
_INTERVALS: Final = (1_800, 3_600, 5_400, 7_200, 7_260, 10_800, 25_200, 86_400)
_ONE_SHOTS: Final = 12
# Executors: a path of the receiver, or the language model, which does not exist.
_LLM: Final = "llm"
_PATHS: Final = ("ok", "slow", _LLM, "falters", "ok", "hangs")


@dataclass(frozen=True, slots=True)
class Stretch:
    """The period in which a cadence applied: times due after `after`.

    Its end was requested at `asked` and in effect at `until`; both are None while it applies.
    """

    cadence: Cadence
    after: int
    asked: int | None = None
    until: int | None = None


@dataclass(slots=True)
class Known:
    """What was done with a schedule from outside. It may be made to fail at first, or always."""

    id: str
    stretches: list[Stretch]
    failures_first: int = 0
    fails_always: bool = False
    by_hand: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    resumed: list[tuple[int, int]] = field(default_factory=list)
    deleted: bool = False

    @property
    def cadence(self) -> Cadence:
        """Return the cadence that applies now."""
        return self.stretches[-1].cadence

    def end_stretch(self, asked: int, until: int) -> None:
        """Record that the cadence no longer applies."""
        last = self.stretches[-1]
        self.stretches[-1] = Stretch(last.cadence, last.after, asked, until)


@dataclass(frozen=True, slots=True)
class Wish:
    """A schedule to create, and how often it fails at first; -1 means always."""

    draft: ScheduleDraft
    failures_first: int = 0


class MadeUpSchedules:
    """Draws schedules that post to a receiver or request a digest. `share` of all of them are created."""

    def __init__(self, clock: FastClock, receiver: Receiver, *, seed: int, share: float) -> None:
        self._clock, self._receiver, self._share = clock, receiver, share
        self._chance = random.Random(seed)
        self._paths = cycle(_PATHS)

    def all(self) -> list[Wish]:
        """Return the schedules that exist from the first minute on."""
        crons: list[Cadence] = [Cron(expression=expression, tz=zone) for expression in _CRONS for zone in ZONES]
        intervals: list[Cadence] = [self._interval(seconds) for seconds in _INTERVALS]
        wishes = [self._again_and_again(cadence) for cadence in self._some(crons) + self._some(intervals)]
        wishes += [self._one_shot(number) for number in range(self.shared(_ONE_SHOTS))]
        return [*wishes, Wish(self._draft(self._interval(3_600), "never"), -1)]

    def cadence(self) -> Cadence:
        """Return any recurring cadence."""
        if self._chance.random() < 0.3:
            return self._interval(self._chance.choice(_INTERVALS))
        return Cron(expression=self._chance.choice(_CRONS), tz=self._chance.choice(ZONES))

    def another(self) -> Wish:
        """Return a schedule to be created while the others fire."""
        return self._again_and_again(self.cadence())

    def shared(self, number: int) -> int:
        """Return the share of a number, at least one."""
        return max(1, round(number * self._share))

    def _some(self, cadences: list[Cadence]) -> list[Cadence]:
        return self._chance.sample(cadences, self.shared(len(cadences)))

    def _interval(self, seconds: int) -> Interval:
        """Return an interval with a phase of its own, anchored before the first day."""
        phase = self._clock.epoch - self._chance.randrange(seconds * 1_000_000)
        return Interval(seconds=seconds, anchor=from_micros(phase))

    def _again_and_again(self, cadence: Cadence) -> Wish:
        return Wish(self._draft(cadence, next(self._paths)))

    def _one_shot(self, number: int) -> Wish:
        share = self._chance.uniform(0.05, 0.55)
        moment = self._clock.epoch + int(share * (self._clock.end - self._clock.epoch))
        failures = number % 3
        cadence = Once(at=from_micros(moment), tz=ZONES[number % len(ZONES)])
        return Wish(self._draft(cadence, f"fails-{failures}"), failures)

    def _draft(self, cadence: Cadence, path: str) -> ScheduleDraft:
        executor: Executor = LlmExecutor() if path == _LLM else WebhookExecutor(url=self._receiver.url(path))
        return ScheduleDraft(
            id=new_id(),
            user="bench",
            goal=f"say what there is to do, by {path}",
            cadence=cadence,
            executor=executor,
            recall_limit=8 if path == _LLM else 0,
        )
