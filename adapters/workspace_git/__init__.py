"""Workspace git: the history of what an agent remembers, as files that a person can read (B11)."""

from adapters.workspace_git.base import (
    MAX_FILE_BYTES,
    Commit,
    Committed,
    LooksSecret,
    Refused,
    Repositories,
    WorkspaceGit,
)
from adapters.workspace_git.in_memory import GitInMemory, RepositoriesInMemory
from adapters.workspace_git.repository import GitFolders, GitRepository

__all__ = [
    "MAX_FILE_BYTES",
    "Commit",
    "Committed",
    "GitFolders",
    "GitInMemory",
    "GitRepository",
    "LooksSecret",
    "Refused",
    "Repositories",
    "RepositoriesInMemory",
    "WorkspaceGit",
]
