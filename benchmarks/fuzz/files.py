"""Odd and damaged files of every kind, read in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.fuzz.damaged import FILES, Damage
from benchmarks.fuzz.sending import Found, Scene
from benchmarks.harness.options import ROOT

_TIMEOUT_SECONDS: Final = 3_600.0


def send_files(scene: Scene, count: int) -> Found:
    """Read files of all kinds, as many of each."""
    found = Found()
    for kind in FILES:
        scene.tell.step(f"files: {kind}")
        each = read_damaged(kind, scene.seed, count // len(FILES))
        found.sent += each.taken + each.refused + len(each.failures)
        found.seconds += each.seconds
        found.outcomes.update({f"{kind} taken": each.taken, f"{kind} refused": each.refused})
        found.failures += each.failures
    return found


def read_damaged(kind: str, seed: int, count: int) -> Damage:
    """Read files of one kind; after one that ends its process, go on with the next."""
    total, first = Damage(), 0
    with tempfile.TemporaryDirectory(prefix="rvf-") as folder:
        at = Path(folder) / "at"
        while first < count:
            argv = [sys.executable, "-m", "benchmarks.fuzz.damaged", kind, "--seed", str(seed), "--at", str(at)]
            argv += ["--first", str(first), "--count", str(count - first)]
            ran = subprocess.run(argv, cwd=ROOT, capture_output=True, check=False, timeout=_TIMEOUT_SECONDS)
            if ran.returncode == 0:
                done = msgspec.json.decode(ran.stdout, type=Damage)
                total.taken += done.taken
                total.refused += done.refused
                total.seconds += done.seconds
                total.failures += done.failures
                break
            number = int(at.read_text()) if at.exists() else count
            end = ran.stderr.decode(errors="replace")[-300:]
            total.failures.append(f"{kind} {number} ended its process with {ran.returncode}: {end}")
            first = number + 1
    return total
