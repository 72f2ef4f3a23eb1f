"""Long conversations with an assistant about undertakings of months, and questions about a whole undertaking.

The texts are in `long_histories.toml`: what a person told that was new, step by step, is the evidence of the questions.
Between the steps stand messages that tell nothing new but name the undertaking, the long answers of the assistant, and
everyday questions. A seed decides how all that is interleaved and how long the sessions are.
"""

from __future__ import annotations

import random
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.harness.datasets import Conversation, TurnQuestion
from benchmarks.harness.haystack import DatasetMessage, Haystack

HistoryKind = Literal["order", "summary"]

_TEXTS: Final = Path(__file__).with_suffix(".toml")
_BEGAN: Final = datetime(2025, 1, 7, 18, tzinfo=UTC)
# Exchanges of a message and an answer in one session, and days between two sessions, at most.
_EXCHANGES: Final = 6
_DAYS: Final = 9
# Messages that tell nothing new after each step, and everyday questions, on average.
_TALK: Final = 1.5
_EVERYDAY: Final = 0.5


def load_histories(kind: HistoryKind, *, seed: int) -> list[Conversation]:
    """Return the conversation of each person, with the questions of a kind."""
    texts = tomllib.loads(_TEXTS.read_text(encoding="utf-8"))
    people: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for undertaking in texts["undertaking"]:
        people[undertaking["person"]].append(undertaking)
    return [
        _conversation(person, undertakings, texts, kind, random.Random(f"{seed} {person}"))
        for person, undertakings in people.items()
    ]


def _conversation(
    person: str,
    undertakings: Sequence[Mapping[str, Any]],
    texts: Mapping[str, Sequence[str]],
    kind: HistoryKind,
    chance: random.Random,
) -> Conversation:
    messages = list(_messages(list(_exchanges(undertakings, texts, chance)), chance))
    questions = [
        TurnQuestion(question, 0, frozenset(f"{one['name']}:{number}" for number in range(len(one["steps"]))))
        for one in undertakings
        for question in one[kind]
    ]
    return Conversation(Haystack(person, messages), questions)


def _exchanges(
    undertakings: Sequence[Mapping[str, Any]], texts: Mapping[str, Sequence[str]], chance: random.Random
) -> Iterator[tuple[str, str, str]]:
    """Yield the id and the text of each message of the person, and the answer; steps keep their order."""
    waiting = [(one, list(enumerate(one["steps"]))) for one in undertakings]
    count = 0
    while waiting:
        one, steps = chance.choice(waiting)
        number, step = steps.pop(0)
        yield f"{one['name']}:{number}", step, chance.choice(one["advice"])
        more = [(chance.choice(one["talk"]), one["advice"])] * (chance.random() < _TALK / 2)
        more += [(chance.choice(one["talk"]), one["advice"])] * (chance.random() < _TALK / 2)
        more += [(chance.choice(texts["everyday"]), texts["answers"])] * (chance.random() < _EVERYDAY)
        for text, answers in more:
            count += 1
            yield f"other:{count}", text, chance.choice(answers)
        waiting = [pair for pair in waiting if pair[1]]


def _messages(exchanges: Sequence[tuple[str, str, str]], chance: random.Random) -> Iterator[DatasetMessage]:
    at, left, session = _BEGAN, 0, 0
    for id, text, answer in exchanges:
        if not left:
            session, left = session + 1, chance.randint(1, _EXCHANGES)
            at += timedelta(days=chance.randint(1, _DAYS))
        left -= 1
        for suffix, role, content in (("", "user", text), (":answer", "assistant", answer)):
            at += timedelta(minutes=1)
            content = " ".join(content.split())
            yield DatasetMessage(f"{id}{suffix}", f"chat-{session}", role, content, created_at=at)
