"""Webhooks over HTTP/1.1: one connection for one message, to an address that was checked and is not looked up again.

There is no client around the connection on purpose: nothing that could follow a redirect, keep a cookie, read a proxy
from the environment, unpack a small body into a huge one, or hold a connection open.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from adapters.endpoint import retry_after_seconds
from adapters.webhooks.addresses import AllowedHosts
from adapters.webhooks.base import (
    LONGEST_ANSWER_BYTES,
    Body,
    WebhookAnswer,
    WebhookFailed,
    WebhookRefused,
)
from adapters.webhooks.deadline import Deadline
from adapters.webhooks.resolving import Place, Resolver
from adapters.webhooks.signing import Signer
from adapters.webhooks.urls import WebhookUrl, check_webhook_url, not_allowed
from reverie import __version__
from reverie.errors import Rejected

if TYPE_CHECKING:
    import httpcore2

_USER_AGENT: Final = f"Reverie/{__version__}"
# A header that makes no sense must not put a message off for a year; callers may cap it lower.
_LONGEST_RETRY_AFTER_SECONDS: Final = 86_400.0
_LONGEST_RETRY_AFTER_CHARACTERS: Final = 64


class HttpWebhookSender:
    """Signs and sends. Safe to share between threads: every message has a connection of its own."""

    def __init__(self, signer: Signer, allow: AllowedHosts, *, tls: ssl.SSLContext | None = None) -> None:
        """`tls` says which certificates are believed; without it, those that the system believes."""
        self._signer = signer
        self._allow = allow
        self._tls = tls
        self._making_tls = threading.Lock()
        self._resolver = Resolver()

    def post(self, url: str, *, message_id: str, body: Body, timeout_seconds: float, now: datetime) -> WebhookAnswer:
        """Send `body` as JSON, signed; look-up, connecting and answer together within `timeout_seconds`.

        Raises WebhookRefused, WebhookFailed; ValueError for a time without zone or an id that no header can carry.
        """
        deadline = Deadline(timeout_seconds)
        content = msgspec.json.encode(body)
        signed = self._signer.headers(message_id, content, now)
        try:
            where = check_webhook_url(url, self._allow)
        except Rejected as error:
            raise WebhookRefused(str(error)) from error
        try:
            return self._exchanged(where, self._places(where, deadline), content, signed, deadline)
        except TimeoutError as error:
            raise WebhookFailed(f"{where.origin} did not answer within {timeout_seconds:g} s", passing=True) from error

    def _places(self, where: WebhookUrl, deadline: Deadline) -> list[Place]:
        """The addresses of the host. One that is not allowed among them spoils all: which one is used is luck."""
        try:
            places = self._resolver.places(where, deadline)
        except TimeoutError:
            raise
        except OSError as error:
            raise WebhookFailed(f"{where.host} has no address ({error}): check the URL's host", passing=True) from error
        if not all(self._allow.allows(where.host, place.address) for place in places):
            raise WebhookRefused(f"{where.origin} leads to an address within: {not_allowed(where.host)}")
        return places

    def _exchanged(
        self, where: WebhookUrl, places: list[Place], content: bytes, signed: dict[str, str], deadline: Deadline
    ) -> WebhookAnswer:
        import httpcore2

        from adapters.webhooks.connection import connected

        try:
            tls = self._believed() if where.scheme == "https" else None
            request = _request(where, content, signed)
            stream = connected(places, deadline, tls=tls, host=where.host)
            with httpcore2.HTTP11Connection(request.url.origin, stream) as connection:
                return _answer(where, connection.handle_request(request))
        except TimeoutError:
            raise
        except ssl.SSLEOFError as error:
            raise WebhookFailed(f"{where.origin} ended the connection in the middle of TLS", passing=True) from error
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", None) or error.reason or "no TLS"
            raise WebhookFailed(
                f"{where.origin} is not who it should be, or speaks no TLS ({why}): check its certificate and the URL",
                passing=False,
            ) from error
        except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise WebhookFailed(
                f"{where.origin} did not answer: {type(error).__name__}: {error}", passing=True
            ) from error

    def _believed(self) -> ssl.SSLContext:
        import httpcore2

        with self._making_tls:
            if self._tls is None:
                self._tls = httpcore2.default_ssl_context()
            return self._tls


def _request(where: WebhookUrl, content: bytes, signed: dict[str, str]) -> httpcore2.Request:
    import httpcore2

    headers = {
        "host": where.authority,
        "user-agent": _USER_AGENT,
        "accept": "application/json, text/plain;q=0.5, */*;q=0.1",
        "accept-encoding": "identity",
        "connection": "close",
        "content-type": "application/json",
        "content-length": str(len(content)),
        **signed,
    }
    host = f"[{where.host}]" if ":" in where.host else where.host
    url = httpcore2.URL(scheme=where.scheme, host=host, port=where.port, target=where.target)
    return httpcore2.Request("POST", url, headers=list(headers.items()), content=content)


def _answer(where: WebhookUrl, response: httpcore2.Response) -> WebhookAnswer:
    """What came back; as a body only what is not compressed, and not too much. Raises WebhookFailed and OSErrors."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
    taken = 200 <= response.status <= 299
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity") and taken:
        raise WebhookFailed(
            f"{where.origin} answered in {encoding:.40}, though asked for a plain body: switch compression off there",
            passing=False,
        )
    body = _cut(response.iter_stream()) if encoding in ("", "identity") else b""
    if len(body) > LONGEST_ANSWER_BYTES and taken:
        raise WebhookFailed(
            f"{where.origin} answered with more than {LONGEST_ANSWER_BYTES:,} bytes: let it answer less", passing=False
        )
    return WebhookAnswer(
        response.status,
        headers.get("content-type"),
        body[:LONGEST_ANSWER_BYTES],
        _retry_after(headers.get("retry-after")),
        headers.get("location"),
    )


def _cut(pieces: Iterable[bytes]) -> bytes:
    """The body, or the first part of it that is longer than is allowed."""
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > LONGEST_ANSWER_BYTES:
            break
    return bytes(body)


def _retry_after(header: str | None) -> float | None:
    if header is None or len(header) > _LONGEST_RETRY_AFTER_CHARACTERS:
        return None
    try:
        asked = retry_after_seconds(header)
    except OverflowError:  # a date of a zone that is none
        return None
    return None if asked is None else min(asked, _LONGEST_RETRY_AFTER_SECONDS)
