"""The part of an erasure that is about rows: what it removes from each store, counted and removed in short steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from adapters.broker.inbox import Number
from memory.pipeline.forgetting import remove_forgotten
from memory.trust.fragments import FragmentSet, HashKey, fragments_of
from reverie.contract import ACCOUNT_STORE, Payload
from storage.stores import Store, Stores
from storage.trust.erased_rows import ALL_TIMES, Selection, Subject
from storage.trust.erasures import ErasureKind, ErasureRecord

# Rows of a kind in one transaction: some 50 ms under the write lock.
_BATCH: Final = 200
# The log first: some of its entries are found by the memories that they are about.
_IN_BATCHES: Final = (
    "curation",
    "memories",
    "messages",
    "schedules",
    "reminders",
    "notifications",
    "dead_letters",
    "recalls",
    "items",
)
# How often a long removal reports that it goes on: the lease of the job is renewed then.
_RENEWED_SECONDS: Final = 2.0
_EMPTY: Final = Selection()


@dataclass(frozen=True, slots=True)
class Scope:
    """What an erasure is about: its kind, the id, and the agent and workspace that limit it, None for all."""

    kind: ErasureKind
    target: str
    agent: str | None
    workspace: str | None
    before: int = ALL_TIMES

    @classmethod
    def of(cls, erasure: ErasureRecord) -> Scope:
        """Return the scope of an erasure that is in progress."""
        before = erasure.cutoff if erasure.cutoff is not None else ALL_TIMES
        return cls(erasure.kind, erasure.target or "", erasure.agent, erasure.workspace, before)

    def covers(self, payload: Payload, accepted_at: int) -> bool:
        """Return whether an item on its way is erased: what was accepted up to the time limit."""
        if self.agent not in (None, payload.agent) or accepted_at > self.before:
            return False
        match self.kind:
            case "agent" | "workspace":
                return True
            case "user":
                return payload.user == self.target
            case "session":
                return payload.session == self.target
            case "message":
                return payload.id == self.target
        return False

    def store_names(self, stores: Stores) -> list[str]:
        """Return the existing stores that the scope reaches: those of its workspaces, and the account's."""
        return [name for name in stores.all_names() if name == ACCOUNT_STORE or self.workspace in (None, name)]

    def subject_in(self, store_name: str) -> Subject:
        """Return what is erased in one store: of the account's rows those that came from the workspace."""
        kind: ErasureKind = "agent" if self.kind == "workspace" else self.kind
        origin = self.workspace if store_name == ACCOUNT_STORE and kind != "memory" else None
        return Subject(kind, self.target, origin, self.before)


def agents_in(store: Store, scope: Scope) -> list[str]:
    """Return the agents of a store that a scope reaches."""
    if scope.agent is not None:
        return [scope.agent]
    with store.reading() as tx:
        return tx.kept_out.agents()


def planned(stores: Stores, scope: Scope) -> dict[str, dict[str, int]]:
    """Return how many rows of each table an erasure would remove from each store, as a dry run."""
    plan: dict[str, dict[str, int]] = {}
    for name in scope.store_names(stores):
        store, counts = stores.workspace(name, create=False), Counter[str]()
        for agent in agents_in(store, scope):
            with store.reading() as tx:
                erased = tx.for_agent(agent).erased
                counts += erased.count(erased.select(scope.subject_in(name)))
        if found := {table: number for table, number in sorted(counts.items()) if number}:
            plan[name] = found
    return plan


class RowErasure:
    """Removes the rows of one erasure, and keeps hashes of their texts before each removal."""

    def __init__(
        self,
        *,
        forgotten_at: Callable[[], Number],
        drop_cached: Callable[[str, Sequence[tuple[str, str]]], None],
        on_removed: Callable[[str, Counter[str]], None],
        key: HashKey | None = None,
        on_fragments: Callable[[FragmentSet], None] = lambda _: None,
    ) -> None:
        """Take what keeps the numbers by store, and with a `key` what keeps the hashes of what is about to be removed.

        `forgotten_at` returns the broker's number; `drop_cached` drops the newest messages of sessions from the broker.
        """
        self._forgotten_at = forgotten_at
        self._drop_cached = drop_cached
        self._on_removed = on_removed
        self._key = key
        self._on_fragments = on_fragments

    def erase(self, store: Store, agent: str, subject: Subject) -> int:
        """Remove everything of a subject, in as many transactions as it takes; return the number of rows."""
        removed = 0
        self._remove_set_aside(store)  # what a killed process has left: its texts were noted before
        with store.reading() as tx:
            selection = tx.for_agent(agent).erased.select(subject)
        for part in _parts(selection):
            removed += self._erase_part(store, agent, part)
        if subject.kind == "agent" and subject.origin is None:
            removed += self._erase_rest(store, agent)
        return removed

    def _keep_fragments(self, store: Store, agent: str, selection: Selection) -> None:
        """Keep hashes of the texts, vectors and names of rows that are about to be removed."""
        if self._key is None:
            return
        with store.reading() as tx:
            erased = tx.for_agent(agent).erased
            names = erased.names(selection)
            fragments = fragments_of(
                self._key, [*erased.texts(selection), *names], raw=erased.vectors(selection), names=names
            )
        self._on_fragments(fragments)

    def _erase_part(self, store: Store, agent: str, part: Selection) -> int:
        self._keep_fragments(store, agent, part)
        with store.reading() as tx:  # which takes long for a large session, and must hold no lock
            rows = tx.for_agent(agent)
            sessions = [(agent, name) for name in rows.erased.sessions_of(part)]
            counts = rows.erased.count(part)
        self._drop_cached(store.name, sessions)
        forgotten_at = self._forgotten_at()
        with store.writing() as tx:
            tx.broker_content.follow(forgotten_at.content)
            tx.for_agent(agent).removal.remove(part, forgotten_at=forgotten_at.value)
        # Again, for what was stored and cached between the two steps.
        self._drop_cached(store.name, sessions)
        self._on_removed(store.name, counts)
        if part.sessions or part.files:
            self._remove_set_aside(store)
        return sum(counts.values())

    def _remove_set_aside(self, store: Store) -> None:
        """Remove the rows of large sessions and files that were set aside, in transactions of some 100 ms."""
        nothing = Counter[str]()
        while not remove_forgotten(store, budget_seconds=_RENEWED_SECONDS):
            self._on_removed(store.name, nothing)

    def _erase_rest(self, store: Store, agent: str) -> int:
        """Remove what no selection names, once nothing newer of the agent is there."""
        with store.writing() as tx:
            rows = tx.for_agent(agent)
            newer = rows.erased.select(Subject("agent"))
            if not newer.is_empty():
                return 0
            removed = rows.removal.remove_everything()
        self._on_removed(store.name, Counter({"others": removed}))
        return removed


def _parts(selection: Selection) -> Iterator[Selection]:
    """Split a selection into parts of one transaction each, at most so many rows of one kind; sessions one by one."""
    for name in _IN_BATCHES:
        keys = getattr(selection, name)
        yield from (replace(_EMPTY, **{name: keys[first : first + _BATCH]}) for first in range(0, len(keys), _BATCH))
    if selection.groups:
        yield replace(_EMPTY, groups=selection.groups, member=selection.member)
    yield from (replace(_EMPTY, files=[row]) for row in selection.files)
    yield from (replace(_EMPTY, sessions=[row]) for row in selection.sessions)
