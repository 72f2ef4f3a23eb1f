"""Reads and undoes the curation logs: what jobs did to an agent's memories.

Each workspace has a log, and the account tier has one. The id of an entry is its number, in the account's log with the
prefix "account-". All entries of a run have its time, so job and time identify a run in both logs.

A review lists what a person should look at: sensitive changes, memories waiting for approval, doubtful ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from msgspec import structs

from memory.conversion import convert
from memory.doubts import depending_on_changes, held_back, past_their_day
from memory.memories.agent_memories import AgentMemories
from memory.memories.memories import pending_memories, to_memories
from memory.paging import newest_page
from reverie.clock import from_micros
from reverie.contract import ACCOUNT_STORE, job_name
from reverie.errors import Conflict, NotFound
from reverie.upkeep import Accepted, CurationChange, CurationEntry, CurationRun, DueMemory, Review, Undone
from storage.curation import EVERY_ENTRY, CurationFilter, CurationLog, RunEffect
from storage.curation import CurationEntry as StoredEntry
from storage.lifecycle.undo import undo as undo_rows
from storage.memories.records import MemoryRecord
from storage.memories.trust import EVERYTHING_TOLD, TrustPolicy, orders_without_right
from storage.stores import Store
from storage.transaction import AgentRepositories

_PAGE: Final = 500
# The entries of a run that are shown in a list of runs: enough to know it again.
_LINES_LISTED: Final = 3
_ACCOUNT_PREFIX: Final = "account-"
# More digits could exceed SQLite's 64-bit integers.
_MAX_DIGITS: Final = 15
# Microseconds since 1970, for the next 30,000 years.
_MAX_TIME_DIGITS: Final = 18
# How the summary of a run calls the actions that are verbs.
_EFFECTS: Final = {
    "promote": "made lasting",
    "summarise": "summarised",
    "close": "ended",
    "approve": "approved",
}
_ORDER: Final = ("learned", "replaced", "merged", "made lasting", "forgotten")
# The columns of changed rows that are shown, by table.
_SHOWN_COLUMNS: Final = {
    "memories": (
        "id", "content", "tier", "lifetime", "kind", "source", "importance", "access_count", "tags", "concept_tags",
        "channel_id", "category", "key", "value", "expires_at", "pinned", "superseded_by",
    ),
    "sessions": ("summary_text", "summary_epoch", "summary_upper_sequence", "status", "ended_at"),
    "messages": ("row_id", "consolidated_at"),
    "memory_promotions": ("memory_id", "score", "phase"),
}  # fmt: skip


def list_entries(
    store: Store,
    limit: int = 50,
    offset: int = 0,
    *,
    agent: str,
    matching: CurationFilter = EVERY_ENTRY,
    with_texts: bool = False,
) -> list[CurationEntry]:
    """Return an agent's entries, newest first, without the changed rows; with their texts if asked for."""
    with store.reading() as tx:
        log = tx.for_agent(agent).curation
        found = log.page(matching, limit=limit, offset=offset)
        changes = {entry.id: log.changes(entry.id) for entry in found} if with_texts else {}
    return [_to_entry(store, entry, changes.get(entry.id, ()), with_rows=False) for entry in found]


def entries_of_run(run: str) -> CurationFilter:
    """Return the filter for the entries of a run. Raises `NotFound` if `run` is not the id of a run."""
    job, _, at = run.rpartition(".")
    if not (job and at.isascii() and at.isdigit() and len(at) <= _MAX_TIME_DIGITS):
        raise _run_not_found(run)
    return CurationFilter(job=job, at=int(at))


def _to_run(effects: Sequence[RunEffect]) -> CurationRun:
    """Return a run with a summary of one line, made from its effects in both logs."""
    counts: Counter[str] = Counter()
    for one in effects:
        counts[_EFFECTS.get(one.effect, one.effect.replace("_", " "))] += one.entries
    job, at = job_name(effects[0].job), effects[0].at
    return CurationRun(
        id=f"{job}.{at}",
        job=job,
        at=from_micros(at),
        summary=", ".join(f"{number:,} {effect}" for effect, number in sorted(counts.items(), key=_rank)),
        lines=counts.total(),
        open=sum(one.open for one in effects),
        due=sum(one.due for one in effects),
    )


