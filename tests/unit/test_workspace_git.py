"""Workspace git: what it does, and what its files can suffer from."""

from __future__ import annotations

import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from dulwich.objects import Blob
from dulwich.repo import Repo
from filelock import FileLock, Timeout
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import workspace_git
from adapters.workspace_git import (
    MAX_CHARACTERS,
    MAX_FILE_BYTES,
    GitFolders,
    GitRepository,
    file_name,
    unified,
)
from reverie.clock import to_micros
from reverie.errors import NotFound, Rejected, StoreUnavailable
from storage.stores import Stores
from support.forks import FORKS, import_beforehand
from support.git_processes import commit_and_die, commit_often

pytestmark = pytest.mark.slow

SECOND = 1_000_000
AT = 1_777_626_000 * SECOND


def looks_secret(text: str) -> str | None:
    """What these tests take for a secret."""
    return "a token" if "tok-secret" in text else None


def folders(tmp_path: Path, workspace: str = "default") -> GitFolders:
    (tmp_path / "workspaces" / workspace).mkdir(parents=True, exist_ok=True)
    return GitFolders(tmp_path, looks_secret)


@pytest.fixture
def repositories(tmp_path: Path) -> GitFolders:
    """The repositories of a data folder with one workspace."""
    return folders(tmp_path)


@pytest.fixture
def git(repositories: GitFolders) -> GitRepository:
    """The repository of one agent."""
    return repositories.repository("default", "ana")


# --- what every workspace git does ---


def test_files_are_committed_and_read_back(git: GitRepository) -> None:
    """Given two files, when they are committed, then they are the newest state and the commit says what it changed."""
    made = git.commit({"MEMORY.md": "one\n", "notes/shopping.md": "milk\n"}, "the first", AT).commit

    assert made is not None
    assert git.files() == {"MEMORY.md": "one\n", "notes/shopping.md": "milk\n"}
    assert git.history(10) == [made]
    assert (made.message, to_micros(made.at), made.changed) == ("the first", AT, ["MEMORY.md", "notes/shopping.md"])


def test_files_are_made_while_nobody_else_can_commit_or_rewrite(git: GitRepository, tmp_path: Path) -> None:
    """Given files that a function makes, then it is called under the lock of the repository: they cannot be outdated.

    An erasure removes rows, then rewrites the history. Files that were rendered before must not be committed after it.
    """
    git.commit({"MEMORY.md": "one\n"}, "the first", AT)
    lock = FileLock(tmp_path / "workspaces" / "default" / "git" / "ana.lock", timeout=0)

    def files() -> dict[str, str]:
        with pytest.raises(Timeout):
            lock.acquire()
        return {"MEMORY.md": "two\n"}

    assert git.commit(files, "the second", AT).commit is not None
    assert git.files() == {"MEMORY.md": "two\n"}


def test_nothing_is_committed_when_nothing_changed(git: GitRepository) -> None:
    """Given a commit, when the same files come again, then there is no second one; no files at all make none either."""
    assert git.commit({}, "nothing yet", AT).commit is None
    git.commit({"MEMORY.md": "one\n"}, "the first", AT)

    assert git.commit({"MEMORY.md": "one\n"}, "again", AT + SECOND).commit is None
    assert len(git.history(10)) == 1


def test_before_the_first_commit_there_is_nothing(git: GitRepository) -> None:
    """Given no commit, then history and files are empty and a difference has nothing to name."""
    assert git.history(10) == []
    assert git.files() == {}
    with pytest.raises(NotFound):
        git.diff("0000000")
    with pytest.raises(NotFound):
        git.diff("HEAD")


def test_history_is_newest_first_whatever_the_clock_said_and_as_long_as_asked_for(git: GitRepository) -> None:
    """Given three commits and a clock that was set back, then the last one made comes first."""
    for number, at in enumerate((AT, AT + 9 * SECOND, AT - 9 * SECOND)):
        git.commit({"MEMORY.md": f"{number}\n"}, f"number {number}", at)

    assert [commit.message for commit in git.history(10)] == ["number 2", "number 1", "number 0"]
    assert [commit.message for commit in git.history(2)] == ["number 2", "number 1"]


def test_a_file_that_is_not_given_any_more_is_removed(git: GitRepository) -> None:
    """Given a note, when the next commit comes without it, then it is in the files no more, and that is a change."""
    git.commit({"MEMORY.md": "one\n", "notes/a.md": "milk\n"}, "both", AT)
    made = git.commit({"MEMORY.md": "one\n"}, "one", AT + SECOND).commit

    assert made is not None
    assert made.changed == ["notes/a.md"]
    assert git.files() == {"MEMORY.md": "one\n"}
    assert git.commit({}, "none", AT + 2 * SECOND).commit is not None
    assert git.files() == {}


