"""Connect to the broker, bound every call to it, and translate its errors; and the Celery settings of both ends.

A broker that hangs (a stopped process, a dead network) accepts connections and answers nothing. So each step of a call
has a timeout, and once a call of this process got no answer, the others fail at once instead of waiting for theirs:
one of them tries again every second, until it is answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.connection import parse_url

from reverie import contract
from reverie.contract import BROKER_TIMEOUT_SECONDS
from reverie.errors import Unavailable, broker_away

_PROBE_SECONDS: Final = 1.0
# A timeout shorter than this does not show that the broker hangs.
_TELLING_SECONDS: Final = 1.0

_limit: ContextVar[float | None] = ContextVar("reverie_broker_deadline", default=None)

_T = TypeVar("_T")


def connect(url: str, *, timeout_seconds: float = BROKER_TIMEOUT_SECONDS) -> redis.Redis:
    """Return a connection pool; nothing is sent before the first call, so it is safe to use in forked children.

    No call waits longer than `timeout_seconds` for the broker to accept a connection or to answer.
    """
    timeout_seconds = min(timeout_seconds, BROKER_TIMEOUT_SECONDS)
    options: dict[str, Any] = {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "health_check_interval": 30,
        **parse_url(url),  # type: ignore[no-untyped-call]
    }
    base = options.pop("connection_class", redis.Connection)
    bounded = type("BoundedConnection", (_Bounded, base), {"gate": Gate(), "longest_seconds": timeout_seconds})
    return redis.Redis.from_pool(redis.ConnectionPool(connection_class=bounded, **options))


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the time that all calls to the broker in this block may take together."""
    token = _limit.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _limit.reset(token)


def call_broker(call: Callable[[], _T]) -> _T:
    """Return what `call` returns. Raises `Unavailable`, with what to do, for errors of the broker or the network."""
    try:
        return call()
    except redis.BusyLoadingError as error:
        raise Unavailable(f"the broker is reading its file ({error}): try again in a moment") from error
    except redis.TimeoutError as error:
        raise Unavailable(
            f"the broker did not answer in time ({error}): is it stopped, or its machine busy?"
        ) from error
    except redis.ConnectionError as error:
        raise broker_away(error) from error
    except redis.ReadOnlyError as error:
        raise Unavailable(
            f"the broker takes no writes ({error}): it is a replica; connect to the primary server"
        ) from error
    except redis.ResponseError as error:
        raise Unavailable(f"the broker refused ({error}): check its memory limit and the space on its disk") from error


