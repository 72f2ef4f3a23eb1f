"""Signatures of payloads in the inbox, for installations with a broker key.

Whoever reaches the broker can put payloads into an inbox. With a key, producers write `#1 <HMAC-SHA-256> ` before the
JSON of a payload, and workers refuse what has no signature of one of their keys. It covers the workspace, the agent and
the id as well, so a payload cannot be moved to another's inbox.

Celery's own signatures (its serializer `auth`) are not used. They need a private key and certificates on each host,
cover the body of a task but not its name, and tasks are not what matters: they carry the name of a workspace, and a
forged one only makes a worker look for work. Payloads, which Celery never sees, are what becomes a memory.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from reverie.errors import Rejected

SETTING: Final = "broker_key"
MIN_KEY_CHARACTERS: Final = 32
# No JSON begins with it. The 1 is the version of this format.
_MARK: Final = b"#1 "
_DIGITS: Final = 64
_PURPOSE: Final = b"reverie.payload.v1"


def parse_keys(text: str | None) -> tuple[bytes, ...]:
    """Return the keys of a setting, separated by blanks: the first signs, all verify. Raises `Rejected`."""
    keys = (text or "").split()
    if any(len(key) < MIN_KEY_CHARACTERS for key in keys):
        raise Rejected(
            f"{SETTING} has a key of less than {MIN_KEY_CHARACTERS} characters: make one with `openssl rand -hex 32`",
            field=SETTING,
        )
    return tuple(key.encode() for key in keys)


def sign_payload(key: bytes, workspace: str, field: str, payload: bytes) -> bytes:
    """Return a payload with its signature before it."""
    return _MARK + _mac(key, workspace, field.encode(), payload) + b" " + payload


def split_payload(value: bytes) -> tuple[bytes, bytes]:
    """Return the signature and the payload in a value of the inbox; without a signature, it is empty."""
    end = len(_MARK) + _DIGITS
    if value.startswith(_MARK) and value[end : end + 1] == b" ":
        return value[len(_MARK) : end], value[end + 1 :]
    return b"", value


def refusal(keys: Sequence[bytes], workspace: str, field: bytes, signature: bytes, payload: bytes) -> str:
    """Return why a payload is not accepted, an empty text if it is. Without keys every payload is accepted."""
    if not keys:
        return ""
    if not signature:
        return f"it is not signed: give its producer a key of {SETTING} (REVERIE_BROKER_KEY)"
    if not any(hmac.compare_digest(signature, _mac(key, workspace, field, payload)) for key in keys):
        return f"its signature is wrong: its producer has another {SETTING}, or it was changed in the broker"
    return ""


def _mac(key: bytes, workspace: str, field: bytes, payload: bytes) -> bytes:
    # Neither a workspace nor a field contains a NUL.
    message = b"\0".join((_PURPOSE, workspace.encode(), field, payload))
    return hmac.new(key, message, hashlib.sha256).hexdigest().encode("ascii")
