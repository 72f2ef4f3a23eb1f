"""Examples beside one running stack, typed as written: those for agent frameworks, and the ten lines of a schedule.

The ten lines are those of docs/schedules.md: from nothing to a schedule in the developer's own process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.stack import Stack
from support.stacks import ForkedStack

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "schedules.md"
BIN = Path(sys.executable).parent


def section() -> list[str]:
    """The blocks of code of the first section."""
    text = PAGE.read_text(encoding="utf-8").split("\n## ")[1]
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The stack that `reverie up` starts, on a folder and a port of its own."""
    with ForkedStack(env={"REVERIE_EMBEDDING_PROVIDER": "hash"}) as running:
        assert running.wait_server(60)
        yield running


def environment(stack: Stack) -> dict[str, str]:
    """What a developer's shell has: the programs on its path, and where Reverie is."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("REVERIE_")}
    return own | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "REVERIE_DATA": str(stack.data),
        "REVERIE_URL": stack.url,
        "REVERIE_EMBEDDING_PROVIDER": "hash",
    }


def test_the_page_shows_no_more_than_ten_lines() -> None:
    """Given the first section, then commands and code up to the first firing are ten lines, imports and all."""
    lines = [line for block in section()[:3] for line in block.splitlines() if line.strip() and line[0] != "#"]
    assert len(lines) <= 10, lines


def test_the_ten_lines_fire_into_a_process_of_ones_own(stack: Stack, tmp_path: Path) -> None:
    """Given the page's module and its commands as they stand, when a run is asked for, then the function did it."""
    start, module, add, *_ = section()
    (tmp_path / "my_agent.py").write_text(module, encoding="utf-8")
    assert start.splitlines()[0] == "reverie up &", "which runs by now"
    # `&` of the page: the worker is this test's to end.
    worker_line, add_line = add.splitlines()
    shell = environment(stack)
    broker = subprocess.run(["reverie", "broker-url"], env=shell, capture_output=True, text=True, check=True)
    shell["REVERIE_BROKER"] = broker.stdout.strip()
    log = tmp_path / "worker.log"
    with log.open("wb") as log_file:
        worker = subprocess.Popen(
            worker_line.removesuffix(" &").split(), cwd=tmp_path, env=shell, stdout=log_file, stderr=log_file
        )
    try:
        made = subprocess.run(
            f"{add_line} --json", shell=True, cwd=tmp_path, env=shell, capture_output=True, text=True, check=True
        )
        run = subprocess.run(
            ["reverie", "--agent", "ana", "schedules", "run-now", json.loads(made.stdout)["id"], "--wait", "--json"],
            env=shell,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=120)
    assert run.returncode == 0, (run.stdout, run.stderr, log.read_text(encoding="utf-8"))
    ended = json.loads(run.stdout)
    assert (ended["status"], ended["output"]) == ("success", "did: summarise what is open")
    assert ended["trigger"] == "manual"


# In one process, which imports agents for two seconds; the example keeps nothing between two runs.
RUN_TWICE = "import runpy, sys\nfor _ in range(2):\n    runpy.run_path(sys.argv[1], run_name='__main__')"


def run_example_twice(name: str, stack: Stack) -> list[str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith(("REVERIE_", "OPENAI_", "GOOGLE_"))}
    done = subprocess.run(
        [sys.executable, "-c", RUN_TWICE, str(ROOT / "examples" / name)],
        env=own | {"REVERIE_URL": stack.url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_example_for_openai_agents_recalls_the_first_conversation_in_the_second(stack: Stack) -> None:
    """Given the example, when it is run twice, then the second run finds the conversations of the first."""
    lines = run_example_twice("openai_agents.py", stack)
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert first[0] == "The conversation of May has 0 items."
    assert second[0] == "The conversation of May has 2 items."
    for lines in (first, second):
        assert "I moved to Lisbon in May." in "\n".join(lines[1:-1])
        assert lines[-1] == "Answered: You live in Lisbon, so take a raincoat."
