"""What a webhook sender is: one POST of JSON to a URL, and what the receiver answered.

What comes back is a stranger's: it is bounded in size and in time, and `verdicts` says what its status means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from reverie.errors import Permanent, ReverieError

# An answer says how it went and perhaps what to tell the user; more than this is a mistake or an attack.
LONGEST_ANSWER_BYTES: Final = 1024 * 1024

Body: TypeAlias = Mapping[str, Any] | msgspec.Struct


class WebhookRefused(Permanent):
    """Nothing was sent, and never will be to this URL: it is none, or leads to an address that is not allowed."""


class WebhookFailed(ReverieError):
    """There is no answer. `passing` says whether trying again may help: a receiver that is away may come back, a
    certificate of another name stays wrong. The receiver may have taken the message all the same.
    """

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """What a receiver answered, whatever its status.

    `body` is complete where the status is 2xx; else it is cut at LONGEST_ANSWER_BYTES, and empty where it came
    compressed. `location` is where a redirect points to, which is never followed.
    """

    status: int
    content_type: str | None = None
    body: bytes = b""
    retry_after_seconds: float | None = None
    location: str | None = None


class WebhookSender(Protocol):
    """Sends webhooks. Safe to use from several threads."""

    def post(self, url: str, *, message_id: str, body: Body, timeout_seconds: float, now: datetime) -> WebhookAnswer:
        """Send `body` as JSON, once, and return what came back within `timeout_seconds` for all of it.

        `message_id` stays the same when a message is sent again, so that the receiver can drop the second one. Call
        it outside of any transaction. Raises WebhookRefused, WebhookFailed; ValueError for a time without zone or an
        id that no header can carry.
        """


def check_message(message_id: str, now: datetime) -> None:
    """Raises ValueError for what no receiver could verify."""
    if not message_id or not message_id.isascii() or not message_id.isprintable() or " " in message_id:
        raise ValueError(f"message_id {message_id!r:.80} must be printable ASCII without blanks: it goes into a header")
    if now.tzinfo is None:
        raise ValueError("now must have a zone: the signature covers the second at which a message is sent")
