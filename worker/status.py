"""The status that commands, the server and the page show: the state of the pipeline, and what is wrong with it.

Where no server runs, a command reads it from the files of the data folder. People type that command when something is
wrong, and scripts every minute. So it makes only what a status needs: a whole `Runtime` takes a second of processor
time to import.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from adapters.embedders.guarded import GuardedEmbedder
from adapters.embedders.record import build_embedder
from memory.pipeline.broker_status import BrokerState, read_broker
from memory.status import StatusReader
from memory.trust.quotas import Quotas
from reverie.clock import now_micros
from reverie.errors import broker_away
from reverie.pipeline.status import PipelineStatus
from storage.opened import open_stores
from storage.stores import StoresReadOnce
from worker.conditions import find_conditions
from worker.doctor import check_logs, run_check
from worker.model_specs import embedder_spec, language_model_spec, reranker_spec
from worker.settings import Settings
from worker.supervision.broker_address import refused_connection

if TYPE_CHECKING:
    from adapters.broker.inbox import WorkerInbox
    from adapters.language_models import GuardedLanguageModel
    from adapters.rerankers import GuardedReranker


def read_status(reader: StatusReader, settings: Settings, *, now: int, starting: bool = False) -> PipelineStatus:
    """Return the current status with its findings; `now` and `starting` are as for `StatusReader.read`."""
    status = reader.read(now=now, starting=starting)
    logs = [found.found for found in run_check("Logs", partial(check_logs, settings.data))]
    status = msgspec.structs.replace(status, faults=[*status.faults, *logs])
    return msgspec.structs.replace(status, findings=find_conditions(status, settings))


def read_status_once(settings: Settings) -> PipelineStatus:
    """Return the status where no server runs, read from the stores and from the broker, if it answers."""
    files = settings.database is None
    with closing(StoresReadOnce(settings.data) if files else open_stores(settings.data, settings.database)) as stores:
        limits = Quotas(stores, _no_inbox, defaults=settings.quotas).amounts_allowed
        models = _embedder(settings), _language_model(settings), _reranker(settings)
        times = silence_before_extraction(settings), call_seconds(settings)
        reader = StatusReader(stores, partial(_read_broker, settings), *models, limits, *times)
        return read_status(reader, settings, now=now_micros())


def _read_broker(settings: Settings) -> BrokerState:
    """Return the state of the broker. The client of brokers is imported only where one listens: it takes 0.2 s."""
    if refused := refused_connection(settings.broker_url):
        return BrokerState(error=str(broker_away(refused)))
    from adapters.broker.inbox import WorkerInbox
    from adapters.broker.monitor import Monitor
    from reverie.pipeline.broker import connect

    with closing(connect(settings.broker_url)) as broker:
        monitor = Monitor(broker, prefix=settings.broker_prefix, flushed=settings.broker_is_flushed)
        return read_broker(WorkerInbox(broker, prefix=settings.broker_prefix), monitor)


def _no_inbox() -> WorkerInbox:
    raise AssertionError("what a workspace may hold does not depend on its inbox")


def silence_before_extraction(settings: Settings) -> float | None:
    """Return for how many seconds a session is silent before memories are extracted from it; None if none ever are."""
    return settings.extraction_debounce_seconds if settings.extraction_enabled else None


def call_seconds(settings: Settings) -> float:
    """Return for how many seconds a call of the language model may last; 0 without one."""
    return settings.language_model_timeout_seconds if language_model_spec(settings) else 0.0


def _embedder(settings: Settings) -> GuardedEmbedder | None:
    embedder = build_embedder(embedder_spec(settings))
    return None if embedder is None else GuardedEmbedder(embedder)


def _language_model(settings: Settings) -> GuardedLanguageModel | None:
    """Return the language model of the settings, which is not called; None if there is none."""
    spec, tokens = language_model_spec(settings), settings.language_model_daily_tokens
    if spec is None:
        return None
    from adapters.language_models import GuardedLanguageModel, OpenAICompatibleLanguageModel, TokenBudget

    budget = None if tokens is None else TokenBudget(tokens, lambda: 0)
    return GuardedLanguageModel(OpenAICompatibleLanguageModel(spec), budget=budget)


def _reranker(settings: Settings) -> GuardedReranker | None:
    """Return the reranker of the settings, which is not called; None if there is none."""
    spec = reranker_spec(settings)
    if spec is None:
        return None
    from adapters.rerankers import GuardedReranker, RerankEndpoint

    return GuardedReranker(RerankEndpoint(spec))
