"""The connections of a client: HTTP to the server for all calls, and the broker, if one is configured, for ingest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from reverie.calls import Call
from reverie.config import ClientConfig, without_password
from reverie.contract import WaitFor
from reverie.errors import Unavailable
from reverie.http import HttpTransport, post_submission
from reverie.pipeline.submission import Submission, enqueue
from reverie.pipeline.types import Receipt
from reverie.problems import InboxFull

if TYPE_CHECKING:
    import redis

    from reverie.pipeline.producer import Producer

_A = TypeVar("_A")


class Connection:
    """The connections of one client, which the first call opens."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._http = HttpTransport(config)
        self.broker: redis.Redis | None = None
        self._producer: Producer | None = None
        if config.broker is not None:
            from reverie.pipeline.broker import connect
            from reverie.pipeline.payload_signing import parse_keys
            from reverie.pipeline.producer import Producer

            self.broker = connect(config.broker, timeout_seconds=config.timeout_seconds)
            self._producer = Producer(
                config.broker,
                workspace=config.workspace,
                prefix=config.prefix,
                broker=self.broker,
                keys=parse_keys(config.broker_key),
            )

    def send(self, call: Call[_A]) -> _A:
        """Send a call to the server and return its response. Raises what the server raised, or `Unavailable`."""
        return self._http.send(call)

    def deliver(self, submission: Submission, *, wait: WaitFor, timeout_seconds: float) -> Receipt:
        """Put messages or a file into the inbox, through the broker if one is configured, else through the server.

        Raises `Rejected`, `WaitTimeout`, and `Unavailable` with the ids whose acceptance is not known.
        """
        if not submission.payloads:
            return submission.receipt(wait)
        deadline = time.monotonic() + timeout_seconds
        broker_failure = ""
        if self._producer is not None:
            try:
                return enqueue(self._producer, submission, wait=wait, timeout_seconds=timeout_seconds)
            except InboxFull:
                raise  # the server puts messages into the same inbox
            except Unavailable as error:
                if not self.config.url_given:
                    raise
                broker_failure = f"tried the broker at {without_password(self.config.broker or '')}: {error}; then "
        try:
            # With the same ids, so that items that the broker has accepted are not stored twice.
            remaining = max(0.1, round(deadline - time.monotonic(), 3))
            return post_submission(self._http, submission, wait=wait, timeout_seconds=remaining)
        except InboxFull:
            raise
        except Unavailable as error:
            hint = "" if self._producer else "; set REVERIE_URL, or REVERIE_BROKER to enqueue without a server"
            raise Unavailable(f"{broker_failure}{error}{hint}", unconfirmed=error.unconfirmed) from error

    def close(self) -> None:
        """Close all connections. The next call opens them again."""
        self._http.close()
        if self.broker is not None:
            self.broker.close()
