"""Workspace git: the history of an agent's memories as readable files."""

from adapters.workspace_git.base import (
    MAX_FILE_BYTES,
    Commit,
    CommitResult,
    LooksSecret,
    RefusedFile,
    Repositories,
    WorkspaceGit,
)
from adapters.workspace_git.in_memory import GitInMemory, RepositoriesInMemory
from adapters.workspace_git.repository import GitFolders, GitRepository

__all__ = [
    "MAX_FILE_BYTES",
    "Commit",
    "CommitResult",
    "GitFolders",
    "GitInMemory",
    "GitRepository",
    "LooksSecret",
    "RefusedFile",
    "Repositories",
    "RepositoriesInMemory",
    "WorkspaceGit",
]
