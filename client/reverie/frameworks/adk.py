"""Sessions and memory for agents of Google's Agent Development Kit.

    from google.adk.runners import Runner
    from reverie.frameworks.adk import ReverieMemoryService, ReverieSessionService

    runner = Runner(
        app_name="guide",
        agent=agent,
        session_service=ReverieSessionService(),
        memory_service=ReverieMemoryService(),
    )

An app is an agent of Reverie and a user of the app is an end user, so the server keeps apps and users apart. The event,
and the state of its session after it, are the original of its message, so both are stored in one step. What is searched
is the text of its parts, the names and arguments of function calls, and their responses.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID, uuid5

import msgspec

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.platform import time as platform_time
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State
    from google.genai import types
    from pydantic_core import to_jsonable_python
except ModuleNotFoundError as error:
    raise ImportError("reverie.frameworks.adk needs Google ADK: pip install 'google-adk>=2.13,<3'") from error

from reverie.client import Reverie
from reverie.clock import new_id
from reverie.contract import MAX_ORIGINAL_BYTES, Role
from reverie.errors import Conflict, NotFound, Rejected, WaitTimeout
from reverie.fields import MAX_PAGE
from reverie.frameworks import all_pages, label, newest_first, searchable, settled
from reverie.memories.types import MAX_MEMORY_BYTES, Memory
from reverie.sessions.types import Message

__all__ = ["ReverieMemoryService", "ReverieSessionService"]

# A memory is indexed within a second; a machine that is very busy takes longer.
_INDEX_SECONDS: Final = 5.0


class ReverieMemoryService(BaseMemoryService):
    """Keeps what the users of apps said as memories. Safe to share between tasks, threads and event loops.

    An app is an agent of Reverie, and its user an end user: the server keeps both apart. What is left out is read from
    the environment: REVERIE_URL, REVERIE_TOKEN, REVERIE_WORKSPACE.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
        limit: int = 10,
        min_score: float = 0.05,
    ) -> None:
        """Keep the settings; the first call connects.

        A search returns at most `limit` memories, with at least `min_score` as their relevance.
        """
        self._apps = AppClients(url=url, token=token, workspace=workspace)
        self._limit = limit
        self._min_score = min_score

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember what was said in a session; events that are remembered already stay as they are."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember what was said in events; when this returns, it is found. An event without text is left out."""
        events_with_text = [
            (event, text)
            for event in events
            if (text := text_of(json.loads(event.model_dump_json(exclude_none=True)))).strip()
        ]
        drafts = [
            {
                "id": derived_id("memory", user_id, event.id),
                "content": text,
                "metadata": _metadata(event.author, event.timestamp, custom_metadata, session=session_id),
            }
            for event, text in events_with_text
        ]
        await settled(lambda: _remember(self._apps.of(app_name), user_id, drafts))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember the texts of entries, under their ids. Raises `Rejected` for one without text."""
        drafts = []
        for entry in memories:
            text = text_of({"content": json.loads(entry.content.model_dump_json(exclude_none=True))})
            if not text.strip():
                raise Rejected("a memory has no text: only texts can be remembered", field="memories")
            own = {**entry.custom_metadata, **(custom_metadata or {})}
            metadata = _metadata(entry.author, entry.timestamp, own)
            drafts.append({"id": entry.id or new_id(), "content": text, "metadata": metadata})
        await settled(lambda: _remember(self._apps.of(app_name), user_id, drafts))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories of a user that fit a query, best first, also those that Reverie extracted by itself."""
        found = await asyncio.to_thread(self._search, app_name, user_id, query)
        return SearchMemoryResponse(memories=[_entry(memory) for memory in found])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget a memory by its id, as `search_memory` returned it."""
        if memory_id:
            await settled(lambda: self._apps.of(app_name).forget(memory_id, user=user_id))

    async def close(self) -> None:
        """Close all connections. The next call opens them again."""
        self._apps.close()

    def _search(self, app_name: str, user_id: str, query: str) -> list[Memory]:
        response = self._apps.of(app_name).memories.search(
            query, user=user_id, limit=self._limit, min_score=self._min_score
        )
        return list(response.results)


def _remember(client: Reverie, user_id: str, drafts: Sequence[Mapping[str, Any]]) -> None:
    """Store memories, and wait some seconds for the last one to be searchable: they are indexed in their order."""
    for number, draft in enumerate(drafts, start=1):
        content = draft["content"].encode()[:MAX_MEMORY_BYTES].decode(errors="ignore")
        # The event was remembered before, with another text; or it is stored, and workers index it later.
        with suppress(Conflict, WaitTimeout):
            client.remember(
                **{**draft, "content": content},
                user=user_id,
                source=FRAMEWORK,
                lifetime="long_term",
                wait="searchable" if number == len(drafts) else "stored",
                timeout_seconds=_INDEX_SECONDS,
            )


def _metadata(
    author: str | None, timestamp: object, custom: Mapping[str, object] | None, session: str | None = None
) -> dict[str, Any]:
    """Return the metadata of a memory; `timestamp` is in seconds, or a text."""
    said_at = datetime.fromtimestamp(timestamp, UTC).isoformat() if isinstance(timestamp, (int, float)) else timestamp
    known = {"author": author, "timestamp": said_at, "session": session, "custom": dict(custom or {})}
    return {"framework": FRAMEWORK, **{name: value for name, value in known.items() if value}}


def _entry(memory: Memory) -> MemoryEntry:
    own = memory.metadata if memory.metadata.get("framework") == FRAMEWORK else {}
    author = own.get("author")
    return MemoryEntry(
        id=memory.id,
        content=types.Content(
            role="user" if author in (None, "user") else "model", parts=[types.Part(text=memory.content)]
        ),
        author=author,
        timestamp=own.get("timestamp") or memory.created_at.isoformat(),
        custom_metadata=own.get("custom", {}),
    )


# A message is stored within a tenth of a second; a machine that is very busy takes longer.
_STORE_SECONDS: Final = 60.0
# A message that was stored a moment ago is looked for among this many.
_LAST_MESSAGES: Final = 50


class ReverieSessionService(BaseSessionService):
    """Keeps the sessions of apps. Safe to share between tasks, threads and event loops.

    An app is an agent of Reverie, and its user an end user: the server keeps both apart. Events are messages, which can
    be recalled. What is left out is read from the environment: REVERIE_URL, REVERIE_TOKEN, REVERIE_WORKSPACE.
    """

    def __init__(self, *, url: str | None = None, token: str | None = None, workspace: str | None = None) -> None:
        """Keep the settings; the first call connects."""
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
        await settled(lambda: self._apps.of(app_name).sessions.forget(name, user=user_id))

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
        for session in all_pages(client.sessions.list, user=user_id, all_users=user_id is None):
            owner = session.user if user_id is None else user_id
            session_id = session_id_of(session.id, owner) if owner is not None else None
            if owner is not None and session_id is not None:
                read = self._get(app_name, owner, session_id, GetSessionConfig(num_recent_events=0))
                found += [read] if read is not None else []
        return sorted(found, key=lambda one: (one.last_update_time, one.user_id, one.id))

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
            client.scratchpads.write_key(user_state_name(user_id), key, value, user=user_id)
        for key, value in app.items():
            client.scratchpads.write_key(APP_STATE, key, value)


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
    return {entry.key: entry.value for entry in client.scratchpads.keys(name, user=user)}


def _store(client: Reverie, name: str, user_id: str, entry: Entry, *, message_id: str) -> bool:
    """Store an entry; return False if another one with this id was stored first."""
    message: Any = message_of(entry, message_id=message_id)
    try:
        client.ingest(name, message, user=user_id, wait="stored", timeout_seconds=_STORE_SECONDS)
    except Conflict:
        return False
    last = _last(client, name, user_id, limit=_LAST_MESSAGES)
    return any(one.id == message_id and one.original == message["original"] for one in last)


def _last(client: Reverie, name: str, user_id: str, *, limit: int, before: int | None = None) -> list[Message]:
    try:
        return client.sessions.newest_messages(name, limit=limit, before=before, user=user_id)
    except NotFound:
        return []


def _entries(client: Reverie, name: str, user_id: str, *, limit: int) -> Iterator[tuple[Message, Entry]]:
    """Yield the entries of a session, the last one first, reading `limit` messages at a time."""
    for message in newest_first(client, name, user=user_id, limit=limit):
        entry = entry_of(message)
        if entry is not None:
            yield message, entry


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


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The original of a message: the beginning of a session, or an event of it.

    `state` is that of the session after it; if the event has not changed it, `state_at` is the sequence of the message
    that has it. `nonce` tells two beginnings apart.
    """

    state: dict[str, Any] | None = None
    state_at: int = 0
    created: float = 0.0
    nonce: str = ""
    event: dict[str, Any] | None = None


