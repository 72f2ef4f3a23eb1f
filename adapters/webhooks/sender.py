"""Webhooks over HTTP/1.1: one connection per message, to an address that was checked and is not resolved again.

No HTTP client is used on purpose: nothing can follow a redirect, keep a cookie, read a proxy from the environment,
decompress a small body into a huge one, or keep a connection open.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from adapters.endpoint import retry_after_seconds
from adapters.webhooks.addresses import AllowedHosts
from adapters.webhooks.base import (
    MAX_ANSWER_BYTES,
    Body,
    WebhookAnswer,
    WebhookFailed,
    WebhookRefused,
)
from adapters.webhooks.deadline import Deadline
from adapters.webhooks.policy import WebhookPolicy
from adapters.webhooks.resolving import ResolvedAddress, Resolver
from adapters.webhooks.signing import Signer
from adapters.webhooks.urls import WebhookUrl, check_webhook_url, not_allowed
from reverie import __version__
from reverie.errors import Rejected

if TYPE_CHECKING:
    import httpcore2

_USER_AGENT: Final = f"Reverie/{__version__}"
_MAX_RETRY_AFTER_CHARACTERS: Final = 64


class HttpWebhookSender:
    """Signs and sends messages. Safe to share between threads: every message has its own connection."""

    def __init__(
        self, signer: Signer, allow: AllowedHosts | WebhookPolicy, *, tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls` decides which certificates are trusted; by default those that the system trusts."""
        self._signer = signer
        self._policy = allow if isinstance(allow, WebhookPolicy) else WebhookPolicy(allow, https_only=False)
        self._tls = tls
        self._making_tls = threading.Lock()
        self._resolver = Resolver()

    def post(
        self,
        url: str,
        *,
        message_id: str,
        body: Body,
        timeout_seconds: float,
        now: datetime,
        signer: Signer | None = None,
    ) -> WebhookAnswer:
        """Send `body` as signed JSON; `timeout_seconds` limits resolving, connecting and answering together.

        Raises WebhookRefused, WebhookFailed, and ValueError for a `now` without time zone or an id that no header can
        contain.
        """
        deadline = Deadline(timeout_seconds)
        content = msgspec.json.encode(body)
        signed = (signer or self._signer).headers(message_id, content, now)
        try:
            target = check_webhook_url(url, self._policy)
        except Rejected as error:
            raise WebhookRefused(str(error)) from error
        try:
            return self._exchange(target, self._resolve(target, deadline), content, signed, deadline)
        except TimeoutError as error:
            raise WebhookFailed(f"{target.origin} did not answer within {timeout_seconds:g} s", passing=True) from error

    def _resolve(self, target: WebhookUrl, deadline: Deadline) -> list[ResolvedAddress]:
        """Return the addresses of the host. All of them must be allowed, since any of them may be used."""
        try:
            addresses = self._resolver.resolve(target, deadline)
        except TimeoutError:
            raise
        except OSError as error:
            raise WebhookFailed(
                f"{target.host} has no address ({error}): check the URL's host", passing=True
            ) from error
        if not all(self._policy.private.allows(target.host, resolved.address) for resolved in addresses):
            raise WebhookRefused(f"{target.origin} leads to a private address: {not_allowed(target.host)}")
        return addresses

    def _exchange(
        self,
        target: WebhookUrl,
        addresses: list[ResolvedAddress],
        content: bytes,
        signed: dict[str, str],
        deadline: Deadline,
    ) -> WebhookAnswer:
        import httpcore2

        from adapters.webhooks.connection import connect

        try:
            tls = self._tls_context() if target.scheme == "https" else None
            request = _request(target, content, signed)
            stream = connect(addresses, deadline, tls=tls, host=target.host)
            with httpcore2.HTTP11Connection(request.url.origin, stream) as connection:
                return _answer(target, connection.handle_request(request))
        except TimeoutError:
            raise
        except ssl.SSLEOFError as error:
            raise WebhookFailed(f"{target.origin} ended the connection in the middle of TLS", passing=True) from error
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", None) or error.reason or "no TLS"
            raise WebhookFailed(
                f"{target.origin} did not prove its identity by TLS ({why}): check its certificate and the URL",
                passing=False,
            ) from error
        except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise WebhookFailed(
                f"{target.origin} did not answer: {type(error).__name__}: {error}", passing=True
            ) from error

    def _tls_context(self) -> ssl.SSLContext:
        import httpcore2

        with self._making_tls:
            if self._tls is None:
                self._tls = httpcore2.default_ssl_context()
            return self._tls


def _request(target: WebhookUrl, content: bytes, signed: dict[str, str]) -> httpcore2.Request:
    import httpcore2

    headers = {
        "host": target.authority,
        "user-agent": _USER_AGENT,
        "accept": "application/json, text/plain;q=0.5, */*;q=0.1",
        "accept-encoding": "identity",
        "connection": "close",
        "content-type": "application/json",
        "content-length": str(len(content)),
        **signed,
    }
    host = f"[{target.host}]" if ":" in target.host else target.host
    url = httpcore2.URL(scheme=target.scheme, host=host, port=target.port, target=target.target)
    return httpcore2.Request("POST", url, headers=list(headers.items()), content=content)


def _answer(target: WebhookUrl, response: httpcore2.Response) -> WebhookAnswer:
    """Read the answer, with an uncompressed body of bounded size. Raises WebhookFailed and OSErrors."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
    delivered = 200 <= response.status <= 299
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity") and delivered:
        raise WebhookFailed(
            f"{target.origin} answered in {encoding:.40}, which was not requested: turn off compression there",
            passing=False,
        )
    body = _read_bounded(response.iter_stream()) if encoding in ("", "identity") else b""
    if len(body) > MAX_ANSWER_BYTES and delivered:
        raise WebhookFailed(
            f"{target.origin} answered with more than {MAX_ANSWER_BYTES:,} bytes: make it answer less", passing=False
        )
    return WebhookAnswer(
        response.status,
        headers.get("content-type"),
        body[:MAX_ANSWER_BYTES],
        _retry_after(headers),
        headers.get("location"),
    )


def _read_bounded(parts: Iterable[bytes]) -> bytes:
    """Return the body, or its beginning just beyond the allowed size."""
    body = bytearray()
    for part in parts:
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            break
    return bytes(body)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    header, answered_at = headers.get("retry-after"), headers.get("date")
    if any(len(value or "") > _MAX_RETRY_AFTER_CHARACTERS for value in (header, answered_at)):
        return None
    try:
        return retry_after_seconds(header, answered_at=answered_at)
    except OverflowError:  # a date with an invalid time zone
        return None
