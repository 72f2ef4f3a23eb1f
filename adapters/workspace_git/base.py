"""What every workspace git does: commit files when they changed, tell its history, show differences.

What does not belong into a repository stays out of it here, and is reported: too large files, and what looks like a
secret. Whoever commits learns what was refused, and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from reverie.errors import NotFound, Rejected

MAX_FILE_BYTES: Final = 1024 * 1024
# As short as git itself writes ids.
_REVISION = re.compile(r"[0-9a-f]{7,40}")
_NEWEST: Final = "HEAD"
# What `file_name` makes, in at most one folder: nothing can leave the repository or reach into its `.git`.
_PATH = re.compile(r"(?:[A-Za-z0-9%_~-]+/)?[A-Za-z0-9%_~-]+\.md")

# Names the kind of secret that a text seems to hold; None where there is none.
LooksSecret = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Commit:
    """One state of an agent's files: its id, when it was made (microseconds, whole seconds), and what it changed."""

    id: str
    at: int
    message: str
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that stays out of the repository, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a commit: None where nothing had changed, and the files that were refused."""

    commit: Commit | None
    refused: tuple[Refused, ...] = ()


class WorkspaceGit(Protocol):
    """The repository of one agent in one workspace."""

    def commit(self, files: Mapping[str, str], message: str, at: int) -> Committed:
        """Make these files, and no others, the newest state; no commit where they are that already.

        `at` is in microseconds. Raises `StoreUnavailable`, and `NotFound` for a workspace that does not exist.
        """

    def files(self) -> dict[str, str]:
        """The files of the newest commit; none before the first. Raises `StoreUnavailable`."""

    def history(self, limit: int) -> list[Commit]:
        """Up to `limit` commits, the newest first; none before the first. Raises `StoreUnavailable`."""

    def diff(self, a: str, b: str | None = None) -> str:
        """How the files of commit `b`, or the newest, differ from those of `a`, as unified text.

        Raises `NotFound` for an unknown commit, `Rejected` for what names none or several, and `StoreUnavailable`.
        """


class Repositories(Protocol):
    """The repositories of all agents. Opening one costs nothing and makes nothing."""

    def of(self, workspace: str, agent: str) -> WorkspaceGit:
        """The repository of one agent in one workspace. Raises `Rejected` for a name that is none."""

    def agents(self, workspace: str) -> list[str]:
        """The agents that have a repository in a workspace, also those that have nothing else any more."""


def screened(files: Mapping[str, str], looks_secret: LooksSecret) -> tuple[dict[str, bytes], tuple[Refused, ...]]:
    """The files that may be committed, by path, and those that may not."""
    kept: dict[str, bytes] = {}
    refused: list[Refused] = []
    for path, text in sorted(files.items()):
        if not _PATH.fullmatch(path):
            raise ValueError(f"{path!r} is no path of a workspace's files")
        content = text.encode()
        if len(content) > MAX_FILE_BYTES:
            why = f"it has {len(content):,} bytes; the limit is {MAX_FILE_BYTES:,}"
            refused.append(Refused(path, why))
        elif secret := looks_secret(text):
            refused.append(Refused(path, f"it looks like it holds a secret ({secret})"))
        else:
            kept[path] = content
    return kept, tuple(refused)


def resolve(revision: str, ids: Iterable[str], *, field: str) -> str:
    """The one id that a revision names: itself, the beginning of it, or HEAD for the first of them."""
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
        raise Rejected(f"{field}: {len(found)} commits begin with {revision}; give more of it", field=field)
    return found[0]
