"""LangGraph's long-term store in Reverie: `pip install 'reverie-pipeline-client[langgraph]'`.

    from reverie.frameworks.langgraph import ReverieStore

    with ReverieStore("ana") as store:
        graph = builder.compile(store=store)

Values are returned exactly as they were put. Searches by meaning need no embedder of the caller: the server has one.
`AsyncReverieStore` is the same for asyncio, where it sends what is awaited at once as one batch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Final, Literal, Self

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig
from langgraph.store.base.batch import AsyncBatchedBaseStore

from reverie.client import Reverie
from reverie.errors import NotFound, ReverieError
from reverie.frameworks.langgraph_operations import Batch, StoreIndex, TimeToLive, to_batch, to_result
from reverie.items.calls import GetOperation, ItemOperation, NamespacesOperation, SearchOperation
from reverie.items.types import ItemOutcome

_log: Final = logging.getLogger(__name__)


class _Items:
    """The items of one user of an agent, and how a store indexes and keeps them."""

    def __init__(
        self,
        agent: str | None,
        client: Reverie | None,
        user: str | None,
        index: IndexConfig | Literal[False] | None,
        ttl: TTLConfig | None,
        connection: dict[str, Any],
    ) -> None:
        if client is not None and (agent is not None or connection):
            raise TypeError("client has an agent and a connection already: give either a client or these")
        self.owns_client = client is None
        self.client = client if client is not None else Reverie(agent, **connection)
        self.user = user
        self.index = StoreIndex(index)
        self.ttl = TimeToLive(ttl)
        self._degraded = ""

    def send(self, batch: Batch) -> list[Result]:
        """Carry out a batch and return its results."""
        results: list[Result] = [None] * batch.size
        for part in batch.parts():
            for (place, operation), outcome in zip(part.items(), self._outcomes(list(part.values())), strict=True):
                results[place] = to_result(operation, outcome)
                if outcome.found is not None:
                    self._note(outcome.found.degraded)
        return [[] if result is None and place in batch.empty else result for place, result in enumerate(results)]

    def sweep(self) -> int:
        return self.client.sweep_items(user=self.user)

    def check(self) -> None:
        """Raise `Unavailable` if there is no server, and `Forbidden` if it refuses the token."""
        self.client.item_namespaces(limit=1, user=self.user)

    def close(self) -> None:
        if self.owns_client:
            self.client.close()

    def _note(self, degraded: str) -> None:
        """Log why searches are worse than asked for, when that begins: an agent may search hundreds of times."""
        if degraded and degraded != self._degraded:
            _log.warning("search of items: %s", degraded)
        self._degraded = degraded

    def _outcomes(self, operations: list[ItemOperation]) -> list[ItemOutcome]:
        """Send operations: a single read by its own call, which a token that may only read is allowed."""
        if len(operations) != 1:
            return self.client.batch_items(operations, user=self.user)
        match operations[0]:
            case GetOperation() as get:
                try:
                    return [ItemOutcome(item=self.client.item(**_arguments(get), user=self.user))]
                except NotFound:
                    return [ItemOutcome()]
            case SearchOperation() as search:
                return [ItemOutcome(found=self.client.search_items(**_arguments(search), user=self.user))]
            case NamespacesOperation() as listing:
                return [ItemOutcome(namespaces=self.client.item_namespaces(**_arguments(listing), user=self.user))]
        return self.client.batch_items(operations, user=self.user)


def _arguments(operation: ItemOperation) -> dict[str, Any]:
    return {name: getattr(operation, name) for name in operation.__struct_fields__}


class ReverieStore(BaseStore):
    """A store of LangGraph whose items are kept by a Reverie server, for one agent and perhaps one of its users.

    `agent` and `connection` (`url`, `token`, `workspace`, ...) are those of `Reverie`; or give a `client`. With `user`
    the items are those of one end user, apart from all others.

    `index`: by default the server embeds the whole value. `{"fields": ["text"]}` limits that to fields; with `embed`
    and `dims` vectors are made by that embedder; False searches by filters only. `ttl` is LangGraph's `TTLConfig`.

    Raises `Rejected` for what the server does not take, and `Unavailable` if it does not answer.
    """

    supports_ttl = True

    def __init__(
        self,
        agent: str | None = None,
        *,
        client: Reverie | None = None,
        user: str | None = None,
        index: IndexConfig | Literal[False] | None = None,
        ttl: TTLConfig | None = None,
        **connection: Any,
    ) -> None:
        self._items = _Items(agent, client, user, index, ttl, connection)
        self.index_config = self._items.index.config
        self.embeddings = self._items.index.embeddings
        self.ttl_config = ttl
        self._stopping = threading.Event()
        self._sweeper: threading.Thread | None = None

    def setup(self) -> None:
        """Check that the server answers: there is nothing to set up. Raises `Unavailable`."""
        self._items.check()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: all reads, then all writes; the last of several writes of an item counts."""
        batch = to_batch(ops, self._items.index, self._items.ttl)
        if self.embeddings is not None:
            vectors = self.embeddings.embed_documents(texts) if (texts := batch.flat_texts()) else []
            batch.set_vectors(vectors, [self.embeddings.embed_query(query) for query in batch.queries.values()])
        return self._items.send(batch)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations as `batch` does, in a thread; an asynchronous embedder is awaited."""
        return await _send(self._items, ops)

    def sweep_ttl(self) -> int:
        """Remove expired items now; return how many. The server does so once a day."""
        return self._items.sweep()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Remove expired items every some minutes in a thread, until `stop_ttl_sweeper` or the future is cancelled."""
        stopped: Future[None] = Future()
        stopped.add_done_callback(lambda future: self._stopping.set() if future.cancelled() else None)
        if self.ttl_config is None:
            stopped.set_result(None)
        elif self._sweeper is None or not self._sweeper.is_alive():
            self._stopping.clear()
            seconds = self._items.ttl.interval_minutes(sweep_interval_minutes) * 60
            self._sweeper = threading.Thread(target=self._sweep, args=(seconds, stopped), name="sweeper", daemon=True)
            self._sweeper.start()
        return stopped

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper; return False if it has not ended within `timeout` seconds."""
        self._stopping.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout)
            if self._sweeper.is_alive():
                return False
            self._sweeper = None
        return True

    def close(self) -> None:
        """Stop the sweeper, and close the connection unless the client was given."""
        self.stop_ttl_sweeper()
        self._items.close()

    def __enter__(self) -> Self:
        """Use the store as a context manager; it is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    def _sweep(self, seconds: float, stopped: Future[None]) -> None:
        while not self._stopping.wait(seconds):
            _sweep_once(self._items)
        if not stopped.done():
            stopped.set_result(None)


