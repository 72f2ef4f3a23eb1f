"""The real workspace git: a repository with a checkout, by dulwich, below the folder of its workspace.

The order of steps makes every crash harmless: objects, then the branch that names them (from here the commit is
made), then the files beside them. Each step replaces a file whole, and the next commit makes good what is missing.
A repository is opened for a call and closed again, so a workspace can be deleted at any time.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dulwich.errors import ChecksumMismatch, FileFormatException, NotGitRepository
from dulwich.file import FileLocked
from dulwich.index import IndexEntry, commit_tree, index_entry_from_stat
from dulwich.object_store import MemoryObjectStore, iter_tree_contents
from dulwich.objects import Blob, ObjectID
from dulwich.objects import Commit as GitCommit
from dulwich.refs import Ref
from dulwich.repo import Repo
from filelock import FileLock, Timeout

from adapters.file_names import file_name
from adapters.workspace_git.base import Commit, Committed, LooksSecret, resolve, screened
from adapters.workspace_git.differences import unified
from reverie.checks import check_agent, check_workspace
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, StoreUnavailable

_BRANCH: Final = Ref(b"refs/heads/main")
_AUTHOR: Final = b"Reverie <reverie@localhost>"
_FILE_MODE: Final = 0o100644
# Another commit of the same agent takes milliseconds.
_LOCK_SECONDS: Final = 30.0
_MICROS: Final = 1_000_000
_AGENT_FILE: Final = "reverie-agent"
_UNMADE: Final = ".new"
# Each commit leaves some five small files; beyond so many they are put into one pack.
_LOOSE_OBJECTS: Final = 2_000


class GitRepository:
    """The repository of one agent: a folder that is made with the first commit, readable by its owner alone."""

    def __init__(self, folder: Path, agent: str, *, within: Path, looks_secret: LooksSecret) -> None:
        """`within` must exist before anything is made: it goes when a workspace is deleted, and stays gone."""
        self._folder = folder
        self._agent = agent
        self._within = within
        self._looks_secret = looks_secret

    def commit(self, files: Mapping[str, str], message: str, at: int) -> Committed:
        """Make these files the newest state; no commit where they are that already. See `WorkspaceGit`."""
        kept, refused = screened(files, self._looks_secret)
        if not kept and not self._exists():
            return Committed(None, refused)
        self._make_parent()
        with self._locked(), self._opened(make=True) as repo:
            commit = self._committed(repo, kept, message, at)
            _check_out(repo, self._folder, kept)
            if commit is not None and repo.object_store.count_loose_objects() > _LOOSE_OBJECTS:
                repo.object_store.pack_loose_objects()
        return Committed(commit, refused)

    def files(self) -> dict[str, str]:
        """The files of the newest commit."""
        if not self._exists():
            return {}
        with self._opened() as repo:
            head = _head(repo)
            return {path: text.decode() for path, text in _contents(repo, head).items()} if head is not None else {}

    def history(self, limit: int) -> list[Commit]:
        """Commits, the newest first."""
        if not self._exists():
            return []
        with self._opened() as repo:
            return [_as_commit(repo, found) for found, _ in zip(_walked(repo), range(limit), strict=False)]

    def diff(self, a: str, b: str | None = None) -> str:
        """How the files of one commit differ from those of another."""
        if not self._exists():
            resolve(a, [], field="a")
        with self._opened() as repo:
            known = {found.id.decode(): found for found in _walked(repo)}
            before = known[resolve(a, known, field="a")]
            after = known[resolve("HEAD" if b is None else b, known, field="b")]
            return unified(_contents(repo, before), _contents(repo, after))

    def _exists(self) -> bool:
        try:
            return (self._folder / ".git").is_dir()
        except OSError as error:
            raise StoreUnavailable(f"{self._folder} cannot be read ({error}): check its rights") from error

    def _committed(self, repo: Repo, files: Mapping[str, bytes], message: str, at: int) -> Commit | None:
        fresh = MemoryObjectStore()
        blobs = {path: Blob.from_string(content) for path, content in files.items()}
        for blob in blobs.values():
            fresh.add_object(blob)
        tree = commit_tree(fresh, [(path.encode(), blob.id, _FILE_MODE) for path, blob in blobs.items()])
        head = _head(repo)
        if (head.tree if head is not None else None) == tree or (head is None and not files):
            return None
        _drop_stale_locks(self._folder / ".git")
        for object_id in fresh:
            if object_id not in repo.object_store:
                repo.object_store.add_object(fresh[object_id])
        commit = _new_commit(tree, head, message, at)
        repo.object_store.add_object(commit)
        if not repo.refs.set_if_equals(_BRANCH, head.id if head is not None else None, commit.id):
            raise StoreUnavailable(f"{self._folder} was changed by something else at this moment: try again")
        return _as_commit(repo, commit)

    def _make_parent(self) -> None:
        """Make the folder of repositories, never that of the workspace: one that was deleted stays so."""
        try:
            self._folder.parent.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError:
            raise NotFound(f"there is no workspace {self._within.name!r}", field="workspace") from None
        except OSError as error:
            raise StoreUnavailable(f"{self._folder.parent} cannot be made ({error}): check the disk") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One commit at a time, whichever process makes it. The kernel lets go of a dead one's lock."""
        lock = FileLock(self._folder.parent / f"{self._folder.name}.lock", timeout=_LOCK_SECONDS, mode=0o600)
        try:
            lock.acquire()
        except Timeout as error:
            raise StoreUnavailable(f"{self._folder} is held by another process: try again") from error
        except OSError as error:
            raise StoreUnavailable(f"{self._folder} cannot be locked ({error}): try again") from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[Repo]:
        try:
            if make and not self._exists():
                self._make()
            with Repo(str(self._folder)) as repo:
                yield repo
        except (
            NotGitRepository, FileFormatException, ChecksumMismatch, FileLocked, zlib.error, OSError, KeyError
        ) as error:  # fmt: skip
            # KeyError is what dulwich raises for an object that is not there.
            raise StoreUnavailable(
                f"the git repository {self._folder} cannot be used ({error}): check its disk and rights; where it is"
                " damaged, move it away, and the next commit begins a new history"
            ) from error

    def _make(self) -> None:
        """Make an empty repository beside its place and move it there: a crash leaves none that is half made."""
        making = self._folder.with_name(self._folder.name + _UNMADE)
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        with Repo.init(str(making), default_branch=b"main") as repo:
            config = repo.get_config()
            # A power cut must not leave a branch that names an empty file.
            config.set((b"core",), b"fsyncObjectFiles", True)
            config.write_to_path()
        # The folder's name may be a hash of it.
        (making / ".git" / _AGENT_FILE).write_text(self._agent, encoding="utf-8")
        making.rename(self._folder)


