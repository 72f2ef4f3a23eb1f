"""LangGraph's long-term store in Reverie: `pip install 'reverie-pipeline-client[langgraph]'`.

    from reverie.frameworks.langgraph import ReverieStore

    with ReverieStore("ana") as store:
        graph = builder.compile(store=store)

Values are returned exactly as they were put. Searches by meaning need no embedder of the caller: the server has one.
`AsyncReverieStore` is the same for asyncio. Operations that are awaited together are sent as one batch.

What a store needs of its index and its time to live is decided in one place, so that both stores do the same.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, cast

import msgspec
from langgraph.store.base import (
    BaseStore,
    Embeddings,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    validate_op_namespace,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore

from reverie import items as types
from reverie.client import Reverie
from reverie.errors import NotFound, ReverieError
from reverie.parts import in_parts

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
        return self.client.items.sweep(user=self.user)

    def check(self) -> None:
        """Raise `Unavailable` if there is no server, and `Forbidden` if it refuses the token."""
        self.client.items.namespaces(limit=1, user=self.user)

    def close(self) -> None:
        if self.owns_client:
            self.client.close()

    def _note(self, degraded: str) -> None:
        """Log why searches are worse than asked for, but only when the reason changes: an agent may search often."""
        if degraded and degraded != self._degraded:
            _log.warning("search of items: %s", degraded)
        self._degraded = degraded

    def _outcomes(self, operations: list[types.ItemOperation]) -> list[types.ItemOutcome]:
        """Send operations. A single read is sent by a call of its own, which a token with the scope read may make."""
        if len(operations) != 1:
            return self.client.items.batch(operations, user=self.user)
        match operations[0]:
            case types.GetOperation() as get:
                try:
                    return [types.ItemOutcome(item=self.client.items.get(**_arguments(get), user=self.user))]
                except NotFound:
                    return [types.ItemOutcome()]
            case types.SearchOperation() as search:
                return [types.ItemOutcome(found=self.client.items.search(**_arguments(search), user=self.user))]
            case types.NamespacesOperation() as listing:
                return [
                    types.ItemOutcome(namespaces=self.client.items.namespaces(**_arguments(listing), user=self.user))
                ]
        return self.client.items.batch(operations, user=self.user)


def _arguments(operation: types.ItemOperation) -> dict[str, Any]:
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
        """Remove expired items periodically in a thread, until `stop_ttl_sweeper` or the future is cancelled."""
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

    Operations that are awaited at the same time are sent as one batch, and equal reads among them once. The blocking
    methods may be called from other threads.
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
        """Remove expired items periodically, until `stop_ttl_sweeper` or the task is cancelled."""
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


# Below the 4 MiB that a server takes by default.
_PART_BYTES: Final = 3 * 1024 * 1024
# The names that LangGraph's databases take in a filter.
_FILTER_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]+")
_LARGEST: Final = 1.7976931348623157e308
# Whole numbers beyond it are not exact in JSON.
_EXACT: Final = 2**53


class StoreIndex:
    """Which texts of a value are searched by meaning, and who embeds them: the server, or the caller's embedder."""

    def __init__(self, config: IndexConfig | Literal[False] | None) -> None:
        self.config: dict[str, Any] | None = dict(config) if config else None
        self.is_off = config is False
        given = self.config or {}
        self.embeddings: Embeddings | None = ensure_embeddings(given["embed"]) if given.get("embed") else None
        fields = given.get("fields") or given.get("text_fields")
        self.fields: list[str] | None = [fields] if isinstance(fields, str) else (list(fields) if fields else None)
        self.distance = cast(types.Distance, given.get("distance_type", "cosine"))
        if self.distance not in ("cosine", "l2", "inner_product"):
            raise ValueError(f"distance_type is {self.distance!r}; it must be cosine, l2 or inner_product")

    def paths(self, op: PutOp) -> list[str] | None:
        """Return the paths that a put indexes: an empty list for no index, None for the server's default."""
        if self.is_off or op.index is False:
            return []
        return self.fields if op.index is None else list(op.index)

    def texts(self, op: PutOp) -> list[str]:
        """Return the texts of a put that the caller's embedder embeds."""
        paths = self.paths(op)
        found = [text for path in (["$"] if paths is None else paths) for text in get_text_at_path(op.value, path)]
        return found[: types.MAX_VECTORS]


