"""An agent's notebook: its memories as files in a git repository.

It is committed after dream sweeps, on a checkpoint, and at the end of a session. The files are rendered from the
database, which is authoritative; after a crash between the two, the next commit brings the files up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from adapters.workspace_git import MAX_FILE_BYTES, Commit, CommitResult, RefusedFile, Repositories
from memory.memories.secrets import looks_secret
from memory.upkeep.notebook_files import (
    DREAMS_FILE,
    MEMORY_FILE,
    MEMORY_FILE_BYTES,
    PromotedMemory,
    RenderedFiles,
    render,
)
from reverie.checks import check_text
from reverie.clock import from_micros
from reverie.errors import Conflict, Rejected
from reverie.upkeep import notebook_types
from storage.memories.records import MemoryFilter, MemoryRecord
from storage.stores import Store
from storage.transaction import AgentRepositories
from storage.upkeep.dreams import Promotion

# The maximum length of a chain of memories, each superseded by the next.
_MAX_STEPS: Final = 100
_MAX_MESSAGE_CHARACTERS: Final = 500

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Notebooks:
    """The repositories of the notebooks, None if they are disabled, and the maximum size of MEMORY.md in bytes."""

    repositories: Repositories | None
    memory_file_bytes: int = MEMORY_FILE_BYTES

    def require_repositories(self) -> Repositories:
        """Return the repositories. Raises `Conflict` if notebooks are disabled."""
        if self.repositories is None:
            raise Conflict("no files are kept: set workspace_git to true to keep memories as files in git")
        return self.repositories


def publish(store: Store, notebooks: Notebooks, agent: str, message: str, *, now: int) -> CommitResult:
    """Render and commit an agent's files, unless nothing has changed or notebooks are disabled.

    Refused files are returned and logged. `now` is in microseconds. Writes nothing to the database and holds none of
    its locks meanwhile; the files are rendered while nobody else can commit. Raises `StoreUnavailable`: when the
    repository cannot be written; `NotFound`: when the workspace is deleted.
    """
    if notebooks.repositories is None:
        return CommitResult(None)
    return _commit(notebooks, store, agent, message, now)


def refresh(store: Store, notebooks: Notebooks, agent: str, *, now: int) -> CommitResult:
    """Commit like `publish`, but only if the promotions have changed or a line is no longer true.

    So the next sweep completes one that was killed between the database and the files, forgotten memories leave the
    files within a day, and a sweep that changed nothing commits nothing: new facts and notes wait for a checkpoint.
    """
    repositories = notebooks.require_repositories()
    rendered = _render(store, agent, notebooks)
    committed = repositories.repository(store.name, agent).files()
    promotions_changed = any(committed.get(path) != rendered.files.get(path) for path in (MEMORY_FILE, DREAMS_FILE))
    lines_removed = any(
        set(text.splitlines()) - set(rendered.files.get(path, "").splitlines()) for path, text in committed.items()
    )
    if not promotions_changed and not lines_removed:
        return CommitResult(None)
    promoted = sum(promotion.promoted_at == now for promotion in rendered.ledger)
    message = f"Dream sweep: {promoted} promoted" if promoted else "Dream sweep: brought up to date"
    return _commit(notebooks, store, agent, message, now)


def checkpoint(
    store: Store, notebooks: Notebooks, agent: str, message: str | None, *, now: int
) -> notebook_types.Checkpoint:
    """Commit an agent's files with a message, by default "Checkpoint".

    Raises `Rejected`: when the message is too long or contains a secret; `Conflict`: when notebooks are disabled.
    """
    checked = _check_message(message)
    notebooks.require_repositories()
    done = publish(store, notebooks, agent, checked, now=now)
    return notebook_types.Checkpoint(
        commit=_to_commit(done.commit) if done.commit is not None else None,
        refused=[notebook_types.RefusedFile(path=one.path, why=one.why) for one in done.refused],
    )


def history(notebooks: Notebooks, workspace: str, agent: str, *, limit: int) -> list[notebook_types.Commit]:
    """Return the commits of an agent's files, newest first. Raises `Conflict`: when notebooks are disabled."""
    commits = notebooks.require_repositories().repository(workspace, agent).history(limit)
    return [_to_commit(commit) for commit in commits]


