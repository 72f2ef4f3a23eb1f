"""What one process holds open: stores, broker, embedder. Made after the fork, on first use, and never shared."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Final

import redis
import structlog

from adapters.broker.inbox import WorkerInbox
from adapters.broker.pulse import Pulse
from adapters.broker.recall_buffer import RecallBuffer
from adapters.broker.recall_log import RecallLog
from adapters.broker.working_memory import WorkingMemory
from adapters.embedders import Embedder, EmbedderSpec, build_embedder
from adapters.embedders.openai_compatible import BATCH_INPUTS
from adapters.embedders.resilience import GuardedEmbedder
from adapters.language_models import (
    GuardedLanguageModel,
    LanguageModelSpec,
    OpenAICompatibleLanguageModel,
    Prices,
    Used,
)
from adapters.tokens import TokenCounter, build_token_counter
from adapters.workspace_git import GitFolders
from memory.memories.secrets import looks_secret
from memory.pipeline.recovery import StageSweep
from memory.quiet import QuietStores
from retrieval.indexes import AgentIndexes
from reverie import contract
from reverie.clock import now_micros
from reverie.contract import Outcome
from reverie.errors import Unavailable
from reverie.pipeline.broker import connect
from reverie.pipeline.producer import TaskSender
from storage.pipeline.work import Stage
from storage.records import ReadyMessage
from storage.stores import Store, Stores
from storage.upkeep.usage import Usage
from worker.scheduling.services import ScheduleServices
from worker.settings import Settings
from worker.store_embedders import StoreEmbedders

# The task that runs each stage.
STAGE_TASKS: Final[dict[str, str]] = {
    "ingest": contract.INGEST_MESSAGES,
    "chunk": contract.CHUNK_MESSAGES,
    "chunk-files": contract.CHUNK_MESSAGES,
    "chunk-memories": contract.CHUNK_MESSAGES,
    "embed": contract.EMBED_CHUNKS,
    "index": contract.INDEX_CHUNKS,
    "recalls": contract.RECORD_RECALLS,
}

log = structlog.get_logger(__name__)


class Runtime:
    """The open resources of one process. Each is made when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pid = os.getpid()
        self.worker_name = f"{os.environ.get('REVERIE_PROCESS', 'process')}@{socket.gethostname()}"

    @cached_property
    def stores(self) -> Stores:
        """The databases."""
        return Stores(self.settings.data)

    @cached_property
    def broker(self) -> redis.Redis:
        """The broker's connection pool."""
        return connect(self.settings.broker_url)

    @cached_property
    def inbox(self) -> WorkerInbox:
        """What was accepted and is not yet stored."""
        return WorkerInbox(self.broker, prefix=self.settings.broker_prefix)

    @cached_property
    def working(self) -> WorkingMemory:
        """The newest messages of each session."""
        capacity = self.settings.working_memory_cap
        return WorkingMemory(self.broker, prefix=self.settings.broker_prefix, capacity=capacity)

    @cached_property
    def recall_log(self) -> RecallLog:
        """What recalls found and is not yet recorded."""
        return RecallLog(self.broker, prefix=self.settings.broker_prefix)

    @cached_property
    def recalls(self) -> RecallBuffer:
        """What recalls of this process found and is not yet in the log."""
        return RecallBuffer(self.recall_log, on_flushed=lambda workspace: self.notify_stage("recalls", workspace))

    @cached_property
    def indexes(self) -> AgentIndexes:
        """The indexes in memory of the agents that were asked lately."""
        return AgentIndexes(self.settings.recall_memory_mb * 1024 * 1024)

    @cached_property
    def pulse(self) -> Pulse:
        """Who is alive, and how long messages take."""
        return Pulse(self.broker, prefix=self.settings.broker_prefix)

    @cached_property
    def task_sender(self) -> TaskSender:
        """Sends tasks to the workers."""
        return TaskSender(self.settings.broker_url, prefix=self.settings.broker_prefix)

    @cached_property
    def schedules(self) -> ScheduleServices:
        """What schedules and reminders need of the outside: webhooks, tasks for runs, the agents' own workers."""
        return ScheduleServices(self.settings, self.task_sender, self.inbox, self.pulse)

    @cached_property
    def embedder(self) -> GuardedEmbedder | None:
        """The embedder behind its circuit breaker, or None where words must do. The model is loaded on first use."""
        embedder = build_embedder(embedder_spec(self.settings))
        return GuardedEmbedder(embedder) if embedder is not None else None

    @cached_property
    def tokens(self) -> TokenCounter:
        """Counts tokens by the embedding model's own tokenizer, where that is on this machine."""
        return build_token_counter(self.settings.embedding_provider, self.settings.embedding_model)

    @cached_property
    def language_model(self) -> GuardedLanguageModel | None:
        """The language model, or None where everything is done without one. Nothing is asked of it here."""
        return self._guarded(language_model_spec(self.settings))

    @cached_property
    def extraction_model(self) -> GuardedLanguageModel | None:
        """The language model that memories are extracted by: the same, unless the settings name another."""
        name = self.settings.extraction_model
        spec = language_model_spec(self.settings)
        if spec is None or name in (None, "", spec.model):
            return self.language_model
        return self._guarded(replace(spec, model=name))

    @cached_property
    def schedule_model(self) -> GuardedLanguageModel | None:
        """The language model as schedules ask it: nobody waits for their answers, so it has longer for each."""
        spec, seconds = language_model_spec(self.settings), self.settings.schedule_llm_seconds
        return None if spec is None else self._guarded(replace(spec, timeout_seconds=seconds))

    @cached_property
    def quiet_stores(self) -> QuietStores:
        """Remembers in which workspaces the jobs that run often had nothing to do."""
        return QuietStores()

    def _guarded(self, spec: LanguageModelSpec | None) -> GuardedLanguageModel | None:
        if spec is None:
            return None
        prices = Prices(self.settings.language_model_input_price, self.settings.language_model_output_price)
        return GuardedLanguageModel(OpenAICompatibleLanguageModel(spec), prices=prices, record=self._record_usage)

    def _record_usage(self, used: Used) -> None:
        self.stores.usage().add(Usage(**asdict(used)), now=self.now())

    @cached_property
    def _store_embedders(self) -> StoreEmbedders:
        return StoreEmbedders(embedder_spec(self.settings), self.embedder)

    def embedder_of(self, store: Store) -> GuardedEmbedder | None:
        """The embedder of the vectors that a store searches, or None where words must do.

        Ask for it again for each piece of work: the model may have been changed since.
        """
        return self._store_embedders.of(store)

    def chunks_at_once(self, wanted: int, embedder: Embedder) -> int:
        """How many chunks may be claimed and embedded together, where a setting wants so many.

        A remote embedder gets one request a claim: its timeout lies below the lease, that of several does not.
        """
        return min(wanted, BATCH_INPUTS) if embedder.device == "remote" else wanted

    @cached_property
    def repositories(self) -> GitFolders | None:
        """Where each agent's memory files are committed, or None where that is switched off. Nothing is opened here."""
        return GitFolders(self.settings.data, looks_secret) if self.settings.workspace_git else None

    @cached_property
    def stage_sweep(self) -> StageSweep:
        """Finds work for which no task was sent. Without an embedder, chunks without vectors are no work."""
        stages: tuple[Stage, ...] = ("chunk", "chunk-files", "chunk-memories", "embed", "index")
        if self.settings.embedding_provider == "none":
            stages = ("chunk", "chunk-files", "chunk-memories", "index")
        return StageSweep(stages)

    def make_all(self) -> None:
        """Make everything now, in one thread: from Python 3.12 on, two threads that ask first would each make one."""
        for name in (
            "stores",
            "repositories",
            "broker",
            "inbox",
            "working",
            "recall_log",
            "recalls",
            "indexes",
            "pulse",
            "task_sender",
            "schedules",
            "embedder",
            "_store_embedders",
            "tokens",
            "language_model",
            "extraction_model",
            "schedule_model",
        ):
            getattr(self, name)

    def store(self, workspace: str) -> Store:
        """The store of a workspace, made where it does not exist."""
        return self.stores.workspace(workspace)

    def now(self) -> int:
        """The present in microseconds."""
        return now_micros()

    def notify_stage(self, stage: str, workspace: str, *, trace: str = "") -> None:
        """Send the task of a stage unless one is on its way. Broker errors are suppressed: the sweep sends it later."""
        task = STAGE_TASKS[stage]
        with contextlib.suppress(Unavailable):
            if self.inbox.claim_notification(task, workspace):
                self.task_sender.send(task, workspace=workspace, trace=trace)

    def anyone_waiting(self, store: Store) -> bool:
        """Whether a producer waits for something of this workspace; no, where the broker cannot say."""
        try:
            return self.inbox.anyone_waiting(store.name)
        except Unavailable:
            return False

    def searchable(self, store: Store, messages: Sequence[ReadyMessage], *, at: int, degraded: str = "") -> None:
        """Tell those who wait that messages can be recalled, and note how long it took. Never fails the work."""
        if not messages:
            return
        with contextlib.suppress(Unavailable):
            if not degraded:
                self.pulse.record_lags([(at - message.accepted_at) / 1_000_000 for message in messages])
            if self.inbox.anyone_waiting(store.name):
                outcomes = [
                    (message.agent, Outcome(id=message.id, state="searchable", degraded=degraded))
                    for message in messages
                ]
                self.inbox.reply(store.name, outcomes)

    def close(self) -> None:
        """Close what was opened."""
        if "recalls" in self.__dict__:
            self.recalls.close()
        for name in ("schedule_model", "extraction_model", "language_model"):
            model: GuardedLanguageModel | None = self.__dict__.get(name)
            if model is not None:
                model.close()
        if "schedules" in self.__dict__:
            self.schedules.close()
        if "stores" in self.__dict__:
            self.stores.close()
        if "broker" in self.__dict__:
            self.broker.close()


def embedder_spec(settings: Settings) -> EmbedderSpec:
    """The settings that decide where vectors come from."""
    return EmbedderSpec(
        provider=settings.embedding_provider,
        model=settings.embedding_model,
        dtype=settings.embedding_dtype,
        device=settings.embedding_device,
        base_url=settings.embedding_base_url,
        api_key=settings.embedding_api_key,
        dimension=settings.embedding_dimension,
        timeout_seconds=settings.embedding_timeout_seconds,
        threads=settings.embedding_threads,
    )


def language_model_spec(settings: Settings) -> LanguageModelSpec | None:
    """The settings that name a language model; None where none is set."""
    if settings.language_model_base_url is None or not settings.language_model:
        return None
    return LanguageModelSpec(
        base_url=settings.language_model_base_url,
        model=settings.language_model,
        api_key=settings.language_model_api_key,
        timeout_seconds=settings.language_model_timeout_seconds,
    )
