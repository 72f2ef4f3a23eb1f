"""LoCoMo (ACL 2024, snap-research/LoCoMo): conversations, questions, and the turns with the answers.

Its licence allows evaluation only (CC BY-NC 4.0): the file is only read, and nothing of it is stored in the repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.haystack import DatasetMessage, Haystack
from benchmarks.harness.options import UnusableData

DEPTHS: Final = (5, 10, 20)
# Adversarial questions, about things that were never said.
_LEFT_OUT: Final = 5
# An entry of `evidence` may have several ids in one text, and some have none that can be parsed.
_TURN_ID = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_\d+")
_DATE: Final = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True, slots=True)
class Form:
    """How the conversations are sent: unchanged, or with less information.

    Without names the text begins with the speaker ("Ana: ..."); without dates all messages have the present time; as
    one session the session boundaries are lost.
    """

    names: bool = True
    dates: bool = True
    one_session: bool = False


@dataclass(frozen=True, slots=True)
class TurnQuestion:
    """A question to one conversation, the ids of the turns with its answer, and the answer."""

    text: str
    category: int
    evidence: frozenset[str]
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation between two people: an agent of its own, each turn one message with the turn's id.

    `unanswerable` are questions about things that were never said.
    """

    haystack: Haystack
    questions: Sequence[TurnQuestion]
    unanswerable: Sequence[str] = ()


def load_locomo(path: Path, form: Form, *, limit: int | None = None) -> list[Conversation]:
    """Return the conversations of a file, at most `limit`. Raises UnusableData: if the file has another format."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [_conversation(entry, form) for entry in entries[:limit]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnusableData(f"{path} has not the form of LoCoMo: {error!r}") from error


def turn_measures(found: Sequence[str], evidence: frozenset[str]) -> dict[str, float]:
    """Return any@k and frac@k: whether evidence turns are among the first k, and which share of them."""
    measures = {}
    for depth in DEPTHS:
        hits = len(evidence & set(found[:depth]))
        measures[f"any_at_{depth}"] = float(hits > 0)
        measures[f"frac_at_{depth}"] = hits / len(evidence)
    return measures


def _conversation(entry: Mapping[str, Any], form: Form) -> Conversation:
    messages = list(_turns(entry["conversation"], form))
    unanswerable = [question["question"] for question in entry["qa"] if int(question["category"]) == _LEFT_OUT]
    return Conversation(Haystack(str(entry["sample_id"]), messages), list(_questions(entry["qa"])), unanswerable)


def _turns(conversation: Mapping[str, Any], form: Form) -> Iterator[DatasetMessage]:
    for session in sorted(filter(_SESSION.fullmatch, conversation), key=lambda key: (len(key), key)):
        began = datetime.strptime(f"{conversation[f'{session}_date_time']} +0000", f"{_DATE} %z")
        for number, turn in enumerate(conversation[session]):
            speaker = turn["speaker"]
            caption = turn.get("blip_caption")
            text = f"{turn['text']} {caption}" if caption else turn["text"]
            yield DatasetMessage(
                id=turn["dia_id"],
                session="conversation" if form.one_session else session,
                role="user" if speaker == conversation["speaker_a"] else "assistant",
                content=text if form.names else f"{speaker}: {text}",
                name=speaker if form.names else None,
                created_at=began + timedelta(seconds=number) if form.dates else None,
            )


def _questions(entries: Sequence[Mapping[str, Any]]) -> Iterator[TurnQuestion]:
    for entry in entries:
        evidence = frozenset(_TURN_ID.findall(" ".join(map(str, entry.get("evidence") or []))))
        if int(entry["category"]) != _LEFT_OUT and evidence:
            answer = str(entry.get("answer", ""))
            yield TurnQuestion(entry["question"], int(entry["category"]), evidence, answer)
