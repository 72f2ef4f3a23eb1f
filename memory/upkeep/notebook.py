"""An agent's notebook: its memories as files in a git repository, committed after dreams, on a checkpoint, and at the
end of a session.

The database is what counts; the files are rendered from it. A crash between the two is made good by the next commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from adapters.workspace_git import MAX_FILE_BYTES, Commit, Committed, Refused, Repositories
from memory.memories.secrets import looks_secret
from memory.upkeep.notebook_files import DREAMS_FILE, MEMORY_FILE, MEMORY_FILE_BYTES, Kept, Pages, render
from reverie.checks import check_text
from reverie.clock import from_micros
from reverie.errors import Conflict, Rejected
from reverie.upkeep import notebook_types as shown
from storage.memories.records import MemoryFilter, MemoryRecord
from storage.stores import Store
from storage.transaction import AgentRepositories
from storage.upkeep.dreams import Promotion

__all__ = [
    "MEMORY_FILE_BYTES",
    "checkpoint",
    "diff",
    "history",
    "promotions",
    "publish",
    "refresh",
]

# Of what took a memory's place, something else may have taken the place, and so on; nobody's memory goes on for ever.
_MOST_STEPS: Final = 100
_MESSAGE_CHARACTERS: Final = 500

log = structlog.get_logger(__name__)


def publish(
    store: Store,
    repositories: Repositories | None,
    agent: str,
    message: str,
    *,
    now: int,
    memory_file_bytes: int = MEMORY_FILE_BYTES,
) -> Committed:
    """Commit an agent's files as they should be now; no commit where nothing changed, or without repositories.

    What stays out of the files is returned and logged. `now` is in microseconds. Nothing is written to the database,
    and none of its locks is held meanwhile. Raises `StoreUnavailable`, and `NotFound` for a workspace that is deleted.
    """
    if repositories is None:
        return Committed(None)
    return _commit(repositories, store, agent, _pages(store, agent, memory_file_bytes), message, now)


def refresh(
    store: Store, repositories: Repositories, agent: str, *, now: int, memory_file_bytes: int = MEMORY_FILE_BYTES
) -> Committed:
    """Commit as `publish`, but only where dreams are not told as they are, or something told is true no more.

    So a sweep that was killed between the database and the files is made good by the next one, what is forgotten is
    told for a day at most, and a sweep that changed nothing commits nothing: what is merely new waits for a checkpoint.
    """
    pages = _pages(store, agent, memory_file_bytes)
    there = repositories.of(store.name, agent).files()
    untold = any(there.get(path) != pages.files.get(path) for path in (MEMORY_FILE, DREAMS_FILE))
    gone = any(set(text.splitlines()) - set(pages.files.get(path, "").splitlines()) for path, text in there.items())
    if not untold and not gone:
        return Committed(None)
    promoted = sum(promotion.promoted_at == now for promotion in pages.ledger)
    message = f"Dream sweep: {promoted} promoted" if promoted else "Dream sweep: brought up to date"
    return _commit(repositories, store, agent, pages, message, now)


def checkpoint(
    store: Store,
    repositories: Repositories | None,
    agent: str,
    message: str | None,
    *,
    now: int,
    memory_file_bytes: int = MEMORY_FILE_BYTES,
) -> shown.Checkpoint:
    """Commit an agent's files under a message. Raises `Rejected` for the message, `Conflict` where git is off."""
    said = _message(message)
    done = publish(store, _on(repositories), agent, said, now=now, memory_file_bytes=memory_file_bytes)
    return shown.Checkpoint(
        commit=_as_shown(done.commit) if done.commit is not None else None,
        refused=[shown.RefusedFile(path=one.path, why=one.why) for one in done.refused],
    )


def history(repositories: Repositories | None, workspace: str, agent: str, *, limit: int) -> list[shown.Commit]:
    """The commits of an agent's files, the newest first. Raises `Conflict` where git is off."""
    return [_as_shown(commit) for commit in _on(repositories).of(workspace, agent).history(limit)]


def diff(repositories: Repositories | None, workspace: str, agent: str, a: str, b: str | None) -> shown.Difference:
    """How an agent's files differ between two commits. Raises `NotFound`, `Rejected`; `Conflict` where git is off."""
    return shown.Difference(text=_on(repositories).of(workspace, agent).diff(a, b))


def promotions(store: Store, *, agent: str, limit: int, offset: int = 0) -> list[shown.Promotion]:
    """What dream sweeps promoted, the newest first, with what each memory says now, unless it is forgotten."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        found = rows.dreams.ledger(limit=limit, offset=offset)
        memories = rows.memories.with_ids([promotion.memory_id for promotion in found])
    return [_promotion(one, memories.get(one.memory_id)) for one in found]


def _pages(store: Store, agent: str, memory_file_bytes: int) -> Pages:
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        ledger = rows.dreams.whole_ledger()
        return render(
            agent,
            ledger=ledger,
            kept=_standing(rows, ledger),
            facts=list(rows.memories.iterate(MemoryFilter(facts=True))),
            notes=list(rows.memories.iterate(MemoryFilter(notes=True))),
            memory_file_bytes=memory_file_bytes,
        )


def _standing(rows: AgentRepositories, ledger: Sequence[Promotion]) -> list[Kept]:
    """The promotions whose memory is there, with it or with what took its place, each memory once."""
    kept: dict[str, Kept] = {}
    promoted = rows.memories.with_ids([promotion.memory_id for promotion in ledger])
    for promotion in ledger:
        memory = promoted.get(promotion.memory_id)
        for _ in range(_MOST_STEPS):
            if memory is None or memory.superseded_by is None:
                break
            memory = rows.memories.find(memory.superseded_by)
        if memory is not None and memory.active:
            kept.setdefault(memory.id, Kept(promotion, memory))
    return list(kept.values())


def _commit(repositories: Repositories, store: Store, agent: str, pages: Pages, message: str, now: int) -> Committed:
    done = repositories.of(store.name, agent).commit(pages.files, message, now)
    refused: tuple[Refused, ...] = (*pages.refused, *done.refused)
    for one in refused:
        log.warning("kept_out_of_git", workspace=store.name, agent=agent, path=one.path, why=one.why)
    return Committed(done.commit, refused)


def _on(repositories: Repositories | None) -> Repositories:
    if repositories is None:
        raise Conflict("no files are kept: the setting workspace_git is off")
    return repositories


def _message(message: str | None) -> str:
    if message is not None:
        check_text("message", message, MAX_FILE_BYTES)
    said = " ".join((message or "").split())
    if not said:
        return "Checkpoint"
    if len(said) > _MESSAGE_CHARACTERS:
        raise Rejected(f"message has {len(said):,} characters; the limit is {_MESSAGE_CHARACTERS}", field="message")
    if kind := looks_secret(said):
        raise Rejected(f"message looks like it holds a secret ({kind}): a history keeps it", field="message")
    return said


def _as_shown(commit: Commit) -> shown.Commit:
    return shown.Commit(id=commit.id, at=from_micros(commit.at), message=commit.message, changed=list(commit.changed))


def _promotion(one: Promotion, memory: MemoryRecord | None) -> shown.Promotion:
    return shown.Promotion(
        memory=one.memory_id,
        at=from_micros(one.promoted_at),
        score=one.score,
        phase=one.phase,
        kind=memory.kind if memory is not None else None,
        content=memory.content if memory is not None else None,
    )
