"""Reads and undoes the curation log of one store: what jobs did to an agent's memories.

Each workspace has a log, and the account tier has one. The id of an entry is its number, in the account's log with the
prefix "account-".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
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
_PRUNE_BATCH: Final = 500
_PRUNE_BUDGET_SECONDS: Final = 10.0
_PAGE: Final = 500
_ACCOUNT_PREFIX: Final = "account-"
# More digits could exceed SQLite's 64-bit integers.
_MAX_DIGITS: Final = 15
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


EVERY_ENTRY: Final = CurationFilter()


def list_entries(
    store: Store, *, agent: str, matching: CurationFilter = EVERY_ENTRY, limit: int = 50, offset: int = 0
) -> list[CurationEntry]:
    """Return an agent's entries, newest first, without the changed rows."""
    with store.reading() as tx:
        found = tx.for_agent(agent).curation.page(matching, limit=limit, offset=offset)
    return [_to_entry(store, entry, ()) for entry in found]


def show_entry(store: Store, *, agent: str, entry: str | int) -> CurationEntry:
    """Return an entry with the rows that it changed. Raises `NotFound`: for an unknown entry."""
    number = _entry_number(store, entry)
    with store.reading() as tx:
        log = tx.for_agent(agent).curation
        return _to_entry(store, _get(store, log, number), log.changes(number))


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
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    request: str = "",
) -> tuple[list[int], dict[int, str]]:
    """Undo an agent's entries, newest first; return the numbers of those undone, and the errors of the others.

    Each is undone in a transaction of its own. Entries that are already undone are skipped, but for those that the same
    request (by its key) has undone before it was killed. `progress` is called with (done, total).
    """
    with store.reading() as tx:
        log = tx.for_agent(agent).curation
        numbers: list[int] = []
        not_undone = replace(matching, undone=False)
        while page := log.page(not_undone, limit=_PAGE, offset=len(numbers)):
            numbers += [entry.id for entry in page]
        done = log.undone_by(request) if request else []
    failed: dict[int, str] = {}
    for position, number in enumerate(numbers):
        progress(position, len(numbers))
        try:
            undo_entry(store, agent=agent, entry=number, now=now, request=request)
        except (Conflict, NotFound) as error:
            failed[number] = str(error)
        else:
            done.append(number)
    return done, failed


def prune_log(store: Store, *, now: int, keep_days: float) -> int:
    """Delete entries older than `keep_days`, in batches and for at most 10 s; return how many were deleted."""
    deadline = time.monotonic() + _PRUNE_BUDGET_SECONDS
    before = now - int(keep_days * _DAY_MICROS)
    deleted, batch = 0, _PRUNE_BATCH
    while batch == _PRUNE_BATCH and time.monotonic() < deadline:
        with store.writing() as tx:
            batch = tx.curation.prune(before=before, limit=_PRUNE_BATCH)
        deleted += batch
    return deleted


def entry_id(store: Store, number: int) -> str:
    """Return the id of an entry of a store's log."""
    return f"{_id_prefix(store)}{number}"


def is_account_entry(entry: str) -> bool:
    """Return whether an id is that of an entry of the account's log."""
    return entry.startswith(_ACCOUNT_PREFIX)


def entry_not_found(entry: str) -> NotFound:
    """Return the error for an unknown id."""
    return NotFound(f"there is no entry {entry[:80]!r} in the curation log", field="id")


def _id_prefix(store: Store) -> str:
    return _ACCOUNT_PREFIX if store.name == ACCOUNT_STORE else ""


def _get(store: Store, log: CurationLog, number: int) -> StoredEntry:
    try:
        return log.get(number)
    except NotFound:
        raise entry_not_found(entry_id(store, number)) from None


def _entry_number(store: Store, entry: str | int) -> int:
    if isinstance(entry, int):
        return entry
    number = entry.removeprefix(_ACCOUNT_PREFIX)
    if (entry != number) != (store.name == ACCOUNT_STORE):
        raise entry_not_found(entry)
    if not (number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS):
        raise entry_not_found(entry)
    return int(number)


def _to_entry(store: Store, entry: StoredEntry, changes: Sequence[RowChange]) -> CurationEntry:
    return CurationEntry(
        id=entry_id(store, entry.id),
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
            if change.table in _SHOWN_COLUMNS
        ],
    )  # fmt: skip


def _shown(table: str, row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in _SHOWN_COLUMNS[table] if name in row}
