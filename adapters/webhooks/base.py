"""The Protocol of webhook senders: one POST of JSON to a URL, and the receiver's answer.

The answer is untrusted: it is bounded in size and in time. `outcomes` interprets its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from reverie.errors import Permanent, ReverieError

if TYPE_CHECKING:
    from adapters.webhooks.signing import Signer

# An answer reports a result and perhaps a text for the user; more than this is a mistake or an attack.
MAX_ANSWER_BYTES: Final = 1024 * 1024

Body: TypeAlias = Mapping[str, Any] | msgspec.Struct


class WebhookRefused(Permanent):
    """Nothing was sent, and nothing ever will be: the URL is invalid, or leads to an address that is not allowed."""


class WebhookFailed(ReverieError):
    """There is no answer, although the receiver may have processed the message.

    `passing` is whether a retry may help: it may for an unreachable receiver, but not for a wrong certificate.
    """

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """The answer of a receiver, whatever its status.

    `body` is complete if the status is 2xx; otherwise it is cut at MAX_ANSWER_BYTES, and empty if it was compressed.
    `location` is the target of a redirect, which is never followed.
    """

    status: int
    content_type: str | None = None
    body: bytes = b""
    retry_after_seconds: float | None = None
    location: str | None = None


class WebhookSender(Protocol):
    """Sends webhooks. Safe to use from several threads."""

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
        """Send `body` as JSON once, and return the answer; `timeout_seconds` limits the total time.

        `signer` has the secrets of the agent that it is sent for; by default those of the installation sign.
        A retry must use the same `message_id`, so that the receiver can drop duplicates. Call it outside of
        transactions. Raises WebhookRefused, WebhookFailed, and ValueError for a `now` without time zone or an id that
        no header can contain.
        """


def check_message(message_id: str, now: datetime) -> None:
    """Raise ValueError for an id or time that cannot be signed."""
    if not message_id or not message_id.isascii() or not message_id.isprintable() or " " in message_id:
        raise ValueError(f"message_id {message_id!r:.80} must be printable ASCII without blanks: it goes into a header")
    if now.tzinfo is None:
        raise ValueError("now must have a time zone: the signature covers the second at which a message is sent")
