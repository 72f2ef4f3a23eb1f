"""Erases from a restored data folder what its tombstones name, before it is opened for use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from adapters.broker.inbox import Number
from adapters.workspace_git import GitFolders
from memory.memories.secrets import looks_secret
from memory.trust.erased_names import erased_name
from memory.trust.erased_notebooks import drop_unfounded_lines
from memory.trust.erasure_rows import RowErasure
from memory.trust.fragments import HashKey
from memory.trust.tokens import REVOKED
from memory.trust.tombstones import Tombstone, hash_key, read_tombstones, target_hash
from memory.trust.webhook_secrets import forget_rotated
from memory.upkeep.notebook import Notebooks
from reverie.contract import ACCOUNT_STORE
from storage.stores import Store, Stores
from storage.trust.candidates import Candidate
from storage.trust.erased_rows import Subject
from storage.trust.pages import clear_deleted
from storage.trust.tokens import TokenRecord


def apply_tombstones(stores: Stores, *, now: int) -> dict[str, int]:
    """Remove from all stores what was erased since they were copied; return how many rows of each table.

    `now`, in microseconds, dates the commits of memory files.

    Only rows that were stored before their erasure are removed: what the same person said afterwards stays. Running it
    again changes nothing. No other process may use the data folder meanwhile. Raises `StoreUnavailable`.
    """
    tombstones: dict[str, Tombstone] = {}
    for tombstone in read_tombstones(stores.data_dir):
        before = tombstones.get(tombstone.hash)
        if before is None or before.at < tombstone.at:
            tombstones[tombstone.hash] = tombstone
    total: Counter[str] = Counter()
    if not tombstones:
        return {}
    restored = _Restored(stores, tombstones, now)
    for name in stores.all_names():
        total += restored.apply(stores.workspace(name, create=False))
    total += restored.end_tokens()
    return dict(total)


class _Restored:
    """A restored data folder and its tombstones, by their hashes."""

    def __init__(self, stores: Stores, tombstones: dict[str, Tombstone], now: int) -> None:
        self._stores = stores
        self._tombstones = tombstones
        self._now = now
        self._key: HashKey = hash_key(stores.data_dir)
        repositories = GitFolders(stores.data_dir, looks_secret)
        self._notebooks = Notebooks(repositories)

    def apply(self, store: Store) -> Counter[str]:
        """Remove from one store what tombstones name; return the numbers of removed rows."""
        counts: Counter[str] = Counter()
        with store.reading() as tx:
            agents = tx.kept_out.agents()
        for agent in agents:
            removed: Counter[str] = Counter()
            rows = RowErasure(
                forgotten_at=lambda: Number(0, ""),
                drop_cached=lambda _store, _sessions: None,
                on_removed=lambda _store, number, removed=removed: removed.update(number),  # type: ignore[misc]
            )
            for subject in self._subjects(store, agent):
                rows.erase(store, agent, subject)
            if any(removed.values()):
                drop_unfounded_lines(store, self._notebooks, agent, now=self._now)
            counts += removed
        if counts:
            clear_deleted(store)
        if store.name != ACCOUNT_STORE:
            self._forget_names(store.name)
        return counts

    def end_tokens(self) -> Counter[str]:
        """End the tokens that were revoked or rotated, and those of erased users, and return how many.

        The users' names are taken from theirs.
        """
        tokens = self._stores.tokens()
        counts: Counter[str] = Counter()
        for token in tokens.not_revoked():
            erased = self._user_erased(token)
            if erased is not None:
                tokens.forget_name(token.id, erased_name(erased.hash), now=erased.at)
            elif (revoked := self._tombstone(REVOKED, None, None, token.id)) is not None:
                tokens.revoke(token.id, now=revoked.at)
            else:
                continue
            counts["tokens"] += 1
        return counts

    def _user_erased(self, token: TokenRecord) -> Tombstone | None:
        """Return the tombstone of the user whom a token was for, if they were erased after it was made."""
        if token.user is None:
            return None
        # An erasure within a workspace or agent is about the tokens that are for these alone.
        agents = [None, *(token.agents if token.agents is not None and len(token.agents) == 1 else ())]
        found = [
            self._tombstone("user", workspace, agent, token.user)
            for workspace in (None, token.workspace)
            for agent in agents
        ]
        after = [stone for stone in found if stone is not None and token.created_at <= stone.at]
        return max(after, key=lambda stone: stone.at, default=None)

    def _forget_names(self, workspace: str) -> None:
        """Take the names of erased agents out of the record of rotated webhook secrets."""

        def is_erased(agent: str, rotated_at: int) -> bool:
            found = [self._tombstone("agent", origin, agent, "") for origin in (None, workspace)]
            return any(tombstone is not None and rotated_at <= tombstone.at for tombstone in found)

        forget_rotated(self._stores, workspace, is_erased)

    def _subjects(self, store: Store, agent: str) -> list[Subject]:
        """Return what is to be removed of an agent."""
        with store.reading() as tx:
            rows = tx.for_agent(agent).candidates
            found = {subject for one in rows.all() for subject in self._named(store, agent, one)}
            origins = rows.origins() if store.name == ACCOUNT_STORE else [store.name]
        for origin in [None, *origins]:
            limit = origin if store.name == ACCOUNT_STORE else None
            found |= {
                Subject("agent", "", limit, tombstone.at)
                for tombstone in (
                    self._tombstone("agent", origin, agent, ""),
                    self._tombstone("workspace", origin, None, "") if origin is not None else None,
                )
                if tombstone is not None
            }
        return sorted(found, key=lambda subject: (subject.kind, subject.id, subject.before))

    def _named(self, store: Store, agent: str, candidate: Candidate) -> Iterator[Subject]:
        in_account = store.name == ACCOUNT_STORE
        if in_account and candidate.kind == "memory":  # named in the workspace from which it was erased
            workspaces: list[str | None] = [None, *self._stores.names()]
        else:
            workspaces = [None, candidate.origin if in_account else store.name]
        for workspace in workspaces:
            for limit in (None, agent):
                tombstone = self._tombstone(candidate.kind, workspace, limit, candidate.id)
                if tombstone is not None:
                    origin = workspace if in_account and candidate.kind != "memory" else None
                    yield Subject(candidate.kind, candidate.id, origin, tombstone.at)

    def _tombstone(self, kind: str, workspace: str | None, agent: str | None, target: str) -> Tombstone | None:
        hashed = target_hash(self._key, kind, workspace=workspace, agent=agent, target=target)
        return self._tombstones.get(hashed)
