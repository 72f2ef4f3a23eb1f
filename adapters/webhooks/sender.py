"""Webhooks over HTTP/1.1: signed JSON, posted to receivers run by others, at an address that was checked.

No HTTP client is used on purpose: nothing can follow a redirect, keep a cookie, read a proxy from the environment,
decompress a small body into a huge one, or keep a connection open. The timeouts of an HTTP client apply to each read
only, so that a receiver that sends one byte per second would never time out: here all waits share one deadline. The
answer is untrusted: it is bounded in size and in time.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final, Literal, Protocol, TypeAlias

import httpcore2
import msgspec

from adapters.calls import BoundedCalls, retry_after_seconds
from adapters.webhooks.addresses import Address, WebhookPolicy, WebhookUrl, check_webhook_url, not_allowed
from adapters.webhooks.signing import Signer
from reverie import __version__
from reverie.errors import Permanent, Rejected, ReverieError

# An answer reports a result and perhaps a text for the user; more than this is a mistake or an attack.
MAX_ANSWER_BYTES: Final = 1024 * 1024

Body: TypeAlias = Mapping[str, Any] | msgspec.Struct


class WebhookRefused(Permanent):
    """Nothing was sent, and nothing ever will be: the URL is invalid, or leads to an address that is not allowed."""


class WebhookFailed(ReverieError):
    """The receiver did not answer, although it may have processed the message.

    `passing` says whether a retry may help, as for an unreachable receiver; it does not for a wrong certificate.
    """

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """The answer of a receiver, whatever its status.

    `body` is complete if the status is 2xx; otherwise it is cut at MAX_ANSWER_BYTES, and empty if it was compressed.
    `location` is the target of a redirect, which is never followed.
    """

    status: int
    content_type: str | None = None
    body: bytes = b""
    retry_after_seconds: float | None = None
    location: str | None = None


class WebhookSender(Protocol):
    """Sends webhooks. Safe to use from several threads."""

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
        """Send `body` as JSON once, and return the answer; `timeout_seconds` limits the total time.

        `signer` has the secrets of the agent that it is sent for; by default those of the installation sign.
        A retry must use the same `message_id`, so that the receiver can drop duplicates. Call it outside of
        transactions. Raises WebhookRefused, WebhookFailed, and ValueError for a `now` without time zone or an id that
        no header can contain.
        """


# ok: delivered. retry: send it again later. failed: a retry would fail in the same way. gone: the receiver no longer
# exists.
DeliveryOutcome: TypeAlias = Literal["ok", "retry", "failed", "gone"]

# Timeout, too early, too many requests: the receiver itself asks for a retry. Every 5xx is retried too.
_RETRY: Final = frozenset({408, 425, 429})
_GONE: Final = 410
_MAX_SHOWN_CHARACTERS: Final = 200


def delivery_outcome(answer: WebhookAnswer) -> DeliveryOutcome:
    """Return the outcome of a delivery by the status of the answer."""
    if 200 <= answer.status <= 299:
        return "ok"
    if answer.status in _RETRY or 500 <= answer.status <= 599:
        return "retry"
    return "gone" if answer.status == _GONE else "failed"


def describe_answer(answer: WebhookAnswer) -> str:
    """Return one line about the answer, for the owner of the schedule."""
    if 300 <= answer.status <= 399:
        return (
            f"the receiver answered {answer.status}, a redirect to {_printable(answer.location or '') or 'nowhere'}:"
            " redirects are never followed, so set the URL to where the receiver is"
        )
    body = _printable(answer.body[: 8 * _MAX_SHOWN_CHARACTERS].decode("utf-8", "replace"))
    return f"the receiver answered {answer.status}" + (f": {body}" if body else " with an empty body")


def _printable(text: str) -> str:
    """Return untrusted text on one line, without characters that could control a terminal."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:_MAX_SHOWN_CHARACTERS]


class CountedWebhookSender:
    """Sends by `inner`, and calls `count` with the outcome: that of the answer, `unanswered` or `not_allowed`."""

    def __init__(self, inner: WebhookSender, count: Callable[[str], None]) -> None:
        self._inner = inner
        self._count = count

    def post(self, url: str, **message: Any) -> WebhookAnswer:
        """Send as the inner sender does. Raises what it raises."""
        try:
            answer = self._inner.post(url, **message)
        except WebhookRefused:
            self._count("not_allowed")
            raise
        except WebhookFailed:
            self._count("unanswered")
            raise
        outcome = delivery_outcome(answer)
        self._count("delivered" if outcome == "ok" else outcome)
        return answer


class Deadline:
    """A deadline `seconds` after its creation, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self, *, share: int = 1) -> float:
        """Return the remaining seconds, divided by `share`. Raises TimeoutError after the deadline."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit has passed")
        return left / share


