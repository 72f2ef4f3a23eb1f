"""Refuses what a web page of another site makes a browser send.

A browser adds the header Sec-Fetch-Site, or at least Origin, and a page cannot leave them out. Programs send neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from reverie.problems import CrossSite

# From a page of this server (its documentation), or typed by the user.
_OWN: Final = (b"same-origin", b"none")


def check_site(headers: Mapping[bytes, bytes], allowed_origins: Collection[str]) -> None:
    """Raise `CrossSite` if a page of another site makes the request, unless its origin is allowed."""
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").lower() in allowed_origins:
        return
    site = headers.get(b"sec-fetch-site")
    foreign = site not in _OWN if site is not None else origin is not None and not _is_own(origin, headers)
    if foreign:
        named = (origin or b"of another site").decode("latin-1")[:200]
        raise CrossSite(
            f"a web page ({named}) made this request, and pages of other sites are refused: to allow its origin, add it"
            " to the setting allowed_origins",
            field="origin",
        )


def check_no_upgrade(headers: Mapping[bytes, bytes]) -> None:
    """Raise `CrossSite` for a websocket: there are none, and a browser lets any page open one."""
    if b"websocket" in headers.get(b"upgrade", b"").lower() or b"sec-websocket-key" in headers:
        raise CrossSite("this server has no websockets", field="upgrade")


def _is_own(origin: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether an origin is this server, as the request names it. The scheme may differ behind a proxy."""
    try:
        host = urlsplit(origin.decode("ascii")).netloc.lower()
    except ValueError:
        return False
    return bool(host) and host == headers.get(b"host", b"").decode("latin-1").lower()
