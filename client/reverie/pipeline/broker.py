"""Connect to the broker, and translate its errors to `Unavailable`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from reverie.errors import Unavailable


def connect(url: str, *, timeout_seconds: float = 5.0) -> redis.Redis:
    """Return a connection pool; nothing is sent before the first call, so it is safe to use in forked children."""
    return redis.Redis.from_url(url, socket_connect_timeout=timeout_seconds, health_check_interval=30)


def call_broker(call: Callable[[], Any]) -> Any:
    """Return what `call` returns. Raises `Unavailable`, with what to do, for errors of the broker or the network."""
    try:
        return call()
    except redis.ConnectionError as error:  # includes TimeoutError of the connection and BusyLoadingError
        raise Unavailable(f"the broker does not answer ({error}): is it running? Start it with `reverie up`") from error
    except redis.TimeoutError as error:
        raise Unavailable(f"the broker did not answer in time ({error})") from error
    except redis.ResponseError as error:
        raise Unavailable(f"the broker refused ({error}): check its memory limit and the space on its disk") from error
