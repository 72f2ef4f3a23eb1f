"""Decides whether a server may start with its settings: its address and the operator's token."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from reverie.clock import now_micros
from reverie.errors import Rejected
from storage.opened import open_stores
from worker.settings import PREFIX, Settings

# 16 random bytes have 32 hexadecimal digits. Shorter tokens tend to be guessable words.
_MIN_CHARACTERS: Final = 32


def operator_token(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """Return the token in `REVERIE_TOKEN`, or None.

    Raises `Rejected` where the server would let strangers in, and says what to do.
    """
    token, local = environ.get(PREFIX + "TOKEN") or None, is_loopback(settings.host)
    if token is not None and len(token) < _MIN_CHARACTERS:
        raise Rejected(
            f"REVERIE_TOKEN has {len(token)} characters, and needs {_MIN_CHARACTERS} or more:"
            " export REVERIE_TOKEN=$(openssl rand -hex 32)",
            field="token",
        )
    if settings.open and (token is not None or not local):
        why = "REVERIE_TOKEN is set" if local else f"other machines can reach host {settings.host}"
        raise Rejected(f"--open lets everyone do everything, and {why}: leave out --open", field="open")
    if token is None and not local and not _has_tokens(settings):
        raise Rejected(
            f"other machines can reach host {settings.host}, and no token protects the server: make one with"
            " `reverie tokens create`, set REVERIE_TOKEN to one of the operator, or listen on 127.0.0.1",
            field="host",
        )
    return token


def is_loopback(host: str) -> bool:
    """Return whether an address or a name is a loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _has_tokens(settings: Settings) -> bool:
    stores = open_stores(settings.data, settings.database)
    try:
        return stores.tokens().any_valid(now_micros())
    finally:
        stores.close()
