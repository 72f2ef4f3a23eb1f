"""What requests about schedules carry: the schedule itself, its cadence and its executor in a long or a short form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from reverie.errors import Rejected
from reverie.scheduling.cadence_types import Cadence
from reverie.scheduling.checks import check_schedule
from reverie.scheduling.forms import cadence_from, changes_from, executor_from
from reverie.scheduling.schedule_types import Executor, NotificationPolicy, ScheduleChanges, ScheduleDraft

_WHAT: Final = ("goal", "name", "notification_policy", "channel", "session", "timeout_seconds", "recall_limit")
_WHEN: Final = ("cron", "at", "every", "tz")
_WHO: Final = ("webhook", "task", "queue")
# Where a body in the long form has what the checks call by the name of the short one.
_LONG_CADENCE: Final = {
    "cron": "cadence.expression",
    "at": "cadence.at",
    "every": "cadence.seconds",
    "anchor": "cadence.anchor",
    "tz": "cadence.tz",
}
_LONG_EXECUTOR: Final = {"url": "executor.url", "task": "executor.task", "queue": "executor.queue"}


class _ShortForms(msgspec.Struct, frozen=True, kw_only=True):
    """When and who in one word each. `tz` goes with any of cron, at and every (seconds); `queue` with `task`."""

    cron: str | None = None
    at: datetime | None = None
    every: int | None = None
    tz: str | None = None
    webhook: str | None = None
    task: str | None = None
    queue: str | None = None


class ScheduleBody(_ShortForms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule. It has a `cadence`, or one of `cron`, `at` and `every`; without an executor, it is the model's."""

    goal: str
    cadence: Cadence | None = None
    executor: Executor | None = None
    id: str | None = None
    user: str | None = None
    name: str | None = None
    notification_policy: NotificationPolicy = "always"
    channel: str | None = None
    session: str | None = None
    timeout_seconds: int = 600
    recall_limit: int = 8


class ScheduleChangesBody(_ShortForms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a schedule; what is left out stays. null takes a name, a channel or a session off."""

    goal: str | UnsetType = UNSET
    cadence: Cadence | None = None
    executor: Executor | None = None
    name: str | UnsetType | None = UNSET
    notification_policy: NotificationPolicy | UnsetType = UNSET
    channel: str | UnsetType | None = UNSET
    session: str | UnsetType | None = UNSET
    timeout_seconds: int | UnsetType = UNSET
    recall_limit: int | UnsetType = UNSET


def draft_from(body: ScheduleBody, *, agent: str) -> ScheduleDraft:
    """The schedule that a body describes. Raises `Rejected`."""
    _check_one_form(body)
    what = {name: getattr(body, name) for name in (*_WHAT, "id", "user")}
    cadence = cadence_from(**_of(body, _WHEN)) if body.cadence is None else body.cadence
    executor = executor_from(**_of(body, _WHO)) if body.executor is None else body.executor
    return check_schedule(ScheduleDraft(**what, cadence=cadence, executor=executor), agent=agent)


def changes_of(body: ScheduleChangesBody) -> ScheduleChanges:
    """The changes that a body describes. Raises `Rejected`."""
    _check_one_form(body)
    what = {name: value for name in _WHAT if (value := getattr(body, name)) is not UNSET}
    for name in ("cadence", "executor"):
        if (value := getattr(body, name)) is not None:
            what[name] = value
    return changes_from(what, **_of(body, _WHEN), **_of(body, _WHO))


@contextmanager
def fields_of(body: ScheduleBody | ScheduleChangesBody) -> Iterator[None]:
    """Have errors name what is at fault as the body does: `cron`, or `cadence.expression`."""
    names = {"url": "webhook"}
    names |= _LONG_CADENCE if body.cadence is not None else {}
    names |= _LONG_EXECUTOR if body.executor is not None else {}
    try:
        yield
    except Rejected as error:
        error.field = names.get(error.field, error.field)
        raise


def _check_one_form(body: ScheduleBody | ScheduleChangesBody) -> None:
    for long, short in (("cadence", _WHEN), ("executor", _WHO)):
        given = _of(body, short)
        if getattr(body, long) is not None and given:
            raise Rejected(f"give {long} or {', '.join(given)}, not both", field=long)


def _of(body: _ShortForms, names: tuple[str, ...]) -> dict[str, Any]:
    """What a body gives of these fields."""
    return {name: value for name in names if (value := getattr(body, name)) is not None}
