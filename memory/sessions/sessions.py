"""Sessions and their messages as the client sees them, and channels, agents and workspaces.

Channels are topics within a workspace of an agent. The default channel always exists.

The newest messages come from working memory; the store is read only where working memory does not have them. The last
messages of a session are ordered by sequence, in which they were stored, not by the times that their callers gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from adapters.broker.inbox import Number, WorkerInbox
from adapters.broker.working_memory import WorkingMemory
from memory.conversion import convert
from memory.tombstones import note_forgotten
from reverie.checks import check_label
from reverie.clock import from_micros
from reverie.contract import ACCOUNT_STORE, DEFAULT_CHANNEL
from reverie.counts import counted
from reverie.errors import Conflict, NotFound, ReverieError, Unavailable
from reverie.fields import MAX_COUNT
from reverie.sessions.calls import check_description
from reverie.sessions.types import AgentSummary, Channel, Message, MessageList, Session, SessionExport, WorkspaceSummary
from storage.lifecycle.erasures import Subject, message_name
from storage.pipeline.records import WholeMessage
from storage.sessions.records import SessionRecord
from storage.status import AgentCounts
from storage.stores import Store, Stores
from storage.transaction import AgentRepositories
from storage.viewer import Viewer

# The list for a workspace in which nothing has been stored yet.
ONLY_DEFAULT = Channel(id=DEFAULT_CHANNEL, description="", is_default=True, sessions=0, memories=0)


def list_sessions(
    store: Store, *, agent: str, limit: int, offset: int, status: str | None, ids: Sequence[str] = ()
) -> list[Session]:
    """Return sessions, the most recently active first; with a `status` or `ids`, only those."""
    with store.reading_as(agent) as rows:
        return _described(rows, rows.sessions.list(limit=limit, offset=offset, status=status, ids=ids))


def read_session(store: Store, *, agent: str, session: str) -> Session:
    """Return one session. Raises `NotFound`."""
    with store.reading_as(agent) as rows:
        return session_of(rows, session)


def session_of(rows: AgentRepositories, session: str) -> Session:
    """Return a session as the client sees it, within a transaction. Raises `NotFound`."""
    return _described(rows, [rows.sessions.get(session)])[0]


def _described(rows: AgentRepositories, records: Sequence[SessionRecord]) -> list[Session]:
    """Return sessions with the fields that come from their messages."""
    contents = rows.sessions.contents([record.row_id for record in records])
    speakers = rows.sessions.speakers([record.row_id for record in records])
    return [
        convert(
            record,
            Session,
            title=contents[record.row_id].title(record.metadata),
            speakers=[*speakers.get(record.row_id, ())],
            first_said_at=_time(contents[record.row_id].first_said_at),
            last_said_at=_time(contents[record.row_id].last_said_at),
        )
        for record in records
    ]


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def is_hidden_session(store: Store, viewer: Viewer, *, agent: str, session: str) -> bool:
    """Return whether a session exists that a viewer may not see."""
    with store.reading() as tx:
        exists = tx.for_agent(agent).sessions.find(session) is not None
    if not exists:
        return False
    with store.seen_by(viewer).reading() as tx:
        return tx.for_agent(agent).sessions.find(session) is None


def read_messages(
    store: Store, *, agent: str, session: str, limit: int, offset: int, around: str | None = None
) -> MessageList:
    """Return a page of a session's messages, oldest first; a message that is named by its id is in the middle.

    Raises `NotFound`.
    """
    with store.reading_as(agent) as rows:
        session_row = rows.sessions.get(session).row_id
        if around is not None:
            offset = max(0, rows.messages.position(session_row, around) - limit // 2)
        found = rows.messages.in_session(session_row, limit=limit, offset=offset)
    return MessageList(messages=[convert(record, Message) for record in found], offset=offset)


def newest_messages(store: Store, working: WorkingMemory, *, agent: str, session: str) -> list[Message]:
    """Return the last messages of a session, oldest first: at most the capacity of working memory.

    Fills working memory where it did not have them. Without a broker the store answers. Raises `NotFound`.
    """
    if store.viewer is not None:  # working memory does not know the owners of messages
        with store.reading() as tx:
            tx.for_agent(agent).sessions.get(session)
    try:
        found = working.read(store.name, agent, session)
        if found is not None:
            return found
        epoch = working.epoch(store.name, agent, session)
    except Unavailable:
        return _newest_stored(store, agent, session, working.capacity)
    messages = _newest_stored(store, agent, session, working.capacity)
    working.fill(store.name, agent, session, messages, epoch=epoch)
    return messages


def export_session(store: Store, *, agent: str, session: str) -> SessionExport:
    """Return a session with all its messages, read in one transaction. Raises `NotFound`."""
    with store.reading_as(agent) as rows:
        record = rows.sessions.get(session)
        found = rows.messages.in_session(record.row_id, limit=record.messages)
        originals = rows.messages.originals(one.row_id for one in found)
        described = session_of(rows, session)
    messages = [convert(one, Message, original=originals.get(one.row_id)) for one in found]
    return SessionExport(session=described, messages=messages)


def _newest_stored(store: Store, agent: str, session: str, limit: int) -> list[Message]:
    with store.reading_as(agent) as rows:
        found = rows.messages.in_session(rows.sessions.get(session).row_id, limit=limit, newest=True)
    return [convert(record, Message) for record in found]


# The limit of one response: five messages of the largest size.
_PAGE_BYTES: Final = 16 * 1024 * 1024


def read_newest(store: Store, *, agent: str, session: str, limit: int, before: int | None = None) -> list[Message]:
    """Return the last messages of a session, or the last below sequence `before`, oldest first. Raises `NotFound`."""
    with store.reading_as(agent) as rows:
        row = rows.sessions.get(session).row_id
        last = rows.messages.last(row, before=before or MAX_COUNT, limit=limit, max_bytes=_PAGE_BYTES)
    return [convert(record, Message) for record in last]


def pop_message(
    stores: Stores, store: Store, inbox: WorkerInbox, working: WorkingMemory, *, agent: str, session: str
) -> Message | None:
    """Delete the last message of a session with all that came from it, and return it; None if there is none.

    The message gets a tombstone. Deliveries of it that were accepted until now are not stored any more: a number of the
    broker separates them from later ones. Without a broker this raises `Unavailable` before anything is deleted.
    """
    popped = None
    while popped is None:
        with store.reading() as tx:
            newest = _newest(tx.for_agent(agent), session)
        if newest is None:
            return None
        forgotten_at = inbox.next_number()
        working.drop(store.name, [(agent, session)])
        popped = _remove(stores, store, newest, forgotten_at)
    _remove_from_account(stores, store, popped)
    # Again, for messages that were cached between the two steps.
    working.drop(store.name, [(agent, session)])
    return convert(popped, Message)


def _newest(rows: AgentRepositories, session: str) -> WholeMessage | None:
    found = rows.sessions.find(session)
    if found is None:
        return None
    return next(iter(rows.messages.last(found.row_id, before=MAX_COUNT, limit=1, max_bytes=1)), None)


def _remove(stores: Stores, store: Store, message: WholeMessage, forgotten_at: Number) -> WholeMessage | None:
    """Remove a session's last message and what came from it; None if another message has followed meanwhile."""
    subject = Subject("message", message.id, session=message.session)
    with store.reading() as tx:  # it reads all memories of the agent, so it must not hold a lock
        selection = tx.for_agent(message.agent).erased.select(subject)
    with store.writing() as tx:
        rows = tx.for_agent(message.agent)
        newest = _newest(rows, message.session)
        if newest is None or newest.row_id != message.row_id:
            return None
        tx.broker_content.follow(forgotten_at.content)
        rows.removal.remove(selection, forgotten_at=forgotten_at.value)
        tx.kept_out.add(subject, message.agent, at=forgotten_at.value)
        name = message_name(message.session, message.id)
        note_forgotten(stores.data_dir, "message", [name], workspace=store.name, agent=message.agent)
    return newest


