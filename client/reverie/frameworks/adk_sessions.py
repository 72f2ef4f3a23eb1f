"""The session service for Google ADK: `ReverieSessionService`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform import time as platform_time
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from reverie.client import Reverie
from reverie.clock import new_id
from reverie.errors import NotFound
from reverie.fields import MAX_PAGE
from reverie.frameworks.adk_apps import (
    APP_STATE,
    AppClients,
    derived_id,
    session_id_of,
    session_name,
    user_state_name,
)
from reverie.frameworks.adk_events import Entry, entry_of, message_of
from reverie.frameworks.settling import settled
from reverie.sessions.types import Message

# A message is stored within a tenth of a second; a machine that is very busy takes longer.
_STORE_SECONDS: Final = 60.0
# Where a message is looked for that was stored a moment ago.
_LAST_MESSAGES: Final = 50


class ReverieSessionService(BaseSessionService):
    """Keeps the sessions of apps. Safe to share between tasks, threads and event loops.

    An app is an agent of Reverie, and its user an end user: the server keeps both apart. Events are messages, which can
    be recalled. What is left out is read from the environment: REVERIE_URL, REVERIE_TOKEN, REVERIE_WORKSPACE.
    """

    def __init__(self, *, url: str | None = None, token: str | None = None, workspace: str | None = None) -> None:
        """Open nothing yet."""
        self._apps = AppClients(url=url, token=token, workspace=workspace)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session with a state. Raises `AlreadyExistsError`."""
        return await settled(lambda: self._create(app_name, user_id, state or {}, session_id))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its events, or None."""
        return await asyncio.to_thread(self._get, app_name, user_id, session_id.strip(), config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or with a token of the scope `operate` of all users, without their events."""
        return ListSessionsResponse(sessions=await asyncio.to_thread(self._list, app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Forget a session with everything derived from it; the states of its user and of the app stay."""
        name = session_name(user_id, session_id.strip())
        await settled(lambda: self._apps.of(app_name).forget_session(name, user=user_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, with keys without their prefix."""
        return await asyncio.to_thread(_read_state, self._apps.of(app_name), user_state_name(user_id), user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event with the changes of state that it makes, and add it to the session.

        Raises `SessionNotFoundError`, and `StaleSessionError` if another event has been stored since the session was
        read. An event that is the last one already is not stored again.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        dumped = json.loads(event.model_dump_json(exclude_none=True))
        if not await settled(lambda: self._append(session, dumped)):
            return event
        session.last_update_time = event.timestamp
        committed: Event = self._commit_event_to_session(session, event)
        return committed

    async def close(self) -> None:
        """Close all connections. The next call opens them again."""
        self._apps.close()

    def _create(self, app_name: str, user_id: str, state: Mapping[str, Any], session_id: str | None) -> Session:
        client = self._apps.of(app_name)
        session_id = (session_id or "").strip() or new_id()
        name = session_name(user_id, session_id)
        own, user, app = _split_state(to_jsonable_python(state, fallback=str))
        beginning = Entry(state=own, created=platform_time.get_time(), nonce=new_id())
        is_new = not _last(client, name, user_id, limit=1)
        if not (is_new and _store(client, name, user_id, beginning, message_id=derived_id(name))):
            raise AlreadyExistsError(f"Session with id {session_id} already exists.")
        self._write_states(client, user_id, user, app)
        return self._session(app_name, user_id, session_id, state=own, updated=beginning.created, events=[])

    def _get(self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None) -> Session | None:
        client = self._apps.of(app_name)
        name = session_name(user_id, session_id)
        config = config or GetSessionConfig()
        newest = next(_entries(client, name, user_id, limit=1), None) if session_id else None
        if newest is None:
            return None
        events = _events(client, name, user_id, config)
        state = _state_of(client, name, user_id, newest[1])
        return self._session(app_name, user_id, session_id, state=state, updated=_updated(newest[1]), events=events)

    def _list(self, app_name: str, user_id: str | None) -> list[Session]:
        client = self._apps.of(app_name)
        found: list[Session] = []
        offset = 0
        while True:
            page = client.sessions(user=user_id, all_users=user_id is None, limit=MAX_PAGE, offset=offset)
            for session in page:
                owner = session.user if user_id is None else user_id
                session_id = session_id_of(session.id, owner) if owner is not None else None
                if owner is not None and session_id is not None:
                    read = self._get(app_name, owner, session_id, GetSessionConfig(num_recent_events=0))
                    found += [read] if read is not None else []
            if len(page) < MAX_PAGE:
                return sorted(found, key=lambda one: (one.last_update_time, one.user_id, one.id))
            offset += len(page)

    def _append(self, session: Session, event: dict[str, Any]) -> bool:
        """Store an event; return False if it is the last one already.

        Its id follows from that of the message before it, so of two events that follow the same message one is stored.
        """
        client, user_id = self._apps.of(session.app_name), session.user_id
        name = session_name(user_id, session.id)
        own, user, app = _split_state((event.get("actions") or {}).get("state_delta") or {})
        while True:
            newest = next(_entries(client, name, user_id, limit=1), None)
            if newest is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            message, before = newest
            if before.event is not None and json.dumps(before.event) == json.dumps(event):
                return False
            if _updated(before) > session.last_update_time:
                raise StaleSessionError(
                    f"Session {session.id} was modified in storage since it was read: read it again with get_session"
                )
            if own:
                entry = Entry(event=event, state={**_state_of(client, name, user_id, before), **own})
            else:
                entry = Entry(event=event, state_at=before.state_at if before.state is None else message.sequence)
            if _store(client, name, user_id, entry, message_id=derived_id(name, message.id)):
                self._write_states(client, user_id, user, app)
                return True

    def _session(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        *,
        state: Mapping[str, Any],
        updated: float,
        events: list[Event],
    ) -> Session:
        client = self._apps.of(app_name)
        merged = dict(state)
        for prefix, name, user in (
            (State.APP_PREFIX, APP_STATE, None),
            (State.USER_PREFIX, user_state_name(user_id), user_id),
        ):
            merged |= {prefix + key: value for key, value in _read_state(client, name, user).items()}
        return Session(
            app_name=app_name, user_id=user_id, id=session_id, state=merged, events=events, last_update_time=updated
        )

    def _write_states(self, client: Reverie, user_id: str, user: Mapping[str, Any], app: Mapping[str, Any]) -> None:
        for key, value in user.items():
            client.write_scratchpad_key(user_state_name(user_id), key, value, user=user_id)
        for key, value in app.items():
            client.write_scratchpad_key(APP_STATE, key, value)


def _split_state(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the parts of a state for the session, the user and the app, without prefixes and temporary values."""
    own: dict[str, Any] = {}
    user: dict[str, Any] = {}
    app: dict[str, Any] = {}
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return own, user, app


def _read_state(client: Reverie, name: str, user: str | None) -> dict[str, Any]:
    return {entry.key: entry.value for entry in client.scratchpad_keys(name, user=user)}


def _store(client: Reverie, name: str, user_id: str, entry: Entry, *, message_id: str) -> bool:
    """Store an entry; return False if another one with this id was stored first."""
    message = message_of(entry, message_id=message_id)
    client.ingest(name, message, user=user_id, wait="stored", timeout_seconds=_STORE_SECONDS)
    last = _last(client, name, user_id, limit=_LAST_MESSAGES)
    return any(one.id == message_id and one.original == message["original"] for one in last)


def _last(client: Reverie, name: str, user_id: str, *, limit: int, before: int | None = None) -> list[Message]:
    try:
        return client.newest_messages(name, limit=limit, before=before, user=user_id)
    except NotFound:
        return []


def _entries(client: Reverie, name: str, user_id: str, *, limit: int) -> Iterator[tuple[Message, Entry]]:
    """Yield the entries of a session, the last one first, reading so many messages at once."""
    before: int | None = None
    while page := _last(client, name, user_id, limit=limit, before=before):
        for message in reversed(page):
            entry = entry_of(message)
            if entry is not None:
                yield message, entry
        before = page[0].sequence
        if before == 1:
            return


def _events(client: Reverie, name: str, user_id: str, config: GetSessionConfig) -> list[Event]:
    """Return the last events that the configuration asks for, oldest first."""
    events: list[Event] = []
    wanted = config.num_recent_events
    if wanted == 0:
        return events
    for _, entry in _entries(client, name, user_id, limit=MAX_PAGE if wanted is None else min(MAX_PAGE, wanted)):
        if entry.event is None:
            continue
        if config.after_timestamp is not None and entry.event["timestamp"] < config.after_timestamp:
            break
        events.append(Event.model_validate_json(json.dumps(entry.event)))
        if len(events) == wanted:
            break
    return events[::-1]


def _state_of(client: Reverie, name: str, user_id: str, entry: Entry) -> dict[str, Any]:
    """Return the state of a session after an entry."""
    if entry.state is not None:
        return entry.state
    for message in _last(client, name, user_id, limit=1, before=entry.state_at + 1):
        found = entry_of(message)
        if found is not None and found.state is not None:
            return found.state
    return {}


def _updated(entry: Entry) -> float:
    return entry.created if entry.event is None else float(entry.event["timestamp"])
