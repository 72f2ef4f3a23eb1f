"""A workspace git in memory, for tests and simulations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from adapters.workspace_git.base import Commit, CommitResult, Files, LooksSecret, resolve, screen_files
from adapters.workspace_git.differences import unified
from adapters.workspace_git.rewriting import without_lines


class GitInMemory:
    """The history of one agent's files as a list."""

    def __init__(self, looks_secret: LooksSecret) -> None:
        self._looks_secret = looks_secret
        self._states: list[tuple[Commit, dict[str, bytes]]] = []

    def commit(self, files: Files, message: str, at: int) -> CommitResult:
        """Commit these files, unless the newest commit already has them."""
        accepted, refused = screen_files(files, self._looks_secret)
        before = self._states[-1][1] if self._states else {}
        if accepted == before:
            return CommitResult(None, refused)
        changed = tuple(sorted(path for path in {*before, *accepted} if before.get(path) != accepted.get(path)))
        parent = self._states[-1][0].id if self._states else ""
        content = repr((parent, at, message, sorted(accepted.items())))
        commit = Commit(hashlib.sha1(content.encode()).hexdigest(), at // 1_000_000 * 1_000_000, message, changed)  # noqa: S324 - an id as git's
        self._states.append((commit, accepted))
        return CommitResult(commit, refused)

    def files(self) -> dict[str, str]:
        """Return the files of the newest commit."""
        return {path: content.decode() for path, content in (self._states[-1][1] if self._states else {}).items()}

    def history(self, limit: int) -> list[Commit]:
        """Return commits, newest first."""
        return [commit for commit, _ in reversed(self._states)][:limit]

    def diff(self, a: str, b: str | None = None) -> str:
        """Return the unified diff between two commits."""
        states = {commit.id: files for commit, files in reversed(self._states)}
        before = states[resolve(a, states, field="a")]
        return unified(before, states[resolve("HEAD" if b is None else b, states, field="b")])

    def versions(self) -> list[tuple[Commit, dict[str, str]]]:
        """Return every commit, newest first, with its files."""
        return [
            (commit, {path: content.decode() for path, content in files.items()})
            for commit, files in reversed(self._states)
        ]

    def rewrite(self, keep: Callable[[str], bool], message: Callable[[str], str]) -> bool:
        """Rewrite the whole history without the lines that are not kept."""
        before = self._states
        self._states = []
        for commit, files in before:
            kept = {path: without_lines(content.decode(), keep) for path, content in files.items()}
            self.commit({path: text for path, text in kept.items() if text}, message(commit.message), commit.at)
        return self._states != before

    def remove(self) -> bool:
        """Delete the files with their history."""
        found, self._states = bool(self._states), []
        return found


class RepositoriesInMemory:
    """Repositories in memory, one per agent and workspace."""

    def __init__(self, looks_secret: LooksSecret) -> None:
        self._looks_secret = looks_secret
        self._made: dict[tuple[str, str], GitInMemory] = {}

    def repository(self, workspace: str, agent: str) -> GitInMemory:
        """Return the repository of one agent in one workspace."""
        return self._made.setdefault((workspace, agent), GitInMemory(self._looks_secret))

    def agents(self, workspace: str) -> list[str]:
        """Return the agents that have a repository in a workspace."""
        return sorted(agent for (name, agent), git in self._made.items() if name == workspace and git.history(1))
