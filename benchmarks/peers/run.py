"""Run each peer in a process and environment of its own; one that cannot be measured gives a reason and no figure."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from adapters.embedders.base import DEFAULT_MODEL, EmbedderUnavailable
from adapters.embedders.model_files import find_sentence_transformer

PEERS: Final = ("txtai", "chromadb_batch", "chromadb_single", "langgraph_batch", "langgraph_single", "mem0")
_PROGRAM: Final = Path(__file__).with_name("measure.py")
_TIMEOUT_SECONDS: Final = 1_200


class PeerFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a peer, or why it was not measured."""

    messages: int = 0
    seconds: float = 0.0
    messages_per_second: float = 0.0
    package: str = ""
    search_seconds: list[float] = []
    why_not: str = ""


def run_peer(peer: str, python: Path, texts: Sequence[str], queries: Sequence[str] = ()) -> PeerFigure:
    """Have one peer store the texts and then search for each query, if there are any."""
    if not python.exists():
        return PeerFigure(why_not=f"no peers' Python at {python}: make it with `python -m benchmarks.peers.install`")
    try:
        model = find_sentence_transformer(DEFAULT_MODEL)
    except EmbedderUnavailable as error:
        return PeerFigure(why_not=str(error))
    with tempfile.TemporaryDirectory(prefix="rvb-peer-") as name:
        work = Path(name)
        (work / "texts.json").write_text(json.dumps(list(texts)), encoding="utf-8")
        arguments = ["--texts", work / "texts.json", "--model", model, "--work", work, "--output", work / "out.json"]
        if queries:
            (work / "queries.json").write_text(json.dumps(list(queries)), encoding="utf-8")
            arguments += ["--queries", work / "queries.json"]
        command = [str(python), str(_PROGRAM), peer, *map(str, arguments)]
        try:
            done = subprocess.run(
                command, env=_offline(work), capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return PeerFigure(why_not=f"it took longer than {_TIMEOUT_SECONDS} s")
        if done.returncode or not (work / "out.json").exists():
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return PeerFigure(why_not=lines[-1][:300])
        return msgspec.json.decode((work / "out.json").read_bytes(), type=PeerFigure)


def _offline(home: Path) -> dict[str, str]:
    """Return an environment in which nothing contacts a model hub, sends telemetry, or writes to the user's home
    folder.
    """
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {
        **inherited,
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "ANONYMIZED_TELEMETRY": "False",
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(home / "mem0"),
        "POSTHOG_DISABLED": "1",
    }