def entry_of(message: Message) -> Entry | None:
    """Return the entry that a message stores; None if this adapter did not store the message."""
    if message.original is None or message.metadata.get("framework") != FRAMEWORK:
        return None
    # Decoded by json: msgspec refuses lone surrogates.
    return msgspec.convert(json.loads(message.original), Entry)


def message_of(entry: Entry, *, message_id: str) -> dict[str, Any]:
    """Return the message of an entry. Raises `Rejected` if it has more than 3 MiB as JSON."""
    original = json.dumps(msgspec.to_builtins(entry), separators=(",", ":"))
    if len(original) > MAX_ORIGINAL_BYTES:
        raise Rejected(
            f"the event and the state of its session have {len(original):,} bytes as JSON; the limit is"
            f" {MAX_ORIGINAL_BYTES:,}: keep large files as artifacts",
            field="event",
        )
    message = {"id": message_id, "original": original, "metadata": {"framework": FRAMEWORK}}
    if entry.event is None:
        return {**message, "role": "system"}
    parts = _parts(entry.event)
    calls = [_call(part["function_call"]) for part in parts if part.get("function_call")]
    author = entry.event.get("author")
    return {
        **message,
        "role": _role(author, parts),
        "name": label(author) if author != "user" else None,
        "content": searchable("\n".join(_texts(parts))),
        "tool_calls": calls,
        "created_at": datetime.fromtimestamp(entry.event["timestamp"], UTC),
    }


