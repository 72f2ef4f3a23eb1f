"""Rewrites the history of a repository without certain lines, so that no object of the old one is left.

The new history is made in a folder of its own. It takes the place of the old one by two renames; a crash between them
is mended when the next rewrite begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from dulwich.index import commit_tree
from dulwich.objects import Blob, ObjectID
from dulwich.objects import Commit as GitCommit
from dulwich.refs import Ref
from dulwich.repo import Repo

_FILE_MODE: Final = 0o100644
_REPLACED: Final = ".git.old"


def mend(folder: Path) -> None:
    """Complete or take back a replacement that was interrupted."""
    control, replaced = folder / ".git", folder / _REPLACED
    if replaced.exists() and not control.exists():
        replaced.rename(control)
    shutil.rmtree(replaced, ignore_errors=True)


def replace_history(folder: Path, fresh: Path) -> None:
    """Put the history of another repository in the place of a folder's, and delete the old one."""
    (folder / ".git").rename(folder / _REPLACED)
    (fresh / ".git").rename(folder / ".git")
    shutil.rmtree(folder / _REPLACED)
    shutil.rmtree(fresh, ignore_errors=True)


def without_lines(text: str, keep: Callable[[str], bool]) -> str:
    """Return a text with only those lines that are kept; empty if nothing but blank lines and headings is left."""
    lines = [line for line in text.splitlines(keepends=True) if not line.strip() or keep(line.rstrip("\r\n"))]
    return "".join(lines) if any(line.strip() and not line.startswith("#") for line in lines) else ""


def write_history(
    repo: Repo,
    branch: Ref,
    versions: Iterable[tuple[GitCommit, Mapping[str, bytes]]],
    message: Callable[[str], str],
    new_commit: Callable[[ObjectID, GitCommit | None, str, int], GitCommit],
) -> Mapping[str, bytes]:
    """Write versions, the oldest first, as commits with their own times; return the files of the last one.

    A version that equals the one before it is left out.
    """
    head: GitCommit | None = None
    files: Mapping[str, bytes] = {}
    for old, files in versions:
        blobs = {path: Blob.from_string(content) for path, content in files.items()}
        for blob in blobs.values():
            repo.object_store.add_object(blob)
        tree = commit_tree(repo.object_store, [(path.encode(), blob.id, _FILE_MODE) for path, blob in blobs.items()])
        if (head.tree if head is not None else None) == tree or (head is None and not files):
            continue
        text = message(old.message.decode(errors="replace"))
        head = new_commit(tree, head, text, old.commit_time * 1_000_000)
        repo.object_store.add_object(head)
    if head is not None:
        repo.refs[branch] = head.id
    return files
