"""The texts for measurements: turns of conversations from a LoCoMo file, or synthetic ones of the same lengths.

Nothing of such a file is stored in the repository: its licence allows evaluation only.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.result import console
from reverie.clock import new_id, now_micros
from reverie.contract import MessagePayload

# Characters of a turn of the development set, at each tenth from the shortest to the longest.
_LENGTH_TENTHS: Final = (5, 54, 70, 84, 98, 113, 131, 152, 176, 218, 434)
_VOCABULARY: Final = """
    the a to and we you it was for that have really just been with about this last week my new they great love so
    think know good time family friends work photo weekend dinner painting garden support plan tomorrow running
    music travel remember wonderful started finally kids book class beach morning excited happy thanks together
"""
_SPEAKERS: Final = ("Ana", "Ben")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation."""

    conversation: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Texts:
    """The turns of a run and their source."""

    turns: Sequence[Turn]
    source: str

    def payloads(self, *, agent: str = "bench") -> list[MessagePayload]:
        """Return each turn as a message with a new id, its conversation as its session."""
        return [payload_of(turn, agent=agent) for turn in self.turns]


def load_texts(path: Path | None, count: int, *, seed: int) -> Texts:
    """Return `count` turns: those of the file, repeated as other conversations, or synthetic ones without a file."""
    if path is not None and path.is_file():
        found = list(_turns_of(json.loads(path.read_text(encoding="utf-8"))))
        source = f"LoCoMo, {path.name}, {len(found)} turns"
    else:
        why = f"no file {path}" if path is not None else "no --data FILE"
        console.print(f"{why}: measuring with made-up turns of the same lengths", markup=False)
        found = list(_made_up(min(count, 3_000), random.Random(seed)))
        source = f"made up, {len(found)} turns"
    turns = []
    for number in range(count):
        turn = found[number % len(found)]
        turns.append(Turn(f"{turn.conversation}#{number // len(found)}", turn.name, turn.text))
    return Texts(turns, source)


def payload_of(turn: Turn, *, agent: str = "bench", label: str = "") -> MessagePayload:
    """Return a turn as a message, as the client creates it; `label` separates the sessions of several rounds."""
    message_id = new_id()
    return MessagePayload(
        id=message_id,
        agent=agent,
        session=turn.conversation + label,
        role="user",
        name=turn.name,
        content=turn.text,
        created_at=now_micros(),
        trace=message_id,
    )


def _turns_of(conversations: Any) -> Iterator[Turn]:
    for entry in conversations:
        sessions = entry["conversation"]
        for key in sorted(sessions, key=lambda name: (len(name), name)):
            if not isinstance(sessions[key], list):
                continue
            for turn in sessions[key]:
                if turn.get("text", "").strip():
                    yield Turn(str(entry["sample_id"]), turn["speaker"], turn["text"])


def _made_up(count: int, chance: random.Random) -> Iterator[Turn]:
    vocabulary = _VOCABULARY.split()
    for number in range(count):
        tenth = chance.randrange(10)
        length = chance.randint(_LENGTH_TENTHS[tenth], _LENGTH_TENTHS[tenth + 1])
        words = [f"{number}:"]
        size = len(words[0])
        while size < length:
            words.append(chance.choice(vocabulary))
            size += len(words[-1]) + 1
        yield Turn(f"made-{number // 600}", _SPEAKERS[number % 2], " ".join(words))