class GitFolders:
    """The repositories below a data directory: one for each agent and workspace, in the folder of the workspace.

    Those of the account's memories lie beside its database.
    """

    def __init__(self, data_dir: Path, looks_secret: LooksSecret) -> None:
        self._data_dir = data_dir
        self._looks_secret = looks_secret

    def of(self, workspace: str, agent: str) -> GitRepository:
        """The repository of one agent in one workspace; nothing is opened or made."""
        within = self._within(workspace)
        folder = within / "git" / file_name(check_agent(agent))
        return GitRepository(folder, agent, within=within, looks_secret=self._looks_secret)

    def agents(self, workspace: str) -> list[str]:
        """The agents that have a repository in a workspace."""
        folder = self._within(workspace) / "git"
        try:
            written = [path for path in folder.glob(f"*/.git/{_AGENT_FILE}") if path.parents[1].suffix != _UNMADE]
            return sorted(path.read_text(encoding="utf-8") for path in written)
        except OSError as error:
            raise StoreUnavailable(f"{folder} cannot be read ({error}): check its rights, or try again") from error

    def _within(self, workspace: str) -> Path:
        if workspace == ACCOUNT_STORE:
            return self._data_dir
        return self._data_dir / "workspaces" / check_workspace(workspace)


def _new_commit(tree: ObjectID, parent: GitCommit | None, message: str, at: int) -> GitCommit:
    commit = GitCommit()
    commit.tree = tree
    commit.parents = [parent.id] if parent is not None else []
    commit.author = commit.committer = _AUTHOR
    commit.author_time = commit.commit_time = at // _MICROS
    commit.author_timezone = commit.commit_timezone = 0
    commit.encoding = b"UTF-8"
    commit.message = message.encode()
    return commit


