"""Read working memory, the newest messages of a session: from the broker if the client is connected to it.

This module alone defines the keys. Only workers and the server write them; a list that exists is complete. The keys
hold hashes of the ids that callers choose: a key may outlive a session that was forgotten, or a user who was erased.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import msgspec

from reverie.calls import validated
from reverie.decoding import describe
from reverie.errors import Unavailable
from reverie.sessions.calls import GetWorkingMemory
from reverie.sessions.types import Message

if TYPE_CHECKING:
    import redis

    from reverie.connection import Connection


def working_key(prefix: str, workspace: str, agent: str, session: str) -> str:
    """Return the key of the list of a session's newest messages, oldest first."""
    return f"{prefix}working:{workspace}:{_hash(agent, session)}"


def working_epoch_key(prefix: str, workspace: str, agent: str, session: str) -> str:
    """Return the key of the text that changes whenever the list is dropped, or could not be appended to."""
    return f"{prefix}working-epoch:{workspace}:{_hash(agent, session)}"


def working_patterns(prefix: str, workspace: str) -> tuple[str, str]:
    """Return the patterns that match all keys of a workspace."""
    return f"{prefix}working:{workspace}:*", f"{prefix}working-epoch:{workspace}:*"


def read_working(
    broker: redis.Redis, *, prefix: str, workspace: str, agent: str, session: str, user: str | None = None
) -> list[Message] | None:
    """Return the newest messages, oldest first, or None if they must be read from the store. Raises `Unavailable`.

    A list that another program has damaged is not used. A `user` may see the session if one of these messages is that
    user's; otherwise only the store knows.
    """
    from reverie.pipeline.broker import call_broker  # imports redis

    key = working_key(prefix, workspace, agent, session)
    items = call_broker(lambda: cast("list[bytes]", broker.lrange(key, 0, -1)))
    describe(Message)
    try:
        found = [msgspec.json.decode(item, type=Message) for item in items]
    except (ValueError, RecursionError):
        return None
    is_seen = user is None or any(message.user == user for message in found)
    return found if found and is_seen else None


def read_working_memory(connection: Connection, session: str, *, user: str | None = None) -> list[Message]:
    """Return the newest messages of a session, oldest first, at most 50; from the broker if it has them.

    With a `user`, only if that user may see the session. Raises `NotFound`.
    """
    call = validated(GetWorkingMemory(session, user=user))
    found = None
    if connection.broker is not None:
        config = connection.config
        with suppress(Unavailable):  # the server reads it from the store
            found = read_working(
                connection.broker,
                prefix=config.prefix,
                workspace=config.workspace,
                agent=config.agent,
                session=call.session,
                user=call.user,
            )
    return found or connection.send(call).messages


def _hash(agent: str, session: str) -> str:
    return hashlib.sha256(f"{agent}\x1f{session}".encode()).hexdigest()
