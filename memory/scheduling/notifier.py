"""The notifier: a webhook that receives reminders and notifications, each under an id that stays the same.

A circuit breaker stops calls to a notifier that does not answer, so that due rows do not keep threads waiting for it.
"""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from adapters.breaker import CircuitBreaker, ServiceUnavailable
from adapters.webhooks import (
    WebhookAnswer,
    WebhookFailed,
    WebhookRefused,
    WebhookSender,
    delivery_outcome,
    describe_answer,
)
from memory.scheduling.pushing import NotPushed
from reverie.scheduling.notification_types import Notification
from reverie.scheduling.reminder_types import Reminder

REMINDER_EVENT: Final = "reminder.due"
NOTIFICATION_EVENT: Final = "schedule.notification"


class NotifierUnavailable(ServiceUnavailable):
    """The notifier is unavailable."""


class NotifierMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook. `timestamp` is when the reminder was due or the notification was created."""

    type: Literal["reminder.due", "schedule.notification"]
    timestamp: datetime
    workspace: str
    data: Reminder | Notification


class Notifier:
    """Posts reminders and notifications to one URL. Make one for each process; thread-safe."""

    def __init__(self, url: str, webhooks: WebhookSender, *, timeout_seconds: float) -> None:
        self._url = url
        self._webhooks = webhooks
        self.timeout_seconds = timeout_seconds
        self._breaker = CircuitBreaker("the notifier", NotifierUnavailable)

    @property
    def is_available(self) -> bool:
        """Whether the circuit breaker allows a call now."""
        retry_at = self._breaker.retry_at
        return retry_at is None or retry_at <= time.monotonic()

    def push(self, workspace: str, item: Reminder | Notification) -> None:
        """Post a reminder or notification. Raises `NotPushed`."""
        try:
            answer = self._breaker.call(lambda: self._post(workspace, item))
        except NotifierUnavailable as error:
            raise NotPushed(str(error), unavailable=True, retry_after_seconds=error.retry_after_seconds) from error
        if delivery_outcome(answer) != "ok":
            raise NotPushed(describe_answer(answer), unavailable=False, retry_after_seconds=answer.retry_after_seconds)

    def _post(self, workspace: str, item: Reminder | Notification) -> WebhookAnswer:
        try:
            answer = self._webhooks.post(
                self._url,
                message_id=message_id(workspace, item),
                body=_message(workspace, item),
                timeout_seconds=self.timeout_seconds,
                now=datetime.now(UTC),  # receivers refuse a signature whose time differs from theirs
            )
        except (WebhookRefused, WebhookFailed) as error:
            raise NotifierUnavailable(str(error)) from error
        if delivery_outcome(answer) == "retry":
            raise NotifierUnavailable(describe_answer(answer), retry_after_seconds=answer.retry_after_seconds)
        return answer


def message_id(workspace: str, item: Reminder | Notification) -> str:
    """Return the id by which the notifier recognises a message that it gets again.

    The id of a notification is unique. That of a reminder is unique for its agent only, may be any text, and may be
    used again once the reminder was cancelled.
    """
    if isinstance(item, Notification):
        return item.id
    identity = msgspec.json.encode([workspace, item.agent, item.id, item.created_at])
    return f"rem_{hashlib.blake2b(identity, digest_size=16).hexdigest()}"


def _message(workspace: str, item: Reminder | Notification) -> NotifierMessage:
    if isinstance(item, Reminder):
        return NotifierMessage(type=REMINDER_EVENT, timestamp=item.due_at, workspace=workspace, data=item)
    return NotifierMessage(type=NOTIFICATION_EVENT, timestamp=item.created_at, workspace=workspace, data=item)
