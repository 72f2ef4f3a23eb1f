"""MADial-Bench (hejunqing/MADial-Bench): the same memories and dialogues in English and in Chinese.

Each memory is one message of one agent, in a session of its own. The query is the end of a dialogue, in the language
of the memories or in the other one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.haystack import DatasetMessage, Haystack
from benchmarks.harness.options import UnusableData

# Results in which a fitting memory counts as found.
DEPTH: Final = 10
LANGUAGES: Final = ("en", "zh")
_LINES_ASKED: Final = 2


@dataclass(frozen=True, slots=True)
class DialogueEnd:
    """What was said last in a dialogue, and the ids of the memories that fit it."""

    text: str
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class Madial:
    """Memories as haystacks, and the ends of dialogues, both by language."""

    haystacks: Mapping[str, Haystack]
    dialogues: Mapping[str, list[DialogueEnd]]


def load_madial(path: Path, *, dates: bool = True, one_session: bool = False, limit: int | None = None) -> Madial:
    """Return memories and the ends of at most `limit` dialogues. Raises UnusableData if the file has another format."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Madial(
            {name: _haystack(name, content[name], dates, one_session) for name in LANGUAGES},
            {name: [_end(entry) for entry in content[name]["dialogues"][:limit]] for name in LANGUAGES},
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnusableData(f"{path} has not the form of MADial: {error!r}") from error


def _haystack(language: str, entry: Mapping[str, Any], dates: bool, one_session: bool) -> Haystack:
    messages = [
        DatasetMessage(
            id=name,
            session="memories" if one_session else name,
            role="user",
            content=memory["text"],
            created_at=datetime.fromisoformat(memory["time"]).replace(tzinfo=UTC) if dates else None,
        )
        for name, memory in entry["memories"].items()
    ]
    return Haystack(language, messages)


def _end(entry: Mapping[str, Any]) -> DialogueEnd:
    lines = [f"{line['name']}: {line['text']}" for line in entry["lines"][-_LINES_ASKED:]]
    return DialogueEnd("\n".join(lines), frozenset(entry["relevant"]))
