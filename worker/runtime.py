"""The resources of one process: stores, broker, embedder, language models. Never shared with another process."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypedDict, Unpack

import redis
import structlog

from adapters.broker.erasing import BrokerErasure
from adapters.broker.inbox import WorkerInbox
from adapters.broker.monitor import Monitor
from adapters.broker.queued_tasks import QueuedTasks
from adapters.broker.recall_log import RecallBuffer, RecallLog
from adapters.broker.shared_metrics import (
    EMBEDDED_TEXTS,
    EMBEDDED_TOKENS,
    EMBEDDING_CALLS,
    LONG_TRANSACTIONS,
    MODEL_CALLS,
    MODEL_TOKENS,
    OTHER_TASK,
    SharedMetrics,
)
from adapters.broker.working_memory import WorkingMemory
from adapters.calls import ModelSpec
from adapters.embedders.base import Embedder, EmbedderSpec
from adapters.embedders.guarded import EmbeddingObserver, EmbeddingPurpose, GuardedEmbedder
from adapters.embedders.record import EmbedderRecord, ForeignEndpoint, build_embedder, recorded_embedder
from adapters.language_models import (
    GuardedLanguageModel,
    ModelUsage,
    OpenAICompatibleLanguageModel,
    Prices,
    TokenBudget,
)
from adapters.rerankers import MAX_TEXTS, MAX_TEXTS_WITHOUT_MODEL, GuardedReranker, RerankEndpoint
from adapters.tokens import EstimatedTokens, KeptTokenCounts, TokenCounter, build_token_counter
from adapters.tracing import Tracing, make_tracing
from adapters.workspace_git import GitFolders
from beat_schedule import SCHEDULE_SECONDS
from memory.idle_stores import IdleFiles, IdleStores
from memory.lifecycle.erasing import ErasureServices
from memory.lifecycle.host_folder import HostFolder
from memory.pipeline.pace import Pace
from memory.pipeline.recovery import StageSweep
from memory.scheduling.due_runs import DueLoop
from memory.scheduling.executing import AttemptLimits
from memory.secrets import looks_secret
from memory.tombstones import ALL_AGENTS, hash_key, index_name, indexes_changed_at, read_erased
from memory.trust.quotas import Quotas
from memory.upkeep.notebook import Notebooks
from retrieval.index.cache import AgentIndexes
from retrieval.recaller import Recaller, Reranking
from reverie import __version__, contract
from reverie.clock import now_micros
from reverie.config import parse_keys
from reverie.errors import ReverieError, Unavailable
from reverie.pipeline.broker import connect
from reverie.pipeline.producer import TaskSender
from storage.index.search_index import Generation
from storage.migrations import newest_version
from storage.pipeline.work import STAGES
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.upkeep.jobs import Usage
from worker.clock_watch import ClockWatch, steady_micros
from worker.host_upkeep import host_folder, open_own_stores
from worker.model_specs import embedder_spec, language_model_spec, remote_services, reranker_spec
from worker.scheduling.services import ScheduleParts, ScheduleServices
from worker.settings import Settings
from worker.supervision.broker_address import embedded_broker_url

_POLL_SECONDS: Final = 1.0
# Models in memory in addition to the configured one. A model takes hundreds of MB; the least recently used is dropped
# first.
_MAX_MODELS: Final = 4

log = structlog.get_logger(__name__)


class ErasedIndexes:
    """A thread that checks once a second whether an erasure concerns an index of this process, once it has one."""

    def __init__(self, data: Path, indexes: AgentIndexes) -> None:
        self._data = data
        self._indexes = indexes
        self._seen_file = indexes_changed_at(data)
        self._seen = dict(read_erased(data))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="erased-indexes", daemon=True)
        self._thread.start()

    def look(self) -> int:
        """Drop the indexes of agents that were erased since the last look; return how many."""
        changed = indexes_changed_at(self._data)
        if changed == self._seen_file:
            return 0
        erased, key = read_erased(self._data), hash_key(self._data)
        since = {name for name, at in erased.items() if self._seen.get(name) != at}
        self._seen_file, self._seen = changed, dict(erased)
        return self._indexes.drop(
            lambda store, agent: (
                not since.isdisjoint((index_name(key, store, agent), index_name(key, store, ALL_AGENTS)))
            )
        )

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._indexes.filled.set()
        self._thread.join()

    def _run(self) -> None:
        self._indexes.filled.wait()  # processes that only work never have an index
        while not self._closing.wait(_POLL_SECONDS):
            try:
                self.look()
            except ReverieError as error:  # the next look tries again
                log.warning("erased_indexes_not_dropped", error=str(error))


def fingerprint(settings: Settings) -> str:
    """Return a hash of the version, the schema and the settings."""
    parts = f"{__version__} {newest_version('workspace')} {settings.model_dump_json()}"
    return blake2b(parts.encode(), digest_size=16).hexdigest()


class StoreEmbedders:
    """The embedder of each store: the one that made its vectors, even if the settings select another. Thread-safe.

    Every process notices a change of model on its next use, without a restart. A model is loaded once in a process,
    however many workspaces and revisions use it.
    """

    def __init__(
        self,
        settings: EmbedderSpec,
        configured: GuardedEmbedder | None,
        observe: EmbeddingObserver = lambda _purpose, _texts, _succeeded: None,
    ) -> None:
        self._settings = settings
        self._configured = configured
        self._observe = observe
        self._recorded: OrderedDict[str, GuardedEmbedder | None] = OrderedDict()
        self._lock = threading.Lock()

    def for_store(self, store: Store) -> GuardedEmbedder | None:
        """Return the embedder of the vectors that a store searches, loaded or not; None for keyword search only.

        It is the configured embedder if the store has no vectors yet, if it made them, or if the store does not record
        how to make another one: then recall and the embed stage notice that it does not match. Without a configured
        embedder every store is searched by keywords only.
        """
        if self._configured is None:
            return None
        with store.reading() as tx:
            return self.for_transaction(tx)

    def for_transaction(self, tx: Transaction) -> GuardedEmbedder | None:
        """Return the embedder as `for_store`, for the store of an open transaction. Loads no model in it."""
        if self._configured is None:
            return None
        vectors = [generation for generation in tx.index.generations() if generation.kind == "vector"]
        for generation in vectors:
            if generation.state == "building" and not self._is_configured(generation):
                self._prepare(generation)
        active = next((generation for generation in vectors if generation.state == "active"), None)
        if active is None or not active.embedder or self._is_configured(active):
            return self._configured
        return self._recorded_embedder(active.embedder)[0] or self._configured

    def _is_configured(self, generation: Generation) -> bool:
        configured = self._configured
        # Some models know their dimension only once they are loaded, so it is compared again on use.
        return (
            configured is not None
            and configured.model == generation.model
            and configured.dimension in (0, generation.dim)
        )

    def _recorded_embedder(self, record_text: str) -> tuple[GuardedEmbedder | None, bool]:
        """Return the embedder of a record, and whether it is new in this process."""
        with self._lock:
            if record_text in self._recorded:
                self._recorded.move_to_end(record_text)
                return self._recorded[record_text], False
            self._recorded[record_text] = embedder = self._make(record_text)
            while len(self._recorded) > _MAX_MODELS:
                self._recorded.popitem(last=False)
            return embedder, True

    def _make(self, record_text: str) -> GuardedEmbedder | None:
        record = EmbedderRecord.decode(record_text)
        if record is None:
            return None
        configured = self._configured.inner if self._configured is not None else None
        try:
            embedder = recorded_embedder(record, self._settings, configured)
        except ForeignEndpoint as error:
            log.warning("recorded_endpoint_refused", error=str(error))
            return None
        if embedder is None:
            return None
        wait_seconds = self._settings.recall_wait_seconds
        return GuardedEmbedder(embedder, recall_wait_seconds=wait_seconds, observe=self._observe)

    def _prepare(self, generation: Generation) -> None:
        """Load the next model while the old one is still in use, so that no recall waits for it at the switch."""
        if not generation.embedder:
            return
        embedder, new = self._recorded_embedder(generation.embedder)
        if new and embedder is not None:
            threading.Thread(target=_load_next, args=(embedder,), name="next-embedder", daemon=True).start()


def _load_next(embedder: GuardedEmbedder) -> None:
    try:
        embedder.load()
    except Unavailable as error:
        log.warning("next_embedder_not_ready", model=embedder.model, error=str(error))


def embedding_counter(metrics: SharedMetrics) -> EmbeddingObserver:
    """Return a function that counts the calls, texts and tokens of embedders in the metrics.

    Tokens are estimated: counting them exactly would take 40 us a text.
    """
    tokens = EstimatedTokens()

    def observe(purpose: EmbeddingPurpose, texts: Sequence[str], succeeded: bool) -> None:
        metrics.count(EMBEDDING_CALLS, purpose, "done" if succeeded else "failed")
        if succeeded:
            metrics.count(EMBEDDED_TEXTS, purpose, amount=len(texts))
            metrics.count(EMBEDDED_TOKENS, purpose, amount=sum(tokens.count(texts)))

    return observe


def usage_recorder(stores: Stores, metrics: SharedMetrics, *, now: Callable[[], int]) -> Callable[[ModelUsage], None]:
    """Return a function that records usage of the language model in the account's database, and then counts it."""

    def record(used: ModelUsage) -> None:
        stores.usage().add(Usage(**asdict(used)), now=now())
        metrics.count(MODEL_CALLS, used.purpose, "done", amount=used.calls - used.failures)
        metrics.count(MODEL_CALLS, used.purpose, "failed", amount=used.failures)
        metrics.count(MODEL_TOKENS, used.purpose, "input", amount=used.input_tokens)
        metrics.count(MODEL_TOKENS, used.purpose, "output", amount=used.output_tokens)

    return record


