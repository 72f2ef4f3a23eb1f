"""Erasure: a job that removes something with every trace, looks for it byte by byte, and writes a receipt.

Each step can be repeated, and the step in which the job is stands in the account's database: a job that was killed goes
on there. `continue_erasures` is called when an erasure is requested, and by beat.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import structlog

from adapters.broker.erasing import BrokerErasure
from adapters.broker.inbox import Taken
from adapters.broker.recall_log import KEEP_RECALLS
from memory.fragments import FragmentSet, HashKey, Matcher, fragments_of
from memory.jobs import LeaseLost
from memory.lifecycle.erased_files import redact_logs, rewrite_notebooks
from memory.lifecycle.erasure_rows import RowErasure, Scope, agents_in, clear_deleted, end_tokens, erased_name
from memory.lifecycle.forgetting import LATE_MICROS, RemovalServices, delete_unused
from memory.lifecycle.host_folder import HostFolder
from memory.lifecycle.receipts import Found, parts_in_rows, receipt_of, search_files
from memory.pipeline.incoming import decode
from memory.tombstones import Tombstone, add_tombstones, hash_key, note_erased, target_hash
from memory.upkeep.notebook import Notebooks
from reverie.clock import CLOCK_TOLERANCE_MICROS, now_micros
from reverie.contract import ACCOUNT_STORE, CONTINUE_ERASURES, Outcome
from reverie.errors import NotFound, Rejected, ReverieError, Transient, Unavailable
from storage.lifecycle.erasures import KEPT_IN_ACCOUNT, ErasureRecord, Erasures, Subject, named_message
from storage.stores import Store, Stores
from storage.trust.audit import AuditEntry

BUDGET_SECONDS: Final = 240.0
# How long an erasure may remove rows in its turn, while other erasures wait.
_TURN_SECONDS: Final = 10.0
# The pause after a failure that does not pass by itself, such as a damaged store; it doubles each time.
_FIRST_WAIT_SECONDS: Final = 60.0
_LONGEST_WAIT_SECONDS: Final = 3_600.0
# Records of work removed in one transaction: an entry of the curation log may have a hundred changed rows.
_QUOTING_AT_ONCE: Final = 50
# How often the job looks for leftovers and begins again where they may be.
_ROUNDS: Final = 3

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureServices(RemovalServices):
    """The services that the job uses. `remote` names services outside that have seen content, such as a model.

    `host` is the data folder among those of several hosts, None if there is one only.
    """

    broker: BrokerErasure
    data: Path
    notebooks: Notebooks
    now: Callable[[], int]
    remote: tuple[str, ...] = ()
    host: HostFolder | None = None


def late_erasures(erasures: Erasures) -> dict[str, str]:
    """Return the errors of erasures that fail and were asked for more than ten minutes ago, by name.

    Those that wait for other hosts are left out: the hosts are reported.
    """
    before = now_micros() - LATE_MICROS
    late = [one for one in erasures.unfinished() if one.error and one.step != "hosts" and one.requested_at < before]
    return {f"erasure {one.id}": one.error for one in late}


class _TurnIsOver(Transient):
    """The turn of this erasure is over: other erasures come next, then this one continues where it stopped."""


def continue_erasures(services: ErasureServices, *, budget_seconds: float = BUDGET_SECONDS) -> dict[str, Any]:
    """Work on all unfinished erasures in turns, the oldest first; return how many were finished and how many wait.

    Each erasure has its own failures and its own next try, so one that fails or has much to remove holds up no other.
    """
    erasures = services.stores.erasures()
    if not erasures.unfinished():
        return {}
    account = services.stores.account_store()
    with account.writing() as tx:
        token = tx.leases.acquire(JOB, now=now_micros(), seconds=LEASE_SECONDS)
    if token is None:
        return {"held_elsewhere": 1}
    counts = Counter({"finished": 0, "waiting": 0})
    deadline = time.monotonic() + budget_seconds
    turns, ended = Counter[str](), set[str]()
    try:
        while due := [one for one in erasures.unfinished() if one.id not in ended and _is_due(one)]:
            if time.monotonic() > deadline:
                counts["waiting"] += len(due)
                break
            # Erasures without a mark come first: only the mark keeps the erased messages from being stored.
            erasure = min(due, key=lambda one: (one.step != STEPS[0], turns[one.id]))
            turns[erasure.id] += 1
            turn_ends = min(deadline, time.monotonic() + _TURN_SECONDS) if len(due) > 1 else deadline
            outcome = _continue(services, erasures, erasure, ErasureLease(account, token), turn_ends)
            if outcome is not None:
                ended.add(erasure.id)
                counts[outcome] += 1
    except LeaseLost:
        counts["held_elsewhere"] = 1
    finally:
        with account.writing() as tx:
            tx.leases.release(JOB, token)
    late = late_erasures(erasures)
    return {**counts, **({"late_erasures": late} if late else {})}


def _is_due(erasure: ErasureRecord) -> bool:
    """Return whether an erasure may be tried now: a later try than any pause was set before the clock was set back."""
    waits_micros = (erasure.next_try_at or 0) - now_micros()
    return not 0 < waits_micros <= int(_LONGEST_WAIT_SECONDS * 1_000_000) + CLOCK_TOLERANCE_MICROS


def _continue(
    services: ErasureServices, erasures: Erasures, erasure: ErasureRecord, lease: ErasureLease, turn_ends: float
) -> str | None:
    """Give an erasure its turn; return how it ended (the name of a count), or None if there is more to do."""
    try:
        Scope.of(erasure).check()
    except Rejected as error:  # stored by a version that did not check it: it can never be carried out
        log.warning("erasure_failed", erasure=erasure.id, step=erasure.step, error_type=type(error).__name__)
        erasures.give_up(erasure.id, str(error), now=services.now())
        return "failed"
    job = ErasureJob(services, erasures, erasure, lease, turn_ends)
    try:
        while job.step != "done":
            if time.monotonic() > turn_ends:
                return None
            job.run_step()
    except LeaseLost:
        raise
    except _TurnIsOver:
        return None
    except (Transient, NotFound) as error:  # the broker is away, a workspace was deleted: the next run continues
        _note_failure(erasures, erasure, job.step, error, next_try_at=None)
        return "waiting"
    except Exception as error:  # noqa: BLE001 - an error of one erasure must not stop the others
        wait = min(_FIRST_WAIT_SECONDS * 2 ** min(erasure.attempts, 16), _LONGEST_WAIT_SECONDS)
        _note_failure(erasures, erasure, job.step, error, next_try_at=now_micros() + int(wait * 1_000_000))
        return "waiting"
    return "finished"


def _note_failure(
    erasures: Erasures, erasure: ErasureRecord, step: str, error: Exception, *, next_try_at: int | None
) -> None:
    log.warning("erasure_waits", erasure=erasure.id, step=step, error_type=type(error).__name__)
    # A library's error text may quote erased texts.
    why = str(error) if isinstance(error, ReverieError) else f"{type(error).__name__} in step {step!r}"
    erasures.fail(erasure.id, why, next_try_at=next_try_at)


def write_tombstones(data: Path, erasure_id: str, scope: Scope, *, at: int) -> None:
    """Write the tombstones of an erasure of rows stored up to `at` (microseconds). Raises `StoreUnavailable`."""
    key, limits = hash_key(data), {"workspace": scope.workspace, "agent": scope.agent}
    hashes = [(kind, target_hash(key, kind, **limits, target=target)) for kind, target in scope.parts]
    add_tombstones(data, [Tombstone(erasure=erasure_id, kind=kind, hash=hashed, at=at) for kind, hashed in hashes])


class ErasureJob:
    """One erasure in progress."""

    def __init__(
        self,
        services: ErasureServices,
        erasures: Erasures,
        erasure: ErasureRecord,
        lease: ErasureLease,
        turn_ends: float,
    ) -> None:
        """`turn_ends` is the end of the erasure's turn, on the monotonic clock."""
        self.step = erasure.step
        self._services = services
        self._erasures = erasures
        self._erasure = erasure
        self._lease = lease
        self._turn_ends = turn_ends
        self._rounds = erasure.rounds
        self._found = Found()
        self._explained = FragmentSet()
        # The erased parts that no remaining row contains; None before this round has looked for them.
        self._parts_not_in_rows: FragmentSet | None = None

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
        """Write the tombstone, and mark the workspaces so that they store nothing of it that was accepted before."""
        erasure, scope = self._erasure, self._scope
        self._add_names(scope)

        def mark(name: str) -> None:
            at = self._services.inbox.next_number()
            with self._stores.workspace(name).writing() as tx:
                tx.broker_content.follow(at.content)
                for subject in scope.subjects_in(name):
                    tx.kept_out.add(subject, scope.agent, at=at.value)

        self._for_each_store(self._reachable_workspaces(scope), mark)
        self._erasures.set_cutoff(erasure.id, self._services.now())
        write_tombstones(self._services.data, erasure.id, scope, at=self._scope.before)

    def _inbox(self) -> None:
        """Remove what waits in the inboxes. A worker settles what it has already taken, and the mark keeps that out."""
        scope = self._scope
        for name in self._services.inbox.workspaces():
            if scope.workspace in (None, name):
                removed, held = self._services.broker.purge_inbox(name, lambda taken: self._is_erased(scope, taken))
                self._keep_payloads(removed)
                self._services.inbox.reply(
                    name, [(taken.field, Outcome(id=decode(taken).id, state="forgotten")) for taken in removed]
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

        def remove(name: str) -> None:
            self._drop_recalls(name)
            store = self._stores.workspace(name, create=False)
            erased = set[str]()
            for agent in agents_in(store, scope):
                for subject in scope.subjects_in(name):
                    erased |= {agent} if rows.erase(store, agent, subject) else set()
                    self._lease.renew()
            note_erased(self._services.data, [(name, agent) for agent in sorted(erased)])

        self._for_each_store(scope.store_names(self._stores), remove)
        if scope.kind == "workspace" and scope.workspace is not None:
            delete_unused(self._services, scope.workspace)

    def _count(self, store_name: str, counts: Counter[str]) -> None:
        self._erasures.count(self._erasure.id, store_name, counts)
        self._lease.renew()
        if time.monotonic() > self._turn_ends:
            raise _TurnIsOver("other erasures have their turn")

    def _for_each_store(self, names: Sequence[str], act: Callable[[str], object]) -> None:
        """Call `act` for each of these stores, also after an error; the first error is raised at the end."""
        failed: ReverieError | None = None
        for name in names:
            try:
                act(name)
            except NotFound:  # deleted meanwhile
                pass
            except (LeaseLost, _TurnIsOver):
                raise
            except ReverieError as error:
                failed = failed or error
            self._lease.renew()
        if failed is not None:
            raise failed

    def _quoting(self) -> None:
        """Remove records of work that quote what was erased: queries, notifications, texts of runs, errors."""
        wanted = self._fragments()
        if not len(wanted):
            return
        matcher = self._matcher(wanted)

        def remove(name: str) -> None:
            store = self._stores.workspace(name, create=False)
            with store.reading() as tx:
                found = tx.stored_texts.quoting(matcher.is_in)
            for table, keys in found.items():
                unique, removed = list(dict.fromkeys(keys)), 0
                for first in range(0, len(unique), _QUOTING_AT_ONCE):
                    with store.writing() as tx:
                        removed += tx.stored_texts.remove_quoting(table, unique[first : first + _QUOTING_AT_ONCE])
                    self._lease.renew()
                counted = {"curation_log" if table == "curation_changes" else table: removed}
                self._erasures.count(self._erasure.id, f"{name} (quotations)", counted)

        self._for_each_store(self._stores.all_names(), remove)

    def _notebooks(self) -> None:
        services, quoted = self._services, self._matcher(self._fragments())
        rewritten = rewrite_notebooks(
            self._stores, services.notebooks, self._current, quoted, now=services.now(), on_step=self._lease.renew
        )
        self._erasures.count(self._erasure.id, "notebooks", {"histories": rewritten})

    def _logs(self) -> None:
        lines = redact_logs(self._services.data / "logs", self._key, self._not_in_rows(self._fragments()))
        self._erasures.count(self._erasure.id, "logs", {"lines": lines})

    def _names(self) -> None:
        """Take the name of a user out of tokens."""
        if revoked := end_tokens(self._stores, self._current, self._scope, now=self._services.now()):
            self._erasures.count(self._erasure.id, "tokens", {"revoked": revoked})

    def _release(self) -> None:
        """Drop the marks and the erased id, once no message that was accepted before the erasure waits to be stored."""
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
        self._count_kept_in_account(scope)
        self._erasures.forget_target(self._erasure.id)

    def _count_kept_in_account(self, scope: Scope) -> None:
        """Count, for the receipt, the account's memories that stay because they did not come from the workspace."""
        if scope.workspace is None or scope.kind not in ("user", "agent"):
            return
        everything = Subject.named(scope.kind, scope.target, None, scope.before)
        account, tenant = self._stores.account_store(), self._stores.stored_tenant_of(scope.workspace)
        kept = 0
        for agent in agents_in(account, scope):
            with account.reading() as tx:
                kept += tx.for_agent(agent).erased.count_memories(everything, tenant=tenant)
        self._erasures.count(self._erasure.id, KEPT_IN_ACCOUNT, {"memories": kept}, anew=True)

    def _broker(self) -> None:
        wanted = self._fragments()
        current, broker = self._current, self._services.broker
        if current.kind == "workspace" and current.workspace is not None:
            broker.remove_answers(current.workspace)
        counts = broker.remove(self._matcher(wanted).is_in, quotes=Matcher(self._key, wanted).is_in)
        self._erasures.count(self._erasure.id, "broker", counts)
        broker.rewrite_file()

    def _hosts(self) -> None:
        """Wait until each host that shares the stores has carried out the erasure in its own files."""
        if self._services.host is not None:
            self._services.host.wait_for_all(self._erasure.id, on_step=self._lease.renew)

    def _pages(self) -> None:
        changed = {place.partition(" ")[0] for place in self._current.counts}

        def clear(name: str) -> None:
            clear_deleted(self._stores.workspace(name, create=False), has_removed=name in changed)

        self._for_each_store(self._stores.all_names(), clear)

    def _search(self) -> str | None:
        """Look for what was removed. If something is left, go back to the step "quoting", at most twice."""
        wanted = self._fragments()
        self._found = search_files(self._services.data, self._key, wanted, on_block=self._lease.renew)
        hits = self._found.parts
        self._explained = self._in_rows(hits)
        self._explained.add(self._in_broker(hits))
        if self._found.leftovers(self._explained) and self._rounds + 1 < _ROUNDS:
            self._rounds += 1
            self._parts_not_in_rows = None
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
                # Only the hash in the receipt may name the erased workspace or agent.
                workspace="" if current.kind == "workspace" else current.workspace or "",
                agent="" if current.kind == "agent" else current.agent or "",
                outcome="leftovers" if receipt["leftovers"] else "done",
            )
        )
        self._erasures.finish(current.id, receipt=receipt, name=erased_name(current.target_hash), now=now)
        if services.host is not None:
            services.host.drop_reports(current.id)

    def _fragments(self) -> FragmentSet:
        return FragmentSet.load(self._erasures.fragments(self._erasure.id))

    def _not_in_rows(self, wanted: FragmentSet) -> FragmentSet:
        """Return the erased parts that no remaining row contains. All rows are read for it, so once a round."""
        if self._parts_not_in_rows is None:
            windows = wanted.without_tokens()
            self._parts_not_in_rows = windows.without(self._in_rows(windows))
        return self._parts_not_in_rows

    def _matcher(self, wanted: FragmentSet) -> Matcher:
        return Matcher(self._key, self._not_in_rows(wanted))

    def _in_rows(self, wanted: FragmentSet) -> FragmentSet:
        return parts_in_rows(self._stores, self._key, wanted, on_block=self._lease.renew)

    def _in_broker(self, wanted: FragmentSet) -> FragmentSet:
        """Return the parts that the broker holds. They were accepted after the erasure: everything else was removed."""
        found, matcher = FragmentSet(), Matcher(self._key, wanted)
        if len(wanted):
            for _, value in self._services.broker.values():
                found.add(matcher.found_in(value))
        return found

    def _drop_recalls(self, name: str) -> None:
        """Drop the recalls that a worker would otherwise record after the rows are gone, with what was asked."""
        scope, recalls = self._scope, self._services.recalls
        if name == ACCOUNT_STORE and scope.workspace is not None:
            return  # they do not say from which workspace they are
        entries = recalls.read(name, limit=KEEP_RECALLS)
        recalls.remove(name, [one.id for one in entries if one.note and scope.covers_recall(one.note)])

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
        """Keep the hash of the id itself, which may be in log lines."""
        targets = [named_message(target)[1] if kind == "message" else target for kind, target in scope.parts]
        if names := [target for target in targets if target]:
            self._erasures.add_fragments(self._erasure.id, fragments_of(self._key, names, names=names).dump())


_RUN: Final[dict[str, Callable[[ErasureJob], str | None]]] = {
    "mark": ErasureJob._mark,
    "inbox": ErasureJob._inbox,
    "rows": ErasureJob._rows,
    # Once more: after the first pass, a worker may have committed what it had taken before the mark.
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


JOB: Final = CONTINUE_ERASURES
# Renewed every few seconds. After a kill, the next run of the job has to wait until the lease has ended.
LEASE_SECONDS: Final = 30.0


class ErasureLease:
    """The right to work on erasures, renewed every few seconds."""

    def __init__(self, account: Store, token: int) -> None:
        self._account = account
        self._token = token
        self._renewed = time.monotonic()

    def renew(self) -> None:
        """Renew the lease if it is time to. Raises `LeaseLost`."""
        if time.monotonic() - self._renewed < LEASE_SECONDS / 8:
            return
        with self._account.writing() as tx:
            if not tx.leases.renew(JOB, self._token, now=now_micros(), seconds=LEASE_SECONDS):
                raise LeaseLost("another process continues the erasures")
        self._renewed = time.monotonic()
