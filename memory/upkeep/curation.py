"""What jobs did to an agent's memories in one store, read and undone by whoever owns them (X9).

The workspace has a log, and the account tier has one. The id of an entry is its number, after "account-" in the second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from reverie.clock import from_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, NotFound
from reverie.upkeep.curation_types import CurationChange, CurationEntry
from storage.stores import Store
from storage.upkeep.curation import CurationEntry as StoredEntry
from storage.upkeep.curation import CurationFilter, CurationLog, RowChange
from storage.upkeep.undo import undo as undo_rows

_DAY_MICROS: Final = 24 * 3_600 * 1_000_000
_PRUNED_AT_ONCE: Final = 500
_PRUNE_BUDGET_SECONDS: Final = 10.0
_PAGE: Final = 500
_OF_ACCOUNT: Final = "account-"
# SQLite counts in 64 bits; nothing of ours comes near.
_MOST_DIGITS: Final = 15
# Of what a person is shown: what says something to them.
_SHOWN: Final = {
    "memories": (
        "id", "content", "tier", "lifetime", "kind", "source", "importance", "access_count", "tags", "concept_tags",
        "channel_id", "category", "key", "value", "expires_at", "pinned", "superseded_by",
    ),
    "sessions": ("summary_text", "summary_epoch", "summary_upper_sequence", "status", "ended_at"),
    "messages": ("row_id", "consolidated_at"),
    "memory_promotions": ("memory_id", "score", "phase"),
}  # fmt: skip


def list_entries(
    store: Store, *, agent: str, limit: int = 50, offset: int = 0, memory: str | None = None, job: str | None = None,
    action: str | None = None, since: int = 0,
) -> list[CurationEntry]:  # fmt: skip
    """An agent's entries, the newest first, without the rows; `since` in microseconds."""
    with store.reading() as tx:
        log = tx.for_agent(agent).curation
        found = log.page(CurationFilter(memory=memory, job=job, action=action, since=since), limit=limit, offset=offset)
    return [_entry(store, entry, ()) for entry in found]


def show_entry(store: Store, *, agent: str, entry: str | int) -> CurationEntry:
    """One entry with what it changed. Raises `NotFound`."""
    number = _number_of(store, entry)
    with store.reading() as tx:
        log = tx.for_agent(agent).curation
        return _entry(store, _get(store, log, number), log.changes(number))


def undo_entry(store: Store, *, agent: str, entry: str | int, now: int) -> CurationEntry:
    """Put back all that an entry changed, in one transaction. Raises `NotFound` and `Conflict`."""
    number = _number_of(store, entry)
    with store.writing() as tx:
        log = tx.for_agent(agent).curation
        undo_rows(tx.connection, _get(store, log, number), at=now, prefix=_prefix_of(store))
        return _entry(store, log.get(number), log.changes(number))


def undo_all(
    store: Store,
    *,
    agent: str,
    now: int,
    job: str | None = None,
    action: str | None = None,
    since: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[list[int], dict[int, str]]:
    """Undo an agent's entries, the newest first; returns those undone, and why the others could not be.

    Only those of a job or an action, or written since a moment in microseconds, where given. Each is a transaction of
    its own. Entries that were undone before are passed over. `progress` gets (done, total).
    """
    with store.reading() as tx:
        log = tx.for_agent(agent).curation
        wanted: list[int] = []
        not_undone = CurationFilter(job=job, action=action, since=since, undone=False)
        while page := log.page(not_undone, limit=_PAGE, offset=len(wanted)):
            wanted += [entry.id for entry in page]
    done: list[int] = []
    failed: dict[int, str] = {}
    for place, entry in enumerate(wanted):
        progress(place, len(wanted))
        try:
            undo_entry(store, agent=agent, entry=entry, now=now)
        except (Conflict, NotFound) as error:
            failed[entry] = str(error)
        else:
            done.append(entry)
    return done, failed


def prune_log(store: Store, *, now: int, keep_days: float) -> int:
    """Remove entries older than so many days, a bounded step at a time; returns how many."""
    deadline = time.monotonic() + _PRUNE_BUDGET_SECONDS
    before = now - int(keep_days * _DAY_MICROS)
    pruned, step = 0, _PRUNED_AT_ONCE
    while step == _PRUNED_AT_ONCE and time.monotonic() < deadline:
        with store.writing() as tx:
            step = tx.curation.prune(before=before, limit=_PRUNED_AT_ONCE)
        pruned += step
    return pruned


def id_of(store: Store, number: int) -> str:
    """The id of an entry of a store's log."""
    return f"{_prefix_of(store)}{number}"


def is_of_account(entry: str) -> bool:
    """Whether an id is of the account's log."""
    return entry.startswith(_OF_ACCOUNT)


def no_entry(entry: str) -> NotFound:
    """That there is none of this id."""
    return NotFound(f"there is no entry {entry[:80]!r} in the curation log", field="id")


def _prefix_of(store: Store) -> str:
    return _OF_ACCOUNT if store.name == ACCOUNT_STORE else ""


def _get(store: Store, log: CurationLog, number: int) -> StoredEntry:
    try:
        return log.get(number)
    except NotFound:
        raise no_entry(id_of(store, number)) from None


def _number_of(store: Store, entry: str | int) -> int:
    if isinstance(entry, int):
        return entry
    number = entry.removeprefix(_OF_ACCOUNT)
    if (entry != number) != (store.name == ACCOUNT_STORE):
        raise no_entry(entry)
    if not (number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
        raise no_entry(entry)
    return int(number)


def _entry(store: Store, entry: StoredEntry, changes: Sequence[RowChange]) -> CurationEntry:
    return CurationEntry(
        id=id_of(store, entry.id),
        at=from_micros(entry.at),
        job=entry.job,
        action=entry.action,
        why=entry.why,
        memories=list(entry.memories),
        session=entry.session,
        undone_at=from_micros(entry.undone_at) if entry.undone_at is not None else None,
        changes=[
            CurationChange(table=change.table, before=_shown(change.table, change.before),
                           after=_shown(change.table, change.after))
            for change in changes
            if change.table in _SHOWN
        ],
    )  # fmt: skip


def _shown(table: str, row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in _SHOWN[table] if name in row}
