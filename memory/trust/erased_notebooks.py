"""Takes what was erased out of the memory files of agents, and out of their history in git."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from adapters.workspace_git import WorkspaceGit
from memory.trust.erasure_rows import Scope
from memory.trust.fragments import Matcher
from memory.upkeep.notebook import Notebooks, publish
from reverie.errors import NotFound
from storage.stores import Store, Stores
from storage.trust.erasures import ErasureRecord

_MESSAGE: Final = "Brought up to date"
# Instead of the message of a commit that quotes what was erased.
_PLAIN_MESSAGE: Final = "Checkpoint"


def rewrite_notebooks(
    stores: Stores,
    notebooks: Notebooks,
    erasure: ErasureRecord,
    quoted: Matcher,
    *,
    now: int,
    on_step: Callable[[], None],
) -> int:
    """Bring the files of all agents concerned up to date, and rewrite their histories; return how many.

    A line of an earlier version stays only if the files still have it today: of a memory that was pruned long ago
    nobody can tell any more whose it was.
    """
    if notebooks.repositories is None:
        return 0
    scope, rewritten = Scope.of(erasure), 0
    for name in scope.store_names(stores):
        with suppress(NotFound):
            store = stores.workspace(name, create=False)
            for agent in notebooks.repositories.agents(name):
                if scope.agent in (None, agent):
                    rewritten += _rewrite(store, notebooks, agent, erasure, quoted, now)
                    on_step()
    return rewritten


def _rewrite(store: Store, notebooks: Notebooks, agent: str, erasure: ErasureRecord, quoted: Matcher, now: int) -> bool:
    repository = notebooks.require_repositories().repository(store.name, agent)
    if not _is_concerned(erasure, store.name) and not _quotes(repository, quoted):
        return False
    return drop_unfounded_lines(store, notebooks, agent, now=now, quotes=quoted.is_in)


def drop_unfounded_lines(
    store: Store,
    notebooks: Notebooks,
    agent: str,
    *,
    now: int,
    quotes: Callable[[bytes], bool] = lambda _: False,
    quotes_in_message: Callable[[bytes], bool] | None = None,
) -> bool:
    """Rewrite the history of an agent's files with only the lines that they have today, without those that quote.

    A message of a commit is replaced if `quotes_in_message` says so, by default if it quotes. Return whether there was
    anything to rewrite. An agent of whom nothing is stored loses its files.
    """
    is_quoting = quotes if quotes_in_message is None else quotes_in_message
    repository = notebooks.require_repositories().repository(store.name, agent)
    if _is_empty(store, agent):
        return repository.remove()
    if not repository.history(1):
        return False
    publish(store, notebooks, agent, _MESSAGE, now=now)
    lines = {line for text in repository.files().values() for line in text.splitlines()}
    return repository.rewrite(
        lambda line: line in lines and not quotes(line.encode()),
        lambda message: _PLAIN_MESSAGE if is_quoting(message.encode()) else message,
    )


def _is_concerned(erasure: ErasureRecord, store_name: str) -> bool:
    """Return whether memories, or their history, were removed from a store."""
    removed = erasure.counts.get(store_name, {})
    if any(removed.get(table) for table in ("memories", "memory_promotions", "curation_log")):
        return True
    return erasure.kind != "message" and any(removed.values())


def _quotes(repository: WorkspaceGit, quoted: Matcher) -> bool:
    return any(
        quoted.is_in(commit.message.encode()) or any(quoted.is_in(text.encode()) for text in texts.values())
        for commit, texts in repository.versions()
    )


def _is_empty(store: Store, agent: str) -> bool:
    with store.reading() as tx:
        return agent not in tx.kept_out.agents()
