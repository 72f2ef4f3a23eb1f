"""Workspace git: the history of an agent's memories as readable files, in a dulwich repository with a checkout.

A repository lies inside the folder of its workspace. Files that are too large or appear to contain a secret are not
committed; the caller gets them with the reason.

The order of steps makes every crash harmless: first the objects, then the branch (which completes the commit), then the
checked-out files. Each step replaces whole files, and the next commit repairs what is missing. A repository is opened
for one call and closed again, so a workspace can be deleted at any time.

A history is rewritten without certain lines in a folder of its own, so that no object of the old one is left. It takes
the place of the old one by two renames; a crash between them is mended when the next rewrite begins.

Names of files stand for arbitrary text: they are safe on every file system, and different for different texts.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import blake3
from dulwich.errors import ChecksumMismatch, FileFormatException, NotGitRepository
from dulwich.file import FileLocked
from dulwich.index import IndexEntry, commit_tree, index_entry_from_stat
from dulwich.object_store import BaseObjectStore, MemoryObjectStore, iter_tree_contents
from dulwich.objects import Blob, ObjectID
from dulwich.objects import Commit as GitCommit
from dulwich.refs import Ref
from dulwich.repo import Repo
from filelock import FileLock, Timeout

from reverie.checks import check_agent, check_workspace
from reverie.clock import from_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected, StoreUnavailable
from reverie.upkeep import Checkpoint, Commit, RefusedFile

# Characters that are not escaped. Capitals are escaped: some file systems treat `Ana` and `ana` as the same name.
_PLAIN = re.compile(rb"[a-z0-9_-]")
# File systems allow 255 bytes; the rest is for an extension.
_MAX_CHARACTERS: Final = 120
_PREFIX_CHARACTERS: Final = 48


def file_name(text: str) -> str:
    """Return a name of a-z, 0-9, `-`, `_` and `%xx` for other bytes; a long one ends in `~` and a hash of the text."""
    encoded = text.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"%{byte:02x}" for byte in encoded)
    if len(name) <= _MAX_CHARACTERS:
        return name
    # `~` itself is always escaped, so no shorter text can give such a name.
    return f"{name[:_PREFIX_CHARACTERS]}~{blake3.blake3(encoded).hexdigest()}"


MAX_FILE_BYTES: Final = 1024 * 1024
# Ids may be as short as git abbreviates them.
_REVISION = re.compile(r"[0-9a-f]{7,40}")
_NEWEST: Final = "HEAD"
# Names from `file_name`, in at most one folder: no path can leave the repository or reach into its `.git`.
_PATH = re.compile(r"\A(?:[A-Za-z0-9%_~-]+/)?[A-Za-z0-9%_~-]+\.md\Z")

# The files of a commit by path, or a function that makes them.
Files = Mapping[str, str] | Callable[[], Mapping[str, str]]
# Returns the kind of secret that a text appears to contain, or None.
LooksSecret = Callable[[str], str | None]


def screen_files(files: Files, looks_secret: LooksSecret) -> tuple[dict[str, bytes], list[RefusedFile]]:
    """Return the files that may be committed, by path, and the refused ones."""
    accepted: dict[str, bytes] = {}
    refused: list[RefusedFile] = []
    for path, text in sorted((files() if callable(files) else files).items()):
        if not _PATH.fullmatch(path):
            raise ValueError(f"{path!r} is not a valid path of a workspace file")
        content = text.encode()
        if len(content) > MAX_FILE_BYTES:
            why = f"it has {len(content):,} bytes; the limit is {MAX_FILE_BYTES:,}"
            refused.append(RefusedFile(path=path, why=why))
        elif secret := looks_secret(text):
            refused.append(RefusedFile(path=path, why=f"it looks like it contains a secret ({secret})"))
        else:
            accepted[path] = content
    return accepted, refused


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


# Limit of a readable diff, and of the size of a response.
MAX_CHARACTERS: Final = 1024 * 1024
# Product of the line counts: beyond this, a comparison takes seconds, and the file is shown as replaced.
_MAX_LINE_PAIRS: Final = 4_000_000


def unified(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """Return the differences of all files, ordered by path; empty if there are none."""
    parts: list[str] = []
    room = MAX_CHARACTERS
    for path in sorted({*before, *after}):
        if before.get(path) == after.get(path):
            continue
        for line in _file_diff(path, before.get(path), after.get(path)):
            room -= len(line) + 1
            if room < 0:
                return "".join(parts) + "... the rest is omitted: it is too long\n"
            parts.append(line + "\n")
    return "".join(parts)


def _file_diff(path: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    yield "--- " + ("/dev/null" if before is None else f"a/{path}")
    yield "+++ " + ("/dev/null" if after is None else f"b/{path}")
    old, new = _lines(before), _lines(after)
    if len(old) * len(new) > _MAX_LINE_PAIRS:
        yield f"@@ -1,{len(old)} +1,{len(new)} @@"
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    # Skip the first two lines, which name the files.
    for number, line in enumerate(difflib.unified_diff(old, new, lineterm="")):
        if number >= 2:
            yield line


def _lines(content: bytes | None) -> list[str]:
    """Split into lines as git does: only at line feeds."""
    lines = (content or b"").decode(errors="replace").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


_FILE_MODE: Final = 0o100644
_REPLACED: Final = ".git.old"


def mend(folder: Path) -> None:
    """Complete or undo an interrupted `replace_history`."""
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
    repo: Repo, versions: Iterable[tuple[GitCommit, Mapping[str, bytes]]], message: Callable[[str], str]
) -> Mapping[str, bytes]:
    """Write versions, the oldest first, as commits with their own times; return the files of the last one.

    A version that equals the one before it is left out.
    """
    head: GitCommit | None = None
    files: Mapping[str, bytes] = {}
    for old, files in versions:
        tree = _write_tree(repo.object_store, files)
        if _has_tree(head, tree, files):
            continue
        text = message(old.message.decode(errors="replace"))
        head = _new_commit(tree, head, text, old.commit_time * _MICROS)
        repo.object_store.add_object(head)
    if head is not None:
        repo.refs[_BRANCH] = head.id
    return files


def _write_tree(objects: BaseObjectStore, files: Mapping[str, bytes]) -> ObjectID:
    """Add files and their tree to a store of objects; return the tree's id."""
    blobs = {path: Blob.from_string(content) for path, content in files.items()}
    for blob in blobs.values():
        objects.add_object(blob)
    return commit_tree(objects, [(path.encode(), blob.id, _FILE_MODE) for path, blob in blobs.items()])


