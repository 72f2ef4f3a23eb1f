"""A model behind HTTP: one URL that takes JSON by POST and responds with JSON.

A response is bounded in size and in total time, and the API key never appears in an error. The adapters interpret the
response.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from adapters.breaker import MAX_RETRY_AFTER_SECONDS, ServiceUnavailable
from reverie.errors import Permanent

if TYPE_CHECKING:
    import httpx2

# Enough of an error body to see the cause, too little to fill a log.
MAX_REASON_CHARACTERS: Final = 200


# With these statuses an endpoint refuses the request itself; it would refuse it again.
_REFUSED: Final = (400, 413, 422)


@dataclass(frozen=True, slots=True)
class EndpointErrors:
    """The errors that an endpoint raises, and the names of the settings that their texts refer to."""

    unavailable: type[ServiceUnavailable]
    refused: type[Permanent]
    base_url_setting: str
    key_setting: str


@dataclass(frozen=True, slots=True)
class Response:
    """The response of an endpoint; `reason` is the beginning of its body, on one line and without the key."""

    status: int
    body: bytes
    reason: str
    retry_after_seconds: float | None


class Endpoint:
    """Connections to one URL, opened with the first call. Safe to share between threads."""

    def __init__(self, url: str, *, key: str | None, timeout_seconds: float, errors: EndpointErrors) -> None:
        """Raises ValueError for a key that no header can contain."""
        if key and not (key.isascii() and key.isprintable()):
            raise ValueError(f"{errors.key_setting} must be printable ASCII: does it contain a line break?")
        self.url = url
        self._key = key
        self._errors = errors
        self._timeout_seconds = timeout_seconds
        self._client: httpx2.Client | None = None
        self._opening = threading.Lock()

    def post(self, request: dict[str, Any], *, max_bytes: int) -> Response:
        """Send a request once and return the response, whatever its status.

        Raises the `unavailable` error without a response in time, and `refused` for one of more than `max_bytes`.
        """
        import httpx2

        try:
            with self._opened().stream("POST", self.url, json=request) as response:
                body = self._read(response.iter_bytes(), max_bytes)
                return Response(
                    response.status_code,
                    body,
                    self._reason(body),
                    retry_after_seconds(response.headers.get("retry-after"), answered_at=response.headers.get("date")),
                )
        except httpx2.TimeoutException as error:
            raise self._slow() from error
        except httpx2.InvalidURL as error:
            raise self._errors.unavailable(
                f"{self.url} is not a URL: {error}. Correct {self._errors.base_url_setting}"
            ) from error
        except httpx2.HTTPError as error:
            raise self._errors.unavailable(
                f"{self.url} did not answer: {type(error).__name__}: {error}."
                f" Check {self._errors.base_url_setting} and the endpoint"
            ) from error

    def status_error(self, response: Response) -> ServiceUnavailable | Permanent:
        """Return the error for a response whose status is not 200."""
        text = f"{self.url} answered {response.status}: {response.reason}"
        if response.status in _REFUSED:
            return self._errors.refused(text)
        if response.status in (401, 403):
            return self._errors.unavailable(f"{text}. Set {self._errors.key_setting} to one that this endpoint accepts")
        if response.status == 404:
            return self._errors.unavailable(
                f"{text}. Check {self._errors.base_url_setting} and that the endpoint has this model"
            )
        return self._errors.unavailable(text, retry_after_seconds=response.retry_after_seconds)

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        with self._opening:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _opened(self) -> httpx2.Client:
        import httpx2

        with self._opening:
            if self._client is None:
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                # A redirect is not followed: it would take the texts, and on the same host the key, elsewhere.
                self._client = httpx2.Client(headers=headers, timeout=self._timeout_seconds, follow_redirects=False)
            return self._client

    def _read(self, parts: Iterator[bytes], max_bytes: int) -> bytes:
        """Return the body, within the limits of size and total time: the client's timeout applies to each part only."""
        deadline = time.monotonic() + self._timeout_seconds
        body = bytearray()
        for part in parts:
            body += part
            if len(body) > max_bytes:
                raise self._errors.refused(f"{self.url} answered with more than {max_bytes} bytes")
            if time.monotonic() > deadline:
                raise self._slow()
        return bytes(body)

    def _reason(self, body: bytes) -> str:
        # Take more bytes than are shown: a key must not be cut in two before it is masked.
        text = body[: 8 * MAX_REASON_CHARACTERS].decode("utf-8", "replace")
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:MAX_REASON_CHARACTERS]

    def _slow(self) -> ServiceUnavailable:
        return self._errors.unavailable(
            f"{self.url} did not answer within {self._timeout_seconds:g} s; is timeout_seconds long enough?"
        )


def origin_of(url: str | None) -> tuple[str, str, int] | None:
    """Return the scheme, host and port of a URL; None if it is not one of HTTP."""
    try:
        parts = urlsplit(url or "")
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None


def retry_after_seconds(header: str | None, *, answered_at: str | None = None) -> float | None:
    """Return the seconds of a Retry-After header, at most ten minutes; None if it is missing or invalid.

    It is a number or a date. A date is compared with the time at which the other side answered, its header Date, since
    this machine's clock may be wrong.
    """
    if header is None:
        return None
    try:
        return _bounded(float(int(header)))
    except (ValueError, OverflowError):
        pass  # not a number, or too large: the other format is a date
    try:
        now = datetime.now(UTC) if answered_at is None else _date(answered_at)
        return _bounded((_date(header) - now).total_seconds())
    except (ValueError, OverflowError):
        return None


def _date(header: str) -> datetime:
    when = parsedate_to_datetime(header)
    return when.replace(tzinfo=when.tzinfo or UTC)


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS)