def _rank(count: tuple[str, int]) -> tuple[int, str]:
    effect = count[0]
    return _ORDER.index(effect) if effect in _ORDER else len(_ORDER), effect


def _run_not_found(run: str) -> NotFound:
    return NotFound(f"there is no run {run[:80]!r} in the curation log", field="run")


def undo_entry(store: Store, *, agent: str, entry: str | int, now: int, request: str = "") -> CurationEntry:
    """Restore all rows that an entry changed, in one transaction. `request` is the key of the request, if it has one.

    An entry that the same request has undone before is returned: a kill had kept its answer from the caller.

    Raises `NotFound`: for an unknown entry; `Conflict`: when it is already undone or its rows have changed since.
    """
    number = _entry_number(store, entry)
    with store.writing() as tx:
        log = tx.for_agent(agent).curation
        undo_rows(tx.connection, _get(store, log, number), at=now, prefix=_id_prefix(store), request=request)
        return _to_entry(store, log.get(number), log.changes(number))


def undo_all(
    store: Store,
    *,
    agent: str,
    now: int,
    matching: CurationFilter = EVERY_ENTRY,
    request: str = "",
) -> tuple[list[int], dict[int, str]]:
    """Undo an agent's entries, newest first; return the numbers of those undone, and the errors of the others.

    Each is undone in a transaction of its own. Entries that are already undone are skipped, and
    counted if this request (by its key) undid them before it was interrupted.
    """
    with store.reading() as tx:
        log = tx.for_agent(agent).curation
        numbers: list[int] = []
        not_undone = replace(matching, undone=False)
        while page := log.page(not_undone, limit=_PAGE, offset=len(numbers)):
            numbers += [entry.id for entry in page]
        done = log.undone_by(request) if request else []
    failed: dict[int, str] = {}
    for number in numbers:
        try:
            undo_entry(store, agent=agent, entry=number, now=now, request=request)
        except (Conflict, NotFound) as error:
            failed[number] = str(error)
        else:
            done.append(number)
    return done, failed


def _entry_id(store: Store, number: int) -> str:
    """Return the id of an entry of a store's log."""
    return f"{_id_prefix(store)}{number}"


def _entry_not_found(entry: str) -> NotFound:
    """Return the error for an unknown id."""
    return NotFound(f"there is no entry {entry[:80]!r} in the curation log", field="id")


def _id_prefix(store: Store) -> str:
    return _ACCOUNT_PREFIX if store.name == ACCOUNT_STORE else ""


def _get(store: Store, log: CurationLog, number: int) -> StoredEntry:
    try:
        return log.get(number)
    except NotFound:
        raise _entry_not_found(_entry_id(store, number)) from None


def _entry_number(store: Store, entry: str | int) -> int:
    if isinstance(entry, int):
        return entry
    number = entry.removeprefix(_ACCOUNT_PREFIX)
    if (entry != number) != (store.name == ACCOUNT_STORE):
        raise _entry_not_found(entry)
    if not (number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS):
        raise _entry_not_found(entry)
    return int(number)


def _to_entry(
    store: Store, entry: StoredEntry, changes: Sequence[CurationChange], *, with_rows: bool = True
) -> CurationEntry:
    shown = [change for change in changes if change.table in _SHOWN_COLUMNS]
    return convert(
        entry,
        CurationEntry,
        id=_entry_id(store, entry.id),
        effect=_EFFECTS.get(entry.effect, entry.effect.replace("_", " ")),
        before=_text(change.before for change in shown if _is_over(change) or _is_rewritten(change)),
        after=_text(change.after for change in shown if not _is_over(change)),
        changes=[
            structs.replace(
                change, before=_shown(change.table, change.before), after=_shown(change.table, change.after)
            )
            for change in (shown if with_rows else ())
        ],
    )