def test_differences_are_unified_text(git: GitRepository) -> None:
    """Given a line that was changed, a file that came and one that went, then each shows as git would show it."""
    first = git.commit({"MEMORY.md": "a\nb\nc\n", "notes/gone.md": "x\n"}, "first", AT).commit
    second = git.commit({"MEMORY.md": "a\nB\nc\n", "notes/new.md": "y\n"}, "second", AT).commit
    assert first is not None
    assert second is not None

    shown = git.diff(first.id, second.id)

    assert shown == (
        "--- a/MEMORY.md\n+++ b/MEMORY.md\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
        "--- a/notes/gone.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "--- /dev/null\n+++ b/notes/new.md\n@@ -0,0 +1 @@\n+y\n"
    )
    assert git.diff(first.id[:10]) == shown
    assert git.diff("HEAD") == ""
    assert "+b\n" in git.diff(second.id, first.id)


@pytest.mark.parametrize("revision", ["", "HEAD~1", "abc", "main", "../../etc/passwd", "G" * 40, "-" * 7, "a" * 41])
def test_what_names_no_commit_is_rejected(git: GitRepository, revision: str) -> None:
    """Given anything but an id, its beginning or HEAD, then the error names the field."""
    git.commit({"MEMORY.md": "one\n"}, "first", AT)

    with pytest.raises(Rejected) as error:
        git.diff("HEAD", revision)

    assert error.value.field == "b"
    assert not isinstance(error.value, NotFound)


def test_an_id_that_nothing_has_is_not_found(git: GitRepository) -> None:
    """Given the id of no commit, then the error says so and names the field."""
    git.commit({"MEMORY.md": "one\n"}, "first", AT)

    with pytest.raises(NotFound) as error:
        git.diff("0123456789")

    assert error.value.field == "a"


