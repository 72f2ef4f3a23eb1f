"""Read the newest messages of a session: from the broker if the client is connected to it, else from the server."""

from __future__ import annotations

from reverie.calls import validated
from reverie.connection import Connection
from reverie.errors import Unavailable
from reverie.sessions.calls import GetWorkingMemory
from reverie.sessions.types import Message


def read_working_memory(connection: Connection, session: str, *, user: str | None = None) -> list[Message]:
    """Return the newest messages of a session, oldest first, at most 50; from the broker if it has them.

    With a `user`, the server reads them if that user may see them. Raises `NotFound`.
    """
    call = validated(GetWorkingMemory(session, user=user))
    if call.user is not None:
        return connection.send(call).messages
    return _working_in_broker(connection, call.session) or connection.send(call).messages


def _working_in_broker(connection: Connection, session: str) -> list[Message] | None:
    config = connection.config
    if connection.broker is None:
        return None
    from reverie.sessions.working import read_working  # imports redis

    try:
        return read_working(
            connection.broker,
            prefix=config.prefix,
            workspace=config.workspace,
            agent=config.agent,
            session=session,
        )
    except Unavailable:
        return None  # the server reads it from the store
