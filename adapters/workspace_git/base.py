"""The Protocol of workspace git: commit changed files, list the history, show differences.

Files that are too large or appear to contain a secret are not committed; the caller gets them with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from reverie.errors import NotFound, Rejected

MAX_FILE_BYTES: Final = 1024 * 1024
# Ids may be as short as git abbreviates them.
_REVISION = re.compile(r"[0-9a-f]{7,40}")
_NEWEST: Final = "HEAD"
# Names from `file_name`, in at most one folder: no path can leave the repository or reach into its `.git`.
_PATH = re.compile(r"\A(?:[A-Za-z0-9%_~-]+/)?[A-Za-z0-9%_~-]+\.md\Z")

# The files of a commit by path, or what makes them.
Files = Mapping[str, str] | Callable[[], Mapping[str, str]]
# Returns the kind of secret that a text appears to contain, or None.
LooksSecret = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of an agent's files. `at` is in microseconds (whole seconds), `changed` are paths."""

    id: str
    at: int
    message: str
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that was not committed, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit: the commit, None if nothing changed, and the refused files."""

    commit: Commit | None
    refused: tuple[RefusedFile, ...] = ()


class WorkspaceGit(Protocol):
    """The repository of one agent in one workspace."""

    def commit(self, files: Files, message: str, at: int) -> CommitResult:
        """Commit exactly these files, unless the newest commit already has them.

        A function is called while nobody else can commit or rewrite: so what was removed from the database before a
        rewrite does not come back by a commit after it. It may be called twice. `at` is in microseconds. Raises
        `StoreUnavailable`, and `NotFound` for a workspace that does not exist.
        """

    def files(self) -> dict[str, str]:
        """Return the files of the newest commit; empty before the first. Raises `StoreUnavailable`."""

    def history(self, limit: int) -> list[Commit]:
        """Return up to `limit` commits, newest first. Raises `StoreUnavailable`."""

    def diff(self, a: str, b: str | None = None) -> str:
        """Return the unified diff from commit `a` to commit `b`, by default the newest.

        Raises `NotFound` for an unknown commit, `Rejected` for an invalid or ambiguous id, and `StoreUnavailable`.
        """

    def versions(self) -> list[tuple[Commit, dict[str, str]]]:
        """Return every commit, newest first, with its files. Raises `StoreUnavailable`."""

    def rewrite(self, keep: Callable[[str], bool], message: Callable[[str], str]) -> bool:
        """Rewrite the whole history: of each file only the lines that are kept, and messages as the function returns.

        Nothing of the old history is left. Return whether there was anything to rewrite. Raises `StoreUnavailable`.
        """

    def remove(self) -> bool:
        """Delete the files with their history; return whether there were any. Raises `StoreUnavailable`."""


class Repositories(Protocol):
    """The repositories of all agents. Getting one costs nothing and creates nothing."""

    def repository(self, workspace: str, agent: str) -> WorkspaceGit:
        """Return the repository of one agent in one workspace. Raises `Rejected` for an invalid name."""

    def agents(self, workspace: str) -> list[str]:
        """Return the agents that have a repository in a workspace, including those without any other data."""


def screen_files(files: Files, looks_secret: LooksSecret) -> tuple[dict[str, bytes], tuple[RefusedFile, ...]]:
    """Return the files that may be committed, by path, and the refused ones."""
    accepted: dict[str, bytes] = {}
    refused: list[RefusedFile] = []
    for path, text in sorted((files() if callable(files) else files).items()):
        if not _PATH.fullmatch(path):
            raise ValueError(f"{path!r} is not a valid path of a workspace file")
        content = text.encode()
        if len(content) > MAX_FILE_BYTES:
            why = f"it has {len(content):,} bytes; the limit is {MAX_FILE_BYTES:,}"
            refused.append(RefusedFile(path, why))
        elif secret := looks_secret(text):
            refused.append(RefusedFile(path, f"it looks like it contains a secret ({secret})"))
        else:
            accepted[path] = content
    return accepted, tuple(refused)


def resolve(revision: str, ids: Iterable[str], *, field: str) -> str:
    """Return the id that a revision names: a full id, a unique prefix, or HEAD for the first id.

    Raises NotFound for an unknown revision, Rejected for an invalid or ambiguous one.
    """
    if revision == _NEWEST:
        newest = next(iter(ids), None)
        if newest is None:
            raise NotFound("there is no commit yet", field=field)
        return newest
    if not _REVISION.fullmatch(revision):
        raise Rejected(
            f"{field} is {revision[:80]!r}; it must be the id of a commit (7 to 40 of 0-9 and a-f) or HEAD", field=field
        )
    found = [commit_id for commit_id in ids if commit_id.startswith(revision)]
    if not found:
        raise NotFound(f"there is no commit {revision}: see the history", field=field)
    if len(found) > 1:
        raise Rejected(f"{field}: {len(found)} commits begin with {revision}; give more of its characters", field=field)
    return found[0]