def _is_over(change: CurationChange) -> bool:
    """Return whether a memory does not hold any more: it is gone, or replaced."""
    before, after = change.before, change.after
    return before is not None and (after is None or after.get("superseded_by") != before.get("superseded_by"))


def _is_rewritten(change: CurationChange) -> bool:
    """Return whether a session has another summary."""
    return (change.before or {}).get("summary_text") != (change.after or {}).get("summary_text")


def _text(rows: Iterable[dict[str, Any] | None]) -> str | None:
    """Return the texts of memories, or the summary of a session; None if there are none."""
    texts = ((row or {}).get("content") or (row or {}).get("summary_text") for row in rows)
    return "\n".join(dict.fromkeys(filter(None, texts))) or None


def _shown(table: str, row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in _SHOWN_COLUMNS[table] if name in row}


class CurationLogs:
    """The two curation logs of an agent, its workspace's and the account tier's, as one log.

    The job of a filter may be given in either form: "dream-sweep" or "reverie.dream_sweep".
    """

    def __init__(self, memories: AgentMemories) -> None:
        self._memories = memories

    def list(self, matching: CurationFilter, *, limit: int, offset: int) -> Sequence[CurationEntry]:
        """Return the entries of both logs, newest first, without the changed rows."""
        return self._page(_with_job_name(matching), limit=limit, offset=offset)

    def _page(
        self, matching: CurationFilter, *, limit: int, offset: int, with_texts: bool = False
    ) -> Sequence[CurationEntry]:
        read = partial(list_entries, agent=self._memories.agent, matching=matching, with_texts=with_texts)
        stores = self._memories.existing_stores()
        return newest_page(stores, read, lambda entry: entry.at, limit=limit, offset=offset)

    def due(self, *, limit: int) -> Sequence[CurationEntry]:
        """Return the sensitive entries that nobody has accepted or undone, with their texts, newest first."""
        return self._page(CurationFilter(due=True), limit=limit, offset=0, with_texts=True)

    def runs(self, matching: CurationFilter, *, limit: int, offset: int) -> Sequence[CurationRun]:
        """Return the newest runs with an entry that passes a filter, each with its effects and some of its entries."""
        matching = _with_job_name(matching)
        effects: list[RunEffect] = []
        for store in self._memories.existing_stores():
            with store.reading() as tx:
                effects += tx.for_agent(self._memories.agent).curation.runs(matching, limit=limit + offset)
        effects.sort(key=lambda one: (-one.at, one.job))
        found = [_to_run(list(group)) for _, group in groupby(effects, key=lambda one: (one.at, one.job))]
        return [self._with_entries(run, limit=_LINES_LISTED) for run in found[offset : offset + limit]]

    def run(self, run: str, *, limit: int, offset: int) -> CurationRun:
        """Return a run with a page of its entries and their texts. Raises `NotFound`."""
        found = self.runs(entries_of_run(run), limit=1, offset=0)
        if not found:
            raise _run_not_found(run)
        return self._with_entries(found[0], limit=limit, offset=offset)

    def _with_entries(self, run: CurationRun, *, limit: int, offset: int = 0) -> CurationRun:
        matching = _with_job_name(entries_of_run(run.id))
        return structs.replace(run, entries=[*self._page(matching, limit=limit, offset=offset, with_texts=True)])

    def accept(self, entries: Sequence[str], run: str | None, *, now: int) -> Accepted:
        """Mark entries, or all of a run, as read and kept. Raises `NotFound` for an unknown run."""
        if run is not None:
            self.run(run, limit=1, offset=0)
        accepted: list[str] = []
        for store in self._memories.existing_stores():
            is_account = store.name == ACCOUNT_STORE
            named = [_entry_number(store, one) for one in entries if one.startswith(_ACCOUNT_PREFIX) == is_account]
            with store.writing() as tx:
                log = tx.for_agent(self._memories.agent).curation
                if run is not None:
                    named += log.ids(entries_of_run(run))
                accepted += (_entry_id(store, number) for number in log.accept(named, at=now))
        return Accepted(accepted=accepted)

    def show(self, entry: str) -> CurationEntry:
        """Return an entry with the rows that it changed. Raises `NotFound`: for an unknown entry."""
        store = self._store_of(entry)
        number = _entry_number(store, entry)
        with store.reading() as tx:
            log = tx.for_agent(self._memories.agent).curation
            return _to_entry(store, _get(store, log, number), log.changes(number))

    def undo(self, entry: str, *, now: int, request: str) -> tuple[Store, CurationEntry]:
        """Restore all rows that an entry changed, in one transaction; return its store and the entry.

        The store's pipeline has work if restored rows must be chunked or embedded again. Raises the errors of
        `undo_entry`.
        """
        store = self._store_of(entry)
        return store, undo_entry(store, agent=self._memories.agent, entry=entry, now=now, request=request)

    def undo_all(self, matching: CurationFilter, *, now: int, request: str) -> Undone:
        """Undo entries of both logs, newest first within each. `request` is the key of the request, if it has one."""
        matching = _with_job_name(matching)
        undone: list[str] = []
        failed: dict[str, str] = {}
        for store in self._memories.existing_stores():
            done, errors = undo_all(store, agent=self._memories.agent, now=now, matching=matching, request=request)
            undone += (_entry_id(store, number) for number in done)
            failed |= {_entry_id(store, number): error for number, error in errors.items()}
        return Undone(undone=undone, failed=failed)

    def _store_of(self, entry: str) -> Store:
        for store in self._memories.existing_stores():
            if (store.name == ACCOUNT_STORE) == entry.startswith(_ACCOUNT_PREFIX):
                return store
        raise _entry_not_found(entry)


