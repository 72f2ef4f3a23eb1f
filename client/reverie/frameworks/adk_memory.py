"""The memory service for Google ADK: `ReverieMemoryService`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types

from reverie.client import Reverie
from reverie.clock import new_id
from reverie.errors import Conflict, Rejected
from reverie.frameworks.adk_apps import FRAMEWORK, AppClients, derived_id
from reverie.frameworks.adk_events import text_of
from reverie.frameworks.settling import settled
from reverie.memories.types import MAX_MEMORY_BYTES, Memory

# A memory is indexed within a second; a machine that is very busy takes longer.
_INDEX_SECONDS: Final = 60.0


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
        """Open nothing yet. A search returns at most `limit` memories, with at least `min_score` as their relevance."""
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
        response = self._apps.of(app_name).search_memories(
            query, user=user_id, limit=self._limit, min_score=self._min_score
        )
        return list(response.results)


def _remember(client: Reverie, user_id: str, drafts: Sequence[Mapping[str, Any]]) -> None:
    """Store memories, and wait until the last one is searchable: they are indexed in their order."""
    for number, draft in enumerate(drafts, start=1):
        content = draft["content"].encode()[:MAX_MEMORY_BYTES].decode(errors="ignore")
        with suppress(Conflict):  # the event was remembered before, with another text
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