def _remove_from_account(stores: Stores, store: Store, message: WholeMessage) -> None:
    """Remove memories of the account that came from a message."""
    account = stores.account_store()
    with account.reading() as tx:
        subject = Subject("message", message.id, store.name, session=message.session)
        selection = tx.for_agent(message.agent).erased.select(subject)
    if selection.is_empty():
        return
    with account.writing() as tx:
        tx.for_agent(message.agent).removal.remove(selection, forgotten_at=0)


def list_workspaces(
    stores: Stores, *, now: int, limit: int, offset: int, only: str | None = None
) -> list[WorkspaceSummary]:
    """Return a page of the workspaces, ordered by name, or only the workspace `only`.

    A workspace that cannot be read has an error instead of numbers.
    """
    page = [name for name in stores.names() if only in (None, name)][offset : offset + limit]
    return [found for name in page if (found := _workspace(stores, name, now)) is not None]


def list_agents(stores: Stores, workspace: str, *, now: int) -> list[AgentSummary]:
    """Return the agents that have anything in a workspace or in the account, ordered by name.

    Raises `StoreUnavailable` and `StoreUnusable`.
    """
    here = {found.agent: found for found in _agents(stores, workspace, now)}
    account = {found.agent: found for found in _agents(stores, ACCOUNT_STORE, now)}
    nothing = AgentCounts("", 0, 0)
    return [
        AgentSummary(
            name=agent,
            sessions=here.get(agent, nothing).sessions,
            memories=here.get(agent, nothing).memories + account.get(agent, nothing).memories,
        )
        for agent in sorted({*here, *account})
    ]