class AsyncReverieStore(AsyncBatchedBaseStore):
    """`ReverieStore` for asyncio, with the same arguments: make it within a running loop.

    What is awaited at the same time is sent as one batch, and equal reads of it once. The blocking methods may be
    called from other threads.
    """

    supports_ttl = True

    def __init__(
        self,
        agent: str | None = None,
        *,
        client: Reverie | None = None,
        user: str | None = None,
        index: IndexConfig | Literal[False] | None = None,
        ttl: TTLConfig | None = None,
        **connection: Any,
    ) -> None:
        self._items = _Items(agent, client, user, index, ttl, connection)
        super().__init__()
        self.index_config = self._items.index.config
        self.embeddings = self._items.index.embeddings
        self.ttl_config = ttl
        self._sweeper: asyncio.Task[None] | None = None

    async def setup(self) -> None:
        """Check that the server answers: there is nothing to set up. Raises `Unavailable`."""
        await asyncio.to_thread(self._items.check)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations from another thread. Raises `InvalidStateError` within the loop of the store."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            raise asyncio.InvalidStateError("batch() would block the event loop: await store.abatch(...) instead")
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: all reads, then all writes; the last of several writes of an item counts."""
        return await _send(self._items, ops)

    async def sweep_ttl(self) -> int:
        """Remove expired items now; return how many. The server does so once a day."""
        return await asyncio.to_thread(self._items.sweep)

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> asyncio.Task[None]:
        """Remove expired items every some minutes, until `stop_ttl_sweeper` or the task is cancelled."""
        if self._sweeper is None or self._sweeper.done():
            seconds = self._items.ttl.interval_minutes(sweep_interval_minutes) * 60
            self._sweeper = self._loop.create_task(_sweep_for_ever(self._items, seconds))
        return self._sweeper

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper; return False if it has not ended within `timeout` seconds."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            _, left = await asyncio.wait([self._sweeper], timeout=timeout)
            if left:
                return False
            self._sweeper = None
        return True

    async def close(self) -> None:
        """Stop the sweeper, and close the connection unless the client was given."""
        await self.stop_ttl_sweeper()
        await asyncio.to_thread(self._items.close)

    async def __aenter__(self) -> Self:
        """Use the store as a context manager; it is closed at the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store."""
        await self.close()


async def _send(items: _Items, ops: Iterable[Op]) -> list[Result]:
    batch = to_batch(ops, items.index, items.ttl)
    embeddings = items.index.embeddings
    if embeddings is not None:
        vectors = await embeddings.aembed_documents(texts) if (texts := batch.flat_texts()) else []
        queries = [await embeddings.aembed_query(query) for query in batch.queries.values()]
        batch.set_vectors(vectors, queries)
    return await asyncio.to_thread(items.send, batch)


async def _sweep_for_ever(items: _Items, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(_sweep_once, items)


def _sweep_once(items: _Items) -> None:
    try:
        items.sweep()
    except ReverieError as error:  # the server is away: the next sweep removes what expired until then
        _log.warning("expired items were not removed: %s", error)
