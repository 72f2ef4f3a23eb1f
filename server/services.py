"""The services that all handlers share: the runtime, recall and its recording, status, and existing stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Final

from blake3 import blake3

from memory.pipeline.status import StatusReader
from memory.trust.checking import TokenChecker
from memory.trust.quotas import Quotas
from memory.upkeep.dreaming import normalised_query
from retrieval.request import RecallRequest
from reverie.calls import InSession
from reverie.clock import new_id
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Unavailable
from reverie.pipeline.producer import Producer
from reverie.pipeline.status import PipelineStatus
from reverie.recall.types import RecallResponse
from server.bodies import BodyReader
from server.caller import Caller
from server.host_metrics import HostCollector
from server.kept import Kept
from server.ledger import Ledger
from server.metrics import Metrics
from server.rates import Rates
from server.repeats import Repeats
from server.responses import Threads
from server.shared_metrics import SharedMetricsCollector
from storage.recall.records import Hit
from storage.sessions.viewing import viewer_of
from storage.stores import Store
from storage.trust.audit import AuditEntry
from storage.viewer import Viewer
from worker.runtime import Runtime

# The status reads every workspace: however many ask for it, it is read so often.
STATUS_SECONDS: Final = 1.0


class Services:
    """The services of one application."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.threads = Threads()
        # Set when the process begins to stop: responses without an end have to end by themselves.
        self.stopping = threading.Event()
        self.bodies = BodyReader(
            memory_bytes=runtime.settings.body_memory_bytes, seconds=runtime.settings.request_body_seconds
        )
        self.repeats = Repeats(lambda: runtime.broker, prefix=runtime.settings.broker_prefix)
        self.rates = Rates(runtime.settings.token_rates)
        # The workspaces that do not exist yet, for which this server has accepted something.
        self._workspaces: set[str] = set()
        self._creating = threading.Lock()
        self._status = Kept(lambda: self._status_reader.read(now=runtime.now()), seconds=STATUS_SECONDS)
        shared = SharedMetricsCollector(lambda: runtime.shared_metrics, lambda: runtime.inbox)
        self.metrics = Metrics(self.status, shared, HostCollector(runtime.settings))
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
            runtime.inbox,
            runtime.monitor,
            runtime.embedder,
            runtime.language_model,
            runtime.reranker,
            self.quotas.amounts_allowed,
        )

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

        A recall that looks back is not recorded: what it finds is not what the agent goes by now. Nor is one by a
        person who looks around: memories last by what the agent needs.
        """
        started = time.perf_counter()
        outcome = self.runtime.recaller.recall(caller.workspace, request)
        self.metrics.observe_recall(time.perf_counter() - started, degraded=bool(outcome.response.degraded))
        if request.as_of is not None or not caller.notes_recalls:
            return outcome.response
        self.record_recall(caller, request.query, (*outcome.hits, *outcome.folded), viewer=outcome.viewer)
        return outcome.response

    def record_recall(self, caller: Caller, query: str, hits: Sequence[Hit], *, viewer: Viewer) -> None:
        """Record the hits of a recall that fit its query, each in its own store.

        What a recall returns although it does not fit was not found by it: it must neither last longer nor be promoted.
        Takes microseconds: a worker writes them later.
        """
        settings = self.runtime.settings
        fitting = [hit for hit in hits if hit.relevance >= settings.recall_event_min_score]
        if not fitting or not settings.recall_events:
            return
        if viewer.group is not None:
            # It belongs to nobody, and may have the words of a group, which only the group's users may read.
            query = f"asked in a group: {blake3(normalised_query(query).encode()).hexdigest(length=8)}"
        recall, at = new_id(), self.runtime.now()
        for store in (caller.workspace, ACCOUNT_STORE):
            found = [(hit.chunk_id, hit.score) for hit in fitting if hit.store == store]
            if found:
                self.runtime.recall_buffer.note(
                    store, caller.agent, query, found, recall=recall, at=at, user=viewer.user
                )

    def has_workspace(self, workspace: str) -> bool:
        """Return whether something has been stored in a workspace, or was accepted for it by this server."""
        if self.has_stored_workspace(workspace):
            self._workspaces.discard(workspace)
            return True
        return workspace in self._workspaces

    @contextmanager
    def creating(self, workspace: str, *, creates: bool) -> Iterator[None]:
        """Note a workspace that a call may create, until it exists; a call that fails has created none.

        Raises `QuotaExceeded` if its tenant has as many as it may.
        """
        if not creates or not workspace or self.has_workspace(workspace):
            yield
            return
        with self._creating:
            if self.quotas.any_set:
                tenant_of = self.runtime.stores.tenant_of
                others = [name for name in sorted(self._workspaces) if not self.has_stored_workspace(name)]
                mine = sum(name != workspace and tenant_of(name) == tenant_of(workspace) for name in others)
                self.quotas.check_new_workspace(workspace, on_their_way=mine)
            self._workspaces.add(workspace)
        try:
            yield
        except BaseException:  # whatever ended the call, also a cancellation: no workspace was created
            self._workspaces.discard(workspace)
            raise

    def has_stored_workspace(self, workspace: str) -> bool:
        """Return whether something has been stored in a workspace."""
        return self.runtime.stores.exists(workspace)

    def tell_producers(self) -> None:
        """Have the broker know which workspaces are full after quotas were changed; without one a sweep does it."""
        with suppress(Unavailable):
            self.quotas.refresh_all()

    def audit(self, caller: Caller, action: str, target: str = "", *, outcome: str = "done") -> None:
        """Record in the audit log what a caller did to which id, without content. Raises `StoreUnavailable`."""
        self.runtime.stores.audit().record(
            AuditEntry(
                at=self.runtime.now(),
                actor=caller.principal.name,
                token=caller.principal.token,
                action=action,
                target=target,
                workspace=caller.workspace,
                agent=caller.agent,
                outcome=outcome,
                origin=caller.origin,
                trace=caller.trace,
            )
        )

    def existing_store(self, workspace: str) -> Store | None:
        """Return a workspace's store; None if nothing has been stored in it."""
        return self.runtime.recaller.find_store(workspace)

    def viewer(self, caller: Caller, call: object) -> Viewer:
        """Return who asks: the user that the caller is limited to or the call names, else those of its session."""
        user, session = caller.user or getattr(call, "user", None), getattr(call, "session", None)
        session = session if isinstance(session, str) else None  # a change may leave it as it is
        return viewer_of(self.existing_store(caller.workspace), caller.agent, user=user, session=session)

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
        """Return a workspace's store, created if items wait in its inbox, which must be kept out; None if neither is.

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
