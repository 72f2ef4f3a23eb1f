"""The services for Google ADK, in a process of their own beside a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from support.http import running_server
from support.stages import pipeline_at_work
from worker.runtime import Runtime

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tests" / "support" / "adk_checks.py"
# All checks, and then the example twice, which keeps nothing between two runs: importing google-adk takes four seconds.
RUN: Final = f"""
import os, runpy, sys
import pytest
code = pytest.main(["-q", "-c", os.devnull, "--noconftest", "-p", "no:cacheprovider", {str(CHECKS)!r}])
if code == 0:
    for _ in range(2):
        runpy.run_path("examples/adk_agent.py", run_name="__main__")
sys.exit(code)
"""


def test_the_services_do_what_agents_of_adk_need_and_the_example_recalls_its_first_conversation(
    runtime: Runtime,
) -> None:
    """Given a server, then all checks of the services pass, and the example's second run finds the sessions of its
    first."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("REVERIE_", "GOOGLE_"))}
    with running_server(runtime) as url, pipeline_at_work(runtime):
        environment = own | {"REVERIE_URL": url, "PYTHONPATH": str(ROOT / "client")}
        done = subprocess.run(
            [sys.executable, "-c", RUN], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = ["How nice!", "I remember: I moved to Lisbon in May."]
    assert done.stdout.splitlines()[-6:] == ["Kate has 0 sessions.", *answers, "Kate has 2 sessions.", *answers]
