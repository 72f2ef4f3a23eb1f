"""What follows when a run ends: for its schedule, and for whoever is to know. Pure, but for the rows at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from memory.scheduling.run_texts import readable, summary_of
from reverie.clock import to_micros
from reverie.scheduling.cadence import Once
from reverie.scheduling.cadence_types import Cadence
from reverie.scheduling.schedule_types import RunReport, RunStatus
from storage.scheduling.records import NewNotification, RunEnd, RunRecord, ScheduleRecord
from storage.transaction import AgentRepositories

# Of a one-shot that failed: 30 s, 60 s and 120 s afterwards.
ONE_SHOT_RETRIES: Final = 3
FIRST_RETRY_SECONDS: Final = 30

# What counts as a failure of a schedule.
_FAILURES: Final = ("failed", "timed_out")


@dataclass(frozen=True, slots=True)
class ScheduleRules:
    """What an operator sets of schedules: of one user, of the history, and of failures in a row."""

    min_interval_seconds: int = 60
    max_per_user: int = 50
    runs_kept: int = 20
    alert_after_failures: int = 3
    disable_after_failures: int = 5


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended, as its executor tells. `notify` decides under the policy `conditional`.

    With `gone` there is nobody any more to execute it: the schedule is disabled at once.
    """

    status: RunStatus
    output: str = ""
    error: str = ""
    summary: str | None = None
    turn_count: int = 0
    cost: float = 0.0
    notify: bool | None = None
    gone: bool = False


def reported(report: RunReport) -> RunResult:
    """How a run ended, as somebody outside reports; the report has been checked."""
    return RunResult(
        report.status,
        output=report.output,
        error=report.error,
        summary=report.summary,
        turn_count=report.turn_count,
        cost=report.cost,
        notify=report.notify,
    )


@dataclass(frozen=True, slots=True)
class Consequences:
    """What changes of a schedule, by the names of its record, and what there is to tell."""

    values: dict[str, Any]
    told: list[NewNotification] = field(default_factory=list)


def end_run(
    rows: AgentRepositories,
    run: RunRecord,
    result: RunResult,
    *,
    now: int,
    rules: ScheduleRules,
    token: int | None = None,
) -> bool:
    """End a run with all that follows, in the transaction of `rows`; False where it has ended, or is another's.

    A run that is ended twice has ended once: the first time.
    """
    output, error = readable(result.output), readable(result.error)
    summary = summary_of(output or error if result.summary is None else readable(result.summary))
    end = RunEnd(result.status, summary, output, error, result.turn_count, result.cost)
    if not rows.runs.end(run.id, end, now=now, token=token):
        return False
    schedule = rows.schedules.get(run.schedule)
    after = consequences_of(schedule, run, result, summary, now=now, rules=rules)
    rows.schedules.update(schedule.id, after.values)
    for notification in after.told:
        rows.notifications.add(notification, now=now)
    rows.runs.prune(schedule.id, keep=rules.runs_kept, last=run.id)
    return True


def consequences_of(
    schedule: ScheduleRecord, run: RunRecord, result: RunResult, summary: str, *, now: int, rules: ScheduleRules
) -> Consequences:
    """What follows from how a run ended. What was cancelled counts neither as success nor as failure."""
    failures = schedule.consecutive_failures
    if result.status == "success":
        failures = 0
    elif result.status in _FAILURES:
        failures += 1
    values: dict[str, Any] = {
        "last_run_at": now,
        "last_run_status": result.status,
        "consecutive_failures": failures,
    }
    if (at := _only_time_of(schedule)) is not None:
        values |= _one_shot(schedule, run, result.status, at=at, now=now)
    elif schedule.status == "active" and result.status in _FAILURES and failures >= rules.disable_after_failures:
        values |= {"status": "disabled", "next_run_at": None}
    if result.gone and schedule.status == "active":
        values |= {"status": "disabled", "next_run_at": None}
    after = Consequences(values)
    if _is_told(schedule, result):
        after.told.append(_about_run(schedule, run, result.status, summary))
    if result.status in _FAILURES and failures == rules.alert_after_failures and schedule.policy != "never":
        after.told.append(_alert(schedule, run, failures, summary))
    if values.get("status") == "disabled":
        after.told.append(_disabled(schedule, run, failures, summary))
    return after