def diff(notebooks: Notebooks, workspace: str, agent: str, a: str, b: str | None) -> notebook_types.Difference:
    """Return how an agent's files differ between commits `a` and `b`; `b` is the newest by default.

    Raises `NotFound`: for an unknown commit; `Rejected`: for an invalid id; `Conflict`: when notebooks are disabled.
    """
    return notebook_types.Difference(text=notebooks.require_repositories().repository(workspace, agent).diff(a, b))


def promotions(store: Store, *, agent: str, limit: int, offset: int = 0) -> list[notebook_types.Promotion]:
    """Return what dream sweeps promoted, newest first, with the current content of memories that are not forgotten."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        found = rows.dreams.ledger(limit=limit, offset=offset)
        memories = rows.memories.with_ids([promotion.memory_id for promotion in found])
    return [_to_promotion(one, memories.get(one.memory_id)) for one in found]


def _render(store: Store, agent: str, notebooks: Notebooks) -> RenderedFiles:
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        ledger = rows.dreams.whole_ledger()
        promoted = _promoted_memories(rows, ledger)
        facts = list(rows.memories.iterate(MemoryFilter(facts=True)))
        notes = list(rows.memories.iterate(MemoryFilter(notes=True)))
        shown = [*(one.memory.id for one in promoted), *(one.id for one in (*facts, *notes))]
        return render(
            agent,
            ledger=ledger,
            promoted=promoted,
            facts=facts,
            notes=notes,
            provenances=rows.provenances.of(shown),
            memory_file_bytes=notebooks.memory_file_bytes,
        )


def _promoted_memories(rows: AgentRepositories, ledger: Sequence[Promotion]) -> list[PromotedMemory]:
    """Return the current memories that were promoted, or have superseded promoted ones, each once."""
    found: dict[str, PromotedMemory] = {}
    promoted = rows.memories.with_ids([promotion.memory_id for promotion in ledger])
    for promotion in ledger:
        memory = promoted.get(promotion.memory_id)
        for _ in range(_MAX_STEPS):
            if memory is None or memory.superseded_by is None:
                break
            memory = rows.memories.find(memory.superseded_by)
        if memory is not None and memory.active:
            found.setdefault(memory.id, PromotedMemory(promotion, memory))
    return list(found.values())


def _commit(notebooks: Notebooks, store: Store, agent: str, message: str, now: int) -> CommitResult:
    left_out: Sequence[RefusedFile] = ()

    def files() -> Mapping[str, str]:
        nonlocal left_out
        rendered = _render(store, agent, notebooks)
        left_out = rendered.refused
        return rendered.files

    done = notebooks.require_repositories().repository(store.name, agent).commit(files, message, now)
    refused = (*left_out, *done.refused)
    for one in refused:
        log.warning("kept_out_of_git", workspace=store.name, agent=agent, path=one.path, why=one.why)
    return CommitResult(done.commit, refused)


def _check_message(message: str | None) -> str:
    if message is not None:
        check_text("message", message, MAX_FILE_BYTES)
    line = " ".join((message or "").split())
    if not line:
        return "Checkpoint"
    if len(line) > _MAX_MESSAGE_CHARACTERS:
        raise Rejected(f"message has {len(line):,} characters; the limit is {_MAX_MESSAGE_CHARACTERS}", field="message")
    if kind := looks_secret(line):
        raise Rejected(
            f"message looks like it contains a secret ({kind}): remove it, because the history would keep it forever",
            field="message",
        )
    return line


def _to_commit(commit: Commit) -> notebook_types.Commit:
    return notebook_types.Commit(
        id=commit.id, at=from_micros(commit.at), message=commit.message, changed=list(commit.changed)
    )


def _to_promotion(promotion: Promotion, memory: MemoryRecord | None) -> notebook_types.Promotion:
    return notebook_types.Promotion(
        memory=promotion.memory_id,
        at=from_micros(promotion.promoted_at),
        score=promotion.score,
        phase=promotion.phase,
        kind=memory.kind if memory is not None else None,
        content=memory.content if memory is not None else None,
    )
