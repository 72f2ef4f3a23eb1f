"""Processes that commit to one repository; in a module of their own because each has to import it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Final

from adapters import workspace_git
from adapters.workspace_git import GitFolders, GitRepository
from memory.secrets import looks_secret

SECOND: Final = 1_000_000


def commit_and_die(step: int, data: str, at: int) -> None:
    """Commit, and die by SIGKILL just before one step, of which there are seven."""
    steps: list[tuple[Any, str]] = [
        (GitRepository, "_make_empty"),
        (Path, "rename"),
        (workspace_git, "_new_commit"),
        (workspace_git, "_drop_stale_locks"),
        (workspace_git, "_check_out"),
        (workspace_git, "_write_file"),
        (workspace_git, "index_entry_from_stat"),
    ]
    owner, name = steps[step]

    def die(*args: object, **kwargs: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, die)
    GitFolders(Path(data), looks_secret).repository("default", "ana").commit(
        {"MEMORY.md": "new\n", "notes/b.md": "b\n"}, "killed", at
    )


def commit_often(data: str, name: str, at: int, start: Any) -> None:
    """Commit ten times, once `start` is set."""
    git = GitFolders(Path(data), looks_secret).repository("default", "ana")
    start.wait(60)
    for number in range(10):
        git.commit({"MEMORY.md": f"{name} {number}\n"}, f"{name} {number}", at + number * SECOND)