def text_of(event: Mapping[str, Any]) -> str:
    """Return what was said in an event, without calls and responses of functions."""
    return searchable("\n".join(part["text"] for part in _parts(event) if isinstance(part.get("text"), str)))


def _parts(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (event.get("content") or {}).get("parts") or []


def _role(author: object, parts: list[Mapping[str, Any]]) -> Role:
    if any(part.get("function_response") for part in parts):
        return "tool"
    return "user" if author == "user" else "assistant"


def _texts(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        if isinstance(part.get("text"), str):
            yield part["text"]
        elif part.get("function_response"):
            yield json.dumps(part["function_response"].get("response"), ensure_ascii=False)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = searchable(json.dumps(call.get("args") or {}, ensure_ascii=False))
    made = {"type": "function", "function": {"name": label(call.get("name")) or "function", "arguments": arguments}}
    return {"id": call_id, **made} if (call_id := label(call.get("id"))) else made


FRAMEWORK: Final = "adk"
# The session whose scratchpad holds the state of an app; for the state of a user, the user's name follows.
APP_STATE: Final = "adk-state"
_SESSION: Final = "adk:"
_IDS: Final = UUID("6d0b6c5e-56a7-4a8e-9a0b-3d5f0b8f2a41")


class AppClients:
    """The clients of apps, made when they are first used. Safe to share between threads."""

    def __init__(self, *, url: str | None, token: str | None, workspace: str | None) -> None:
        self._options: Mapping[str, Any] = {"url": url, "token": token, "workspace": workspace}
        self._clients: dict[str, Reverie] = {}
        self._lock = threading.Lock()

    def of(self, app_name: str) -> Reverie:
        """Return the client of an app. Raises `Rejected` for a name that no agent can have."""
        with self._lock:
            if app_name not in self._clients:
                self._clients[app_name] = Reverie(app_name, **self._options)
            return self._clients[app_name]

    def close(self) -> None:
        """Close all connections. The next call opens them again."""
        with self._lock:
            for client in self._clients.values():
                client.close()


def session_name(user_id: str, session_id: str) -> str:
    """Return the session of Reverie for a session of a user: ids of sessions may be the same for two users."""
    return f"{_SESSION}{quote(user_id, safe='')}:{session_id}"


def session_id_of(name: str, user_id: str) -> str | None:
    """Return the id of a user's session by its name in Reverie, None if this adapter did not make the session."""
    prefix = session_name(user_id, "")
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def user_state_name(user_id: str) -> str:
    """Return the session whose scratchpad holds the state of a user."""
    return f"{APP_STATE}:{quote(user_id, safe='')}"


def derived_id(*parts: str) -> str:
    """Return an id that is the same for the same parts."""
    return str(uuid5(_IDS, "\x1f".join(parts)))