def _workspace(stores: Stores, name: str, now: int) -> WorkspaceSummary | None:
    try:
        agents = stores.agents(name, now=now)
    except NotFound:  # deleted a moment ago
        return None
    except ReverieError as error:
        return WorkspaceSummary(name=name, error=str(error))
    return WorkspaceSummary(
        name=name,
        agents=len(agents),
        sessions=sum(found.sessions for found in agents),
        memories=sum(found.memories for found in agents),
    )


def _agents(stores: Stores, name: str, now: int) -> list[AgentCounts]:
    try:
        return stores.agents(name, now=now)
    except NotFound:
        return []


def list_channels(store: Store, *, agent: str) -> list[Channel]:
    """Return all channels, also those known from messages only: the default first, then by id."""
    with store.reading() as tx:
        return tx.for_agent(agent).channels.list()


def read_channel(store: Store, *, agent: str, channel: str) -> Channel:
    """Return one channel. Raises `NotFound`."""
    with store.reading() as tx:
        return _channel(tx.for_agent(agent), channel)


def create_channel(store: Store, *, agent: str, channel: str, description: str = "", now: int) -> Channel:
    """Create a channel, or describe one that is known from messages only. Raises `Rejected` and `Conflict`."""
    name, checked = check_label("channel", channel, required=True), check_description("description", description)
    with store.writing_as(agent) as rows:
        if name == DEFAULT_CHANNEL or rows.channels.has_row(name):
            raise Conflict(f"agent {agent} already has a channel {name!r}: update that one", field="id")
        rows.channels.ensure(DEFAULT_CHANNEL, now=now)
        rows.channels.ensure(name, now=now, description=checked)
        return _channel(rows, name)


def describe_channel(store: Store, *, agent: str, channel: str, description: str, now: int) -> Channel:
    """Set the description of a channel. Raises `Rejected` and `NotFound`."""
    checked = check_description("description", description)
    with store.writing_as(agent) as rows:
        _channel(rows, channel)
        rows.channels.ensure(DEFAULT_CHANNEL, now=now)
        rows.channels.ensure(channel, now=now, description=checked)
        return _channel(rows, channel)


def delete_channel(store: Store, *, agent: str, channel: str) -> None:
    """Delete an empty channel. Raises `NotFound`, and `Conflict` for the default channel and one that is not empty."""
    with store.writing_as(agent) as rows:
        found = _channel(rows, channel)
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
        _channel(rows, channel)
        rows.channels.ensure(DEFAULT_CHANNEL, now=now)
        rows.channels.move_session(found.row_id, channel)
        return session_of(rows, session)


def _channel(rows: AgentRepositories, channel: str) -> Channel:
    found = rows.channels.find(channel)
    if found is None:
        raise NotFound(f"agent {rows.agent} has no channel {channel!r}: create it first", field="channel")
    return found
