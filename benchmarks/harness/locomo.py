"""LoCoMo (ACL 2024, snap-research/LoCoMo): conversations, questions, and the turns that hold the answers.

Its licence allows evaluation only (CC BY-NC 4.0): the file is read where it lies and nothing of it is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.haystack import Haystack, Said
from benchmarks.harness.options import UnusableData

DEPTHS: Final = (5, 10, 20)
# Adversarial: what is asked for was never said.
_LEFT_OUT: Final = 5
# An entry of `evidence` may hold several ids in one text, and some hold none that can be read.
_TURN_ID = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_\d+")
_DATE: Final = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True, slots=True)
class Form:
    """How the conversations are handed over: as they are, or with less than they hold.

    Without names the text itself says who speaks ("Ana: ..."); without dates everything is said now; as one
    session the breaks between sessions are lost.
    """

    names: bool = True
    dates: bool = True
    one_session: bool = False


@dataclass(frozen=True, slots=True)
class TurnQuestion:
    """A question to one conversation, and the ids of the turns that hold its answer."""

    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation between two people: an agent of its own, each turn one message whose id is the turn's."""

    haystack: Haystack
    questions: Sequence[TurnQuestion]


def load_locomo(path: Path, form: Form, *, limit: int | None = None) -> list[Conversation]:
    """The conversations of a file, the first `limit` of them. Raises `UnusableData` for a file of another form."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [_conversation(entry, form) for entry in entries[:limit]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnusableData(f"{path} has not the form of LoCoMo: {error!r}") from error


def turn_measures(found: Sequence[str], evidence: frozenset[str]) -> dict[str, float]:
    """any@k: at least one evidence turn among the first k found. frac@k: the share of the evidence turns there."""
    measures = {}
    for depth in DEPTHS:
        there = len(evidence & set(found[:depth]))
        measures[f"any_at_{depth}"] = float(there > 0)
        measures[f"frac_at_{depth}"] = there / len(evidence)
    return measures


def _conversation(entry: Mapping[str, Any], form: Form) -> Conversation:
    said = list(_turns(entry["conversation"], form))
    return Conversation(Haystack(str(entry["sample_id"]), said), list(_questions(entry["qa"])))


def _turns(conversation: Mapping[str, Any], form: Form) -> Iterator[Said]:
    for session in sorted(filter(_SESSION.fullmatch, conversation), key=lambda key: (len(key), key)):
        began = datetime.strptime(f"{conversation[f'{session}_date_time']} +0000", f"{_DATE} %z")
        for number, turn in enumerate(conversation[session]):
            speaker = turn["speaker"]
            caption = turn.get("blip_caption")
            text = f"{turn['text']} {caption}" if caption else turn["text"]
            yield Said(
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
            yield TurnQuestion(entry["question"], int(entry["category"]), evidence)
