"""Two days of schedules in seconds, with real processes that are killed: each due time is in exactly one run.

It is the small form of `python -m benchmarks.calendar`, which does the same for ten days.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def test_whatever_is_killed_each_due_time_is_in_exactly_one_run(tmp_path: Path) -> None:
    """Given three beats, two workers and a broker that are killed while two days pass, one of which Lisbon cuts short,
    when all is at rest, then the runs share out a calendar that was computed without them, and all else fits."""
    code, output, result = two_days(tmp_path / "calendar.json")

    assert code == 0, output
    assert [goal["what"] for goal in result["goals"] if goal["figure"] != 0] == []
    figures = result["figures"]
    assert figures["due_times"] > figures["runs"] > 30
    assert figures["webhooks_received"] > 20
    assert figures["kills"] >= 8
    assert figures["tasks_crashed"] == 0


def two_days(output: Path) -> tuple[int, str, dict[str, Any]]:
    """Have two days pass; returns the exit code, what was said, and the result."""
    path = os.pathsep.join([str(ROOT / "client"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.calendar", "--quick", "--output", str(output)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    result = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    return done.returncode, done.stdout + done.stderr, result
