"""`reverie run`: a job by hand, in a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from reverie import contract
from reverie.clock import now_micros
from storage.memories.records import NewMemory
from storage.stores import Stores
from support.forks import run_module


def run(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = ("--data", str(data), "--workspace", "home", "run", *arguments)
    return run_module("cli", *words, environment=os.environ, output=data.parent / "output", folder=data.parent)


def test_a_job_that_another_copy_holds_says_so_and_changes_nothing(tmp_path: Path) -> None:
    """Given a job whose lease another copy holds, then a note says so."""
    stores = Stores(tmp_path / "data")
    home = stores.workspace("home")
    with home.writing() as tx:
        token = tx.leases.acquire(contract.CONSOLIDATE_MEMORIES, now=now_micros(), seconds=100)
    assert token is not None
    home.job_leases.note(token)

    held = run(tmp_path / "data", "consolidate-memories")
    free = run(tmp_path / "data", "prune-decayed")

    assert (held.returncode, free.returncode) == (0, 0), held.stderr + free.stderr
    assert "another instance of consolidate-memories is running there" in held.stderr
    assert "another instance" not in free.stderr
    stores.close()


def test_a_job_that_does_not_exist_is_answered_with_those_that_do(tmp_path: Path) -> None:
    """Given a misspelt job, then all jobs are named."""
    misspelt = run(tmp_path / "data", "dream-sweeep")

    assert misspelt.returncode == 2
    assert "job is 'dream-sweeep'; it must be one of" in misspelt.stderr
    assert "dream-sweep," in misspelt.stderr


def test_a_job_tells_what_it_did_and_where(tmp_path: Path) -> None:
    """Given a faded memory, then a dry run says that it is one, and the job what it removed from which workspace."""
    stores = Stores(tmp_path / "data")
    with stores.workspace("home").writing() as tx:
        faded = NewMemory(id="m", content="it faded", created_at=now_micros() - 10**15, importance=0.1)
        tx.for_agent("ana").memories.add(faded, now=now_micros() - 10**15)
    stores.close()

    dry = run(tmp_path / "data", "prune-decayed", "--dry-run")
    done = run(tmp_path / "data", "prune-decayed")
    nothing = run(tmp_path / "data", "extract-memories")

    assert dry.stdout.startswith("Dry run: nothing was changed.")
    assert "prune  m      it faded" in dry.stdout, "what would be removed is named"
    assert "dry run" not in done.stdout
    assert "it faded" not in done.stdout
    for ended in (dry, done):
        assert "home   1 looked at, 1 pruned" in ended.stdout, ended.stdout + ended.stderr
        assert "{" not in ended.stdout
    assert nothing.stdout == "Nothing to do.\n"
