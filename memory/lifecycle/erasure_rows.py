"""The rows of an erasure: selects, counts and removes them in each store, in short steps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from adapters.broker.inbox import Number
from adapters.broker.recall_log import RecallNote
from memory.fragments import FragmentSet, HashKey, fragments_of
from memory.lifecycle.forgetting import remove_forgotten
from reverie.checks import check_workspace
from reverie.contract import ACCOUNT_STORE, MessagePayload, Payload
from reverie.errors import StoreUnavailable
from reverie.trust.calls import ErasureKind
from storage.lifecycle.erased_rows import Selection
from storage.lifecycle.erasures import ALL_TIMES, ErasureRecord, Subject, message_name, parts_of
from storage.stores import Store, Stores

# Rows of a kind in one transaction: some 50 ms under the write lock.
_BATCH: Final = 200
# How often a long removal reports progress, at which the job's lease is renewed.
_RENEWED_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of an erasure: its kind, the id, and the agent and workspace that limit it, None for all.

    The `target` of a message is its `message_name`, that of a selection a list of kinds and targets as JSON.
    """

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

    def check(self) -> None:
        """Raise `Rejected` if the workspace's name is invalid."""
        if self.workspace is not None:
            check_workspace(self.workspace)

    def covers(self, payload: Payload, accepted_at: int) -> bool:
        """Return whether an item that is not stored yet has to be erased: it was accepted up to `before`."""
        if self.agent not in (None, payload.agent) or accepted_at > self.before:
            return False
        match self.kind:
            case "agent" | "workspace":
                return True
            case "user":
                return payload.user == self.target
            case "session":
                return payload.session == self.target
            case "message" | "selection":
                named = isinstance(payload, MessagePayload) and message_name(payload.session, payload.id)
                return ("message", named) in self.parts
        return False

    def covers_recall(self, note: RecallNote) -> bool:
        """Return whether a recall that is not recorded yet has to be erased, because of who asked."""
        if self.agent not in (None, note.agent) or note.at > self.before:
            return False
        return self.kind in ("agent", "workspace") or (self.kind == "user" and note.user == self.target)

    def store_names(self, stores: Stores) -> list[str]:
        """Return the existing stores that the scope reaches: those of its workspaces, and the account's."""
        return [name for name in stores.all_names() if name == ACCOUNT_STORE or self.workspace in (None, name)]

    @property
    def parts(self) -> list[tuple[ErasureKind, str]]:
        """The kind and the target of everything that is erased."""
        return parts_of(self.kind, self.target)

    def subjects_in(self, store_name: str) -> list[Subject]:
        """Return the rows to erase in one store; in the account's store, those that came from the workspace."""
        origin = self.workspace if store_name == ACCOUNT_STORE else None
        return [
            Subject.named(kind, target, None if kind == "memory" else origin, self.before)
            for kind, target in self.parts
        ]


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
                counts += erased.count(Selection.of_all(map(erased.select, scope.subjects_in(name))))
        if found := {table: number for table, number in sorted(counts.items()) if number}:
            plan[name] = found
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RowErasure:
    """Removes the rows of one erasure, and keeps hashes of their texts before each removal.

    `forgotten_at` returns the broker's number; `drop_cached` drops the newest messages of sessions from the broker.
    `on_removed` gets the numbers by store; with a `key`, `on_fragments` gets hashes of the rows to be removed.
    """

    forgotten_at: Callable[[], Number]
    drop_cached: Callable[[str, Sequence[tuple[str, str]]], None]
    on_removed: Callable[[str, Counter[str]], None]
    key: HashKey | None = None
    on_fragments: Callable[[FragmentSet], None] = lambda _: None

    def erase(self, store: Store, agent: str, subject: Subject) -> int:
        """Remove everything of a subject, in as many transactions as it takes; return the number of rows."""
        removed = 0
        self._remove_set_aside(store)  # left by a killed process, which noted the texts before
        skipped = True
        while skipped:  # if a session became a group meanwhile, the others' messages there stay
            with store.reading() as tx:
                selection = tx.for_agent(agent).erased.select(subject)
            parts = [self._erase_part(store, agent, subject, part) for part in selection.parts(_BATCH)]
            removed += sum(number or 0 for number in parts)
            skipped = None in parts
        if subject.kind == "agent" and subject.origin is None:
            removed += self._erase_rest(store, agent)
        return removed

    def _keep_fragments(self, store: Store, agent: str, selection: Selection) -> None:
        """Keep hashes of the texts, vectors and names of rows that are about to be removed."""
        if self.key is None:
            return
        with store.reading() as tx:
            erased = tx.for_agent(agent).erased
            names = erased.names(selection)
            fragments = fragments_of(
                self.key, [*erased.texts(selection), *names], raw=erased.vectors(selection), names=names
            )
        self.on_fragments(fragments)

    def _erase_part(self, store: Store, agent: str, subject: Subject, part: Selection) -> int | None:
        """Remove a part and return the number of rows; None if one of its sessions has other users by now."""
        self._keep_fragments(store, agent, part)
        with store.reading_as(agent) as rows:  # takes long for a large session, so it must not hold a lock
            sessions = [(agent, name) for name in rows.erased.sessions_of(part)]
            counts = rows.erased.count(part)
        self.drop_cached(store.name, sessions)
        forgotten_at = self.forgotten_at()
        with store.writing() as tx:
            rows = tx.for_agent(agent)
            if not rows.erased.are_about(subject, part.of("sessions")):
                return None
            tx.broker_content.follow(forgotten_at.content)
            rows.removal.remove(part, forgotten_at=forgotten_at.value)
        # Again, for messages that were stored and cached between the two steps.
        self.drop_cached(store.name, sessions)
        self.on_removed(store.name, counts)
        if part.of("sessions") or part.of("files"):
            self._remove_set_aside(store)
        return sum(counts.values())

    def _remove_set_aside(self, store: Store) -> None:
        """Remove the rows of large sessions and files that were set aside, in transactions of some 100 ms."""
        nothing = Counter[str]()
        while not remove_forgotten(store, budget_seconds=_RENEWED_SECONDS):
            self.on_removed(store.name, nothing)

    def _erase_rest(self, store: Store, agent: str) -> int:
        """Remove the agent's rows that no selection includes, unless the agent has newer rows."""
        with store.writing_as(agent) as rows:
            newer = rows.erased.select(Subject("agent"))
            if not newer.is_empty():
                return 0
            removed = rows.removal.remove_everything()
        self.on_removed(store.name, Counter({"others": removed}))
        return removed


