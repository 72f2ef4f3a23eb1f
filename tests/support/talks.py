"""Invented conversations for tests of summaries and compaction."""

from __future__ import annotations

from typing import Any

from storage.pipeline.records import MessageRecord
from support.contexts import MORNING, message

MINUTE = 60_000_000

# A good summary contains who moved where and when, her work, and the allergy.
MOVE: tuple[tuple[str, str], ...] = (
    ("Ann", "Hi Ben! How are you?"),
    ("Ben", "Hey! All good here, thanks. What's new with you?"),
    ("Ann", "I moved to Lisbon on 3 May with my sister and our two cats. It was quite a drive!"),
    ("Ben", "Wow, that's great! Do you work there already?"),
    ("Ann", "Yes. Since Monday I work as a marine biologist at the aquarium, and I count seahorses in the estuary."),
    ("Ben", "That sounds so cool."),
    ("Ann", "By the way, I am allergic to peanuts, so please no satay when you visit in July."),
    ("Ben", "Noted! I booked the night train for 12 July."),
    ("Ann", "Great!"),
    ("Ben", "Can't wait!"),
)


def talk(lines: tuple[tuple[str, str], ...] = MOVE, *, at: int = MORNING, **changes: Any) -> list[MessageRecord]:
    """Return messages one minute apart; those of Ben have the role of the assistant."""
    return [
        message(
            number,
            content,
            name=name,
            role="assistant" if name == "Ben" else "user",
            created_at=at + number * MINUTE,
            **changes,
        )
        for number, (name, content) in enumerate(lines)
    ]


def long_talk(days: int, turns: int = 12) -> list[MessageRecord]:
    """Return this many days with this many turns each; every turn has different content."""
    places = ("harbour", "museum", "library", "bakery", "garden", "stadium", "theatre")
    return [
        message(
            day * turns + turn,
            f"On day {day} I visited the {places[(day + turn) % 7]} number {turn} and paid {10 + turn} euros.",
            name="Ann",
            created_at=MORNING + (day * 24 * 60 + turn) * MINUTE,
        )
        for day in range(days)
        for turn in range(turns)
    ]