def resolve(url: WebhookUrl, lookups: BoundedCalls, deadline: Deadline) -> list[Address]:
    """Return all addresses of the URL's host, without duplicates, in the resolver's order.

    A lookup that hangs blocks its thread until the system gives up, after about 30 s. Raises TimeoutError, and
    socket.gaierror or another OSError if there is no address.
    """
    if url.address is not None:
        return [url.address]
    try:
        answers = lookups.call(
            lambda: socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP),
            timeout_seconds=deadline.left(),
        )
    except UnicodeError as error:  # a name that the system cannot encode
        raise OSError(str(error)) from error
    found = dict.fromkeys(
        ip_address(sockaddr[0]) for family, _, _, _, sockaddr in answers if family in (socket.AF_INET, socket.AF_INET6)
    )
    if not found:
        raise OSError("the name has no address")
    return list(found)


class DeadlineStream(httpcore2.NetworkStream):
    """Reads from and writes to a socket until the deadline; the timeouts of the caller are ignored."""

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        self._socket = connected
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return received bytes, at most `max_bytes`; empty at the end. Raises TimeoutError and other OSErrors."""
        del timeout
        self._socket.settimeout(self._deadline.left())
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send everything. Raises TimeoutError, and WriteError if the receiver stopped reading."""
        del timeout
        view = memoryview(buffer)
        try:
            while view:
                self._socket.settimeout(self._deadline.left())
                view = view[self._socket.send(view) :]
        except TimeoutError:
            raise
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    def close(self) -> None:
        """Close the socket; unread data is dropped."""
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        """Return None: the protocol above needs no extra information for a single request."""
        del info


def connect(
    url: WebhookUrl, addresses: Sequence[Address], deadline: Deadline, *, tls: ssl.SSLContext | None
) -> DeadlineStream:
    """Connect to the first address that accepts; with `tls` its certificate must be for the URL's host.

    Each address gets its share of the remaining time, so that an address that drops packets leaves time for the others.
    TLS is attempted with one address only. Raises the OSError of the last address, TimeoutError, ssl.SSLError.
    """
    connection = _connect_first(addresses, url.port, deadline)
    with ExitStack() as on_error:
        on_error.callback(connection.close)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(deadline.left())  # limits the TLS handshake as a whole, not each of its reads
        stream = DeadlineStream(tls.wrap_socket(connection, server_hostname=url.host) if tls else connection, deadline)
        on_error.pop_all()
    return stream


def _connect_first(addresses: Sequence[Address], port: int, deadline: Deadline) -> socket.socket:
    for untried in range(len(addresses), 0, -1):
        address = str(addresses[len(addresses) - untried])  # so that no name is looked up again
        try:
            return socket.create_connection((address, port), timeout=deadline.left(share=untried))
        except OSError:
            if untried == 1:
                raise
    raise OSError("there is no address to connect to")


_USER_AGENT: Final = f"Reverie/{__version__}"


class HttpWebhookSender:
    """Signs and sends messages. Safe to share between threads: every message has its own connection."""

    def __init__(self, signer: Signer, policy: WebhookPolicy, *, tls: ssl.SSLContext | None = None) -> None:
        """`tls` decides which certificates are trusted; by default those that the system trusts."""
        self._signer = signer
        self._policy = policy
        self._tls = tls
        self._making_tls = threading.Lock()
        self._lookups = BoundedCalls("webhook-lookup")

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
        """Send `body` as signed JSON; `timeout_seconds` limits resolving, connecting and answering together."""
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

    def _resolve(self, target: WebhookUrl, deadline: Deadline) -> list[Address]:
        """Return the addresses of the host. All of them must be allowed, since any of them may be used."""
        try:
            addresses = resolve(target, self._lookups, deadline)
        except TimeoutError:
            raise
        except OSError as error:
            raise WebhookFailed(
                f"{target.host} has no address ({error}): check the URL's host", passing=True
            ) from error
        if not all(self._policy.private.allows(target.host, address) for address in addresses):
            raise WebhookRefused(f"{target.origin} leads to a private address: {not_allowed(target.host)}")
        return addresses

    def _exchange(
        self,
        target: WebhookUrl,
        addresses: list[Address],
        content: bytes,
        signed: dict[str, str],
        deadline: Deadline,
    ) -> WebhookAnswer:
        try:
            tls = self._tls_context() if target.scheme == "https" else None
            request = _request(target, content, signed)
            stream = connect(target, addresses, deadline, tls=tls)
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
        with self._making_tls:
            if self._tls is None:
                self._tls = httpcore2.default_ssl_context()
            return self._tls


def _request(target: WebhookUrl, content: bytes, signed: dict[str, str]) -> httpcore2.Request:
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
        retry_after_seconds(headers.get("retry-after"), answered_at=headers.get("date")),
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
