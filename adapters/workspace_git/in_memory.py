"""A workspace git that lives and ends with its process: for tests and for simulations."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from adapters.workspace_git.base import Commit, Committed, LooksSecret, resolve, screened
from adapters.workspace_git.differences import unified


class GitInMemory:
    """The history of one agent's files as a list."""

    def __init__(self, looks_secret: LooksSecret) -> None:
        self._looks_secret = looks_secret
        self._states: list[tuple[Commit, dict[str, bytes]]] = []

    def commit(self, files: Mapping[str, str], message: str, at: int) -> Committed:
        """Make these files the newest state, unless they are that already."""
        kept, refused = screened(files, self._looks_secret)
        before = self._states[-1][1] if self._states else {}
        if kept == before:
            return Committed(None, refused)
        changed = tuple(sorted(path for path in {*before, *kept} if before.get(path) != kept.get(path)))
        parent = self._states[-1][0].id if self._states else ""
        said = repr((parent, at, message, sorted(kept.items())))
        commit = Commit(hashlib.sha1(said.encode()).hexdigest(), at // 1_000_000 * 1_000_000, message, changed)  # noqa: S324 - an id as git's
        self._states.append((commit, kept))
        return Committed(commit, refused)

    def files(self) -> dict[str, str]:
        """The files of the newest commit."""
        return {path: content.decode() for path, content in (self._states[-1][1] if self._states else {}).items()}

    def history(self, limit: int) -> list[Commit]:
        """Commits, the newest first."""
        return [commit for commit, _ in reversed(self._states)][:limit]

    def diff(self, a: str, b: str | None = None) -> str:
        """How the files of one commit differ from those of another."""
        states = {commit.id: files for commit, files in reversed(self._states)}
        before = states[resolve(a, states, field="a")]
        return unified(before, states[resolve("HEAD" if b is None else b, states, field="b")])


class RepositoriesInMemory:
    """A repository for whoever asks."""

    def __init__(self, looks_secret: LooksSecret) -> None:
        self._looks_secret = looks_secret
        self._made: dict[tuple[str, str], GitInMemory] = {}

    def of(self, workspace: str, agent: str) -> GitInMemory:
        """The repository of one agent in one workspace."""
        return self._made.setdefault((workspace, agent), GitInMemory(self._looks_secret))

    def agents(self, workspace: str) -> list[str]:
        """The agents that have a repository in a workspace."""
        return sorted(agent for (of, agent), git in self._made.items() if of == workspace and git.history(1))