_SHOWN_HASH: Final = 16


def erased_name(target_hash: str) -> str:
    """Return the replacement of an erased name, made from the hash in the receipt."""
    return f"erased-{target_hash[:_SHOWN_HASH]}"


def end_tokens(stores: Stores, erasure: ErasureRecord, scope: Scope, *, now: int) -> int:
    """Revoke the tokens of the user whom an erasure is about, and take the name out of them; return how many.

    A token that was bound to an erased user is revoked, and names the user by the hash in the receipt. The token that
    asked for the erasure may read for an hour, as nobody, to get the receipt. Safe to repeat.
    """
    if scope.kind != "user":
        return 0
    revoked = stores.tokens().forget_user(
        scope.target,
        erased_name(erasure.target_hash),
        workspace=scope.workspace,
        agent=scope.agent,
        now=now,
        spared=erasure.requested_by,
    )
    if erasure.requested_by in revoked:
        stores.erasures().rename_requester(erasure.requested_by, erased_name(erasure.target_hash))
    return len(revoked)


_VACUUM_PAGES: Final = 500
# A recall that is being answered reads the log for some milliseconds: this many tries find a moment without one.
_CHECKPOINT_TRIES: Final = 100
_PAUSE_SECONDS: Final = 0.05


def clear_deleted(store: Store, *, has_removed: bool = True) -> int:
    """Free all unused pages and empty the log, in short steps; return how many pages were freed.

    Deleted rows were overwritten with zeros when they were deleted (`secure_delete`), in the database file once the log
    is copied into it. If rows of the store were removed, what SQLite keeps of them elsewhere is overwritten, too: words
    between which the pages of a full-text index are divided, and copies of rows in unused bytes of pages.

    Raises `StoreUnavailable` when readers keep the log in use: try again later.
    """
    with store.writing() as tx:
        texts = [generation for generation in tx.index.generations() if generation.kind == "text"]
        for generation in texts:
            tx.index.overwrite_deleted(generation)
    for generation in texts if has_removed else ():
        with store.writing() as tx:
            tx.index.begin_anew(generation)
        more = True
        while more:
            with store.writing() as tx:
                more = tx.index.merge_texts(generation)
    freed = 0
    while step := store.database.free_pages(_VACUUM_PAGES):
        freed += step
    for _ in range(_CHECKPOINT_TRIES):
        busy, _, _ = store.database.truncate_log()
        if not busy:
            if has_removed:
                store.database.overwrite_unused()
            return freed
        time.sleep(_PAUSE_SECONDS)
    raise StoreUnavailable(f"the log of {store.database.path} is in use by readers: the erasure tries again later")
