"""Signatures by the Standard Webhooks specification, with one secret or, while secrets are changed, with several.

A key is never shown: errors name a secret by its place in the list.
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
FEWEST_KEY_BYTES: Final = 24
MOST_KEY_BYTES: Final = 64
_NEW_KEY_BYTES: Final = 32
_HOW: Final = f"make one with `echo {PREFIX}$(openssl rand -base64 {_NEW_KEY_BYTES})`"


class Signer:
    """Signs with every one of its secrets, so that a receiver that knows any of them can verify."""

    def __init__(self, secrets: Sequence[str]) -> None:
        """Raises Rejected for no secret at all, and for one that is none."""
        if not secrets:
            raise Rejected(f"{SETTING} is empty: give at least one secret", field=SETTING)
        self._keys = tuple(
            Webhook(key_of(secret, whose=f"secret {number} of {SETTING}")) for number, secret in enumerate(secrets, 1)
        )

    def __repr__(self) -> str:
        return f"Signer({len(self._keys)} secrets)"

    def headers(self, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
        """The three headers by which a receiver knows who sent `body` (UTF-8) and when. Raises ValueError."""
        check_message(message_id, now)
        at = now.astimezone(UTC)  # the library takes the wall clock's time for UTC, whatever the zone
        text = body.decode()
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(math.floor(at.timestamp())),
            "webhook-signature": " ".join(key.sign(msg_id=message_id, timestamp=at, data=text) for key in self._keys),
        }


def new_secret() -> str:
    """A secret that nobody has guessed or will."""
    return PREFIX + base64.b64encode(random.token_bytes(_NEW_KEY_BYTES)).decode("ascii")


def key_of(secret: str, *, whose: str) -> bytes:
    """The key within a secret. Raises Rejected, without showing it, where it is none of the specification's."""
    if not secret.startswith(PREFIX):
        raise Rejected(f"{whose} does not begin with {PREFIX}: {_HOW}", field=SETTING)
    encoded = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        # Not chained: the library's error may quote what it could not read.
        raise Rejected(f"{whose} is not base64 after {PREFIX}: {_HOW}", field=SETTING) from None
    if not FEWEST_KEY_BYTES <= len(key) <= MOST_KEY_BYTES:
        raise Rejected(
            f"{whose} holds {len(key)} bytes; it must be {FEWEST_KEY_BYTES} to {MOST_KEY_BYTES}: {_HOW}", field=SETTING
        )
    return key
