"""An operator who pauses, changes, deletes, runs and cancels schedules while processes are being killed.

The plan is drawn from a seed in advance, and carried out with the functions that the HTTP server calls.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.harness.fast_clock import FastClock
from benchmarks.harness.made_up_schedules import Known, MadeUpSchedules, Stretch, Wish
from memory.scheduling.due_runs import ToSend
from memory.scheduling.runs import cancel_run, run_now
from memory.scheduling.schedules import (
    create_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    update_schedule,
)
from reverie.clock import now_micros
from reverie.errors import Conflict, Transient
from reverie.scheduling.cadence_types import Once
from reverie.scheduling.schedule_types import ScheduleChanges
from storage.stores import Store
from worker.runtime import Runtime

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
            except Exception as error:  # noqa: BLE001 - the boundary of the thread's loop: the benchmark reports it
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
