"""The TypeScript client against a real server: its own tests, and the types that it was generated with."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from memory.trust.token_texts import new_token
from support.http import running_server
from support.stages import pipeline_at_work
from worker.runtime import Runtime

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "typescript"


def generated(document: dict[str, object]) -> str:
    spec = importlib.util.spec_from_file_location("generate", CLIENT / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.generated(document)
    assert isinstance(text, str)
    return text


def test_its_types_are_those_of_the_served_description(runtime: Runtime) -> None:
    """Given /openapi.json, then src/generated.ts is what is generated of it."""
    with running_server(runtime) as url:
        document = json.loads(httpx2.get(f"{url}/openapi.json").content)

    written = (CLIENT / "src" / "generated.ts").read_text(encoding="utf-8")
    assert written == generated(document), "run `make docs`"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm")
def test_it_compiles_and_its_tests_pass(runtime: Runtime, tmp_path: Path) -> None:
    """Given a server with a token, when the package is compiled, then its tests pass, the example's included."""
    folder = tmp_path / "client"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    token = new_token()
    with running_server(runtime, token=token) as url, pipeline_at_work(runtime):
        for command in (
            ["npm", "install", "--silent", "--no-audit", "--no-fund"],
            ["npm", "run", "--silent", "build"],
            ["node", "--test", "dist/test/"],
        ):
            environment = {**os.environ, "REVERIE_URL": url, "REVERIE_TOKEN": token}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stdout + done.stderr
