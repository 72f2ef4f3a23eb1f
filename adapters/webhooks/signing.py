"""Signatures by the Standard Webhooks specification, with one secret, or with several while secrets are rotated.

Keys are never shown: errors name a secret by its number in the list.
"""

from __future__ import annotations

import base64
import binascii
import math
import secrets as random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from standardwebhooks import Webhook

from adapters.webhooks.base import check_message
from reverie.errors import Rejected

SETTING: Final = "webhook_secret"
PREFIX: Final = "whsec_"
# From the specification: 192 to 512 bits.
MIN_KEY_BYTES: Final = 24
MAX_KEY_BYTES: Final = 64
_NEW_KEY_BYTES: Final = 32
_HOW_TO_CREATE: Final = f"make one with `echo {PREFIX}$(openssl rand -base64 {_NEW_KEY_BYTES})`"


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


def new_secret() -> str:
    """Return a new random secret."""
    return PREFIX + base64.b64encode(random.token_bytes(_NEW_KEY_BYTES)).decode("ascii")


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
