"""Erasure: a job that removes something with every trace, looks for it byte by byte, and writes a receipt.

Each step can be repeated, and the step in which the job is stands in the account's database: a job that was killed goes
on there. `continue_erasures` is called when an erasure is requested, and by beat.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import structlog

from adapters.broker.erasing import BrokerErasure
from adapters.broker.inbox import Taken, WorkerInbox
from adapters.broker.recall_log import RecallLog
from adapters.broker.working_memory import WorkingMemory
from memory.pipeline.incoming import decode
from memory.trust.erased_indexes import note_erased
from memory.trust.erased_names import erase_names
from memory.trust.erased_notebooks import rewrite_notebooks
from memory.trust.erased_workspaces import delete_unused
from memory.trust.erasure_lease import JOB, LEASE_SECONDS, ErasureLease, LeaseLost
from memory.trust.erasure_rows import RowErasure, Scope, agents_in
from memory.trust.fragments import FragmentSet, HashKey, Matcher, fragments_of
from memory.trust.host_folder import HostFolder
from memory.trust.live_parts import parts_in_rows
from memory.trust.log_files import redact_logs
from memory.trust.receipts import receipt_of
from memory.trust.searching import Found, search_files
from memory.trust.tombstones import Tombstone, add_tombstone, hash_key
from memory.upkeep.notebook import Notebooks
from reverie.clock import now_micros
from reverie.contract import ACCOUNT_STORE, Outcome
from reverie.errors import NotFound, Transient, Unavailable
from storage.stores import Stores
from storage.trust.audit import AuditEntry
from storage.trust.erasures import ErasureRecord, Erasures
from storage.trust.pages import clear_deleted

BUDGET_SECONDS: Final = 240.0
# How often the job looks for leftovers and begins again where they may be.
_ROUNDS: Final = 3

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ErasureServices:
    """What the job needs of its process. `remote` names services outside that have seen content, such as a model.

    `host` is the data folder among those of several hosts, None if there is one only.
    """

    data: Path
    stores: Stores
    inbox: WorkerInbox
    working: WorkingMemory
    recalls: RecallLog
    broker: BrokerErasure
    notebooks: Notebooks
    now: Callable[[], int]
    remote: tuple[str, ...] = ()
    host: HostFolder | None = None


def continue_erasures(services: ErasureServices, *, budget_seconds: float = BUDGET_SECONDS) -> dict[str, int]:
    """Work on all unfinished erasures, the oldest first; return how many were finished and how many wait."""
    erasures = services.stores.erasures()
    if not erasures.unfinished():
        return {}
    account = services.stores.account_store()
    with account.writing() as tx:
        token = tx.leases.acquire(JOB, now=now_micros(), seconds=LEASE_SECONDS)
    if token is None:
        return {"held_elsewhere": 1}
    counts = {"finished": 0, "waiting": 0}
    deadline = time.monotonic() + budget_seconds
    try:
        for erasure in erasures.unfinished():
            done = _continue(services, erasures, erasure, ErasureLease(account, token), deadline)
            counts["finished" if done else "waiting"] += 1
    except LeaseLost:
        counts["held_elsewhere"] = 1
    finally:
        with account.writing() as tx:
            tx.leases.release(JOB, token)
    return counts


def _continue(
    services: ErasureServices, erasures: Erasures, erasure: ErasureRecord, lease: ErasureLease, deadline: float
) -> bool:
    job = ErasureJob(services, erasures, erasure, lease)
    try:
        while job.step != "done":
            if time.monotonic() > deadline:
                return False
            job.run_step()
    except LeaseLost:
        raise
    except Transient as error:  # the broker is away, a file is in use: the next run continues
        log.warning("erasure_waits", erasure=erasure.id, step=job.step, error_type=type(error).__name__)
        erasures.set_error(erasure.id, str(error))
        return False
    return True


class ErasureJob:
    """One erasure in progress."""

    def __init__(
        self, services: ErasureServices, erasures: Erasures, erasure: ErasureRecord, lease: ErasureLease
    ) -> None:
        self.step = erasure.step
        self._services = services
        self._erasures = erasures
        self._erasure = erasure
        self._lease = lease
        self._rounds = erasure.rounds
        self._found = Found()
        self._explained = FragmentSet()
        # The parts that no row holds by right, once they have been looked for in this round.
        self._own_parts: FragmentSet | None = None

    @cached_property
    def _key(self) -> HashKey:
        return hash_key(self._services.data)

    @property
    def _stores(self) -> Stores:
        return self._services.stores

    @property
    def _current(self) -> ErasureRecord:
        current = self._erasures.find(self._erasure.id)
        assert current is not None
        return current

    @property
    def _scope(self) -> Scope:
        return Scope.of(self._current)

    def run_step(self) -> None:
        """Do the current step, and note the next one."""
        self._lease.renew()
        following = _RUN[self.step](self) or STEPS[STEPS.index(self.step) + 1]
        if following != "done":
            self._erasures.advance(self._erasure.id, step=following, rounds=self._rounds)
        self.step = following

    def _mark(self) -> None:
        """Write the tombstone, and keep out of every store what was accepted until now."""
        erasure, scope = self._erasure, self._scope
        self._add_names(scope)
        for name in self._reachable_workspaces(scope):
            at = self._services.inbox.next_number()
            with self._stores.workspace(name).writing() as tx:
                tx.broker_content.follow(at.content)
                tx.kept_out.add(scope.subject_in(name), scope.agent, at=at.value)
        self._erasures.set_cutoff(erasure.id, self._services.now())
        cutoff = self._scope.before
        add_tombstone(
            self._services.data, Tombstone(erasure=erasure.id, kind=erasure.kind, hash=erasure.target_hash, at=cutoff)
        )

    def _inbox(self) -> None:
        """Remove what waits in the inboxes; what a worker holds is kept out by the mark, and settled by the worker."""
        scope = self._scope
        for name in self._services.inbox.workspaces():
            if scope.workspace in (None, name):
                removed, held = self._services.broker.purge_inbox(name, lambda taken: self._is_erased(scope, taken))
                self._keep_payloads(removed)
                self._services.inbox.reply(
                    name, [(item.agent, Outcome(id=item.id, state="forgotten")) for item in map(decode, removed)]
                )
                self._erasures.count(self._erasure.id, "inbox", {"items": len(removed) - held})

    def _rows(self) -> None:
        """Remove the rows of every store, keeping hashes of their texts."""
        scope = self._scope
        rows = RowErasure(
            forgotten_at=self._services.inbox.next_number,
            drop_cached=self._services.working.drop,
            on_removed=self._count,
            key=self._key,
            on_fragments=lambda fragments: self._erasures.add_fragments(self._erasure.id, fragments.dump()),
        )
        for name in scope.store_names(self._stores):
            with suppress(NotFound):  # deleted meanwhile
                store = self._stores.workspace(name, create=False)
                erased = [one for one in agents_in(store, scope) if rows.erase(store, one, scope.subject_in(name))]
                note_erased(self._services.data, [(name, agent) for agent in erased])
        if scope.kind == "workspace" and scope.workspace is not None:
            services = self._services
            delete_unused(services.stores, services.inbox, services.working, services.recalls, scope.workspace)

    def _count(self, store_name: str, counts: Counter[str]) -> None:
        self._erasures.count(self._erasure.id, store_name, counts)
        self._lease.renew()

    def _quoting(self) -> None:
        """Remove records of work that quote what was erased: queries, notifications, texts of runs, errors."""
        wanted = self._fragments()
        if not len(wanted):
            return
        matcher = self._matcher(wanted)
        for name in self._stores.all_names():
            with suppress(NotFound):
                store = self._stores.workspace(name, create=False)
                with store.reading() as tx:
                    found = tx.stored_texts.quoting(matcher.is_in)
                if found:
                    with store.writing() as tx:
                        counts = tx.stored_texts.remove_quoting(found)
                    self._erasures.count(self._erasure.id, f"{name} (quotations)", counts)
            self._lease.renew()

    def _notebooks(self) -> None:
        current, wanted = self._current, self._fragments()
        quoted = self._matcher(wanted)
        rewritten = rewrite_notebooks(
            self._stores, self._services.notebooks, current, quoted, now=self._services.now(), on_step=self._lease.renew
        )
        self._erasures.count(self._erasure.id, "notebooks", {"histories": rewritten})

    def _logs(self) -> None:
        wanted = self._fragments()
        matching = self._own(wanted)
        lines = redact_logs(self._services.data / "logs", self._key, matching)
        self._erasures.count(self._erasure.id, "logs", {"lines": lines})

    def _names(self) -> None:
        """Take the names of users and agents out of tokens and webhook secrets."""
        scope, services = self._scope, self._services
        workspaces = self._reachable_workspaces(scope)
        erased = erase_names(self._stores, self._current, scope, workspaces, now=services.now())
        for place, counts in erased.items():
            self._erasures.count(self._erasure.id, place, counts)

    def _release(self) -> None:
        """Drop the marks, and the id of what was erased: nothing that was accepted before is on its way any more."""
        scope, waiting = self._scope, list[str]()
        for name in self._reachable_workspaces(scope):
            with suppress(NotFound):
                store = self._stores.workspace(name, create=False)
                oldest = self._services.broker.oldest_accepted(name)
                number = self._services.inbox.next_number()
                up_to = (oldest - 1) if oldest is not None else number.value
                with store.writing() as tx:
                    tx.broker_content.follow(number.content)
                    tx.kept_out.drop(up_to=up_to)
                    waiting += [name] if tx.kept_out.any() else []
        if waiting:
            raise Unavailable(f"messages accepted before it are not stored yet, in {', '.join(waiting)}")
        self._erasures.forget_target(self._erasure.id)

    def _broker(self) -> None:
        wanted = self._fragments()
        matcher = self._matcher(wanted)
        self._erasures.count(self._erasure.id, "broker", self._services.broker.remove(matcher.is_in))
        self._services.broker.rewrite_file()

    def _hosts(self) -> None:
        """Wait until each host that shares the stores has removed it from its own files."""
        if self._services.host is not None:
            self._services.host.wait_for_all(self._erasure.id, on_step=self._lease.renew)

    def _pages(self) -> None:
        for name in self._stores.all_names():
            with suppress(NotFound):
                clear_deleted(self._stores.workspace(name, create=False))
            self._lease.renew()

    def _search(self) -> str | None:
        """Look for what was removed; where something is left, begin again with the records of work, twice."""
        wanted = self._fragments()
        self._found = search_files(self._services.data, self._key, wanted, on_block=self._lease.renew)
        hits = FragmentSet()
        for found in self._found.hits.values():
            hits.add(found)
        self._explained = self._in_rows(hits)
        self._explained.add(self._in_broker(hits))
        if self._found.leftovers(self._explained) and self._rounds + 1 < _ROUNDS:
            self._rounds += 1
            self._own_parts = None
            return "quoting"
        self._write_receipt(wanted)
        return "done"

    def _write_receipt(self, wanted: FragmentSet) -> None:
        current, now, services = self._current, self._services.now(), self._services
        reports = services.host.reports_of_others(current.id) if services.host is not None else ()
        receipt = receipt_of(
            current, self._found, wanted, self._explained, remote=services.remote, hosts=reports, now=now
        )
        self._stores.audit().record(
            AuditEntry(
                at=now,
                actor=current.requested_by,
                action="erase",
                target=current.id,
                workspace=current.workspace or "",
                agent=current.agent or "",
                outcome="leftovers" if receipt["leftovers"] else "done",
            )
        )
        self._erasures.finish(current.id, receipt=receipt, now=now)
        if services.host is not None:
            services.host.drop_reports(current.id)

    def _fragments(self) -> FragmentSet:
        return FragmentSet.load(self._erasures.fragments(self._erasure.id))

    def _own(self, wanted: FragmentSet) -> FragmentSet:
        """Return the parts that no row holds by right. Rows are read once in each round, which takes the longest."""
        if self._own_parts is None:
            self._own_parts = wanted.without(self._in_rows(wanted))
        return self._own_parts

    def _matcher(self, wanted: FragmentSet) -> Matcher:
        return Matcher(self._key, self._own(wanted))

    def _in_rows(self, wanted: FragmentSet) -> FragmentSet:
        return parts_in_rows(self._stores, self._key, wanted, on_store=self._lease.renew)

    def _in_broker(self, wanted: FragmentSet) -> FragmentSet:
        """Return the parts that the broker holds: what was accepted since, since everything else was removed."""
        found, matcher = FragmentSet(), Matcher(self._key, wanted)
        if len(wanted):
            for _, value in self._services.broker.values():
                found.add(matcher.found_in(value))
        return found

    def _reachable_workspaces(self, scope: Scope) -> list[str]:
        names = {*self._stores.names(), *self._services.inbox.workspaces()}
        return sorted(name for name in names if scope.workspace in (None, name) and name != ACCOUNT_STORE)

    def _is_erased(self, scope: Scope, taken: Taken) -> bool:
        payload = decode(taken).payload
        return payload is not None and scope.covers(payload, taken.accepted_at)

    def _keep_payloads(self, removed: list[Taken]) -> None:
        payloads = [item.payload for item in map(decode, removed) if item.payload is not None]
        texts = [payload.content for payload in payloads]
        names = [payload.id for payload in payloads]
        self._erasures.add_fragments(self._erasure.id, fragments_of(self._key, [*texts, *names], names=names).dump())

    def _add_names(self, scope: Scope) -> None:
        """Keep the hash of the id itself, as it may be in log lines."""
        if scope.target:
            names = fragments_of(self._key, [scope.target], names=[scope.target])
            self._erasures.add_fragments(self._erasure.id, names.dump())


_RUN: Final[dict[str, Callable[[ErasureJob], str | None]]] = {
    "mark": ErasureJob._mark,
    "inbox": ErasureJob._inbox,
    "rows": ErasureJob._rows,
    # Once more: a worker may have committed between the two what it had taken before the mark.
    "rows again": ErasureJob._rows,
    "quoting": ErasureJob._quoting,
    "notebooks": ErasureJob._notebooks,
    "logs": ErasureJob._logs,
    "names": ErasureJob._names,
    "release": ErasureJob._release,
    "broker": ErasureJob._broker,
    "pages": ErasureJob._pages,
    "hosts": ErasureJob._hosts,
    "search": ErasureJob._search,
}
STEPS: Final = (*_RUN, "done")
