"""Calls to services that may be slow, limited or away: a circuit breaker, bounds on time, and a model behind HTTP.

While a circuit breaker is open, calls fail at once, so callers continue without waiting. One call at a time checks
whether the service is available again.

A bounded call returns within a time, whatever it waits for: a name, a connection, the head of a response. The timeouts
of an HTTP client apply to each wait by itself, and the system's resolver has none.

A model behind HTTP is one URL that takes JSON by POST and responds with JSON. A response is bounded in size and in
total time, and the API key never appears in an error. The adapters interpret the response.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from reverie.errors import Permanent, Unavailable

if TYPE_CHECKING:
    import httpx2


FIRST_WAIT_SECONDS: Final = 1.0
MAX_WAIT_SECONDS: Final = 60.0
# A Retry-After header may ask for more than a minute, but a wrong one must not disable the service for a day.
MAX_RETRY_AFTER_SECONDS: Final = 600.0

T = TypeVar("T")


class ServiceUnavailable(Unavailable):
    """The service behind an adapter cannot answer now: try again later.

    `retry_after_seconds` is the wait that the service asked for, or None.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class CircuitBreaker:
    """Blocks calls after one that failed with `unavailable`: for 1 s, 2, 4, up to 60 s, or a longer Retry-After.

    When the wait is over, one call is let through as a probe; others fail at once until it returns. `name` is used in
    errors, `clock` returns monotonic seconds.
    """

    def __init__(
        self, name: str, unavailable: type[ServiceUnavailable], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.last_error = ""
        self.retry_at: float | None = None
        self._name = name
        self._unavailable = unavailable
        self._clock = clock
        self._wait_seconds = FIRST_WAIT_SECONDS
        self._probing = False
        self._lock = threading.Lock()

    @property
    def state(self) -> Literal["up", "down"]:
        """Return "down" from a failure until the next success, otherwise "up"."""
        return "up" if self.retry_at is None else "down"

    @property
    def lets_through(self) -> bool:
        """Whether a call would go through now."""
        with self._lock:
            return self.retry_at is None or not (self._probing or self._clock() < self.retry_at)

    def call(self, function: Callable[[], T], *, closes: bool = True) -> T:
        """Call the function and return its result. Raises its errors, and `unavailable` while the breaker is open.

        With `closes=False` a success does not close the breaker: it does not prove that the service is available.
        """
        probing = self._enter()
        try:
            result = function()
        except self._unavailable as error:
            self._open(error, probing)
            raise
        else:
            if closes:
                self._close()
            return result
        finally:
            # Other errors do not tell whether the service is available: the next call may probe.
            with self._lock:
                if probing:
                    self._probing = False

    def _enter(self) -> bool:
        """Return whether the call is the probe of an open breaker. Raises `unavailable` if it must not go through."""
        with self._lock:
            if self.retry_at is None:
                return False
            left = max(self.retry_at - self._clock(), 0.0)
            if left > 0 or self._probing:
                raise self._unavailable(
                    f"{self._name} is not called for another {left:.1f} s after: {self.last_error}",
                    retry_after_seconds=left,
                )
            self._probing = True
            return True

    def _open(self, error: ServiceUnavailable, probing: bool) -> None:
        with self._lock:
            if self.retry_at is not None and not probing:
                return  # a call that began before the breaker opened: count one outage once
            wait = self._wait_seconds
            if error.retry_after_seconds is not None:
                wait = min(max(error.retry_after_seconds, wait), MAX_RETRY_AFTER_SECONDS)
            self.retry_at = self._clock() + wait
            self.last_error = str(error)
            self._wait_seconds = min(2 * self._wait_seconds, MAX_WAIT_SECONDS)
            self._probing = False

    def _close(self) -> None:
        with self._lock:
            self.retry_at = None
            self.last_error = ""
            self._wait_seconds = FIRST_WAIT_SECONDS
            self._probing = False


class GuardedService:
    """The state of an adapter whose calls go through a circuit breaker."""

    _breaker: CircuitBreaker

    @property
    def state(self) -> Literal["up", "down"]:
        """Return "down" from a failure until the next success, otherwise "up"."""
        return self._breaker.state

    @property
    def last_error(self) -> str:
        """Return why it is down; empty while it is up."""
        return self._breaker.last_error

    @property
    def retry_at(self) -> float | None:
        """Return when the next call may go through, in seconds of the clock; None while it is up."""
        return self._breaker.retry_at


# A call that hangs keeps its thread; at most this many at a time.
MAX_CALLS: Final = 32


class NotBegun(TimeoutError):
    """A call that was not made, because no thread was free."""


class BoundedCalls:
    """Makes calls in threads of its own, which end with the process. Safe to share between threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._slots = threading.BoundedSemaphore(MAX_CALLS)

    def call(self, function: Callable[[], T], *, timeout_seconds: float) -> T:
        """Call the function and return its result, or raise what it raises. Raises TimeoutError when the time is up.

        After that time the function goes on, and its outcome is dropped. Raises `NotBegun` if no thread was free.
        """
        deadline = time.monotonic() + timeout_seconds
        context = contextvars.copy_context()
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(context.run(function))
            except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
                outcome.set_exception(error)
            finally:
                self._slots.release()

        if not self._slots.acquire(timeout=timeout_seconds):
            raise NotBegun("too many calls are hanging")
        try:
            threading.Thread(target=run, name=self._name, daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._slots.release()
            raise NotBegun(str(error)) from error
        return outcome.result(timeout=max(deadline - time.monotonic(), 0.0))


class PromptCalls:
    """Makes calls that are given up after `wait_seconds`. Thread-safe.

    A call that takes longer goes on by itself. Until it has ended, further calls fail at once: they would wait in vain,
    and hold a thread each. `name` is used in errors.
    """

    def __init__(self, name: str, unavailable: type[ServiceUnavailable], wait_seconds: float) -> None:
        self._name = name
        self._unavailable = unavailable
        self._wait_seconds = wait_seconds
        self._calls = BoundedCalls(f"ask {name}")
        self._began: dict[object, float] = {}  # when each call that has not ended began, by its mark
        self._lock = threading.Lock()

    def call(self, function: Callable[[], T]) -> T:
        """Call the function and return its result. Raises its errors, and `unavailable` if it takes too long."""
        self._refuse_while_late()
        own: list[TimeoutError] = []
        mark = object()

        def run() -> T:
            try:
                return function()
            except TimeoutError as error:
                own.append(error)
                raise
            finally:
                self._end(mark)

        with self._lock:
            # Noted before the wait, not in the call's thread: so a call that is given up counts as late at once.
            self._began[mark] = time.monotonic()
        try:
            return self._calls.call(run, timeout_seconds=self._wait_seconds)
        except TimeoutError as error:
            if error in own:
                raise
            if isinstance(error, NotBegun):
                self._end(mark)
            raise self._unavailable(f"{self._name} did not answer within {self._wait_seconds:g} s") from error

    def _end(self, mark: object) -> None:
        with self._lock:
            del self._began[mark]

    def _refuse_while_late(self) -> None:
        with self._lock:
            began = min(self._began.values(), default=None)
        waited = 0.0 if began is None else time.monotonic() - began
        if waited >= self._wait_seconds:
            raise self._unavailable(f"{self._name} has not answered for {waited:.0f} s")


Answer = TypeVar("Answer")

# Enough of an error body to see the cause, too little to fill a log.
MAX_REASON_CHARACTERS: Final = 200


# A number or a date is shorter than this.
_MAX_HEADER_CHARACTERS: Final = 64
# With these statuses an endpoint refuses the request itself: sending it again does not help.
_REFUSED: Final = (400, 413, 422)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Where a model answers: a base URL, and the name it has there, empty where the endpoint serves a single one."""

    base_url: str
    model: str = ""
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 20.0


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
        self._calls = BoundedCalls(f"call {url}")
        self._client: httpx2.Client | None = None
        self._opening = threading.Lock()

    def post(self, request: dict[str, Any], *, max_bytes: int) -> Response:
        """Send a request once and return the response, whatever its status.

        Raises the `unavailable` error without a response in time, and `refused` for one of more than `max_bytes`.
        """
        try:
            return self._calls.call(lambda: self._exchange(request, max_bytes), timeout_seconds=self._timeout_seconds)
        except TimeoutError as error:
            self.close()  # an exchange that goes on byte by byte ends with its connection
            raise self._timed_out() from error

    def _exchange(self, request: dict[str, Any], max_bytes: int) -> Response:
        """Send a request and read its response; the client's timeout applies to each wait by itself."""
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
            raise self._timed_out() from error
        except httpx2.InvalidURL as error:
            raise self._errors.unavailable(
                f"{self.url} is not a URL: {error}. Correct {self._errors.base_url_setting}"
            ) from error
        except httpx2.HTTPError as error:
            raise self._errors.unavailable(
                f"{self.url} did not answer: {type(error).__name__}: {error}."
                f" Check {self._errors.base_url_setting} and the endpoint"
            ) from error

    def decoded(self, response: Response, answer: type[Answer]) -> Answer:
        """Return the JSON of a response.

        Raises `refused` for JSON of another form, and `unavailable` for anything else, which may be cut off.
        """
        try:
            return msgspec.json.decode(response.body, type=answer)
        except msgspec.ValidationError as error:
            raise self._errors.refused(f"{self.url} answered with unexpected JSON: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            size = len(response.body)
            raise self._errors.unavailable(f"{self.url} answered with invalid JSON ({size} bytes): {error}") from error

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
                # Redirects are not followed: they would send the texts, and on the same host the key, elsewhere.
                self._client = httpx2.Client(headers=headers, timeout=self._timeout_seconds, follow_redirects=False)
            return self._client

    def _read(self, parts: Iterator[bytes], max_bytes: int) -> bytes:
        """Return the body, within the limit of size."""
        body = bytearray()
        for part in parts:
            body += part
            if len(body) > max_bytes:
                raise self._errors.refused(f"{self.url} answered with more than {max_bytes} bytes")
        return bytes(body)

    def _reason(self, body: bytes) -> str:
        # Take more bytes than are shown: a key must not be cut in two before it is masked.
        text = body[: 8 * MAX_REASON_CHARACTERS].decode("utf-8", "replace")
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:MAX_REASON_CHARACTERS]

    def _timed_out(self) -> ServiceUnavailable:
        return self._errors.unavailable(
            f"{self.url} did not answer within {self._timeout_seconds:g} s; is timeout_seconds long enough?"
        )


def origin_of(url: str | None) -> tuple[str, str, int] | None:
    """Return the scheme, host and port of a URL; None unless it is an HTTP or HTTPS URL."""
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
    if any(len(value or "") > _MAX_HEADER_CHARACTERS for value in (header, answered_at)):
        return None
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
