"""The examples for agent frameworks, run as typed beside a running stack."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.stack import Stack

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The stack that `reverie up` starts, on a folder and a port of its own."""
    with Stack(env={"REVERIE_EMBEDDING_PROVIDER": "hash"}) as running:
        assert running.wait_server(60)
        yield running


def run_example(name: str, stack: Stack) -> list[str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith(("REVERIE_", "OPENAI_", "GOOGLE_"))}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
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
    first, second = (run_example("openai_agents.py", stack) for _ in range(2))
    assert first[0] == "The conversation of May has 0 items."
    assert second[0] == "The conversation of May has 2 items."
    for lines in (first, second):
        assert "I moved to Lisbon in May." in "\n".join(lines[1:-1])
        assert lines[-1] == "Answered: You live in Lisbon, so take a raincoat."
