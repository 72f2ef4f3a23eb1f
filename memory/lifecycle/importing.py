"""Import the records of an export: records that are not stored yet are added, with their ids and times.

An import gives no record more rights than it had. A caller without the scope operate writes sessions, messages, files,
memories and items of one user or of nobody, and nothing that others see. From a file that is not trusted, no record is
promoted or approved unless an operator of this installation has approved it.

A memory or a schedule that is deleted can be imported again from its records, which the caller gets and nobody keeps.
A memory has its id, its times and its origin then, and so have those that it had replaced. It is stored after the
tombstone of its deletion, so that a restored backup keeps it. A schedule comes back with the runs that had ended; a
time that passed meanwhile fires at once, and so does a schedule that was only waiting for an open run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Final

from msgspec.structs import replace

from memory.conversion import convert
from memory.fragments import HashKey
from memory.memories.agent_memories import AgentMemories
from memory.memories.concept_tags import concept_tags
from memory.memories.memories import delete_permanently
from memory.scheduling.rules import ScheduleRules
from memory.scheduling.schedules import check_room
from memory.tombstones import hash_key, read_tombstones, target_hash
from reverie.contract import ACCOUNT_STORE, content_hash
from reverie.errors import Conflict, NotFound, Rejected
from reverie.memories.transfer import records_of
from reverie.memories.types import IMPORT, MemoryExport, MemoryImport
from reverie.trust import exports as types
from reverie.trust.exports import (
    ExportedMemory,
    ExportedRecord,
    ExportedRun,
    ExportedSchedule,
    ImportReport,
    check_record,
    described,
    part_of,
)
from storage.lifecycle.erasures import message_name
from storage.lifecycle.imported_rows import ImportOutcome, Presence
from storage.scheduling.records import OPEN_STATUSES
from storage.stores import Store, Stores
from storage.transaction import AgentRepositories
from storage.viewer import LOCAL_TENANT

# Records in one transaction: some 50 ms under the write lock.
_BATCH: Final = 200
# The records that a caller without the scope operate may import.
_CONTENT: Final = (
    types.ExportedSession,
    types.ExportedMessage,
    types.ExportedFile,
    types.ExportedMemory,
    types.ExportedItem,
)


@dataclass(frozen=True, slots=True)
class ImportRules:
    """What an import may do. Times are microseconds.

    `operator` may import everything, anybody else only records of `user` or of nobody. With a `user`, all records
    become that user's. `trusted` takes over approvals and promotions. `exported_at` is when the export was made.
    `lenient` silently leaves out records whose id is taken, and records that were erased since.
    """

    now: int
    operator: bool = False
    user: str | None = None
    trusted: bool = False
    dry_run: bool = False
    lenient: bool = False
    exported_at: int | None = None


@dataclass(slots=True)
class Imported:
    """The counts of an import by part, and the stores and sessions that it wrote to."""

    added: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    erased: Counter[str] = field(default_factory=Counter)
    shared: int = 0
    waiting: int = 0
    stores: set[str] = field(default_factory=set)
    sessions: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def report(self) -> ImportReport:
        """Return the numbers as the client sees them."""
        return convert(self, ImportReport)


def import_records(stores: Stores, records: Sequence[ExportedRecord], rules: ImportRules) -> Imported:
    """Store the records that are not there yet, in transactions of some hundred; safe to repeat.

    Raises `Rejected`, naming the record, before any of `records` is stored; `Conflict` for an id that is taken, and
    `StoreUnavailable`.
    """
    done = Imported()
    for record in records:
        with _name_in_errors(record):
            check_record(record)
    erased_later = _LaterErasures(stores, rules.exported_at)
    allowed: list[ExportedRecord] = []
    for record in records:
        kept = _as_allowed(record, rules)
        if kept is not None and (rules.lenient or not rules.operator) and erased_later.cover(kept):
            kept = None
        if kept is None:
            done.left_out[part_of(record)] += 1
        else:
            allowed.append(kept)
    allowed = list(_without_contradictions(allowed, rules, done))
    allowed = [record for group in _groups(allowed) for record in _Group(stores, group, rules, done).fitting()]
    if rules.dry_run:
        _count(stores, allowed, rules, done)
    else:
        for group in _groups(allowed):
            _Group(stores, group, rules, done).store()
    # Erased records are counted even if they are not stored now, so that a dry run reports them.
    for record in allowed:
        if erased_later.cover(record):
            done.erased[part_of(record)] += 1
    return done


def import_memories(memories: AgentMemories, export: MemoryExport, *, now: int) -> tuple[MemoryImport, set[str]]:
    """Add the memories of an export that are missing, with their times and counts.

    Returns the numbers, and the names of the stores that were written. Everything is checked before anything is stored.
    `now` in microseconds. Raises `Rejected` naming the memory at fault.
    """
    records = [
        replace(record, concept_tags=list(concept_tags(record.content)), made_by=IMPORT)
        for record in records_of(export, workspace=memories.workspace, agent=memories.agent)
    ]
    # The account's memories are grouped: each change from one store to the other begins a transaction.
    records.sort(key=lambda record: record.tier == "account")
    done = import_records(memories.stores, records, ImportRules(now=now, operator=True, trusted=True))
    added = done.added["memories"]
    return MemoryImport(added=added, present=len(records) - added), done.stores


def place_in_tenants(stores: Stores, tenants: Mapping[str, Sequence[str]], *, dry_run: bool) -> None:
    """Let workspaces that do not exist yet belong to the tenants of an export.

    Raises `Conflict` if workspaces of different tenants, which share no account tier, would share one here.
    """
    known = set(stores.names())
    here: dict[str, str] = {}
    for tenant, workspaces in tenants.items():
        for workspace in workspaces:
            is_new = workspace not in known and stores.tenants().set_for(workspace) is None
            current = tenant if is_new else stores.tenant_of(workspace)
            if here.setdefault(current, tenant) != tenant:
                raise Conflict(
                    f"workspace {workspace} would share the account tier of tenant {current}, which it does not in the"
                    f" export: give it a tenant of its own first (`reverie tokens create --workspace {workspace}`)",
                    field="tenants",
                )
            if is_new and current != LOCAL_TENANT and not dry_run:
                stores.tenants().set(workspace, tenant)


def _as_allowed(record: ExportedRecord, rules: ImportRules) -> ExportedRecord | None:
    """Return a record in the form in which the rules allow it; None if they do not allow it."""
    if not rules.operator and not isinstance(record, _CONTENT):
        return None
    if rules.user is not None:
        given = _given_to(record, rules.user)
        if given is None:
            return None
        record = given
    elif not rules.operator and any(getattr(record, name) is not None for name in record.user_fields):
        return None
    match record:
        case types.ExportedSession() if not rules.operator:
            return replace(record, users=[])
        case types.ExportedMessage() | types.ExportedFile() if not rules.operator:
            return replace(record, visibility=None)
        case types.ExportedMemory():
            directs_all = record.owner_user_id is None and record.kind in ("instruction", "procedure")
            waits = (record.visibility == "shared" and not rules.trusted) or (directs_all and not rules.operator)
            kept = record if rules.trusted else replace(record, made_by=IMPORT)
            return replace(kept, visibility="requested") if waits else kept
        case types.ExportedSchedule(status="active") if not rules.trusted and record.executor.get("type") == "webhook":
            return replace(record, status="paused", next_run_at=None)
        case types.ExportedRecallEvent() if not rules.trusted:
            return None  # memories that are recalled often are promoted
    return record


def _given_to(record: ExportedRecord, user: str) -> ExportedRecord | None:
    """Return a record that belongs to this user, None for one that names users in its payload."""
    match record:
        case types.ExportedDeadLetter():
            return None
        case types.ExportedSession():
            return replace(record, user=user, users=[])
        case types.ExportedMessage(user=None):
            return record  # it belongs to the users of its session
    return replace(record, **dict.fromkeys(record.user_fields, user)) if record.user_fields else record


def _groups(records: Sequence[ExportedRecord]) -> Iterator[list[ExportedRecord]]:
    """Yield consecutive records of one agent in one store, as many as fit into a transaction."""
    for _, of_place in groupby(records, _place):
        while group := list(islice(of_place, _BATCH)):
            yield group


def _place(record: ExportedRecord) -> tuple[str, str, bool]:
    match record:
        case types.ExportedMemory(tier="account") | types.ExportedRecallEvent(in_account=True):
            return record.workspace, record.agent, True
    return record.workspace, record.agent, False


def _count(stores: Stores, records: Sequence[ExportedRecord], rules: ImportRules, done: Imported) -> None:
    """Count what an import would do, without storing anything."""
    for group in _groups(records):
        for record, presence in zip(group, _Group(stores, group, rules, done).presence(), strict=True):
            (done.added if presence == "absent" else done.present)[part_of(record)] += 1
            done.shared += presence == "absent" and _waits_for_approval(record)


def _without_contradictions(
    records: Sequence[ExportedRecord], rules: ImportRules, done: Imported
) -> Iterator[ExportedRecord]:
    """Yield the records, except messages whose id an earlier message of their session has with another content."""
    contents: dict[tuple[str, ...], str] = {}
    for record in records:
        if isinstance(record, types.ExportedMessage):
            own, name = content_hash(record, whose=False), (record.workspace, record.agent, record.session, record.id)
            if contents.setdefault(name, own) != own:
                with _name_in_errors(record):
                    if not rules.lenient:
                        raise Conflict("an earlier record has this id and says something else", field="id")
                done.left_out[part_of(record)] += 1
                continue
        yield record


def _waits_for_approval(record: ExportedRecord) -> bool:
    return isinstance(record, types.ExportedMemory) and record.visibility == "requested"


def _session_of(record: ExportedRecord) -> str | None:
    """Return the session of a record; for an exported session its own id."""
    return record.id if isinstance(record, types.ExportedSession) else getattr(record, "session", None)


class _Group:
    """Consecutive records of one agent in one store."""

    def __init__(self, stores: Stores, records: list[ExportedRecord], rules: ImportRules, done: Imported) -> None:
        self._stores = stores
        self._records = records
        self._rules = rules
        self._done = done
        self._workspace, self._agent, self._in_account = _place(records[0])
        self._name = ACCOUNT_STORE if self._in_account else self._workspace

    def fitting(self) -> list[ExportedRecord]:
        """Return the records that can be stored. Raises `Conflict` for the first that cannot, unless lenient."""
        conflicts = self._conflicts()
        if conflicts and not self._rules.lenient:
            place = min(conflicts)
            with _name_in_errors(self._records[place]):
                raise conflicts[place]
        self._done.left_out.update(part_of(self._records[place]) for place in conflicts)
        return [record for place, record in enumerate(self._records) if place not in conflicts]

    def _conflicts(self) -> dict[int, Conflict]:
        """Return the positions of records whose id is taken, or whose session belongs to other users."""
        found: dict[int, Conflict] = {}
        for place, presence in enumerate(self.presence()):
            if presence == "elsewhere":
                is_message = isinstance(self._records[place], types.ExportedMessage)
                what = "its session has this id and says something else" if is_message else "another agent has this id"
                found[place] = Conflict(f"a record of {what}: import into another workspace", field="id")
        store = self._existing(self._name)
        if store is None or self._rules.operator:
            return found
        with store.reading() as tx:
            imported = tx.for_agent(self._agent).imported
            sessions = {_session_of(record) for record in self._records} - {None}
            others = {
                session for session in sessions if session and imported.belongs_to_others(session, self._rules.user)
            }
        for place, record in enumerate(self._records):
            if (session := _session_of(record)) in others:
                text = f"session {session!r} is there, and not one of this user's"
                found.setdefault(place, Conflict(text, field="session"))
        return found

    def presence(self) -> list[Presence]:
        """Return for each record whether it is stored already."""
        store = self._existing(self._name)
        if store is None:
            return ["absent"] * len(self._records)
        with store.reading() as tx:
            return tx.for_agent(self._agent).imported.presence(self._records)

    def store(self) -> None:
        """Store the records that are not there yet, in one transaction."""
        store, done = self._stores.workspace(self._name), self._done
        with store.writing() as tx:
            counted = self._stored(tx.for_agent(self._agent))
        for outcome, record in counted:
            if outcome == "waiting":
                done.waiting += 1
            else:
                getattr(done, outcome)[part_of(record)] += 1
            if outcome == "added":
                done.stores.add(self._name)
                done.shared += _waits_for_approval(record)
                if isinstance(record, types.ExportedMessage):
                    done.sessions.setdefault(self._name, set()).add((self._agent, record.session))

    def _stored(self, rows: AgentRepositories) -> list[tuple[ImportOutcome, ExportedRecord]]:
        rules, imported = self._rules, rows.imported
        tenant = self._stores.stored_tenant_of(self._workspace) if self._in_account else None
        counted: list[tuple[ImportOutcome, ExportedRecord]] = []
        messages: dict[tuple[str, str], types.ExportedMessage] = {}
        for record, presence in zip(self._records, imported.presence(self._records), strict=True):
            if presence != "absent":
                if isinstance(record, types.ExportedMemory):
                    imported.link_successor(record)
                counted.append(("present", record))
            elif isinstance(record, types.ExportedMessage):
                name = (record.session, record.id)
                counted.append(("present" if name in messages else "added", record))
                messages.setdefault(name, record)
            else:
                outcome = imported.add(record, now=rules.now, tenant=tenant, trusted=rules.trusted, user=rules.user)
                counted.append((outcome, record))
        imported.add_messages(list(messages.values()), now=rules.now, user=rules.user)
        return counted

    def _existing(self, name: str) -> Store | None:
        if name == ACCOUNT_STORE and not self._stores.exists(name):
            return None
        try:
            return self._stores.workspace(name, create=False)
        except NotFound:
            return None


class _LaterErasures:
    """The erasures that were requested after an export was made, to recognise erased records."""

    def __init__(self, stores: Stores, exported_at: int | None) -> None:
        self._later: frozenset[str] = frozenset()
        self._key: HashKey | None = None
        if exported_at is not None:
            self._later = frozenset(
                tombstone.hash for tombstone in read_tombstones(stores.data_dir) if tombstone.at >= exported_at
            )
        if self._later:
            self._key = hash_key(stores.data_dir)

    def cover(self, record: ExportedRecord) -> bool:
        """Return whether any of these erasures covers a record, or something to which the record belongs."""
        if self._key is None:
            return False
        for kind, target in _targets(record):
            for workspace in (None, record.workspace):
                for agent in (None, record.agent):
                    hashed = target_hash(self._key, kind, workspace=workspace, agent=agent, target=target)
                    if hashed in self._later:
                        return True
        return False


def _targets(record: ExportedRecord) -> Iterator[tuple[str, str]]:
    """Yield everything whose erasure covers a record: the record, its session, source, user, agent and workspace."""
    yield "agent", ""
    yield "workspace", ""
    kinds = {types.ExportedSession: "session", types.ExportedMemory: "memory", types.ExportedFile: "file"}
    if isinstance(record, types.ExportedMessage):
        yield "message", message_name(record.session, record.id)
    elif type(record) in kinds:
        yield kinds[type(record)], str(record.id)  # type: ignore[attr-defined]
    for name, kind in (("session", "session"), ("note_id", "memory")):
        if (target := getattr(record, name, None)) is not None:
            yield kind, target
    if isinstance(record, types.ExportedMemory) and record.source_message is not None:
        session = record.session or record.metadata.get("session") or ""
        yield "message", message_name(str(session), record.source_message)
    for name in record.user_fields:
        if (user := getattr(record, name)) is not None:
            yield "user", user
    if isinstance(record, types.ExportedItem) and record.user is None:
        yield from (("user", label) for label in record.namespace)


@contextmanager
def _name_in_errors(record: ExportedRecord) -> Iterator[None]:
    """Make errors in the block name the record."""
    try:
        yield
    except Rejected as error:
        raise type(error)(f"{described(record)}: {error}; nothing was imported", field=error.field) from error


def delete_with_records(memories: AgentMemories, memory_id: str) -> list[ExportedMemory]:
    """Delete a memory permanently, as `forget` does; return its record and those of all that it replaced, newest first.

    Raises `NotFound`, and `Rejected` for a user to whom it does not belong alone.
    """
    with memories.changing(memory_id) as (_, rows, record):
        ids = rows.memories.ids_with_superseded([record.row_id])
        found = rows.exported.memories(ids, workspace=memories.workspace)
        delete_permanently(memories, rows, [record])
    records = [one for one in found if one.id == memory_id]
    for successor in records:  # grows in the loop: an import needs each successor first
        records += [one for one in found if one.superseded_by == successor.id != one.id]
    return records


def bring_back(memories: AgentMemories, records: Sequence[ExportedMemory], *, deleted_at: int, now: int) -> set[str]:
    """Store the records of a deletion again, and return the names of the stores written. Safe to repeat.

    Raises `Conflict` if a new value or note has taken the memory's place, or if its user, session or agent was erased
    since. Times in microseconds; `deleted_at` is after the tombstone of the deletion.
    """
    rules = ImportRules(now=now, operator=True, trusted=True, exported_at=deleted_at, lenient=True)
    written = import_records(memories.stores, records[:1], rules).stores
    if memories.find(records[0].id) is None:
        raise Conflict("something else has its place by now, or it was erased: it was not brought back", field="memory")
    return written | import_records(memories.stores, records[1:], rules).stores


def delete_schedule_with_records(
    store: Store, schedule_id: str, *, agent: str, workspace: str
) -> list[ExportedSchedule | ExportedRun]:
    """Delete a schedule with its runs, and return its record and those of the runs that have ended, newest first.

    Raises `NotFound`, and `Rejected` for one that does not belong to the viewer.
    """
    with store.writing_as(agent) as rows:
        rows.schedules.own(schedule_id)
        found, runs = rows.exported.schedule(schedule_id, workspace=workspace)
        rows.schedules.delete(schedule_id)
    waits_for = next((run.due_at for run in runs if run.status in OPEN_STATUSES), None)
    schedules = [
        replace(one, next_run_at=waits_for) if one.status == "active" and one.next_run_at is None else one
        for one in found  # none if its row is damaged
    ]
    return [*schedules, *(run for run in runs if run.status not in OPEN_STATUSES)]


def bring_back_schedule(
    stores: Stores,
    records: Sequence[ExportedSchedule | ExportedRun],
    *,
    rules: ScheduleRules,
    deleted_at: int,
    now: int,
) -> None:
    """Store the records of a deleted schedule again. Safe to repeat.

    Raises `Conflict` if its user or agent was erased since, and `Rejected` at a user's limit. Times in microseconds.
    """
    first = records[0]
    if isinstance(first, ExportedSchedule):
        with stores.workspace(first.workspace, create=False).reading() as tx:
            rows = tx.for_agent(first.agent).schedules
            if rows.find(first.id) is None:
                check_room(first.agent, first.user, unfinished=rows.count_unfinished(first.user), rules=rules)
    how = ImportRules(now=now, operator=True, trusted=True, exported_at=deleted_at, lenient=True)
    if import_records(stores, records, how).left_out["schedules"]:
        raise Conflict("its user or agent was erased meanwhile: it was not brought back", field="schedule")