def flush_at_end(metrics: SharedMetrics) -> None:
    """Add a process's counts when it ends; without a broker they are lost."""
    with contextlib.suppress(Unavailable):
        metrics.flush()


# The task that runs each stage.
STAGE_TASKS: Final[dict[str, str]] = {
    "ingest": contract.INGEST_MESSAGES,
    "chunk": contract.CHUNK_MESSAGES,
    "chunk-files": contract.CHUNK_MESSAGES,
    "chunk-memories": contract.CHUNK_MESSAGES,
    "embed": contract.EMBED_CHUNKS,
    "index": contract.INDEX_CHUNKS,
    "items": contract.EMBED_ITEMS,
    "goals": contract.EMBED_GOALS,
    "recalls": contract.RECORD_RECALLS,
}


class RuntimeParts(TypedDict, total=False):
    """Parts that replace those a Runtime would make from its settings, for instance fakes in tests.

    The caller closes them. None is a value: a Runtime given `embedder=None` has no embedder.
    """

    clock: Callable[[], int]
    steady_clock: Callable[[], int]
    stores: Stores
    broker: redis.Redis
    inbox: WorkerInbox
    task_sender: TaskSender
    schedule_parts: ScheduleParts
    embedder: GuardedEmbedder | None
    language_model: GuardedLanguageModel | None
    extraction_model: GuardedLanguageModel | None
    schedule_model: GuardedLanguageModel | None
    reranker: GuardedReranker | None


