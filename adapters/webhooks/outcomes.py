"""The outcome of a delivery by the receiver's status: delivered, to retry, or failed for good."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from adapters.webhooks.base import WebhookAnswer

# ok: delivered. retry: send it again later. failed: a retry would fail in the same way. gone: the receiver no longer
# exists.
DeliveryOutcome: TypeAlias = Literal["ok", "retry", "failed", "gone"]

# Timeout, too early, too many requests: the receiver itself asks for a retry. Every 5xx is retried too.
_RETRY: Final = frozenset({408, 425, 429})
_GONE: Final = 410
_MAX_SHOWN_CHARACTERS: Final = 200


def delivery_outcome(answer: WebhookAnswer) -> DeliveryOutcome:
    """Return the outcome of a delivery by the status of the answer."""
    if 200 <= answer.status <= 299:
        return "ok"
    if answer.status in _RETRY or 500 <= answer.status <= 599:
        return "retry"
    return "gone" if answer.status == _GONE else "failed"


def describe_answer(answer: WebhookAnswer) -> str:
    """Return one line about the answer, for the owner of the schedule."""
    if 300 <= answer.status <= 399:
        return (
            f"the receiver answered {answer.status}, a redirect to {_printable(answer.location or '') or 'nowhere'}:"
            " redirects are never followed, so set the URL to where the receiver is"
        )
    body = _printable(answer.body[: 8 * _MAX_SHOWN_CHARACTERS].decode("utf-8", "replace"))
    return f"the receiver answered {answer.status}" + (f": {body}" if body else " with an empty body")


def _printable(text: str) -> str:
    """Return untrusted text on one line, without characters that could control a terminal."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:_MAX_SHOWN_CHARACTERS]
