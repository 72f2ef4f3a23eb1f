"""Logins of browsers: a cookie that holds the token, encrypted, and the token that guards forms.

The server keeps nothing of a login, so a restart ends none. The cookie is worth what the token in it is worth: every
request has it checked again. It is encrypted because browsers keep cookies on disk and send them to every port of a
host, and the token must not be read there.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

from blake3 import blake3

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

# A browser that is not used for so long has to log in again.
LOGIN_SECONDS: Final = 30 * 86_400
_COOKIE_CONTEXT: Final = "reverie memory page: cookie of a login, v1"
_FORM_CONTEXT: Final = "reverie memory page: token of forms, v1"
# An encrypted token has some 200 characters; a longer text is not one of ours.
_MAX_COOKIE_CHARACTERS: Final = 1_024
# Whoever uses a server that was started with --open has no cookie.
_NO_COOKIE: Final = "open"


class Logins:
    """The logins of one installation; `secret` returns its key, which is read when it is first needed."""

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret

    def cookie_for(self, token: str) -> str:
        """Return the value of the cookie for a token. Raises `StoreUnavailable`."""
        return self._box.encrypt(token.encode()).decode()

    def token_in(self, cookie: str) -> str | None:
        """Return the token of a cookie; None if the cookie is older than `LOGIN_SECONDS` or not one of ours."""
        from cryptography.fernet import InvalidToken

        if len(cookie) > _MAX_COOKIE_CHARACTERS:
            return None
        try:
            return self._box.decrypt(cookie.encode(), ttl=LOGIN_SECONDS).decode()
        except (InvalidToken, UnicodeError):
            return None

    def form_token(self, cookie: str | None) -> str:
        """Return what every form of a login must send: no other site can know it."""
        return blake3((cookie or _NO_COOKIE).encode(), key=self._form_key).hexdigest(length=16)

    def is_form_token(self, text: str, cookie: str | None) -> bool:
        """Return whether a form comes from a page of this login."""
        return hmac.compare_digest(text.encode(), self.form_token(cookie).encode())

    @cached_property
    def _box(self) -> Fernet:
        from cryptography.fernet import Fernet

        return Fernet(base64.urlsafe_b64encode(blake3(self._secret(), derive_key_context=_COOKIE_CONTEXT).digest()))

    @cached_property
    def _form_key(self) -> bytes:
        return blake3(self._secret(), derive_key_context=_FORM_CONTEXT).digest()


def cookie_name(port: int) -> str:
    """Return the name of the cookie: that of another server on another port of the same host is another one."""
    return f"reverie-{port}"