class Runtime:
    """The resources of one process. Each is made when it is first used, so after the fork."""

    def __init__(self, settings: Settings, **parts: Unpack[RuntimeParts]) -> None:
        self.settings = settings
        self.pid = os.getpid()
        process = os.environ.get("REVERIE_PROCESS", "process")
        self.worker_name = process if "@" in process else f"{process}@{socket.gethostname()}"
        self.clock: Callable[[], int] = now_micros
        # A given clock cannot be compared with the machine's, so it is trusted not to jump.
        self.steady_clock: Callable[[], int] = parts.get("clock", steady_micros)
        # The models that this process has made so far, for the report of its state.
        self.embedder_made: GuardedEmbedder | None = None
        self.language_models_made: list[GuardedLanguageModel] = []
        self.schedule_parts: ScheduleParts = {}
        # Returns the name of the task that this thread runs, empty outside of tasks.
        self.current_task: Callable[[], str] = lambda: ""
        self._paces: dict[str, Pace] = {}
        # Until when, by the monotonic clock, the last task that could embed nothing counts, and what it said.
        self.embedding_blocked: tuple[float, str] = (0.0, "")
        # How long a caller waits for a workspace that is being opened or migrated; None for no limit.
        self.store_patience_seconds: float | None = None
        # How many connections to files of stores this process keeps open; None for as many as the system allows.
        self.kept_connections: int | None = None
        # CPU threads that a local embedding model uses; 0 for all cores.
        self.embedding_threads = 0
        self._closing = ExitStack()
        for name, part in parts.items():
            setattr(self, name, part)  # replaces the cached property

    @cached_property
    def stores(self) -> Stores:
        """The databases."""
        stores = open_own_stores(
            self.settings, patience_seconds=self.store_patience_seconds, kept_connections=self.kept_connections
        )
        self._closing.callback(stores.close)
        stores.on_long_write = self._note_long_write
        return stores

    def _note_long_write(self, seconds: float) -> None:
        """Count a transaction that has held the write lock of a store for long, and say which task made it."""
        task = self.current_task().removeprefix("reverie.") or OTHER_TASK
        log.warning("long_transaction", task=task, seconds=round(seconds, 3))
        self.shared_metrics.count(LONG_TRANSACTIONS, task)

    @cached_property
    def broker(self) -> redis.Redis:
        """The connection pool of the broker."""
        broker = connect(self.settings.broker_url)
        self._closing.callback(broker.close)
        return broker

    @cached_property
    def inbox(self) -> WorkerInbox:
        """The queue of accepted payloads that are not stored yet."""
        keys = parse_keys(self.settings.broker_key)
        return WorkerInbox(self.broker, prefix=self.settings.broker_prefix, keys=keys)

    @cached_property
    def working_memory(self) -> WorkingMemory:
        """The newest messages of each session, in the broker."""
        return WorkingMemory(self.broker, prefix=self.settings.broker_prefix)

    @cached_property
    def recall_log(self) -> RecallLog:
        """The queue of recall events that are not stored yet."""
        return RecallLog(self.broker, prefix=self.settings.broker_prefix)

    @cached_property
    def recall_buffer(self) -> RecallBuffer:
        """The recall events of this process that are not in the recall log yet."""
        buffer = RecallBuffer(self.recall_log, on_flushed=lambda workspace: self.notify_stage("recalls", workspace))
        self._closing.callback(buffer.close)
        return buffer

    @cached_property
    def indexes(self) -> AgentIndexes:
        """The in-memory indexes of recently used agents."""
        indexes = AgentIndexes(self.settings.recall_memory_mb * 1024 * 1024)
        self._closing.callback(ErasedIndexes(self.settings.data, indexes).close)
        return indexes

    @cached_property
    def erasure_services(self) -> ErasureServices:
        """The services of this process that erasures use."""
        settings = self.settings
        embedded = settings.broker_url == embedded_broker_url(settings.data)
        return ErasureServices(
            data=settings.data,
            stores=self.stores,
            inbox=self.inbox,
            working=self.working_memory,
            recalls=self.recall_log,
            broker=BrokerErasure(self.broker, self.inbox, prefix=settings.broker_prefix, embedded=embedded),
            notebooks=self.notebooks,
            now=self.now,
            remote=remote_services(settings),
            host=self.host_folder,
        )

    @cached_property
    def host_folder(self) -> HostFolder | None:
        """This host's data folder among those that share the stores; None for files, which are on one host."""
        return host_folder(self.settings, self.stores, lambda: self.now())

    @cached_property
    def quotas(self) -> Quotas:
        """How much may be stored. Makes no connection."""
        return Quotas(self.stores, lambda: self.inbox, defaults=self.settings.quotas)

    @cached_property
    def monitor(self) -> Monitor:
        """The heartbeats of the processes, and the pipeline's lag."""
        settings = self.settings
        return Monitor(self.broker, prefix=settings.broker_prefix, flushed=settings.broker_is_flushed)

    @cached_property
    def shared_metrics(self) -> SharedMetrics:
        """The counters and histograms that all processes share. Pending counts are added when this closes."""
        metrics = SharedMetrics(self.broker, prefix=self.settings.broker_prefix)
        self._closing.callback(flush_at_end, metrics)
        return metrics

    @cached_property
    def tracing(self) -> Tracing | None:
        """The sender of traces, or None without a collector."""
        tracing = make_tracing(self.settings.otlp_endpoint, process=self.worker_name)
        if tracing is not None:
            self._closing.callback(tracing.close)
        return tracing

    @cached_property
    def task_sender(self) -> TaskSender:
        """The sender of tasks."""
        return TaskSender(self.settings.broker_url, prefix=self.settings.broker_prefix)

    @cached_property
    def schedules(self) -> ScheduleServices:
        """The senders that schedules and reminders use: webhooks, tasks for runs, the agents' own workers."""
        services = ScheduleServices(self, **self.schedule_parts)
        self._closing.callback(services.close)
        return services

    @cached_property
    def embedder(self) -> GuardedEmbedder | None:
        """The configured embedder behind its circuit breaker, or None for keyword search only.

        The model itself is loaded on first use.
        """
        spec = embedder_spec(self.settings, threads=self.embedding_threads)
        embedder = build_embedder(spec)
        if embedder is not None:
            self.embedder_made = GuardedEmbedder(
                embedder,
                recall_wait_seconds=spec.recall_wait_seconds,
                observe=embedding_counter(self.shared_metrics),
            )
        return self.embedder_made

    @cached_property
    def tokens(self) -> TokenCounter:
        """The embedding model's own tokenizer if it is installed, else an estimate."""
        return KeptTokenCounts(build_token_counter(self.settings.embedding_provider, self.settings.embedding_model))

    @cached_property
    def language_model(self) -> GuardedLanguageModel | None:
        """The configured language model, or None. Making it sends no request."""
        return self._guarded(language_model_spec(self.settings))

    @cached_property
    def extraction_model(self) -> GuardedLanguageModel | None:
        """The language model that extracts memories: `language_model`, unless the settings select another."""
        name = self.settings.extraction_model
        spec = language_model_spec(self.settings)
        if spec is None or name in (None, "", spec.model):
            return self.language_model
        return self._guarded(replace(spec, model=name))

    @cached_property
    def schedule_model(self) -> GuardedLanguageModel | None:
        """The language model with the longer timeout of schedules: no caller waits for their answers."""
        spec = language_model_spec(self.settings)
        return None if spec is None else self._guarded(replace(spec, timeout_seconds=AttemptLimits().llm))

    @cached_property
    def reranker(self) -> GuardedReranker | None:
        """The configured reranker behind its circuit breaker, or None. Making it sends no request."""
        spec = reranker_spec(self.settings)
        if spec is None:
            return None
        reranker = GuardedReranker(RerankEndpoint(spec))
        self._closing.callback(reranker.close)
        return reranker

    @cached_property
    def clock_watch(self) -> ClockWatch:
        """The watch of the machine's clock, which knows whether it has just jumped."""
        return ClockWatch(self.settings.data, now=lambda: self.now(), steady=lambda: self.steady())

    @cached_property
    def idle_stores(self) -> IdleStores:
        """The stores in which frequent jobs had nothing to do since they were last written."""
        folder = self.settings.data / "run" / "idle"
        return IdleStores(IdleFiles(folder, fingerprint(self.settings)))

    @cached_property
    def store_embedders(self) -> StoreEmbedders:
        """The embedders by store: a store may still be searched by the vectors of an earlier model."""
        observe = embedding_counter(self.shared_metrics)
        return StoreEmbedders(embedder_spec(self.settings, threads=self.embedding_threads), self.embedder, observe)

    @cached_property
    def recaller(self) -> Recaller:
        """The recall over all stores of this process."""
        most = MAX_TEXTS if self.settings.reranker_model else MAX_TEXTS_WITHOUT_MODEL
        reranking = Reranking(self.reranker, most) if self.reranker else None

        def embedder_for(tx: Transaction) -> Embedder | None:
            embedder = self.store_embedders.for_transaction(tx)
            return None if embedder is None else embedder.for_recalls

        return Recaller(self.stores, embedder_for, self.indexes, self.now, reranking)

    @cached_property
    def notebooks(self) -> Notebooks:
        """The git repositories of the agents' memory files, unless `workspace_git` is off. Opens none."""
        settings = self.settings
        if not settings.workspace_git:
            return Notebooks(None, trust=settings.trust)
        if self.host_folder is not None:  # this joins the hosts before anything is written
            return self.host_folder.notebooks
        return Notebooks(GitFolders(settings.data, looks_secret), trust=settings.trust)

    @cached_property
    def stage_sweep(self) -> StageSweep:
        """The sweep for work whose notification was lost. Without an embedder it does not look for chunks to embed."""
        without = ("embed", "items") if self.settings.embedding_provider == "none" else ()
        return StageSweep([stage for stage in STAGES if stage not in without], self.idle_stores)

    def make_all(self) -> None:
        """Make every resource now, before threads share them.

        From Python 3.12 on `cached_property` takes no lock: two threads that use a resource first would each make one.
        """
        for name, attribute in vars(Runtime).items():
            if isinstance(attribute, cached_property):
                getattr(self, name)

    def due_loop(self) -> DueLoop:
        """Return a new loop over the stores in which something becomes due."""
        return DueLoop(stores=self.stores, idle_stores=self.idle_stores, now=self.now, turn_seconds=SCHEDULE_SECONDS)

    def embedder_for(self, store: Store) -> GuardedEmbedder | None:
        """Return the embedder of the vectors that a store searches, or None for keyword search only.

        Call it again for each piece of work: the model may have been changed since.
        """
        return self.store_embedders.for_store(store)

    def pace_of(self, embedder: Embedder) -> Pace:
        """Return how fast an embedder was in this process."""
        return self._paces.setdefault(embedder.model, Pace())

    def store(self, workspace: str) -> Store:
        """Return the store of a workspace; creates it if it does not exist."""
        return self.stores.workspace(workspace)

    def now(self) -> int:
        """Return the current time in microseconds since the epoch."""
        return self.clock()

    def steady(self) -> int:
        """Return microseconds of a clock that nobody sets and that may begin anywhere."""
        return self.steady_clock()

    def notify_stage(self, stage: str, workspace: str, *, trace: str = "") -> None:
        """Send a stage's task unless one is queued. Broker errors are suppressed: the sweep sends it later."""
        self._notify(self.inbox.claim_notification, stage, workspace, trace=trace)

    def queued_tasks(self) -> QueuedTasks:
        """Return the queued tasks, read once for a sweep."""
        return QueuedTasks(self.inbox, self.broker, prefix=self.settings.broker_prefix)

    def sweep_notifier(self, queued: QueuedTasks) -> Callable[[str, str], None]:
        """Return a function that sends a stage's task for a workspace unless one is queued already."""
        return partial(self._notify, queued.must_be_sent)

    def close(self) -> None:
        """Close what this runtime made, in reverse order. Given parts are left to their owner."""
        self._closing.close()

    def _notify(self, must_be_sent: Callable[[str, str], bool], stage: str, workspace: str, *, trace: str = "") -> None:
        task = STAGE_TASKS[stage]
        with contextlib.suppress(Unavailable):
            if must_be_sent(task, workspace):
                self.task_sender.send(task, workspace=workspace, trace=trace)
                self.inbox.confirm_notification(task, workspace)

    def _tokens_used_today(self) -> int:
        return self.stores.usage().tokens_today(now=self.now())

    def _guarded(self, spec: ModelSpec | None) -> GuardedLanguageModel | None:
        if spec is None:
            return None
        # Made first, so that they are closed after the model, which still records its last usage.
        record_usage = usage_recorder(self.stores, self.shared_metrics, now=self.now)
        tokens = self.settings.language_model_daily_tokens
        model = GuardedLanguageModel(
            OpenAICompatibleLanguageModel(spec),
            prices=Prices(*self.settings.token_prices),
            record=record_usage,
            budget=None if tokens is None else TokenBudget(tokens, self._tokens_used_today),
        )
        self.language_models_made.append(model)
        self._closing.callback(model.close)
        return model
