"""The text of a token: `rv_`, 32 random bytes in URL-safe base64, and six characters that check them.

The check tells a mistyped or truncated token from an unknown one without a look-up, and lets scanners of source code
recognise a token that was published. It protects nothing: whoever knows the form can compute it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import zlib
from typing import Final

from reverie.contract import TOKEN_PREFIX as PREFIX

_RANDOM_BYTES: Final = 32
_BODY_CHARACTERS: Final = 43
_CHECK_CHARACTERS: Final = 6
LENGTH: Final = len(PREFIX) + _BODY_CHARACTERS + _CHECK_CHARACTERS


def new_token() -> str:
    """Return a new random token."""
    body = _base64(secrets.token_bytes(_RANDOM_BYTES))
    return f"{PREFIX}{body}{_check_of(body)}"


def is_well_formed(token: str) -> bool:
    """Return whether a text has the form of a token, with the right check characters."""
    if len(token) != LENGTH or not token.startswith(PREFIX) or not token.isascii():
        return False
    body = token[len(PREFIX) : -_CHECK_CHARACTERS]
    return token[-_CHECK_CHARACTERS:] == _check_of(body)


def hash_of(token: str) -> bytes:
    """Return the SHA-256 of a token, which is stored in its place."""
    return hashlib.sha256(token.encode()).digest()


def _check_of(body: str) -> str:
    return _base64(zlib.crc32(body.encode()).to_bytes(4, "big"))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
