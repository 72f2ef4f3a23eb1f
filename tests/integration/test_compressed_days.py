"""Two days of schedules in seconds, with real processes that are killed: each due time is in exactly one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_whatever_is_killed_each_due_time_is_in_exactly_one_run() -> None:
    """Given three beats, two workers and a broker that are killed while two days pass, one of which Lisbon cuts short,
    when all is at rest, then the runs share out a calendar that was computed without them, and all else fits."""
    path = os.pathsep.join([str(ROOT / "client"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "support.compressed_days"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    assert found["due_times"] > found["runs"] > 30
    assert found["webhooks_received"] > 20
    assert found["kills"] >= 8
    assert found["tasks_crashed"] == 0