class TimeToLive:
    """How long items live, as LangGraph's databases read their configuration."""

    def __init__(self, config: TTLConfig | None) -> None:
        self.config = config
        self.refreshes = bool(config and config.get("refresh_on_read", False))
        self.shows_expired = not (config and config.get("omit_expired", False))

    def interval_minutes(self, given: float | None) -> float:
        """Return how often expired items are removed."""
        return float(given or (self.config or {}).get("sweep_interval_minutes") or 5)


@dataclass(slots=True)
class Batch:
    """Operations to send, and the texts to embed before that, by their position in the caller's batch."""

    size: int
    # The positions of searches and listings that cannot find anything, and are not sent.
    empty: set[int] = field(default_factory=set)
    operations: dict[int, types.ItemOperation] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    queries: dict[int, str] = field(default_factory=dict)

    def flat_texts(self) -> list[str]:
        """Return the texts of all puts that the caller's embedder embeds."""
        return [text for texts in self.texts.values() for text in texts]

    def set_vectors(self, vectors: Sequence[Sequence[float]], query_vectors: Sequence[Sequence[float]]) -> None:
        """Put the vectors of `flat_texts` and of the queries into their operations."""
        remaining = iter(vectors)
        for place, texts in self.texts.items():
            own = [list(map(float, next(remaining))) for _ in texts]
            self.operations[place] = msgspec.structs.replace(self.operations[place], vectors=own)
        for place, vector in zip(self.queries, query_vectors, strict=True):
            found = list(map(float, vector))
            self.operations[place] = msgspec.structs.replace(self.operations[place], query_vector=found)

    def parts(self) -> Iterable[dict[int, types.ItemOperation]]:
        """Return the operations in parts that a server takes: all reads before the first write."""
        in_order = sorted(self.operations.items(), key=lambda one: isinstance(one[1], types.PutOperation))
        sized = ((one, len(msgspec.json.encode(one[1]))) for one in in_order)
        return map(dict, in_parts(sized, most=types.MAX_OPERATIONS, size=_PART_BYTES))


def to_batch(ops: Iterable[Op], index: StoreIndex, ttl: TimeToLive) -> Batch:
    """Return the operations of a batch. Raises `InvalidNamespaceError`, and `ValueError` for an invalid filter."""
    listed = list(ops)
    batch = Batch(len(listed))
    last_puts = {(op.namespace, op.key): place for place, op in enumerate(listed) if isinstance(op, PutOp)}
    for place, op in enumerate(listed):
        validate_op_namespace(op)
        match op:
            case GetOp():
                batch.operations[place] = types.GetOperation(
                    namespace=op.namespace,
                    key=op.key,
                    refresh_ttl=op.refresh_ttl and ttl.refreshes,
                    expired=ttl.shows_expired,
                )
            case PutOp():
                if last_puts[op.namespace, op.key] == place:
                    _add_put(batch, place, op, index)
            case SearchOp():
                _add_search(batch, place, op, index, ttl)
            case ListNamespacesOp():
                _add_listing(batch, place, op, ttl)
            case _:
                raise ValueError(f"unknown operation {type(op).__name__}")
    return batch


def to_result(operation: types.ItemOperation, outcome: types.ItemOutcome) -> Result:
    """Return an outcome as LangGraph's stores return it."""
    if isinstance(operation, types.SearchOperation):
        return (
            []
            if outcome.found is None
            else [SearchItem(**_item_fields(item), score=item.score) for item in outcome.found.items]
        )
    if isinstance(operation, types.NamespacesOperation):
        return [tuple(namespace) for namespace in outcome.namespaces or ()]
    return None if outcome.item is None else Item(**_item_fields(outcome.item))


