"""Channels of an agent: topics within a workspace. The default channel always exists."""

from __future__ import annotations

from memory.sessions.sessions import session_of
from reverie.checks import check_label
from reverie.contract import DEFAULT_CHANNEL
from reverie.counts import counted
from reverie.errors import Conflict, NotFound
from reverie.sessions.calls import check_description
from reverie.sessions.types import Channel, Session
from storage.stores import Store
from storage.transaction import AgentRepositories

# The list for a workspace in which nothing has been stored yet.
ONLY_DEFAULT = Channel(id=DEFAULT_CHANNEL, description="", is_default=True, sessions=0, memories=0)


def list_channels(store: Store, *, agent: str) -> list[Channel]:
    """Return all channels, also those known from messages only: the default first, then by id."""
    with store.reading() as tx:
        return tx.for_agent(agent).channels.list()


def read_channel(store: Store, *, agent: str, channel: str) -> Channel:
    """Return one channel. Raises `NotFound`."""
    with store.reading() as tx:
        return _get(tx.for_agent(agent), channel)


def create_channel(store: Store, *, agent: str, channel: str, description: str = "", now: int) -> Channel:
    """Create a channel, or describe one that is known from messages only. Raises `Rejected` and `Conflict`."""
    name, checked = check_label("channel", channel, required=True), check_description("description", description)
    with store.writing_as(agent) as rows:
        if name == DEFAULT_CHANNEL or rows.channels.has_row(name):
            raise Conflict(f"agent {agent} already has a channel {name!r}: update that one", field="id")
        _ensure_default(rows, now)
        rows.channels.ensure(name, now=now, description=checked)
        return _get(rows, name)


def describe_channel(store: Store, *, agent: str, channel: str, description: str, now: int) -> Channel:
    """Set the description of a channel. Raises `Rejected` and `NotFound`."""
    checked = check_description("description", description)
    with store.writing_as(agent) as rows:
        _get(rows, channel)
        _ensure_default(rows, now)
        rows.channels.ensure(channel, now=now, description=checked)
        return _get(rows, channel)


def delete_channel(store: Store, *, agent: str, channel: str) -> None:
    """Delete an empty channel. Raises `NotFound`, and `Conflict` for the default channel and one that is not empty."""
    with store.writing_as(agent) as rows:
        found = _get(rows, channel)
        if found.is_default:
            raise Conflict(f"channel {channel!r} is the default channel: it cannot be deleted", field="id")
        if found.sessions or found.memories:
            raise Conflict(
                f"channel {channel!r} has {counted(found.sessions, 'session')}"
                f" and {counted(found.memories, 'memory')}:"
                " move or forget them first",
                field="id",
            )
        rows.channels.delete(channel)


def move_session(store: Store, *, agent: str, session: str, channel: str, now: int) -> Session:
    """Move a session into an existing channel. Idempotent. Raises `NotFound`."""
    with store.writing_as(agent) as rows:
        found = rows.sessions.get(session)
        _get(rows, channel)
        _ensure_default(rows, now)
        rows.channels.move_session(found.row_id, channel)
        return session_of(rows, session)


def _ensure_default(rows: AgentRepositories, now: int) -> None:
    rows.channels.ensure(DEFAULT_CHANNEL, now=now)


def _get(rows: AgentRepositories, channel: str) -> Channel:
    found = rows.channels.find(channel)
    if found is None:
        raise NotFound(f"agent {rows.agent} has no channel {channel!r}: create it first", field="channel")
    return found