def _with_job_name(matching: CurationFilter) -> CurationFilter:
    return matching if matching.job is None else replace(matching, job=job_name(matching.job))


# Memories that are held back are looked for among so many unconfirmed memories, those stored last.
_UNCONFIRMED_READ: Final = 1_000


class _Due(NamedTuple):
    """A memory with its place in the list: what contradicts or is held back first, then the longest not confirmed."""

    rank: int
    said_at: int
    due: DueMemory


def review(memories: AgentMemories, *, now: int, limit: int, trust: TrustPolicy = EVERYTHING_TOLD) -> Review:
    """Return what an agent has to review, at most `limit` of each part, including what `trust` holds back."""
    due: list[_Due] = []
    for store in memories.existing_stores():
        with store.reading() as tx:
            due += _due_in(tx.for_agent(memories.agent), now=now, limit=limit, trust=trust)
    due.sort(key=lambda one: one[:2])
    entries = [*CurationLogs(memories).due(limit=limit)]
    waiting = pending_memories(memories, limit=limit, offset=0)
    shown = [one.due for one in due[:limit]]
    return Review(listed=len(entries) + len(waiting) + len(shown), entries=entries, waiting=waiting, due=shown)


def _due_in(rows: AgentRepositories, *, now: int, limit: int, trust: TrustPolicy) -> Iterator[_Due]:
    found = rows.memories.due(now=now, limit=limit)
    changed = depending_on_changes(rows)[:limit]
    held = _held_back(rows, trust)[:limit]
    passed = past_their_day(rows, now=now)[:limit]
    first = {one.id for one in held} | {one.id for one in found if one.contradicts}
    second = {one.id for one in changed}
    records = {record.id: record for record in (*held, *changed, *passed, *found)}
    for memory in to_memories(rows, list(records.values()), now=now, trust=trust):
        record = records[memory.id]
        rank = 0 if memory.id in first else 1 if memory.id in second else 2
        yield _Due(rank, record.confirmed_at or record.created_at, DueMemory(memory=memory, why=memory.review))


def _held_back(rows: AgentRepositories, trust: TrustPolicy) -> list[MemoryRecord]:
    """Return the memories that contexts have once they are confirmed, because of their source's trust."""
    records = rows.memories.unconfirmed(orders_only=not trust, limit=_UNCONFIRMED_READ)
    provenances = rows.provenances.of([record.id for record in records])
    return [
        record
        for record in records
        if (known := provenances.get(record.id)) is not None
        and (trust.tells(known.trust) or orders_without_right(record))
        and held_back(record, known, trust)
    ]
