"""With `pytest --postgres`, a process that a test starts is told of the database of its data folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.started_on_postgres import redirect_started

TELL = "import os; print(os.environ.get('REVERIE_DATABASE'))"


@pytest.fixture(autouse=True)
def _redirected(monkeypatch: pytest.MonkeyPatch) -> None:
    redirect_started(monkeypatch, lambda folder: f"database of {folder}")


def told(*arguments: str, cwd: Path | None = None, **environment: str) -> str:
    """Start a process, and return the database that it is told of."""
    variables = {**os.environ, **environment}
    command = [sys.executable, "-c", TELL, *arguments]
    return subprocess.run(command, env=variables, cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


def test_a_data_folder_is_named_by_the_option_or_by_the_environment(tmp_path: Path) -> None:
    """Given both, then the option counts, as for the command line."""
    assert told(REVERIE_DATA="/one") == "database of /one"
    assert told("--data", "/two", REVERIE_DATA="/one") == "database of /two"
    assert told("--data", "here", cwd=tmp_path) == f"database of {tmp_path / 'here'}"


def test_a_process_without_a_data_folder_is_told_of_none() -> None:
    """Given a client, then its environment is left as it is; so is a database that a test has chosen."""
    assert told() == "None"
    assert told(REVERIE_DATA="/one", REVERIE_DATABASE="chosen") == "chosen"


def test_each_benchmark_has_a_database_of_its_own() -> None:
    """Given the same benchmark twice, then the second does not find what the first has stored."""
    first, second = told("-m", "benchmarks.chaos"), told("-m", "benchmarks.chaos")
    assert first.startswith("database of /benchmarks/")
    assert first != second
