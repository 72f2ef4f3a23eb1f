"""One URL that takes JSON by POST and answers with JSON: what every model behind HTTP shares.

The answer is bounded in size and in time as a whole, not only between two pieces of it, and the key never appears in
an error. What an answer means is for the adapters to say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import httpx2

# Enough of an error body to see the cause, too little to fill a log.
LONGEST_REASON_CHARACTERS: Final = 200


class EndpointFailed(Exception):
    """There is no answer: the endpoint is away, slow, or its URL is none. The text says which, and what to do."""


class AnswerTooLong(Exception):
    """The answer has more bytes than was allowed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint answered; `reason` is the beginning of an error's body, on one line and without the key."""

    status: int
    body: bytes
    reason: str
    retry_after_seconds: float | None


class Endpoint:
    """Connections to one URL, opened with the first call. Safe to share between threads."""

    def __init__(self, url: str, *, key: str | None, timeout_seconds: float) -> None:
        self.url = url
        self._key = key
        self._timeout_seconds = timeout_seconds
        self._client: httpx2.Client | None = None
        self._opening = threading.Lock()

    def post(self, question: dict[str, Any], *, longest_bytes: int) -> Answer:
        """Ask once, within the timeout. Raises EndpointFailed or AnswerTooLong."""
        import httpx2

        try:
            with self._opened().stream("POST", self.url, json=question) as response:
                body = self._read(response.iter_bytes(), longest_bytes)
                return Answer(
                    response.status_code,
                    body,
                    self._reason(body),
                    seconds_of(response.headers.get("retry-after")),
                )
        except httpx2.TimeoutException as error:
            raise self._slow() from error
        except httpx2.InvalidURL as error:
            raise EndpointFailed(f"{self.url} is not a URL: {error}. Mend base_url") from error
        except httpx2.HTTPError as error:
            raise EndpointFailed(
                f"{self.url} did not answer: {type(error).__name__}: {error}. Check base_url and the endpoint"
            ) from error

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
                self._client = httpx2.Client(headers=headers, timeout=self._timeout_seconds)
            return self._client

    def _read(self, pieces: Iterator[bytes], longest_bytes: int) -> bytes:
        """The body, within the size and the time allowed: the client's timeout is per piece only."""
        deadline = time.monotonic() + self._timeout_seconds
        body = bytearray()
        for piece in pieces:
            body += piece
            if len(body) > longest_bytes:
                raise AnswerTooLong(f"{self.url} answered with more than {longest_bytes} bytes")
            if time.monotonic() > deadline:
                raise self._slow()
        return bytes(body)

    def _reason(self, body: bytes) -> str:
        # Some bytes more than are shown: a key must not be cut in two before it is taken out.
        text = body[: 8 * LONGEST_REASON_CHARACTERS].decode("utf-8", "replace")
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:LONGEST_REASON_CHARACTERS]

    def _slow(self) -> EndpointFailed:
        return EndpointFailed(
            f"{self.url} did not answer within {self._timeout_seconds:g} s; is timeout_seconds long enough?"
        )


def check_key(key: str | None, *, whose: str) -> str | None:
    """The key, or ValueError for one that no header can carry."""
    if key and not (key.isascii() and key.isprintable()):
        raise ValueError(f"the {whose}'s api_key must be printable ASCII: is there a line end in it?")
    return key


def seconds_of(retry_after: str | None) -> float | None:
    """A Retry-After header in seconds: a number, or a date. None when there is none or it makes no sense."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(int(retry_after)))
    except (ValueError, OverflowError):
        pass  # Not a number, or none that could be waited for: the other form is a date.
    try:
        when = parsedate_to_datetime(retry_after)
        return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None
