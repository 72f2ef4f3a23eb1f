"""Some dozens of schedules of all kinds, drawn from a seed, and an operator who changes them while they fire.

The operator pauses, changes, deletes, runs and cancels schedules by the functions that the HTTP server calls. What was
done with each schedule from outside is recorded.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from memory.scheduling.due_runs import ToSend
from memory.scheduling.schedules import (
    cancel_run,
    create_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    run_now,
    update_schedule,
)
from reverie.clock import from_micros, new_id, now_micros
from reverie.errors import Conflict, Transient
from reverie.scheduling.types import (
    Cadence,
    Cron,
    Executor,
    Interval,
    LlmExecutor,
    Once,
    ScheduleChanges,
    ScheduleDraft,
    WebhookExecutor,
)
from storage.stores import Store
from support.compressed_days.fast_clock import FastClock
from support.compressed_days.receiver import Receiver
from worker.runtime import Runtime

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


WORKSPACE: Final = "bench"
AGENT: Final = "bench"
# Maximum time between pausing and resuming.
_PAUSE_SECONDS: Final = 2.0
# A database locked by a paused process is retried.
_ATTEMPTS: Final = 3


class Operator(threading.Thread):
    """Creates all schedules on request, and carries out its plan in a thread of its own."""

    def __init__(self, runtime: Runtime, clock: FastClock, schedules: MadeUpSchedules, *, seed: int) -> None:
        super().__init__(name="operator", daemon=True)
        self.known: dict[str, Known] = {}
        self.done: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._runtime, self._clock, self._schedules = runtime, clock, schedules
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._plan = sorted(self._planned(), key=lambda planned: planned[0])

    @property
    def store(self) -> Store:
        """Return the store with the schedules."""
        return self._runtime.stores.workspace(WORKSPACE)

    def make_all(self) -> None:
        """Create the schedules that exist from the first minute on."""
        for wish in self._schedules.all():
            self._make(wish)

    def run(self) -> None:
        """Carry out the plan, each step at its time."""
        for at_seconds, name, step in self._plan:
            left = at_seconds - (now_micros() - self._clock.started) / 1_000_000
            if self._over.wait(max(0.0, left)):
                return
            self._carry_out(name, step)

    def stop(self) -> None:
        """Stop, at whatever point of the plan."""
        self._over.set()
        if self.ident is not None:
            self.join()

    def _planned(self) -> Iterator[tuple[float, str, Callable[[], None]]]:
        steps = (
            ("paused_and_resumed", self._pause, 8), ("changed", self._change, 6), ("deleted", self._delete, 3),
            ("run_by_hand", self._run_now, 14), ("cancelled", self._cancel, 6), ("added", self._add, 4),
            ("resumed_after_failures", self._resume_disabled, 1),
        )  # fmt: skip
        for name, step, times in steps:
            for _ in range(self._schedules.shared(times)):
                yield self._chance.uniform(0.1, 0.85) * self._clock.seconds, name, step

    def _carry_out(self, name: str, step: Callable[[], None]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                step()
                self.done[name] += 1
            except Conflict:  # it is under way, or has ended
                self.done["refused"] += 1
            except Transient as error:
                if attempt == _ATTEMPTS:
                    self.surprises.append(f"{name}: {error}")
                continue
            except Exception as error:
                self.surprises.append(f"{name}: {type(error).__name__}: {error}")
            return

    def _any(self) -> Known:
        """Return a recurring schedule that does not always fail."""
        return self._chance.choice([
            known for known in self.known.values()
            if not (known.deleted or known.fails_always or isinstance(known.cadence, Once))
        ])  # fmt: skip

    def _make(self, wish: Wish) -> None:
        now = self._clock.now()
        made = create_schedule(
            self.store,
            wish.draft,
            agent=AGENT,
            rules=self._runtime.settings.schedule_rules,
            check_url=self._runtime.schedules.check_url,
            now=now,
        )
        known = Known(made.id, [Stretch(made.cadence, now)], max(0, wish.failures_first), wish.failures_first < 0)
        self.known[made.id] = known

    def _add(self) -> None:
        self._make(self._schedules.another())

    def _pause(self) -> None:
        known, requested_at = self._any(), self._clock.now()
        pause_schedule(self.store, known.id, agent=AGENT, now=requested_at)
        known.end_stretch(requested_at, self._clock.now())
        self._over.wait(self._chance.uniform(0.0, _PAUSE_SECONDS))
        self._resume(known)

    def _resume_disabled(self) -> None:
        known = next(known for known in self.known.values() if known.fails_always)
        with self.store.reading() as tx:
            stands = tx.for_agent(AGENT).schedules.get(known.id)
        if stands.status == "disabled":
            assert stands.last_run_at is not None
            known.end_stretch(stands.last_run_at, stands.last_run_at)
            self._resume(known)

    def _resume(self, known: Known) -> None:
        requested_at = self._clock.now()
        rules = self._runtime.settings.schedule_rules
        resume_schedule(self.store, known.id, agent=AGENT, rules=rules, now=requested_at)
        known.resumed.append((requested_at, self._clock.now()))
        known.stretches.append(Stretch(known.cadence, requested_at))

    def _change(self) -> None:
        known, requested_at = self._any(), self._clock.now()
        changed = update_schedule(
            self.store,
            known.id,
            ScheduleChanges(cadence=self._schedules.cadence()),
            agent=AGENT,
            rules=self._runtime.settings.schedule_rules,
            check_url=self._runtime.schedules.check_url,
            now=requested_at,
        )
        known.end_stretch(requested_at, self._clock.now())
        known.stretches.append(Stretch(changed.cadence, requested_at))

    def _delete(self) -> None:
        known = self._any()
        delete_schedule(self.store, known.id, agent=AGENT)
        known.deleted = True

    def _run_now(self) -> None:
        known = self._any()
        run = run_now(self.store, known.id, agent=AGENT, now=self._clock.now())
        known.by_hand.add(run.id)
        self._runtime.schedules.send(WORKSPACE, [ToSend(run.id, "")])

    def _cancel(self) -> None:
        """Cancel any run that is under way."""
        with self.store.reading() as tx:
            runs = tx.for_agent(AGENT).runs
            chosen = self._chance.sample(sorted(self.known), len(self.known))
            found = [run for one in chosen if _may_be_cancelled(self.known[one]) and (run := runs.find_open(one))]
        for run in found[:1]:
            rules = self._runtime.settings.schedule_rules
            cancel_run(self.store, run.id, agent=AGENT, rules=rules, now=self._clock.now())
            self.known[run.schedule].cancelled.add(run.id)


def _may_be_cancelled(known: Known) -> bool:
    """Resume a one-shot: cancelling paused it, but here each is to succeed."""
    return not (known.deleted or isinstance(known.cadence, Once))