def _head(repo: Repo) -> GitCommit | None:
    """The newest commit, None before the first."""
    if _BRANCH not in repo.refs:
        return None
    found = repo[repo.refs[_BRANCH]]
    assert isinstance(found, GitCommit)
    return found


def _walked(repo: Repo) -> Iterator[GitCommit]:
    """All commits from the newest on, by parents: the clock they were made by may have been set back."""
    commit = _head(repo)
    while commit is not None:
        yield commit
        if not commit.parents:
            return
        parent = repo[commit.parents[0]]
        assert isinstance(parent, GitCommit)
        commit = parent


def _tree(repo: Repo, commit: GitCommit) -> dict[str, ObjectID]:
    entries = iter_tree_contents(repo.object_store, commit.tree)
    return {entry.path.decode(): entry.sha for entry in entries if entry.path is not None and entry.sha is not None}


def _contents(repo: Repo, commit: GitCommit) -> dict[str, bytes]:
    found = ((path, repo[object_id]) for path, object_id in _tree(repo, commit).items())
    return {path: blob.data for path, blob in found if isinstance(blob, Blob)}


def _as_commit(repo: Repo, commit: GitCommit) -> Commit:
    mine = _tree(repo, commit)
    before: dict[str, ObjectID] = {}
    if commit.parents:
        parent = repo[commit.parents[0]]
        assert isinstance(parent, GitCommit)
        before = _tree(repo, parent)
    changed = sorted(path for path in {*mine, *before} if mine.get(path) != before.get(path))
    message = commit.message.decode(errors="replace")
    return Commit(commit.id.decode(), commit.commit_time * _MICROS, message, tuple(changed))


def _check_out(repo: Repo, folder: Path, files: Mapping[str, bytes]) -> None:
    """Have the folder hold what the newest commit holds, as far as it is ours: what a person put there stays."""
    _drop_stale_locks(folder / ".git")
    index = repo.open_index()
    for known in [path.decode() for path in index]:
        if known not in files:
            (folder / known).unlink(missing_ok=True)
            del index[known.encode()]
    for path, content in files.items():
        entry = _written(folder, path, content)
        index[path.encode()] = entry
    index.write()


def _written(folder: Path, path: str, content: bytes) -> IndexEntry:
    place = folder / path
    if not (place.is_file() and not place.is_symlink() and place.read_bytes() == content):
        place.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = folder / ".git" / "reverie-file.tmp"
        fresh.write_bytes(content)
        fresh.replace(place)
    return index_entry_from_stat(os.lstat(place), Blob.from_string(content).id, _FILE_MODE)


def _drop_stale_locks(control: Path) -> None:
    """Remove what a killed process left: only who holds our own lock writes here, so nobody holds these."""
    for name in ("index.lock", "refs/heads/main.lock", "HEAD.lock", "packed-refs.lock"):
        (control / name).unlink(missing_ok=True)
    # The name of an object follows from its content: one that cannot be written stops every later commit, too.
    for stale in (control / "objects").glob("*/*.lock"):
        stale.unlink(missing_ok=True)
