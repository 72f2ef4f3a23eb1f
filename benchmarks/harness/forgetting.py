"""ForgetEval (arXiv 2606.15903): is what was to be forgotten still there, and is anything else gone?

`python -m benchmarks.harness.forgetting FILE` asks the finder of `reverie forget --about` for each purge and release.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from memory.lifecycle.about import Said, find_about


def measure(path: Path) -> dict[str, float]:
    """Return the shares of cases in which something of `must_not` is left, and in which something of `must` is gone."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    turns = {one["context"]: one["turns"] for one in records if one["type"] == "context"}
    cases = still_there = wrongly_gone = 0
    for case in (one for one in records if one["type"] == "case"):
        before = [turn for turn in turns[case["context"]] if turn["i"] <= case["after"]]
        targets = [turn["target"] for turn in before if turn["op"] in ("purge", "release")]
        if not targets:
            continue
        said = [
            Said("message", str(turn["i"]), "", "user", "", turn["text"], turn["i"])
            for turn in before
            if turn["op"] in ("add", "supersede")
        ]
        gone = {found.id for target in targets for found, _ in find_about(target, lambda said=said: said).items}  # type: ignore[misc]
        left = "\n".join(one.content for one in said if one.id not in gone)
        cases += 1
        still_there += any(text in left for text in case["must_not"])
        wrongly_gone += not all(any(text in left for text in texts) for texts in case["must"])
    return {"cases": cases, "still_there": still_there / cases, "wrongly_gone": wrongly_gone / cases}


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
