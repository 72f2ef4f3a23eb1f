"""A webhook sender with scripted answers that sends nothing: a fake for tests and dry runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from adapters.webhooks.addresses import AllowedHosts
from adapters.webhooks.base import Body, WebhookAnswer, WebhookFailed, WebhookRefused, check_message
from adapters.webhooks.signing import Signer
from adapters.webhooks.urls import check_webhook_url
from reverie.errors import Rejected


@dataclass(frozen=True, slots=True)
class Posted:
    """One message as the receiver would have got it; `body` is the decoded JSON."""

    url: str
    message_id: str
    body: Any
    timeout_seconds: float
    now: datetime
    signer: Signer | None = None


Scripted: TypeAlias = WebhookAnswer | Exception | Callable[[Posted], WebhookAnswer]


class ScriptedWebhookSender:
    """Returns answers from a list in turn, repeating the last one, and records the messages in `posted`.

    An exception among the answers is raised; a function is called with the message. URLs are checked as by the real
    sender before a name is resolved; without `allow` every address is allowed.
    """

    def __init__(self, answers: Iterable[Scripted] = (WebhookAnswer(200),), allow: AllowedHosts | None = None) -> None:
        self.posted: list[Posted] = []
        self._answers = list(answers)
        self._allow = AllowedHosts(everything=True) if allow is None else allow
        self._lock = threading.Lock()

    def post(
        self,
        url: str,
        *,
        message_id: str,
        body: Body,
        timeout_seconds: float,
        now: datetime,
        signer: Signer | None = None,
    ) -> WebhookAnswer:
        """Return the next answer. Raises WebhookFailed if the list is empty."""
        check_message(message_id, now)
        try:
            check_webhook_url(url, self._allow)
        except Rejected as error:
            raise WebhookRefused(str(error)) from error
        decoded = msgspec.json.decode(msgspec.json.encode(body))
        posted = Posted(url, message_id, decoded, timeout_seconds, now, signer)
        answer = self._next(posted)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, WebhookAnswer) else answer(posted)

    def _next(self, posted: Posted) -> Scripted:
        with self._lock:
            self.posted.append(posted)
            if not self._answers:
                raise WebhookFailed("the script has no more answers", passing=True)
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