def _add_put(batch: Batch, place: int, op: PutOp, index: StoreIndex) -> None:
    if op.value is None:
        batch.operations[place] = types.PutOperation(namespace=op.namespace, key=op.key)
        return
    own = index.embeddings is not None
    batch.operations[place] = types.PutOperation(
        namespace=op.namespace,
        key=op.key,
        value=dict(op.value),
        ttl_seconds=None if op.ttl is None else op.ttl * 60,
        index=[] if own else index.paths(op),
    )
    if own and (texts := index.texts(op)):
        batch.texts[place] = texts


def _add_search(batch: Batch, place: int, op: SearchOp, index: StoreIndex, ttl: TimeToLive) -> None:
    conditions = _conditions(op.filter or {})
    if conditions is None or op.limit <= 0:
        batch.empty.add(place)
        return
    own = index.embeddings is not None
    batch.operations[place] = types.SearchOperation(
        namespace=op.namespace_prefix,
        query="" if own or index.is_off else op.query or "",
        filter=conditions,
        limit=op.limit,
        offset=op.offset,
        refresh_ttl=op.refresh_ttl and ttl.refreshes,
        expired=ttl.shows_expired,
        distance=index.distance,
    )
    if own and op.query:
        batch.queries[place] = op.query


def _add_listing(batch: Batch, place: int, op: ListNamespacesOp, ttl: TimeToLive) -> None:
    wanted: dict[str, tuple[str, ...]] = {}
    for condition in op.match_conditions or ():
        if condition.match_type not in ("prefix", "suffix"):
            raise ValueError(f"unknown match type {condition.match_type!r}; it must be prefix or suffix")
        if condition.match_type in wanted:
            raise ValueError(f"a listing takes one {condition.match_type}, not several")
        wanted[condition.match_type] = tuple(condition.path)
    if op.limit <= 0:
        batch.empty.add(place)
        return
    batch.operations[place] = types.NamespacesOperation(
        prefix=wanted.get("prefix", ()),
        suffix=wanted.get("suffix", ()),
        max_depth=None if op.max_depth is None else min(op.max_depth, types.MAX_DEPTH),
        limit=op.limit,
        offset=op.offset,
        expired=ttl.shows_expired,
    )


def _conditions(conditions: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a filter as JSON can hold it; None if nothing fits it, as nothing compares with NaN.

    Raises `ValueError` for a name or an operator that LangGraph's databases refuse.
    """
    found: dict[str, Any] = {}
    for key, condition in conditions.items():
        if not _FILTER_KEY.fullmatch(key):
            raise ValueError(
                f"Invalid filter key: {key[:80]!r}. It may have letters, digits, underscores, full stops and hyphens"
            )
        if isinstance(condition, Mapping) and any(str(name).startswith("$") for name in condition):
            unknown = next((name for name in condition if name not in types.OPERATORS), None)
            if unknown is not None:
                raise ValueError(f"Unsupported operator: {unknown}. Known are {', '.join(types.OPERATORS)}")
            found[key] = {name: _comparable(value) for name, value in condition.items()}
            wanted = list(found[key].values())
        else:
            found[key] = _comparable(condition)
            wanted = [found[key]]
        if any(isinstance(value, float) and math.isnan(value) for value in wanted):
            return None
    return found


def _comparable(value: Any) -> Any:
    """Return a number that JSON can hold: the largest one in place of infinity, and of a whole number beyond it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, int) and abs(value) < _EXACT:
        return value
    try:
        return math.copysign(min(abs(float(value)), _LARGEST), value) if not math.isnan(value) else value
    except OverflowError:
        return math.copysign(_LARGEST, value)


def _item_fields(item: types.Item) -> dict[str, Any]:
    own = {name: getattr(item, name) for name in ("key", "value", "created_at", "updated_at")}
    return {"namespace": tuple(item.namespace), **own}
