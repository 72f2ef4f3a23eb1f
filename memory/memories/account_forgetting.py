"""Forget what the account has of a session or workspace, in steps that hold its write lock for a moment each.

What is there of it now is told by ref codes, not by times: a session that was forgotten and begun again has another
one, and what came from the present session stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeVar

from storage.memories.extraction import KnownMemories
from storage.stores import Store
from storage.transaction import Transaction

# A memory takes a millisecond under the write lock, which all workspaces share; an entry less.
_AT_ONCE: Final = 100
# Between two steps, so that those who wait for the write lock get it: they look for it every 3 ms.
_PAUSE_SECONDS: Final = 0.01

T = TypeVar("T")

# Returns those of these ref codes whose sessions exist.
Existing = Callable[[Collection[str]], set[str]]


def _none_exist(_ref_codes: Collection[str]) -> set[str]:
    return set()


def forget_in_account(
    account: Store, *, agent: str | None, workspace: str, session: str | None, existing: Existing = _none_exist
) -> int:
    """Delete the account memories that came from a session of a workspace, or from all its sessions; return how many.

    Used when a session or workspace is forgotten: the memories in its own store go with it, those of the account do
    not. What they had superseded becomes current again. Those of sessions that are `existing` stay. Without an `agent`
    it is done for all. It may be interrupted and done again.
    """
    # Who extracts looks under this lock whether the session still exists: what is not committed now never will be.
    with account.writing():
        pass
    deleted = 0
    for one in [agent] if agent is not None else _agents(account):
        with account.reading() as tx:
            rows = KnownMemories(tx.connection, one).rows_from_workspace(workspace, session)
        for part in _parts(rows):
            with account.writing() as tx:
                deleted += _forget_memories(tx, one, part, existing)
    with account.reading() as tx:
        entries = tx.curation.of_origin(workspace, session, agent=agent)
    kept = existing({ref_code for _, ref_code in entries if ref_code is not None}) if entries else set()
    for part in _parts([entry for entry, ref_code in entries if ref_code not in kept]):
        with account.writing() as tx:
            tx.curation.forget_entries(part)
    return deleted


def _agents(account: Store) -> list[str]:
    with account.reading() as tx:
        return tx.memories.agents()


def _parts(keys: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(keys), _AT_ONCE):
        if first:
            time.sleep(_PAUSE_SECONDS)
        yield keys[first : first + _AT_ONCE]


def _forget_memories(tx: Transaction, agent: str, rows: Sequence[int], existing: Existing) -> int:
    """Delete memories in the caller's transaction, with the curation log's entries about them; return how many."""
    ref_codes = KnownMemories(tx.connection, agent).ref_codes(rows)
    kept = existing({ref_code for ref_code in ref_codes.values() if ref_code is not None})
    gone = [row for row, ref_code in ref_codes.items() if ref_code not in kept]
    if not gone:
        return 0
    memories = tx.for_agent(agent).memories
    names = [memory.id for memory in memories.by_rows(gone).values()]
    memories.detach_superseded(gone)
    tx.curation.forget_memories(agent, names)
    return memories.delete(gone)
