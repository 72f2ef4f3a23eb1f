"""Puts a memory in its place among those of the same subject or fact: the one that was said last is current.

A message may arrive late, or a conversation be imported long after it took place. What it says must not replace what
was said after it: it becomes history, between what was said before and what was said after.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.memories.memories import Memories
from storage.memories.records import MemoryRecord, NewMemory


def add_superseding(stored: Memories, memory: NewMemory, older_rows: Sequence[int], *, now: int) -> MemoryRecord:
    """Store a memory that supersedes the memories of these rows, within the caller's transaction."""
    # Only one row may be the current fact of a category and key: the older ones first supersede themselves.
    for row_id in older_rows:
        stored.supersede(row_id, by=row_id, now=now)
    added = stored.add(memory, now=now)
    for row_id in older_rows:
        stored.supersede(row_id, by=added.row_id, now=now)
    return added


def add_in_history(
    stored: Memories, memory: NewMemory, older_rows: Sequence[int], newer_rows: Sequence[int], *, now: int
) -> MemoryRecord:
    """Store a memory that was said after the current memories `older_rows` and before the current ones `newer_rows`.

    It supersedes the older ones, and what was said before it of those that the newer ones replaced. It is superseded
    itself by the first that was said after it. Without `newer_rows` it is current.
    """
    if not newer_rows:
        return add_superseding(stored, memory, older_rows, now=now)
    chain = stored.with_all_superseded(newer_rows)
    successor = next(one for one in chain if one.created_at > memory.created_at)
    added = stored.add(memory, now=now, superseded_by=successor.row_id)
    before = [one for one in chain if one.superseded_by == successor.id and one.created_at <= memory.created_at]
    stored.move_superseded([one.row_id for one in before], to=added.row_id)
    for row_id in older_rows:
        stored.supersede(row_id, by=added.row_id, now=now)
    return added