def _has_tree(head: GitCommit | None, tree: ObjectID, files: Mapping[str, bytes]) -> bool:
    """Return whether nothing would change by a commit of these files after `head`."""
    return not files if head is None else head.tree == tree


_BRANCH: Final = Ref(b"refs/heads/main")
_AUTHOR: Final = b"Reverie <reverie@localhost>"
# Another commit of the same agent takes milliseconds.
_LOCK_SECONDS: Final = 30.0
_MICROS: Final = 1_000_000
_AGENT_FILE: Final = "reverie-agent"
_UNMADE: Final = ".new"
# Each commit creates about five small files; beyond this number they are packed into one.
_LOOSE_OBJECTS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GitRepository:
    """The repository of one agent: a folder created by the first commit, readable only by its owner.

    `within` must exist: it is removed when a workspace is deleted, and must not be created again. `before_commit` is
    called before each commit that may write something.
    """

    folder: Path
    agent: str
    within: Path
    looks_secret: LooksSecret
    before_commit: Callable[[], None] = lambda: None

    def commit(self, files: Files, message: str, at: int) -> Checkpoint:
        """Commit exactly these files, unless the newest commit already has them.

        If `files` is a function, it is called while nobody else can commit or rewrite: so a commit after a rewrite
        cannot bring back what was removed from the database before the rewrite. It may be called twice. `at` is in
        microseconds. Raises `StoreUnavailable`, and `NotFound` for a workspace that does not exist.
        """
        if not self._exists():
            accepted, refused = screen_files(files, self.looks_secret)
            if not accepted:
                return Checkpoint(refused=refused)
        self.before_commit()
        # Create the folder of repositories, but never that of the workspace: it may have been deleted.
        try:
            self.folder.parent.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError:
            raise NotFound(f"there is no workspace {self.within.name!r}", field="workspace") from None
        except OSError as error:
            raise StoreUnavailable(f"{self.folder.parent} cannot be created ({error}): check the disk") from error
        with self._locked(), self._opened(make=True) as repo:
            accepted, refused = screen_files(files, self.looks_secret)
            commit = self._create_commit(repo, accepted, message, at)
            _check_out(repo, self.folder, accepted)
            if commit is not None and repo.object_store.count_loose_objects() > _LOOSE_OBJECTS:
                repo.object_store.pack_loose_objects()
        return Checkpoint(commit=commit, refused=refused)

    def files(self) -> dict[str, str]:
        """Return the files of the newest commit; empty before the first. Raises `StoreUnavailable`."""
        if not self._exists():
            return {}
        with self._opened() as repo:
            head = _head(repo)
            return {path: text.decode() for path, text in _contents(repo, head).items()} if head is not None else {}

    def history(self, limit: int) -> list[Commit]:
        """Return up to `limit` commits, newest first. Raises `StoreUnavailable`."""
        if not self._exists():
            return []
        with self._opened() as repo:
            return [_to_commit(repo, found) for found, _ in zip(_all_commits(repo), range(limit), strict=False)]

    def diff(self, a: str, b: str | None = None) -> str:
        """Return the unified diff from commit `a` to commit `b`, by default the newest.

        Raises `NotFound` for an unknown commit, `Rejected` for an invalid or ambiguous id, and `StoreUnavailable`.
        """
        if not self._exists():
            resolve(a, [], field="a")
        with self._opened() as repo:
            known = {found.id.decode(): found for found in _all_commits(repo)}
            before = known[resolve(a, known, field="a")]
            after = known[resolve("HEAD" if b is None else b, known, field="b")]
            return unified(_contents(repo, before), _contents(repo, after))

    def versions(self) -> list[tuple[Commit, dict[str, str]]]:
        """Return every commit, newest first, with its files. Raises `StoreUnavailable`."""
        if not self._exists():
            return []
        with self._opened() as repo:
            return [
                (_to_commit(repo, found), {path: text.decode() for path, text in _contents(repo, found).items()})
                for found in _all_commits(repo)
            ]

    def rewrite(self, keep: Callable[[str], bool], message: Callable[[str], str]) -> bool:
        """Rewrite the whole history: of each file only the lines that are kept, and messages as the function returns.

        Nothing of the old history is left. Return whether there was anything to rewrite. Raises `StoreUnavailable`.
        """
        if not self.folder.exists():
            return False
        with self._locked():
            mend(self.folder)
            with self._opened() as repo:
                versions = [(found, _contents(repo, found)) for found in _all_commits(repo)][::-1]
            kept = [(found, _filtered_files(files, keep)) for found, files in versions]
            if all(
                files == clean and message(text := found.message.decode(errors="replace")) == text
                for (found, files), (_, clean) in zip(versions, kept, strict=True)
            ):
                return False
            making = self._make_empty()
            with Repo(str(making)) as repo:
                newest = write_history(repo, kept, message)
            replace_history(self.folder, making)
            with self._opened() as repo:
                for path in {path for _, files in versions for path in files} - newest.keys():
                    (self.folder / path).unlink(missing_ok=True)
                _check_out(repo, self.folder, newest)
        return True

    def remove(self) -> bool:
        """Delete the files with their history; return whether there were any. Raises `StoreUnavailable`."""
        if not self.folder.exists():
            return False
        with self._locked():
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(self.folder.with_name(self.folder.name + _UNMADE), ignore_errors=True)
        if self.folder.exists():
            raise StoreUnavailable(f"{self.folder} cannot be removed: check its permissions")
        return True

    def archive(self, target: BinaryIO) -> bool:
        """Write the folder as a tar file, while no commit changes it; False before the first commit.

        The same files make the same bytes: names are sorted, and neither times nor owners are kept.
        """
        if not self._exists():
            return False
        with self._locked():
            try:
                with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
                    for path in sorted(self.folder.rglob("*")):
                        tar.add(path, str(path.relative_to(self.folder)), recursive=False, filter=_without_owner)
            except OSError as error:
                raise StoreUnavailable(f"{self.folder} cannot be copied ({error}): try again") from error
        return True

    def _exists(self) -> bool:
        try:
            return (self.folder / ".git").is_dir()
        except OSError as error:
            raise StoreUnavailable(f"{self.folder} cannot be read ({error}): check its permissions") from error

    def _create_commit(self, repo: Repo, files: Mapping[str, bytes], message: str, at: int) -> Commit | None:
        fresh = MemoryObjectStore()
        tree = _write_tree(fresh, files)
        head = _head(repo)
        if _has_tree(head, tree, files):
            return None
        _drop_stale_locks(self.folder / ".git")
        for object_id in fresh:
            if object_id not in repo.object_store:
                repo.object_store.add_object(fresh[object_id])
        commit = _new_commit(tree, head, message, at)
        repo.object_store.add_object(commit)
        if not repo.refs.set_if_equals(_BRANCH, head.id if head is not None else None, commit.id):
            raise StoreUnavailable(f"{self.folder} was changed by another process at the same time: try again")
        return _to_commit(repo, commit)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock for one commit at a time across processes; the kernel releases the lock of a dead process."""
        lock = FileLock(self.folder.parent / f"{self.folder.name}.lock", timeout=_LOCK_SECONDS, mode=0o600)
        try:
            lock.acquire()
        except Timeout as error:
            raise StoreUnavailable(f"{self.folder} is locked by another process: try again") from error
        except OSError as error:
            raise StoreUnavailable(f"{self.folder} cannot be locked ({error}): try again") from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[Repo]:
        try:
            if make and not self._exists():
                self._make_empty().rename(self.folder)  # a crash leaves no incomplete one
            with Repo(str(self.folder)) as repo:
                yield repo
        except (
            NotGitRepository, FileFormatException, ChecksumMismatch, FileLocked, zlib.error, OSError, KeyError
        ) as error:  # fmt: skip
            # dulwich raises KeyError for a missing object.
            raise StoreUnavailable(
                f"the git repository {self.folder} cannot be used ({error}): check its disk and permissions; if it is"
                " damaged, move it away, and the next commit starts a new history"
            ) from error

    def _make_empty(self) -> Path:
        """Create an empty repository under another name, and return its folder."""
        making = self.folder.with_name(self.folder.name + _UNMADE)
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        with Repo.init(str(making), default_branch=b"main") as repo:
            config = repo.get_config()
            # A power cut must not leave a branch that names an empty file.
            config.set((b"core",), b"fsyncObjectFiles", True)
            config.write_to_path()
        # The folder's name may be only a hash of the agent's name.
        (making / ".git" / _AGENT_FILE).write_text(self.agent, encoding="utf-8")
        return making


@dataclass(frozen=True, slots=True)
class GitFolders:
    """The repositories in a data folder: one per agent and workspace, in the folder of the workspace.

    Repositories of account memories are next to the account's database. `before_commit` is called before each commit
    that may write something.
    """

    data_dir: Path
    looks_secret: LooksSecret
    before_commit: Callable[[], None] = lambda: None

    def repository(self, workspace: str, agent: str) -> GitRepository:
        """Return the repository of one agent in one workspace, without opening or creating it. Raises `Rejected`."""
        within = self._within(workspace)
        folder = within / "git" / file_name(check_agent(agent))
        return GitRepository(
            folder=folder, agent=agent, within=within, looks_secret=self.looks_secret, before_commit=self.before_commit
        )

    def folder(self, workspace: str, agent: str) -> str:
        """Return the path of a repository in the data folder."""
        return str(Path(self._within(workspace) / "git" / file_name(check_agent(agent))).relative_to(self.data_dir))

    def agents(self, workspace: str) -> list[str]:
        """Return the agents that have a repository in a workspace, including those without any other data."""
        folder = self._within(workspace) / "git"
        try:
            written = [path for path in folder.glob(f"*/.git/{_AGENT_FILE}") if path.parents[1].suffix != _UNMADE]
            return sorted(path.read_text(encoding="utf-8") for path in written)
        except OSError as error:
            raise StoreUnavailable(f"{folder} cannot be read ({error}): check its permissions, or try again") from error

    def _within(self, workspace: str) -> Path:
        if workspace == ACCOUNT_STORE:
            return self.data_dir
        return self.data_dir / "workspaces" / check_workspace(workspace)


def _filtered_files(files: Mapping[str, bytes], keep: Callable[[str], bool]) -> dict[str, bytes]:
    texts = {path: without_lines(content.decode(), keep) for path, content in files.items()}
    return {path: text.encode() for path, text in texts.items() if text}


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a file or folder of an archive without owner and times, which differ between copies; None for others."""
    if not (member.isfile() or member.isdir()):
        return None
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o700 if member.isdir() else 0o600
    return member


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
    """Return the newest commit, None before the first."""
    if _BRANCH not in repo.refs:
        return None
    found = repo[repo.refs[_BRANCH]]
    assert isinstance(found, GitCommit)
    return found


