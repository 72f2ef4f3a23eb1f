"""Notes that an agent takes while it works: the observations that LoCoMo has for each session.

Each is stored as an agent would store it: with an importance, in a tier, some for a few days only, and some twice.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reverie.memories.types import MemoryKind, Tier

_TURN_ID: Final = re.compile(r"D\d+:\d+")
# How an agent may distribute its notes: most about the project, some about one topic, a few for everywhere.
_TIERS: Final[Sequence[tuple[float, Tier]]] = ((0.62, "workspace"), (0.9, "channel"), (0.96, "conversation"))
_CHANNEL: Final = "together"
_SHORT_LIVED: Final = 0.12
_LONGEST_DAYS: Final = 12
_NOTED_TWICE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Observation:
    """One note. `expires_days` and `again_days` count from the day of the session; None means never."""

    text: str
    source_message: str
    tier: Tier
    kind: MemoryKind
    importance: float
    channel: str | None
    expires_days: int | None
    again_days: int | None


def load_observations(path: Path, seed: int) -> dict[str, dict[str, list[Observation]]]:
    """Return the observations by conversation and session; empty if the file has none.

    Raises ValueError: for another format.
    """
    chance = random.Random(seed)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {str(entry["sample_id"]): dict(_sessions(entry, chance)) for entry in entries}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} has not the form of LoCoMo: {error!r}") from error


def _sessions(entry: Mapping[str, Any], chance: random.Random) -> Iterator[tuple[str, list[Observation]]]:
    for name, speakers in entry.get("observation", {}).items():
        noted = [
            _observation(text, _TURN_ID.findall(str(evidence))[0], chance)
            for lines in speakers.values()
            for text, evidence in lines
            if _TURN_ID.findall(str(evidence))
        ]
        yield name.removesuffix("_observation"), noted


def _observation(text: str, source: str, chance: random.Random) -> Observation:
    draw = chance.random()
    tier: Tier = next((tier for share, tier in _TIERS if draw < share), "account")
    return Observation(
        text=text,
        source_message=source,
        tier=tier,
        kind="preference" if tier == "account" else "fact",
        importance=round(chance.uniform(0.05, 0.7), 2),
        channel=_CHANNEL if tier == "channel" else None,
        expires_days=chance.randint(2, _LONGEST_DAYS) if chance.random() < _SHORT_LIVED else None,
        again_days=chance.randint(1, 4) if chance.random() < _NOTED_TWICE else None,
    )
