"""Compare a database after the kills with what was acknowledged."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

from benchmarks.harness.load import Load
from benchmarks.harness.stack import Stack
from benchmarks.harness.watch import Watch
from storage.stores import Store
from storage.upkeep.verify import verify


@dataclass(slots=True)
class Audit:
    """Counts of lost and duplicate messages, and the findings of `verify`."""

    stored: int = 0
    lost: int = 0
    doubled: int = 0
    dead_letters: int = 0
    not_searchable: int = 0
    flushed: int = 0
    dead_reasons: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Return whether a guarantee was broken."""
        return bool(self.lost or self.doubled or self.dead_letters or self.not_searchable or self.wrong)


def audit(stack: Stack, workspace: str, load: Load, *, flushed: float | None) -> Audit:
    """Count lost, duplicate and changed messages. Only queued ones may be missing, and only if sent before a flush."""
    with closing(stack.stores()) as stores, stack.watch(workspace) as watch:
        return audit_workspace(watch, stores.workspace(workspace, create=False), load, flushed=flushed)


def audit_workspace(watch: Watch, store: Store, load: Load, *, flushed: float | None) -> Audit:
    """Do what `audit` does for a workspace wherever it is."""
    found = Audit()
    rows = watch.rows("SELECT id, content FROM messages")
    searchable = {row.id for row in watch.searchable()}
    dead = watch.rows("SELECT item_id, stage, error_type, error FROM dead_letters")
    stored = {str(item_id) for item_id, _ in rows}
    missing = load.acknowledged() - stored - {str(row[0]) for row in dead}
    excused = missing - load.acknowledged_after(flushed) if flushed is not None else set()
    contents = Counter(content for _, content in rows)
    found.stored = len(stored)
    found.lost = len(missing - excused)
    found.flushed = len(excused)
    # By id and by text: every message of the load has a unique text.
    found.doubled = len(rows) - len(stored) + sum(count - 1 for count in contents.values())
    found.not_searchable = len(stored - searchable)
    found.dead_letters = len(dead)
    found.dead_reasons = sorted({f"{stage}: {error_type}: {error}" for _, stage, error_type, error in dead})[:10]
    changed = sum(1 for item_id, content in rows if load.markers.get(item_id) != content)
    found.wrong = [f"{changed} messages are not what was sent"] if changed else []
    found.wrong += _wrong_in(store)
    return found


def verified(stack: Stack, workspace: str) -> list[str]:
    """Return what `verify` finds wrong in a workspace, and whether every chunk is in the vector index."""
    with closing(stack.stores()) as stores:
        return _wrong_in(stores.workspace(workspace, create=False))


def _wrong_in(store: Store) -> list[str]:
    verdict = verify(store)
    wrong = list(verdict.wrong)
    if verdict.counts["chunks"] != verdict.counts["in_vector_index"]:
        wrong.append(f"{verdict.counts['chunks']} chunks, {verdict.counts['in_vector_index']} in the vector index")
    return wrong
