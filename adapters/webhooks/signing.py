"""Signatures by the Standard Webhooks specification, with one secret, or with several while secrets are rotated.

Keys are never shown: errors name a secret by its number in the list.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from standardwebhooks import Webhook

from reverie.errors import Rejected


def derived_secret(key: bytes, identity: bytes) -> str:
    """Return a secret by Standard Webhooks, of 256 bits."""
    return PREFIX + base64.b64encode(hmac.new(key, identity, hashlib.sha256).digest()).decode("ascii")


SETTING: Final = "webhook_secret"
PREFIX: Final = "whsec_"
# From the specification: 192 to 512 bits.
MIN_KEY_BYTES: Final = 24
MAX_KEY_BYTES: Final = 64
_HOW_TO_CREATE: Final = f"make one with `echo {PREFIX}$(openssl rand -base64 32)`"


class Signer:
    """Signs with all of its secrets, so that a receiver with any of them can verify."""

    def __init__(self, secrets: Sequence[str]) -> None:
        """Raises Rejected for an empty list and for an invalid secret."""
        if not secrets:
            raise Rejected(f"{SETTING} is empty: give at least one secret", field=SETTING)
        self._keys = tuple(
            Webhook(decode_secret(secret, source=f"secret {number} of {SETTING}"))
            for number, secret in enumerate(secrets, 1)
        )

    def __repr__(self) -> str:
        return f"Signer({len(self._keys)} secrets)"

    def headers(self, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
        """Return the three headers that authenticate `body` (UTF-8) and its time. Raises ValueError."""
        check_message(message_id, now)
        at = now.astimezone(UTC)  # the library ignores the time zone
        text = body.decode()
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(math.floor(at.timestamp())),
            "webhook-signature": " ".join(key.sign(msg_id=message_id, timestamp=at, data=text) for key in self._keys),
        }


def check_message(message_id: str, now: datetime) -> None:
    """Raise ValueError for an id or time that cannot be signed."""
    if not message_id or not message_id.isascii() or not message_id.isprintable() or " " in message_id:
        raise ValueError(f"message_id {message_id!r:.80} must be printable ASCII without blanks: it goes into a header")
    if now.tzinfo is None:
        raise ValueError("now must have a time zone: the signature covers the second at which a message is sent")


def decode_secret(secret: str, *, source: str) -> bytes:
    """Return the key of a secret. Raises Rejected, without showing it, if it does not follow the specification."""
    if not secret.startswith(PREFIX):
        raise Rejected(f"{source} does not begin with {PREFIX}: {_HOW_TO_CREATE}", field=SETTING)
    encoded = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        # Not chained: the library's error may quote the secret.
        raise Rejected(f"{source} is not base64 after {PREFIX}: {_HOW_TO_CREATE}", field=SETTING) from None
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise Rejected(
            f"{source} has {len(key)} bytes; it must have {MIN_KEY_BYTES} to {MAX_KEY_BYTES}: {_HOW_TO_CREATE}",
            field=SETTING,
        )
    return key
