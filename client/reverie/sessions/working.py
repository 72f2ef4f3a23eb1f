"""Read working memory, the newest messages of a session, from the broker.

This module alone defines the keys. Only workers and the server write them; a list that exists is complete.
"""

from __future__ import annotations

from typing import cast

import msgspec
import redis

from reverie.pipeline.broker import call_broker
from reverie.sessions.types import Message


def working_key(prefix: str, workspace: str, agent: str, session: str) -> str:
    """Return the key of the list of a session's newest messages, oldest first."""
    return f"{prefix}working:{workspace}:{agent}\x1f{session}"


def working_epoch_key(prefix: str, workspace: str, agent: str, session: str) -> str:
    """Return the key of the text that changes whenever the list is dropped, or could not be appended to."""
    return f"{prefix}working-epoch:{workspace}:{agent}\x1f{session}"


def working_patterns(prefix: str, workspace: str) -> tuple[str, str]:
    """Return the patterns that match all keys of a workspace."""
    return f"{prefix}working:{workspace}:*", f"{prefix}working-epoch:{workspace}:*"


def read_working(broker: redis.Redis, *, prefix: str, workspace: str, agent: str, session: str) -> list[Message] | None:
    """Return the newest messages, oldest first, or None if they must be read from the store. Raises `Unavailable`.

    A list that another program has damaged is not used.
    """
    key = working_key(prefix, workspace, agent, session)
    found = call_broker(lambda: cast("list[bytes]", broker.lrange(key, 0, -1)))
    try:
        return [msgspec.json.decode(item, type=Message) for item in found] if found else None
    except (ValueError, RecursionError):
        return None