def _all_commits(repo: Repo) -> Iterator[GitCommit]:
    """Yield all commits from the newest on, by their parents, since times may not be in order."""
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


def _to_commit(repo: Repo, commit: GitCommit) -> Commit:
    tree = _tree(repo, commit)
    before: dict[str, ObjectID] = {}
    if commit.parents:
        parent = repo[commit.parents[0]]
        assert isinstance(parent, GitCommit)
        before = _tree(repo, parent)
    changed = sorted(path for path in {*tree, *before} if tree.get(path) != before.get(path))
    message = commit.message.decode(errors="replace")
    at = from_micros(commit.commit_time * _MICROS)
    return Commit(id=commit.id.decode(), at=at, message=message, changed=changed)


def _check_out(repo: Repo, folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of the newest commit, and remove files of earlier commits; files of the user stay."""
    _drop_stale_locks(folder / ".git")
    index = repo.open_index()
    for known in [path.decode() for path in index]:
        if known not in files:
            (folder / known).unlink(missing_ok=True)
            del index[known.encode()]
    for path, content in files.items():
        entry = _write_file(folder, path, content)
        index[path.encode()] = entry
    index.write()


def _write_file(folder: Path, path: str, content: bytes) -> IndexEntry:
    target = folder / path
    if not (target.is_file() and not target.is_symlink() and target.read_bytes() == content):
        target.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = folder / ".git" / "reverie-file.tmp"
        fresh.write_bytes(content)
        fresh.replace(target)
    return index_entry_from_stat(os.lstat(target), Blob.from_string(content).id, _FILE_MODE)


def _drop_stale_locks(control: Path) -> None:
    """Remove lock files of a killed process; only the holder of our own lock writes here, so they are stale."""
    for name in ("index.lock", "refs/heads/main.lock", "HEAD.lock", "packed-refs.lock"):
        (control / name).unlink(missing_ok=True)
    # An object's name depends on its content: a stale lock would block every later commit that has the same object.
    for stale in (control / "objects").glob("*/*.lock"):
        stale.unlink(missing_ok=True)
