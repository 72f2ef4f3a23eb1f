"""The public MCP conformance suite against `/mcp`: the memory itself, and the suite's own tools on the same transport.

It is a program for Node 22 or newer, from npm. `make test-mcp` fetches both and runs this; otherwise it is skipped.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.authentication import Access
from support.conformance import WithToken, serve_fixtures
from support.http import running_server
from worker.runtime import Runtime
from worker.settings import Settings

# Read before the tests, which remove what is set where they run.
FOLDER = os.environ.get("MCP_CONFORMANCE", "")
SUITE = Path(FOLDER, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
NODE = Path(FOLDER, "node_modules", ".bin", "node")
BASELINES = Path(__file__).parents[1] / "data" / "mcp"
TOKEN = "o" * 40
# What the suite scores for the new specification, and its whole list for clients of the one before.
CURRENT = ("--requirements", "2026-07-28")
EARLIER = ("--suite", "active", "--spec-version", "2025-11-25")

pytestmark = pytest.mark.skipif(
    not FOLDER, reason="the MCP conformance suite is a program for Node from npm: `make test-mcp` fetches and runs it"
)


@pytest.fixture(scope="module")
def runtime(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """One runtime for all tests of this file."""
    data = tmp_path_factory.mktemp("mcp-conformance") / "data"
    made = Runtime(Settings(data=data, broker=valkey_url, broker_prefix="mcp-conf:", embedding_provider="hash"))
    yield made
    made.close()


@pytest.mark.parametrize("specification", [CURRENT, EARLIER], ids=["2026-07-28", "2025-11-25"])
def test_the_suite_passes_with_its_own_tools(runtime: Runtime, specification: tuple[str, ...]) -> None:
    """Given the suite's tools behind this gate and transport, then all passes that needs no session."""
    access = Access({"operator": TOKEN})
    with running_server(runtime, access=access, wrapped=lambda app: serve_fixtures(app, TOKEN)) as url:
        baseline = "fixtures.yml" if specification == EARLIER else ""
        assert what_fails(url, *specification, baseline=baseline) == ""


@pytest.mark.parametrize("specification", [CURRENT, EARLIER], ids=["2026-07-28", "2025-11-25"])
def test_the_suite_passes_with_the_memory(runtime: Runtime, specification: tuple[str, ...]) -> None:
    """Given the memory itself, then all passes that needs none of the suite's tools."""
    access = Access({"operator": TOKEN})
    with running_server(runtime, access=access, wrapped=lambda app: WithToken(app, TOKEN)) as url:
        baseline = "memory.yml" if specification == CURRENT else "memory-2025-11-25.yml"
        assert what_fails(url, *specification, baseline=baseline) == ""


def what_fails(url: str, *options: str, baseline: str) -> str:
    """Run the suite against a server, and return its summary if it fails.

    The baseline names the scenarios that are expected to fail, and no others.
    """
    expected = ("--expected-failures", str(BASELINES / baseline)) if baseline else ()
    command = (str(NODE), str(SUITE), "server", "--url", f"{url}/mcp", *options, *expected)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=BASELINES)
    summary = ended.stdout.partition("=== SUMMARY ===")[2]
    assert summary, ended.stdout + ended.stderr
    return summary + ended.stderr if ended.returncode else ""