def cadence_of(schedule: ScheduleRecord) -> Cadence:
    """When a schedule fires. Raises `msgspec.ValidationError` for what no version of Reverie has written."""
    found: Cadence = msgspec.json.decode(schedule.cadence, type=Cadence)
    return found


def disabled_for(schedule: ScheduleRecord, why: str) -> Consequences:
    """A schedule that cannot fire, whatever happens: it is disabled, and somebody is told."""
    values = {"status": "disabled", "next_run_at": None}
    return Consequences(values, [_disabled(schedule, None, schedule.consecutive_failures, summary_of(readable(why)))])


def _only_time_of(schedule: ScheduleRecord) -> int | None:
    """When a schedule fires that fires once only; None for the others.

    For what cannot be read, too: the run still ends, and the sweep disables the schedule when it is due.
    """
    try:
        cadence = cadence_of(schedule)
    except msgspec.MsgspecError:
        return None
    return to_micros(cadence.at) if isinstance(cadence, Once) else None


def _one_shot(schedule: ScheduleRecord, run: RunRecord, status: RunStatus, *, at: int, now: int) -> dict[str, Any]:
    retry_waits = schedule.retries > 0 and schedule.next_run_at is not None
    if run.due_at < at and now < at:
        return {}  # Its time is still to come, also of a paused one: run by hand before it, or given it meanwhile.
    if status == "success" and (schedule.next_run_at is None or retry_waits):
        return {"status": "completed", "next_run_at": None, "retries": 0}
    if schedule.next_run_at is not None:
        return {}  # It is due, or will be: a run by hand that began before its time failed, or ended after it.
    if schedule.status != "active":
        return {}
    if status == "cancelled":
        return {"status": "paused"}
    if run.trigger == "manual" or schedule.retries >= ONE_SHOT_RETRIES:
        return {"status": "failed"}
    wait = FIRST_RETRY_SECONDS * 2**schedule.retries
    return {"retries": schedule.retries + 1, "next_run_at": now + wait * 1_000_000}


def _is_told(schedule: ScheduleRecord, result: RunResult) -> bool:
    """Whether the policy wants this end told. Who cancels a run knows it.

    Under `conditional` the executor says; a failure of which it could not say anything is told.
    """
    failed = result.status in _FAILURES
    if result.status == "cancelled" or schedule.policy == "never":
        return False
    if schedule.policy == "conditional":
        return failed if result.notify is None else result.notify
    return failed or schedule.policy == "always"


def _about_run(schedule: ScheduleRecord, run: RunRecord, status: RunStatus, summary: str) -> NewNotification:
    return _notification(schedule, run, "run", f"{_called(schedule)}: {status.replace('_', ' ')}", summary, status)


def _alert(schedule: ScheduleRecord, run: RunRecord, failures: int, summary: str) -> NewNotification:
    title = f"{_called(schedule)} has failed {failures} times in a row"
    return _notification(schedule, run, "alert", title, summary, None)


def _disabled(schedule: ScheduleRecord, run: RunRecord | None, failures: int, summary: str) -> NewNotification:
    title = f"{_called(schedule)} is disabled"
    title += f" after {failures} failures in a row" if failures > 1 else ""
    body = f"{summary}\nResume it once this is mended.".strip()
    return _notification(schedule, run, "disabled", title, body, None)


def _notification(
    schedule: ScheduleRecord, run: RunRecord | None, kind: Any, title: str, body: str, status: str | None
) -> NewNotification:
    return NewNotification(
        user=schedule.user,
        kind=kind,
        schedule=schedule.id,
        schedule_name=schedule.name,
        run=None if run is None else run.id,
        run_status=status,
        channel=schedule.channel,
        session=schedule.session,
        title=title,
        body=body,
    )


def _called(schedule: ScheduleRecord) -> str:
    return schedule.name or summary_of(schedule.goal, limit=60)
