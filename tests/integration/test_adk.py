"""The services for Google ADK, in a process of their own beside a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.http import running_server
from support.stages import pipeline_at_work
from worker.runtime import Runtime

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tests" / "support" / "adk_checks.py"


def expect_success_beside(runtime: Runtime, *arguments: str) -> str:
    """Run Python with google-adk beside a server with a pipeline, assert its success, and return what it prints."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("REVERIE_", "GOOGLE_"))}
    with running_server(runtime) as url, pipeline_at_work(runtime):
        environment = own | {"REVERIE_URL": url, "PYTHONPATH": str(ROOT / "client")}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_services_do_what_agents_of_adk_need(runtime: Runtime) -> None:
    """Given a server, then all checks of the services pass."""
    options = ("-q", "-c", os.devnull, "--noconftest", "-p", "no:cacheprovider")
    expect_success_beside(runtime, "-m", "pytest", *options, str(CHECKS))


def test_the_example_recalls_the_first_conversation_in_the_second(runtime: Runtime) -> None:
    """Given the example, when it is run twice, then the second run finds the sessions of the first."""
    # In one process, which imports google-adk for four seconds; the example keeps nothing between two runs.
    run_twice = "import runpy\nfor _ in range(2):\n    runpy.run_path('examples/adk_agent.py', run_name='__main__')"
    lines = expect_success_beside(runtime, "-c", run_twice).splitlines()
    answers = ["How nice!", "I remember: I moved to Lisbon in May."]
    assert lines == ["Kate has 0 sessions.", *answers, "Kate has 2 sessions.", *answers]