def test_too_large_files_and_secrets_stay_out_and_are_reported(git: GitRepository) -> None:
    """Given a file over 1 MiB, one that looks like a secret and a good one, then only the last is committed."""
    files = {
        "MEMORY.md": "good\n",
        "notes/large.md": "ä" * (MAX_FILE_BYTES // 2) + "!",
        "notes/secret.md": "the token is tok-secret\n",
        "notes/just-fits.md": "a" * MAX_FILE_BYTES,
    }

    done = git.commit(files, "all", AT)

    assert set(git.files()) == {"MEMORY.md", "notes/just-fits.md"}
    assert [refused.path for refused in done.refused] == ["notes/large.md", "notes/secret.md"]
    assert "1,048,577 bytes" in done.refused[0].why
    assert "a token" in done.refused[1].why
    assert git.commit(files, "again", AT).refused == done.refused


def test_a_file_that_becomes_a_secret_leaves_the_files(git: GitRepository) -> None:
    """Given a committed note, when a secret is written into it, then the next commit has neither version of it."""
    git.commit({"MEMORY.md": "m\n", "notes/a.md": "harmless\n"}, "first", AT)

    done = git.commit({"MEMORY.md": "m\n", "notes/a.md": "tok-secret\n"}, "second", AT)

    assert done.commit is not None
    assert git.files() == {"MEMORY.md": "m\n"}


def test_agents_and_workspaces_have_repositories_of_their_own(repositories: GitFolders, tmp_path: Path) -> None:
    """Given two agents and two workspaces, when one commits, then the others have nothing."""
    (tmp_path / "workspaces" / "other").mkdir(parents=True, exist_ok=True)
    repositories.repository("default", "ana").commit({"MEMORY.md": "hers\n"}, "first", AT)

    assert repositories.repository("default", "Ana").history(1) == []
    assert repositories.repository("other", "ana").history(1) == []
    assert repositories.repository("default", "ana").files() == {"MEMORY.md": "hers\n"}
    assert repositories.agents("default") == ["ana"]
    assert repositories.agents("other") == []


def test_agents_are_known_by_their_names_however_long_and_strange(repositories: GitFolders) -> None:
    """Given repositories of agents whose names are no names of folders, then they are told as they are."""
    names = ["a/b", "Ana", "x" * 256, "東京"]
    for name in names:
        repositories.repository("default", name).commit({"MEMORY.md": "m\n"}, "first", AT)

    assert repositories.agents("default") == sorted(names)


@pytest.mark.parametrize("path", ["../x.md", "/x.md", ".git/config", "notes/../../x.md", "a/b/c.md", "notes/.md", "x"])
def test_a_path_that_could_leave_the_repository_is_an_error_of_the_caller(git: GitRepository, path: str) -> None:
    """Given a path that `file_name` would never make, then nothing is committed."""
    with pytest.raises(ValueError, match="path"):
        git.commit({path: "x"}, "bad", AT)


def folder_of(tmp_path: Path) -> Path:
    return tmp_path / "workspaces" / "default" / "git" / "ana"


def test_the_folder_is_a_checkout_for_its_owner_alone(git: GitRepository, tmp_path: Path) -> None:
    """Given a commit, then its files lie in the folder, clean by git's own account, and only the owner may enter."""
    git.commit({"MEMORY.md": "one\n", "notes/a.md": "milk\n"}, "first", AT)
    folder = folder_of(tmp_path)

    assert (folder / "notes" / "a.md").read_text() == "milk\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert status_of(folder) == ([], [], [])

    git.commit({"MEMORY.md": "two\n"}, "second", AT)

    assert not (folder / "notes" / "a.md").exists()
    assert status_of(folder) == ([], [], [])


def status_of(folder: Path) -> tuple[list[Any], list[Any], list[Any]]:
    from dulwich import porcelain

    status = porcelain.status(str(folder))
    staged = [path for paths in status.staged.values() for path in paths]
    return staged, list(status.unstaged), list(status.untracked)


def test_what_a_person_changed_in_the_folder_is_put_right_and_their_own_files_stay(
    git: GitRepository, tmp_path: Path
) -> None:
    """Given a file that was edited by hand and one of the person's own, then a commit puts right what is Reverie's."""
    git.commit({"MEMORY.md": "one\n"}, "first", AT)
    folder = folder_of(tmp_path)
    (folder / "MEMORY.md").write_text("edited\n")
    (folder / "mine.txt").write_text("mine\n")

    assert git.commit({"MEMORY.md": "one\n"}, "again", AT).commit is None

    assert (folder / "MEMORY.md").read_text() == "one\n"
    assert (folder / "mine.txt").exists()


_STEPS = ("make", "move", "objects", "branch", "check-out", "file", "index")


@pytest.mark.parametrize("step", range(7), ids=_STEPS)
@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_a_commit_killed_at_any_step_leaves_a_repository_that_the_next_one_makes_good(
    tmp_path: Path, step: int, begun: bool
) -> None:
    """Given a process killed before each step of a commit, when it is done again, then the state is as without it."""
    git = folders(tmp_path).repository("default", "ana")
    if begun:
        git.commit({"MEMORY.md": "old\n", "notes/a.md": "a\n"}, "before", AT)
    elif step > 1:
        git.commit({"MEMORY.md": "old\n"}, "before", AT)
    import_beforehand()
    process = FORKS.Process(target=commit_and_die, args=(step, str(tmp_path), AT + SECOND))
    process.start()
    process.join(120)
    if not (begun and step <= 1):  # a repository that is there is not made again
        assert process.exitcode == -signal.SIGKILL

    git.commit({"MEMORY.md": "new\n", "notes/b.md": "b\n"}, "done again", AT + 2 * SECOND)

    folder = folder_of(tmp_path)
    assert git.files() == {"MEMORY.md": "new\n", "notes/b.md": "b\n"}
    assert sum(commit.message in ("killed", "done again") for commit in git.history(10)) == 1
    assert sorted(path.name for path in folder.rglob("*.md")) == ["MEMORY.md", "b.md"]
    assert status_of(folder) == ([], [], [])


def test_locks_that_a_killed_process_left_are_in_nobodys_way(git: GitRepository, tmp_path: Path) -> None:
    """Given the lock files of git without anyone who holds them, then the next commit goes through.

    Also where it writes the very object at which the killed process stood.
    """
    git.commit({"MEMORY.md": "one\n"}, "first", AT)
    control = folder_of(tmp_path) / ".git"
    (control / "index.lock").touch()
    (control / "refs" / "heads" / "main.lock").touch()
    name = Blob.from_string(b"two\n").id.decode()
    (control / "objects" / name[:2]).mkdir(exist_ok=True)
    (control / "objects" / name[:2] / f"{name[2:]}.lock").touch()

    assert git.commit({"MEMORY.md": "two\n"}, "second", AT).commit is not None


def test_two_processes_that_commit_at_once_both_leave_their_commits(tmp_path: Path) -> None:
    """Given two processes with ten commits each, then the history has twenty, none of them lost or torn."""
    git = folders(tmp_path).repository("default", "ana")
    import_beforehand()
    start = FORKS.Event()
    processes = [FORKS.Process(target=commit_often, args=(str(tmp_path), name, AT, start)) for name in ("a", "b")]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join(120)

    messages = [commit.message for commit in git.history(100)]

    assert [process.exitcode for process in processes] == [0, 0]
    assert sorted(messages) == sorted(f"{name} {number}" for name in "ab" for number in range(10))
    assert status_of(folder_of(tmp_path)) == ([], [], [])


def test_a_deleted_workspace_leaves_nothing_and_does_not_come_back_by_a_commit(tmp_path: Path) -> None:
    """Given a workspace with a repository, when it is deleted, then its folder is gone and a late commit fails."""
    stores = Stores(tmp_path)
    stores.workspace("default")
    git = GitFolders(tmp_path, looks_secret).repository("default", "ana")
    git.commit({"MEMORY.md": "one\n"}, "first", AT)

    assert stores.delete_workspace("default")

    with pytest.raises(NotFound) as error:
        git.commit({"MEMORY.md": "late\n"}, "late", AT)
    assert error.value.field == "workspace"
    assert not (tmp_path / "workspaces" / "default").exists()
    assert git.history(1) == []
    stores.close()


def test_a_damaged_repository_is_an_error_that_says_where_and_what_to_do(git: GitRepository, tmp_path: Path) -> None:
    """Given an object that was cut off, then reading fails in one line that names the folder."""
    git.commit({"MEMORY.md": "one\n"}, "first", AT)
    for kept in (folder_of(tmp_path) / ".git" / "objects").glob("??/*"):
        kept.chmod(0o600)
        kept.write_bytes(b"")

    for call in (git.files, lambda: git.history(1), lambda: git.diff("HEAD")):
        with pytest.raises(StoreUnavailable, match="move it away"):
            call()


def test_many_commits_are_packed_and_stay_readable(git: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more loose objects than are kept loose, then they are packed, and the history is whole."""
    monkeypatch.setattr(workspace_git, "_LOOSE_OBJECTS", 20)
    for number in range(30):
        git.commit({"MEMORY.md": f"{number}\n", "notes/a.md": "same\n"}, f"number {number}", AT + number * SECOND)

    history = git.history(100)

    assert len(history) == 30
    assert "-0\n+29\n" in git.diff(history[-1].id)


def test_gits_own_settings_of_the_person_do_not_matter(
    git: GitRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Given a home with settings that change line ends and names, then what is committed is what was given."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Somebody\n[core]\n\tautocrlf = true\n[init]\n\tdefaultBranch=x")
    monkeypatch.setenv("HOME", str(home))

    git.commit({"MEMORY.md": "one\r\ntwo\n"}, "first", AT)

    assert git.files() == {"MEMORY.md": "one\r\ntwo\n"}
    with Repo(str(folder_of(tmp_path))) as repo:
        assert repo[repo.head()].author == b"Reverie <reverie@localhost>"  # type: ignore[union-attr]


# --- names and differences ---


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=256), unique=True, max_size=20))
@settings(max_examples=200)
def test_names_of_files_are_safe_and_never_the_same(texts: list[str]) -> None:
    """Given any texts, then each gives a name of its own, also where capitals do not count, that fits every disk."""
    names = [file_name(text) for text in texts]

    assert len({name.lower() for name in names}) == len(texts)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_%~") and len(name) <= 128 for name in names)


def test_names_that_look_alike_are_different() -> None:
    """Given names that file systems or encodings might take for one, then they are not."""
    alike = ["ana", "Ana", "a.na", "..", ".git", "a/na", "a%2fna", "é", "e\u0301", "x" * 200, "x" * 201, "~", "%7e"]

    assert len({file_name(text) for text in alike}) == len(alike)


def test_a_difference_is_bounded_in_length_and_time() -> None:
    """Given files of a megabyte made to be slow to compare, then what is shown is cut, soon, and says so."""
    before = {"a.md": b"\n".join(b"%d" % (number % 7) for number in range(300_000))}
    after = {"a.md": b"\n".join(b"%d" % (number % 5) for number in range(300_000)), "b.md": b"x" * 3_000_000}

    shown = unified(before, after)

    assert len(shown) <= MAX_CHARACTERS + 100
    assert shown.endswith("omitted: it is too long\n")


def test_lines_end_where_git_has_them_end() -> None:
    """Given other characters that end a line for some, then only a line feed does here."""
    assert unified({"a.md": "x\u2028y\fz\n".encode()}, {"a.md": "x\u2028y\fZ\n".encode()}).count("\n") == 5
