"""What an answer means for the message: it is done, may be sent again, or has failed for good."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from adapters.webhooks.base import WebhookAnswer

# ok: taken. again: send it later. failed: sending it again would end the same way. gone: nobody listens there any more.
Verdict: TypeAlias = Literal["ok", "again", "failed", "gone"]

# Timeout, too early, too many: the receiver itself says that later may be better. With these goes every 5xx.
_AGAIN: Final = frozenset({408, 425, 429})
_GONE: Final = 410
_LONGEST_SHOWN_CHARACTERS: Final = 200


def verdict(answer: WebhookAnswer) -> Verdict:
    """What to do after this answer, by its status alone."""
    if 200 <= answer.status <= 299:
        return "ok"
    if answer.status in _AGAIN or 500 <= answer.status <= 599:
        return "again"
    return "gone" if answer.status == _GONE else "failed"


def reason(answer: WebhookAnswer) -> str:
    """One line that says what came back, for whoever mends the schedule."""
    if 300 <= answer.status <= 399:
        return (
            f"the receiver answered {answer.status}, a redirect to {_shown(answer.location or '') or 'nowhere'}:"
            " redirects are never followed, so set the URL to where the receiver is"
        )
    said = _shown(answer.body[: 8 * _LONGEST_SHOWN_CHARACTERS].decode("utf-8", "replace"))
    return f"the receiver answered {answer.status}" + (f": {said}" if said else " and said nothing")


def _shown(text: str) -> str:
    """A stranger's text on one line, without what could move a terminal's cursor."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:_LONGEST_SHOWN_CHARACTERS]
