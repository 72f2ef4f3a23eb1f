"""The services that all handlers share: the runtime, recall and its recording, status, and existing stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from blake3 import blake3
from msgspec import structs

from adapters.broker.recall_log import QUERY_CHARACTERS, CapturedNote, RecallNote
from memory.evaluation import items_of
from memory.memories.agent_memories import AgentMemories
from memory.pipeline.broker_status import read_broker
from memory.status import StatusReader
from memory.trust.audited import audited_name, audited_trace
from memory.trust.quotas import Quotas
from memory.trust.tokens import Principal, TokenChecker
from memory.upkeep.dreaming import normalised_query
from retrieval.query import RecallRequest
from reverie.calls import InSession
from reverie.clock import new_id
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Unavailable
from reverie.pipeline.producer import Producer
from reverie.pipeline.status import PipelineStatus
from reverie.recall.calls import GetContext
from reverie.recall.types import Context, RecallResponse
from server.authentication import Ledger, Rates
from server.bodies import BODY_MEMORY_BYTES, BODY_SECONDS, BodyReader
from server.caller import Caller
from server.metrics import Metrics, host_metrics, shared_metrics
from server.responses import Repeats, Threads
from storage.index.search_index import Hit
from storage.store import viewer_of
from storage.stores import Store
from storage.trust.audit import AuditEntry
from storage.viewer import Viewer
from worker.runtime import Runtime
from worker.status import call_seconds, read_status, silence_before_extraction

_T = TypeVar("_T")
_PAUSE_SHARE: Final = 10
# Reading a status ends within some two seconds. One that waited for longer, as for a database that stood still, has
# computed no more, and what it says must not be shown for minutes.
_LONGEST_SECONDS: Final = 20.0


class Kept(Generic[_T]):
    """A value that is read again once it is older than `seconds`. Thread-safe; only one caller reads at a time.

    A value that takes long to read is kept for ten times that long, so that reading takes a tenth of a core at most,
    and for 20 s at most. An error is raised and not kept.
    """

    def __init__(self, read: Callable[[], _T], *, seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = threading.Lock()
        self._took_seconds = 0.0
        self._kept: tuple[float, _T] | None = None

    def read(self) -> _T:
        """Return the value."""
        with self._lock:
            fresh_seconds = max(self._seconds, min(_PAUSE_SHARE * self._took_seconds, _LONGEST_SECONDS))
            if self._kept is None or time.monotonic() - self._kept[0] >= fresh_seconds:
                started = time.monotonic()
                value = self._read()
                ended = time.monotonic()
                self._kept, self._took_seconds = (ended, value), ended - started
            return self._kept[1]


# Unrelated results have a lower relevance than this (docs/recall-measurements.md): they do not count as recalled.
RECALL_EVENT_MIN_SCORE: Final = 0.05
# As long as documents that agents paste into a question; longer ones would fill the broker.
_CAPTURED_CHARACTERS: Final = 8_000
# Reading the status reads every workspace, so it is read at most this often, however many callers ask.
STATUS_SECONDS: Final = 1.0
# `reverie up` starts the server first. Workers report after some seconds, on a slow machine after half a minute.
STARTING_SECONDS: Final = 30.0


class Services:
    """The services of one application."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._started = time.monotonic()
        self.threads = Threads()
        # Set when the process begins to stop, so that streams, such as server-sent events, end their responses.
        self.stopping = threading.Event()
        self.bodies = BodyReader(memory_bytes=BODY_MEMORY_BYTES, seconds=BODY_SECONDS)
        self.repeats = Repeats(lambda: runtime.broker, prefix=runtime.settings.broker_prefix)
        self.rates = Rates(runtime.settings.token_rates)
        # The workspaces that are being created, each with the number of calls that are handled or accepted for it.
        self._workspaces: dict[str, int] = {}
        self._creating = threading.Lock()
        self._status = Kept(self._read_status, seconds=STATUS_SECONDS)
        self.metrics = Metrics(self.status, partial(shared_metrics, runtime), partial(host_metrics, runtime.settings))
        self.metrics.counter(
            "reverie_recalls_dropped",
            "Recalls whose hits were not recorded because the buffer was full.",
            lambda: runtime.recall_buffer.dropped,
        )

    @cached_property
    def _status_reader(self) -> StatusReader:
        runtime = self.runtime
        return StatusReader(
            runtime.stores,
            partial(read_broker, runtime.inbox, runtime.monitor),
            runtime.embedder,
            runtime.language_model,
            runtime.reranker,
            self.quotas.amounts_allowed,
            silence_before_extraction(runtime.settings),
            call_seconds(runtime.settings),
        )

    def _read_status(self) -> PipelineStatus:
        starting = time.monotonic() - self._started < STARTING_SECONDS
        return read_status(self._status_reader, self.runtime.settings, now=self.runtime.now(), starting=starting)

    @cached_property
    def token_checker(self) -> TokenChecker:
        """The tokens that this server has checked."""
        return TokenChecker(self.runtime.stores, now=self.runtime.now)

    @property
    def quotas(self) -> Quotas:
        """How much may be stored."""
        return self.runtime.quotas

    @cached_property
    def ledger(self) -> Ledger:
        """The collector of refusals and of the uses of tokens."""
        return Ledger(self.runtime.stores, self.token_checker)

    def status(self) -> PipelineStatus:
        """Return the state of the pipeline, read at most once a second however many ask."""
        return self._status.read()

    def producer(self, workspace: str) -> Producer:
        """Return a producer for one workspace; all share the broker's connections and one Celery app."""
        runtime = self.runtime
        return Producer(
            runtime.settings.broker_url,
            workspace=workspace,
            prefix=runtime.settings.broker_prefix,
            inbox=runtime.inbox,
            task_sender=runtime.task_sender,
        )

    def recall(self, caller: Caller, request: RecallRequest) -> RecallResponse:
        """Recall in the caller's workspace and record the hits. Raises as `Recaller.recall` does.

        A recall of an earlier time is not recorded, because its results may not hold any more. A recall by a person who
        browses is not recorded either: only the agent's own recalls make memories last.
        """
        started, asked_at = time.perf_counter(), self.runtime.now()
        outcome = self.runtime.recaller.recall(caller.workspace, request)
        self.metrics.observe_recall(time.perf_counter() - started, degraded=bool(outcome.response.degraded))
        if request.as_of is not None:
            return outcome.response
        captured = self.captured("recall", request, outcome.response, viewer=outcome.viewer)
        hits = (*outcome.hits, *outcome.folded)
        note = RecallNote(
            agent=caller.agent, recall=new_id(), query=request.query, at=asked_at, hits=[], captured=captured
        )
        self.record_recall(caller, note, hits, viewer=outcome.viewer)
        return outcome.response

    def captured(
        self,
        kind: Literal["recall", "context"],
        call: RecallRequest | GetContext,
        response: RecallResponse | Context,
        *,
        viewer: Viewer,
    ) -> CapturedNote | None:
        """Return a call and its results, to be kept for `reverie evaluate`; None if the settings do not ask for it.

        It is also None for a group, whose words belong to several users, for a query longer than 8,000 characters, and
        for a query given as a vector, which another model could not use.
        """
        query = call.query or ""
        if not self.runtime.settings.captured_queries_days or viewer.group is not None:
            return None
        if len(query) > _CAPTURED_CHARACTERS or getattr(call, "query_embedding", None) is not None:
            return None
        return CapturedNote(
            kind=kind,
            query=query,
            parameters=msgspec.Raw(msgspec.json.encode(structs.replace(call, query=""))),
            found=list(items_of(response, session=call.session)),
            session=call.session,
        )

    def record_recall(self, caller: Caller, note: RecallNote, hits: Sequence[Hit], *, viewer: Viewer) -> str:
        """Record the hits of a recall that fit its query, each in its own store, with its `note`, which has none yet.

        The `at` of the note is when it was asked: an erasure later on also covers a recall that was answered meanwhile.
        Results that do not fit the query are not recorded, so that they do not last longer and are not promoted. Takes
        microseconds: a worker writes them later. Returns the id of the recall, empty if the caller's are not recorded.
        """
        if not caller.notes_recalls:
            return ""
        settings, query = self.runtime.settings, note.query
        fitting = [hit for hit in hits if settings.recall_events_days and hit.relevance >= RECALL_EVENT_MIN_SCORE]
        if viewer.group is not None:
            # The event has no owner, and the query may have words of a group, which only the group's users may read.
            query = f"asked in a group: {blake3(normalised_query(query).encode()).hexdigest(length=8)}"
        note = structs.replace(note, query=query[:QUERY_CHARACTERS], user=viewer.user)
        if not settings.contexts_days:
            note = structs.replace(note, context=None)
        of_account = structs.replace(note, context=None, captured=None)
        for store, own in ((caller.workspace, note), (ACCOUNT_STORE, of_account)):
            found = [(hit.chunk_id, hit.score) for hit in fitting if hit.store == store]
            if found or own.context is not None or own.captured is not None:
                self.runtime.recall_buffer.note(store, structs.replace(own, hits=found))
        return note.recall

    def has_workspace(self, workspace: str) -> bool:
        """Return whether something has been stored in a workspace, or was accepted for it by this server."""
        if self.runtime.stores.exists(workspace):
            self._workspaces.pop(workspace, None)
            return True
        return workspace in self._workspaces

    @contextmanager
    def creating(self, workspace: str, *, creates: bool) -> Iterator[None]:
        """Note a workspace that a call may create, until it exists or the call fails.

        Raises `QuotaExceeded` if its tenant has as many workspaces as it may have.
        """
        if not creates or not workspace or self.runtime.stores.exists(workspace):
            yield
            return
        with self._creating:
            if self.quotas.any_set and not self.has_workspace(workspace):
                stores = self.runtime.stores
                tenant, others = stores.tenant_of(workspace), list(self._workspaces)
                mine = sum(not stores.exists(name) and stores.tenant_of(name) == tenant for name in others)
                self.quotas.check_new_workspace(workspace, on_their_way=mine)
            self._workspaces[workspace] = self._workspaces.get(workspace, 0) + 1
        try:
            yield
        except BaseException:  # however the call ended, also if it was cancelled: it has created no workspace
            with self._creating:
                left = self._workspaces.pop(workspace, 0) - 1
                if left > 0:
                    self._workspaces[workspace] = left
            raise

    def tell_producers(self) -> None:
        """Tell the broker which workspaces are full after a change of quotas; if it is away, a sweep tells it later."""
        with suppress(Unavailable):
            self.quotas.refresh_all()

    def audit(self, caller: Caller, action: str, target: str = "", *, outcome: str = "done") -> None:
        """Record a caller's action and its target in the audit log, without content. Raises `StoreUnavailable`.

        The target must not contain a caller's words: see `memory.trust.audited`.
        """
        self.runtime.stores.audit().record(
            AuditEntry(
                at=self.runtime.now(),
                actor=self.audited_actor(caller.principal),
                token=caller.principal.token,
                action=action,
                target=target,
                workspace=caller.workspace,
                agent=caller.agent,
                outcome=outcome,
                origin=caller.origin,
                trace=audited_trace(self.runtime.settings.data, caller.trace),
            )
        )

    def audited_actor(self, principal: Principal) -> str:
        """Return who acts, for the audit log: the name of the token, or a hash if that is for one user."""
        if principal.user is None:
            return principal.name
        return audited_name(self.runtime.settings.data, "user", principal.user)

    def existing_store(self, workspace: str) -> Store | None:
        """Return a workspace's store; None if nothing has been stored in it."""
        return self.runtime.recaller.find_store(workspace)

    def viewer(self, caller: Caller, call: object) -> Viewer:
        """Return who asks: the user that the caller is limited to or the call names, else the users of its session."""
        user, session = caller.user or getattr(call, "user", None), getattr(call, "session", None)
        session = session if isinstance(session, str) else None  # UNSET in a change that keeps the session
        return viewer_of(self.existing_store(caller.workspace), caller.agent, user=user, session=session)

    def memories(self, caller: Caller, call: object) -> AgentMemories:
        """Return the caller's memories, in the workspace and in the account, as the user of a call sees them."""
        return replace(self.agent_memories(caller), viewer=self.viewer(caller, call))

    def agent_memories(self, caller: Caller) -> AgentMemories:
        """Return all memories of the caller's agent, of whatever user: for its operator."""
        stores, now, trust = self.runtime.stores, self.runtime.now(), self.runtime.settings.trust
        return AgentMemories(stores, caller.workspace, caller.agent, now=now, trust=trust)

    def seen_store(self, caller: Caller, call: object, viewer: Viewer | None = None) -> Store | None:
        """Return the caller's store as the viewer sees it, by default that of the call.

        None if nothing has been stored in it.
        """
        store = self.existing_store(caller.workspace)
        return None if store is None else store.seen_by(viewer or self.viewer(caller, call))

    def own_store(self, caller: Caller, call: object) -> Store:
        """Return the caller's store as the user of a call sees it, created if needed."""
        return self.runtime.store(caller.workspace).seen_by(self.viewer(caller, call))

    def account_store(self, caller: Caller, call: object, viewer: Viewer | None = None) -> Store:
        """Return the store of the account tier as the viewer sees it from the workspace; by default as the call's."""
        tenant = self.runtime.stores.tenant_of(caller.workspace)
        user = (viewer or self.viewer(caller, call)).user
        return self.runtime.stores.account_store().seen_by(Viewer(user, tenant=tenant))

    def store_to_forget_in(self, workspace: str) -> Store | None:
        """Return a workspace's store, created if items wait in its inbox that must not be stored; None if it has none.

        Raises `Unavailable` without a broker.
        """
        try:
            pending = self.runtime.inbox.stats(workspace).size > 0
            return self.runtime.stores.workspace(workspace, create=pending)
        except NotFound:
            return None

    def store_of_session(self, caller: Caller, call: InSession[Any], viewer: Viewer | None = None) -> Store:
        """Return the caller's store as the viewer sees it, by default that of the call.

        Raises `NotFound`, naming the session, if there is none.
        """
        store = self.seen_store(caller, call, viewer)
        if store is None:
            raise NotFound(f"agent {caller.agent} has no session {call.session!r}", field="session")
        return store
