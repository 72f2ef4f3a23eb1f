"""The effects that the end of a run has on its schedule, and its notifications. Pure functions, except `end_run`.

Texts of executors are made storable here: no invalid characters, and no visible character cut in two.

Visible characters follow the rules for grapheme clusters (https://unicode.org/reports/tr29/) that look backwards only;
in doubt two code points stay together.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from reverie.clock import to_micros
from reverie.counts import counted
from reverie.decoding import describe
from reverie.inert import inert_line
from reverie.scheduling.cadence import Once
from reverie.scheduling.types import MAX_OUTPUT_BYTES, Cadence, RunStatus
from storage.scheduling.records import NewNotification, RunEnd, RunRecord, ScheduleRecord
from storage.transaction import AgentRepositories

SUMMARY_CHARACTERS: Final = 500

_JOINER: Final = "\u200d"
# Extend the character before them although they are not combining marks: the zero-width non-joiner, vowels of Thai and
# Lao, and the voicing marks of half-width Japanese.
_TRAILING: Final = "\u200c\u0e33\u0eb3\uff9e\uff9f"
# The combining class of signs that join two letters of an Indic script into one.
_VIRAMA: Final = 9


def readable(text: str) -> str:
    """Return a text that can be stored and imported: without NUL and lone surrogates, cut at 1 MiB."""
    encoded = text.replace("\x00", "\ufffd").encode("utf-8", "replace")
    return encoded[:MAX_OUTPUT_BYTES].decode("utf-8", "ignore")


def summary_of(text: str, *, limit: int = SUMMARY_CHARACTERS) -> str:
    """Return the start of a text, at most `limit` code points, without cutting a visible character in two.

    An accent stays with its letter, and an emoji of several parts is kept whole or left out.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    end = limit
    while end and _continues(text, end):
        end -= 1
    # A single cluster longer than the limit is cut; nobody writes that.
    return text[: end or limit].rstrip()


def _continues(text: str, at: int) -> bool:
    """Return whether the code point at an index belongs to the character before it."""
    current = text[at]
    previous = text[at - 1]
    if _JOINER in (current, previous) or current in _TRAILING or unicodedata.category(current) in ("Mn", "Me", "Mc"):
        return True
    # Skin tones, and the tag characters of regional flags.
    if "\U0001f3fb" <= current <= "\U0001f3ff" or "\U000e0020" <= current <= "\U000e007f":
        return True
    if unicodedata.combining(previous) == _VIRAMA and current.isalpha():
        return True
    if current == "\n" and previous == "\r":
        return True
    if _is_hangul(current) and _is_hangul(previous):
        return _extends_syllable(previous, current)
    return _is_flag(current) and _flags_before(text, at) % 2 == 1


