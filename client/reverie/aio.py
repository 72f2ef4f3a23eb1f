"""The same client for asyncio: each call runs in a small thread pool of its own and can be awaited."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, Self, TypeVar

from reverie.aio_memories import AsyncMemoryCalls
from reverie.aio_reminders import AsyncReminderCalls
from reverie.aio_schedules import AsyncScheduleCalls
from reverie.client import Fusion, Kind, Mode, Reverie, Scope, Status
from reverie.contract import WaitFor
from reverie.pipeline.status import PipelineStatus
from reverie.sessions.channels import AsyncChannelCalls
from reverie.sessions.lifecycle import AsyncSessionLifeCalls
from reverie.sessions.scratchpads import AsyncScratchpadCalls
from reverie.types import (
    Compacted,
    Context,
    DeadLetter,
    FoundSessions,
    Message,
    RecallEvent,
    RecallResponse,
    Receipt,
    Restored,
    Session,
    SessionExport,
    SessionSummary,
)
from reverie.upkeep.curation import AsyncCurationCalls
from reverie.upkeep.notebooks import AsyncNotebookCalls

# Calls of one client at a time; a call that waits until its messages are stored takes a thread for as long.
_THREADS: Final = 8

_P = ParamSpec("_P")
_R = TypeVar("_R")


class AsyncReverie(
    AsyncMemoryCalls,
    AsyncNotebookCalls,
    AsyncSessionLifeCalls,
    AsyncScratchpadCalls,
    AsyncChannelCalls,
    AsyncCurationCalls,
    AsyncScheduleCalls,
    AsyncReminderCalls,
):
    """One agent's memory in one workspace, for asyncio. Arguments, answers and errors are those of `Reverie`.

    A call that is cancelled is no longer waited for; what it sent may have arrived.
    """

    def __init__(
        self,
        agent: str | None = None,
        *,
        url: str | None = None,
        broker: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
        prefix: str | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._sync = Reverie(
            agent,
            url=url,
            broker=broker,
            token=token,
            workspace=workspace,
            prefix=prefix,
            timeout_seconds=timeout_seconds,
        )
        self.agent = self._sync.agent
        self.workspace = self._sync.workspace
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="reverie")

    async def __aenter__(self) -> Self:
        """Use the client as a context manager; it is closed at the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Wait for the calls under way, then close all connections. The client cannot be used afterwards."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._sync.close()

    async def ingest(
        self,
        session: str | None = None,
        messages: Iterable[Mapping[str, Any]] | Mapping[str, Any] = (),
        *,
        user: str | None = None,
        provider: str | None = None,
        chat_id: str | None = None,
        channel: str | None = None,
        strict: bool = False,
        wait: WaitFor = "queued",
        timeout_seconds: float = 30.0,
        trace: str | None = None,
    ) -> Receipt:
        """See `Reverie.ingest`."""
        return await self._run(
            self._sync.ingest,
            session,
            messages,
            user=user,
            provider=provider,
            chat_id=chat_id,
            channel=channel,
            strict=strict,
            wait=wait,
            timeout_seconds=timeout_seconds,
            trace=trace,
        )

    async def ingest_file(
        self,
        source_uri: str,
        content: str,
        *,
        session: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        wait: WaitFor = "queued",
        timeout_seconds: float = 30.0,
        trace: str | None = None,
    ) -> Receipt:
        """See `Reverie.ingest_file`."""
        return await self._run(
            self._sync.ingest_file,
            source_uri,
            content,
            session=session,
            tags=tags,
            metadata=metadata,
            wait=wait,
            timeout_seconds=timeout_seconds,
            trace=trace,
        )

    async def recall(
        self,
        query: str,
        *,
        session: str | None = None,
        channel: str | None = None,
        scope: Scope | None = None,
        tags: Iterable[str] = (),
        kinds: Iterable[Kind] = (),
        mode: Mode = "hybrid",
        limit: int = 5,
        query_embedding: Sequence[float] | None = None,
        fusion: Fusion = "contextual",
        vector_weight: float | None = None,
        fts_weight: float | None = None,
        neighbours: int = 0,
        explain: bool = False,
    ) -> RecallResponse:
        """See `Reverie.recall`."""
        return await self._run(
            self._sync.recall,
            query,
            session=session,
            channel=channel,
            scope=scope,
            tags=tags,
            kinds=kinds,
            mode=mode,
            limit=limit,
            query_embedding=query_embedding,
            fusion=fusion,
            vector_weight=vector_weight,
            fts_weight=fts_weight,
            neighbours=neighbours,
            explain=explain,
        )

    async def context(
        self,
        session: str,
        query: str | None = None,
        *,
        channel: str | None = None,
        token_budget: int | None = None,
        max_messages: int | None = None,
        refine: bool = False,
    ) -> Context:
        """See `Reverie.context`."""
        return await self._run(
            self._sync.context,
            session,
            query,
            channel=channel,
            token_budget=token_budget,
            max_messages=max_messages,
            refine=refine,
        )

    async def restore(self, session: str, token_budget: int | None = None) -> Restored:
        """See `Reverie.restore`."""
        return await self._run(self._sync.restore, session, token_budget)

    async def summary(self, session: str) -> SessionSummary:
        """See `Reverie.summary`."""
        return await self._run(self._sync.summary, session)

    async def compact(self, session: str, token_budget: int | None = None) -> Compacted:
        """See `Reverie.compact`."""
        return await self._run(self._sync.compact, session, token_budget)

    async def search_sessions(
        self, query: str, *, tags: Iterable[str] = (), mode: Mode = "hybrid", limit: int = 5
    ) -> FoundSessions:
        """See `Reverie.search_sessions`."""
        return await self._run(self._sync.search_sessions, query, tags=tags, mode=mode, limit=limit)

    async def recall_events(self, limit: int = 50, offset: int = 0, *, explain: bool = False) -> list[RecallEvent]:
        """See `Reverie.recall_events`."""
        return await self._run(self._sync.recall_events, limit, offset, explain=explain)

    async def working(self, session: str) -> list[Message]:
        """See `Reverie.working`."""
        return await self._run(self._sync.working, session)

    async def sessions(self, limit: int = 50, offset: int = 0, status: Status | None = None) -> list[Session]:
        """See `Reverie.sessions`."""
        return await self._run(self._sync.sessions, limit, offset, status)

    async def session(self, session: str) -> Session:
        """See `Reverie.session`."""
        return await self._run(self._sync.session, session)

    async def messages(self, session: str, limit: int = 100, offset: int = 0) -> list[Message]:
        """See `Reverie.messages`."""
        return await self._run(self._sync.messages, session, limit, offset)

    async def export_session(self, session: str) -> SessionExport:
        """See `Reverie.export_session`."""
        return await self._run(self._sync.export_session, session)

    async def forget_session(self, session: str) -> bool:
        """See `Reverie.forget_session`."""
        return await self._run(self._sync.forget_session, session)

    async def delete_workspace(self) -> bool:
        """See `Reverie.delete_workspace`."""
        return await self._run(self._sync.delete_workspace)

    async def status(self) -> PipelineStatus:
        """See `Reverie.status`."""
        return await self._run(self._sync.status)

    async def dead_letters(self, limit: int = 50, offset: int = 0) -> list[DeadLetter]:
        """See `Reverie.dead_letters`."""
        return await self._run(self._sync.dead_letters, limit, offset)

    async def dead_letter(self, letter_id: int) -> DeadLetter:
        """See `Reverie.dead_letter`."""
        return await self._run(self._sync.dead_letter, letter_id)

    async def replay(self, letter_id: int) -> DeadLetter:
        """See `Reverie.replay`."""
        return await self._run(self._sync.replay, letter_id)

    async def drop(self, letter_id: int) -> bool:
        """See `Reverie.drop`."""
        return await self._run(self._sync.drop, letter_id)

    async def _run(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        context = contextvars.copy_context()
        bound = functools.partial(context.run, functools.partial(call, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)