class Gate:
    """Remembers that the broker hangs, for all connections of a pool. Safe to share between threads."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._silent_since: float | None = None
        self._probe: object = None
        self._probe_at = 0.0

    def enter(self, caller: object, timeout_seconds: float) -> None:
        """Let a call pass. Raises `redis.TimeoutError` while the broker hangs, except for one call a second."""
        if self._silent_since is None:
            return
        with self._lock:
            if self._silent_since is None or caller is self._probe:
                return
            now = self._monotonic()
            # A probe that never reports back was abandoned with its thread.
            running = self._probe is not None and now - self._probe_at < 2 * timeout_seconds
            if running or now - self._silent_since < _PROBE_SECONDS:
                raise redis.TimeoutError("it did not answer the calls before this one")
            self._probe, self._probe_at = caller, now

    def leave(self, *, silent: bool) -> None:
        """Note the end of a call: the broker answered it, or was `silent`."""
        if self._silent_since is None and not silent:
            return
        with self._lock:
            self._silent_since = self._monotonic() if silent else None
            self._probe = None


if TYPE_CHECKING:
    _Base = redis.Connection
else:
    _Base = object


class _Bounded(_Base):
    """A connection whose steps take at most `longest_seconds`, and at most the time that `within` leaves."""

    gate: Gate
    longest_seconds: float
    # Set for Unix sockets, too: redis-py reads it when a check of the connection fails (redis-py issue 3958).
    port = 0

    def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        """Connect, unless it is connected."""
        if self._sock is None:
            with self._step(answers=True):
                super().connect_check_health(check_health, retry_socket_connect)

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send a command. A broker that hangs takes commands, too: only an answer shows that it is alive."""
        with self._step(answers=False):
            super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Read the answer to a command."""
        with self._step(answers=True):
            return super().read_response(*arguments, **options)

    @contextmanager
    def _step(self, *, answers: bool) -> Iterator[None]:
        """Pass the gate, bound the step, and report to the gate. `answers`: a completed step shows it alive."""
        timeout_seconds = self._bound()
        try:
            yield
        except redis.TimeoutError:
            if timeout_seconds >= min(_TELLING_SECONDS, self.longest_seconds):
                self.gate.leave(silent=True)
            raise
        except redis.RedisError:  # the broker has answered, or has ended: no call will hang
            self.gate.leave(silent=False)
            raise
        if answers:
            self.gate.leave(silent=False)

    def _bound(self) -> float:
        """Set the timeout of the next step and return it.

        Raises `redis.TimeoutError` if no time is left, or the broker hangs.
        """
        limit = _limit.get()
        left = self.longest_seconds if limit is None else min(self.longest_seconds, limit - time.monotonic())
        if left <= 0:
            raise redis.TimeoutError("the time of the call is over")
        self.gate.enter(self, self.longest_seconds)
        self.socket_timeout = self.socket_connect_timeout = left
        # Needed on an open connection: whenever redis-py looks for data, it resets the timeout to the initial one.
        self.update_current_socket_timeout(-1)
        return left


# While it is imported, the package `celery` replaces itself in `sys.modules`. A thread that imports it at that moment
# gets the old module, which is empty.
_importing: Final = threading.Lock()


def celery_class() -> Any:
    """Return `celery.Celery`, imported by one thread at a time. The first import takes a quarter of a second."""
    with _importing:
        from celery import Celery

        return Celery


def celery_url(broker_url: str) -> str:
    """Convert a broker URL to kombu's: `unix:///run/b.sock?db=0` is `redis+socket:///run/b.sock?virtual_host=0`."""
    parts = urlsplit(broker_url)
    if parts.scheme != "unix":
        return broker_url
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{unquote(parts.path)}?virtual_host={database}"


def celery_settings(prefix: str) -> dict[str, Any]:
    """Return the Celery settings that both ends share: JSON only, one key prefix, no results, queues by task name."""
    return {
        "broker_transport_options": {
            "global_keyprefix": prefix,
            "visibility_timeout": contract.VISIBILITY_TIMEOUT_SECONDS,
            # One list for each queue: kombu names lists for other priorities so that they could be another's queue.
            "priority_steps": [0],
            # Return the messages of dead workers to their queue every 10 s. With kombu's default throttle it would be
            # every 100 s.
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            # Without these, a process that sends or receives a task is blocked for as long as the broker hangs.
            "socket_connect_timeout": contract.BROKER_TIMEOUT_SECONDS,
            "socket_timeout": contract.BROKER_TIMEOUT_SECONDS,
        },
        "visibility_timeout": contract.VISIBILITY_TIMEOUT_SECONDS,
        "result_backend_transport_options": {"visibility_timeout": contract.VISIBILITY_TIMEOUT_SECONDS},
        "task_serializer": "json",
        "accept_content": ["json"],
        "result_serializer": "json",
        "task_ignore_result": True,
        # Otherwise anybody who reaches the broker could stop workers, revoke tasks and read their arguments.
        "worker_enable_remote_control": False,
        "task_default_queue": contract.QUEUE_INGEST,
        "task_create_missing_queues": True,
        "task_routes": {name: {"queue": queue} for name, queue in contract.TASK_QUEUES.items()},
        "broker_connection_retry_on_startup": True,
        "enable_utc": True,
        "timezone": "UTC",
    }