def _is_hangul(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff" or "\ua960" <= character <= "\ud7fb"


def _extends_syllable(previous: str, current: str) -> bool:
    """Return whether a part of a Korean syllable extends the character before it; a whole syllable begins a new one."""
    begins = "\u1100" <= current <= "\u115f" or "\ua960" <= current <= "\ua97c" or "\uac00" <= current <= "\ud7a3"
    return not begins or "\u1100" <= previous <= "\u115f" or "\ua960" <= previous <= "\ua97c"


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    start = at
    while start and _is_flag(text[start - 1]):
        start -= 1
    return at - start


# A failed one-shot is retried after 30 s, 60 s and 120 s.
ONE_SHOT_RETRIES: Final = 3
FIRST_RETRY_SECONDS: Final = 30

_FAILURES: Final = ("failed", "timed_out")


@dataclass(frozen=True, slots=True)
class ScheduleRules:
    """The limits an operator sets on schedules. Alerts and disabling count failures in a row."""

    min_interval_seconds: int = 60
    max_per_user: int = 50
    runs_kept: int = 20
    alert_after_failures: int = 3
    disable_after_failures: int = 5


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `notify` decides on a notification under the policy `conditional`.

    `gone` says that the executor does not exist any more: the schedule is disabled at once.
    """

    status: RunStatus
    output: str = ""
    error: str = ""
    summary: str | None = None
    turn_count: int = 0
    cost: float = 0.0
    notify: bool | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Effects:
    """Changed fields of a schedule, by the names of its record, and new notifications."""

    values: dict[str, Any]
    notifications: list[NewNotification] = field(default_factory=list)


def end_run(
    rows: AgentRepositories,
    run: RunRecord,
    result: RunResult,
    *,
    now: int,
    rules: ScheduleRules,
    token: int | None = None,
) -> bool:
    """End a run with all its effects, in the transaction of `rows`.

    Returns False, and changes nothing, if the run has ended already or another worker holds it.
    """
    output, error = readable(result.output), readable(result.error)
    summary = summary_of(output or error if result.summary is None else readable(result.summary))
    end = RunEnd(result.status, summary, output, error, result.turn_count, result.cost)
    if not rows.runs.end(run.id, end, now=now, token=token):
        return False
    schedule = rows.schedules.get(run.schedule)
    effects = effects_of(schedule, run, result, summary, now=now, rules=rules)
    rows.schedules.update(schedule.id, effects.values)
    for notification in effects.notifications:
        rows.notifications.add(notification, now=now)
    rows.runs.prune(schedule.id, keep=rules.runs_kept, last=run.id)
    return True


def effects_of(
    schedule: ScheduleRecord, run: RunRecord, result: RunResult, summary: str, *, now: int, rules: ScheduleRules
) -> Effects:
    """Return the effects of the end of a run. A cancelled run counts neither as success nor as failure."""
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
    if (at := _one_shot_time(schedule)) is not None:
        values |= _one_shot(schedule, run, result.status, at=at, now=now)
    elif schedule.status == "active" and result.status in _FAILURES and failures >= rules.disable_after_failures:
        values |= {"status": "disabled", "next_run_at": None}
    if result.gone and schedule.status == "active":
        values |= {"status": "disabled", "next_run_at": None}
    effects = Effects(values)
    if _notifies(schedule, result):
        effects.notifications.append(_run_notification(schedule, run, result.status, summary))
    if result.status in _FAILURES and failures == rules.alert_after_failures and schedule.policy != "never":
        effects.notifications.append(_alert_notification(schedule, run, failures, summary))
    if values.get("status") == "disabled":
        effects.notifications.append(_disabled_notification(schedule, run, failures, summary))
    return effects


def read_cadence(schedule: ScheduleRecord) -> Cadence:
    """Return the cadence of a schedule. Raises `msgspec.ValidationError` for JSON that no version of Reverie wrote."""
    describe(Cadence)
    cadence: Cadence = msgspec.json.decode(schedule.cadence, type=Cadence)
    return cadence


def disable(schedule: ScheduleRecord, reason: str) -> Effects:
    """Return the effects of disabling a schedule that cannot fire any more, with a notification."""
    values = {"status": "disabled", "next_run_at": None}
    return Effects(
        values, [_disabled_notification(schedule, None, schedule.consecutive_failures, summary_of(readable(reason)))]
    )


def _one_shot_time(schedule: ScheduleRecord) -> int | None:
    """Return when a one-shot fires; None for any other cadence.

    Also None for a cadence that cannot be read: the run ends anyway; the sweep disables the schedule when it is due.
    """
    try:
        cadence = read_cadence(schedule)
    except msgspec.MsgspecError:
        return None
    return to_micros(cadence.at) if isinstance(cadence, Once) else None


def _one_shot(schedule: ScheduleRecord, run: RunRecord, status: RunStatus, *, at: int, now: int) -> dict[str, Any]:
    retry_waits = schedule.retries > 0 and schedule.next_run_at is not None
    if run.due_at < at and now < at:
        return {}  # a manual run before its time, or its time was changed meanwhile; it may be paused
    if status == "success" and (schedule.next_run_at is None or retry_waits):
        return {"status": "completed", "next_run_at": None, "retries": 0}
    if schedule.next_run_at is not None:
        return {}  # its time is still to come or due: a manual run failed, or ended after that time
    if schedule.status != "active":
        return {}
    if status == "cancelled":
        return {"status": "paused"}
    if run.trigger == "manual" or schedule.retries >= ONE_SHOT_RETRIES:
        return {"status": "failed"}
    wait = FIRST_RETRY_SECONDS * 2**schedule.retries
    return {"retries": schedule.retries + 1, "next_run_at": now + wait * 1_000_000}


def _notifies(schedule: ScheduleRecord, result: RunResult) -> bool:
    """Return whether the policy asks for a notification of this result; never for a cancelled run.

    Under `conditional` the executor decides; a failure without its decision is notified.
    """
    failed = result.status in _FAILURES
    if result.status == "cancelled" or schedule.policy == "never":
        return False
    if schedule.policy == "conditional":
        return failed if result.notify is None else result.notify
    return failed or schedule.policy == "always"


def _run_notification(schedule: ScheduleRecord, run: RunRecord, status: RunStatus, summary: str) -> NewNotification:
    return _notification(
        schedule, run, "run", f"{_display_name(schedule)}: {status.replace('_', ' ')}", summary, status
    )


def _alert_notification(schedule: ScheduleRecord, run: RunRecord, failures: int, summary: str) -> NewNotification:
    title = f"{_display_name(schedule)} has failed {counted(failures, 'time')} in a row"
    return _notification(schedule, run, "alert", title, summary, None)


def _disabled_notification(
    schedule: ScheduleRecord, run: RunRecord | None, failures: int, summary: str
) -> NewNotification:
    title = f"{_display_name(schedule)} is disabled"
    title += f" after {failures} failures in a row" if failures > 1 else ""
    body = f"{summary}\nResume it once this is fixed.".strip()
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


def _display_name(schedule: ScheduleRecord) -> str:
    return inert_line(schedule.name or "") or summary_of(inert_line(schedule.goal), limit=60)
