"""The installed package is found from any folder, whatever lies beside the script that imports it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_clone_beside_a_script_does_not_hide_the_package(tmp_path: Path) -> None:
    """Given a script beside a clone in a folder named `reverie`, then `import reverie` finds the installed client.

    That folder is a namespace package for Python. It wins over an editable install by import hook, and loses against
    one by an entry of sys.path.
    """
    clone = tmp_path / "reverie"
    (clone / "client" / "reverie").mkdir(parents=True)
    (clone / "client" / "reverie" / "__init__.py").write_text("raise SystemExit('the clone was imported')\n")
    (clone / "README.md").write_text("# Reverie\n")
    script = tmp_path / "agent.py"
    script.write_text("from reverie import Reverie\nprint(Reverie.__module__)\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "reverie.client\n"


def test_the_server_needs_what_the_client_code_in_it_needs() -> None:
    """Given the two distributions, then the server's requires every package that the client's does."""
    server = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert set(client["dependencies"]) <= set(server["dependencies"])
    assert not [name for name in server["dependencies"] if name.startswith(client["name"])]
