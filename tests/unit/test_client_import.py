"""The client lives in somebody else's process: importing it is cheap, and it never takes their modules for ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import reverie

CLIENT = str(Path(reverie.__file__).parents[1])
SERVER_SIDE = {"cli", "tasks", "storage", "worker", "memory", "retrieval", "adapters", "server", "beat_schedule"}


def in_a_foreign_project(folder: Path, code: str, *arguments: str) -> dict[str, Any]:
    """Run code beside a hostile `tasks.py` and the like; it prints its findings as JSON."""
    for name in SERVER_SIDE:
        (folder / f"{name}.py").write_text("raise SystemExit('the module of the agent was imported')\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REVERIE_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": CLIENT},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_importing_the_client_loads_next_to_nothing(tmp_path: Path) -> None:
    """Given a project with a tasks.py of its own, when it imports reverie, then nothing heavy and nothing of the
    server side is loaded, nor any other module of the client."""
    code = """
        import sys, json
        before = set(sys.modules)
        import reverie
        print(json.dumps({"loaded": sorted(set(sys.modules) - before)}))
    """
    loaded = set(in_a_foreign_project(tmp_path, code)["loaded"])
    heavy = {"torch", "sqlalchemy", "sqlite_vec", "pysqlite3", "celery", "kombu", "redis", "httpx2", "numpy", "msgspec"}
    assert not (heavy | SERVER_SIDE) & loaded
    assert {name for name in loaded if name.partition(".")[0] == "reverie"} == {"reverie"}
    assert len(loaded) < 40, "only what every program of any size has loaded anyway"


def test_a_client_loads_neither_celery_nor_our_server_side(tmp_path: Path) -> None:
    """Given a client over HTTP, when it is made, then no broker library is loaded before it is needed."""
    code = """
        import sys, json
        from reverie import Reverie
        Reverie(agent="ana")
        print(json.dumps({"loaded": sorted(sys.modules)}))
    """
    loaded = set(in_a_foreign_project(tmp_path, code)["loaded"])
    assert not {"torch", "sqlalchemy", "celery", "kombu", "httpx2", *SERVER_SIDE} & loaded


def test_enqueuing_uses_celery_and_leaves_the_process_its_own(
    tmp_path: Path, valkey_url: str, broker_prefix: str
) -> None:
    """Given a project with a Celery app of its own, when messages are enqueued, then that app stays the current one
    and no module of our server side is loaded."""
    code = """
        import sys, json
        from celery import Celery, current_app
        theirs = Celery("theirs")
        from reverie import Reverie
        with Reverie(agent="ana", broker=sys.argv[1], prefix=sys.argv[2]) as memory:
            receipt = memory.ingest("s", {"role": "user", "content": "hello"})
        print(json.dumps({
            "accepted": len(receipt.accepted),
            "current": current_app.main,
            "tasks": [name for name in theirs.tasks if "reverie" in name],
            "loaded": sorted(sys.modules),
        }))
    """
    found = in_a_foreign_project(tmp_path, code, valkey_url, broker_prefix)
    assert found["accepted"] == 1
    assert found["current"] == "theirs"
    assert found["tasks"] == []
    assert not {"torch", "sqlalchemy", "sqlite_vec", *SERVER_SIDE} & set(found["loaded"])
