"""The notifier: one webhook that takes reminders and notifications, each under an id that stays the same.

One that does not answer is left alone by a circuit breaker, so that what is due does not keep threads waiting for it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from adapters.breaker import Away, CircuitBreaker
from adapters.webhooks import WebhookAnswer, WebhookFailed, WebhookRefused, WebhookSender, reason, verdict
from memory.scheduling.pushing import NotPushed
from reverie.scheduling.notification_types import Notification
from reverie.scheduling.reminder_types import Reminder

REMINDER_EVENT: Final = "reminder.due"
NOTIFICATION_EVENT: Final = "schedule.notification"


class NotifierAway(Away):
    """The notifier cannot take anything now."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a message to the notifier. `timestamp` is when the reminder was due, or what is told happened."""

    type: Literal["reminder.due", "schedule.notification"]
    timestamp: datetime
    workspace: str
    data: Reminder | Notification


class Notifier:
    """Posts to one URL. Made once in a process, and safe to share between its threads."""

    def __init__(self, url: str, webhooks: WebhookSender, *, timeout_seconds: float) -> None:
        self._url = url
        self._webhooks = webhooks
        self.timeout_seconds = timeout_seconds
        self._breaker = CircuitBreaker("the notifier", NotifierAway)
        # One run of a process at a time: the second would find what the first is at, and wait for the same notifier.
        self.delivering = threading.Lock()

    @property
    def may_answer(self) -> bool:
        """Whether it is worth while to claim something for it."""
        retry_at = self._breaker.retry_at
        return retry_at is None or retry_at <= time.monotonic()

    def push(self, workspace: str, what: Reminder | Notification) -> None:
        """Have the notifier take something. Raises `NotPushed`."""
        try:
            answer = self._breaker.through(lambda: self._answer(workspace, what))
        except NotifierAway as error:
            raise NotPushed(str(error), away=True, retry_after_seconds=error.retry_after_seconds) from error
        if verdict(answer) != "ok":
            raise NotPushed(reason(answer), away=False, retry_after_seconds=answer.retry_after_seconds)

    def _answer(self, workspace: str, what: Reminder | Notification) -> WebhookAnswer:
        try:
            answer = self._webhooks.post(
                self._url,
                message_id=message_id(workspace, what),
                body=_told(workspace, what),
                timeout_seconds=self.timeout_seconds,
                now=datetime.now(UTC),  # receivers refuse what is signed at another time than theirs
            )
        except (WebhookRefused, WebhookFailed) as error:
            raise NotifierAway(str(error)) from error
        if verdict(answer) == "again":
            raise NotifierAway(reason(answer), retry_after_seconds=answer.retry_after_seconds)
        return answer


def message_id(workspace: str, what: Reminder | Notification) -> str:
    """By which the notifier knows a message that it gets again.

    A notification's own id is unique. A reminder's is so for its agent only, may be any text, and may stand for another
    reminder once the first was cancelled.
    """
    if isinstance(what, Notification):
        return what.id
    named = msgspec.json.encode([workspace, what.agent, what.id, what.created_at])
    return f"rem_{hashlib.blake2b(named, digest_size=16).hexdigest()}"


def _told(workspace: str, what: Reminder | Notification) -> Told:
    if isinstance(what, Reminder):
        return Told(type=REMINDER_EVENT, timestamp=what.due_at, workspace=workspace, data=what)
    return Told(type=NOTIFICATION_EVENT, timestamp=what.created_at, workspace=workspace, data=what)
