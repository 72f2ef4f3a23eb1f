"""Schedules and changes of them out of the short forms in which callers give them: the same for client, HTTP, commands.

A cadence is `cron`, `at` or `every`, with `tz`; an executor is a `webhook`, a `task` with its `queue`, or neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reverie.checks import check_label
from reverie.errors import Rejected
from reverie.memories.checks import draft_of
from reverie.scheduling.cadence import parse_cadence
from reverie.scheduling.cadence_types import Cadence
from reverie.scheduling.checks import MAX_URL_CHARACTERS, check_executor, check_schedule, check_schedule_changes
from reverie.scheduling.schedule_types import (
    Executor,
    LlmExecutor,
    ScheduleChanges,
    ScheduleDraft,
    TaskExecutor,
    WebhookExecutor,
)


def schedule_from(
    what: Mapping[str, Any],
    *,
    agent: str,
    cron: str | None = None,
    at: datetime | str | None = None,
    every: int | None = None,
    tz: str | None = None,
    webhook: str | None = None,
    task: str | None = None,
    queue: str | None = None,
) -> ScheduleDraft:
    """A schedule as it will be stored; `what` are the other fields of a draft. Raises `Rejected`."""
    cadence = cadence_from(cron=cron, at=at, every=every, tz=tz)
    executor = executor_from(webhook=webhook, task=task, queue=queue)
    return check_schedule(draft_of(ScheduleDraft, {**what, "cadence": cadence, "executor": executor}), agent=agent)


def changes_from(
    what: Mapping[str, Any],
    *,
    cron: str | None = None,
    at: datetime | str | None = None,
    every: int | None = None,
    tz: str | None = None,
    webhook: str | None = None,
    task: str | None = None,
    queue: str | None = None,
    llm: bool = False,
) -> ScheduleChanges:
    """What is to change of a schedule; `what` are the other fields of the changes. Raises `Rejected`."""
    given = dict(what)
    cadence = changed_cadence(cron=cron, at=at, every=every, tz=tz)
    if cadence is not None:
        given["cadence"] = cadence
    if llm or (webhook, task, queue) != (None, None, None):
        given["executor"] = executor_from(webhook=webhook, task=task, queue=queue, llm=llm)
    return check_schedule_changes(draft_of(ScheduleChanges, given))


def cadence_from(
    *, cron: str | None = None, at: datetime | str | None = None, every: int | None = None, tz: str | None = None
) -> Cadence:
    """The cadence of exactly one of these; without a zone, in UTC. Raises `Rejected`."""
    return parse_cadence(cron=cron, at=at, every=every, tz="UTC" if tz is None else tz)


def changed_cadence(
    *, cron: str | None, at: datetime | str | None, every: int | None, tz: str | None
) -> Cadence | None:
    """A new cadence, None where none is given. Raises `Rejected`."""
    if cron is None and at is None and every is None:
        if tz is not None:
            raise Rejected("tz alone changes nothing: give cron, at or every with it", field="tz")
        return None
    return cadence_from(cron=cron, at=at, every=every, tz=tz)


def executor_from(
    *, webhook: str | None = None, task: str | None = None, queue: str | None = None, llm: bool = False
) -> Executor:
    """Who executes: a webhook, a task of the agent's own workers, or without either the language model.

    `llm` says that none of the others is meant. Raises `Rejected`.
    """
    if llm and (webhook, task, queue) != (None, None, None):
        raise Rejected("give a webhook, a task with its queue, or llm: one of them", field="llm")
    if webhook is not None and (task is not None or queue is not None):
        raise Rejected("give a webhook, or a task with its queue, not both", field="webhook")
    if webhook is not None:
        check_label("webhook", webhook, required=True, limit=MAX_URL_CHARACTERS)
        return WebhookExecutor(url=webhook)
    if task is None and queue is not None:
        raise Rejected("a queue needs the task that is sent to it", field="task")
    if task is None:
        return LlmExecutor()
    if queue is None:
        raise Rejected("a task needs the queue that your workers listen to", field="queue")
    return check_executor(TaskExecutor(task=task, queue=queue))
