"""The data sets of the benchmarks: conversations, questions, and the turns or sessions with the answers.

LoCoMo (ACL 2024, snap-research/LoCoMo) has evidence by turn; its licence allows evaluation only (CC BY-NC 4.0).
LongMemEval-S, cleaned (ICLR 2025, xiaowu0162/LongMemEval) has questions, each with its own haystack of sessions.
RealMem (ACL 2026, AvatarMemory/RealMemBench) has people who plan with an assistant over months, asking as they go.
The files are only read, and nothing of them is stored in the repository.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
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
class TurnQuestion:
    """A question to one conversation, the ids of the turns with its answer, and the answer."""

    text: str
    category: int
    evidence: frozenset[str]
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation between two people, for an agent of its own. Each turn is one message with the turn's id."""

    haystack: Haystack
    questions: Sequence[TurnQuestion]


def load_locomo(path: Path, *, limit: int | None = None) -> list[Conversation]:
    """Return the conversations of a file, at most `limit`. Raises UnusableData: if the file has another format."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [_conversation(entry) for entry in entries[:limit]]
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


def _conversation(entry: Mapping[str, Any]) -> Conversation:
    messages = list(_turns(entry["conversation"]))
    return Conversation(Haystack(str(entry["sample_id"]), messages), list(_questions(entry["qa"])))


def _turns(conversation: Mapping[str, Any]) -> Iterator[DatasetMessage]:
    for session in sorted(filter(_SESSION.fullmatch, conversation), key=lambda key: (len(key), key)):
        began = datetime.strptime(f"{conversation[f'{session}_date_time']} +0000", f"{_DATE} %z")
        for number, turn in enumerate(conversation[session]):
            speaker = turn["speaker"]
            caption = turn.get("blip_caption")
            text = f"{turn['text']} {caption}" if caption else turn["text"]
            yield DatasetMessage(
                id=turn["dia_id"],
                session=session,
                role="user" if speaker == conversation["speaker_a"] else "assistant",
                content=text,
                name=speaker,
                created_at=began + timedelta(seconds=number),
            )


def _questions(entries: Sequence[Mapping[str, Any]]) -> Iterator[TurnQuestion]:
    for entry in entries:
        evidence = frozenset(_TURN_ID.findall(" ".join(map(str, entry.get("evidence") or []))))
        if int(entry["category"]) != _LEFT_OUT and evidence:
            answer = str(entry.get("answer", ""))
            yield TurnQuestion(entry["question"], int(entry["category"]), evidence, answer)


# Depths in distinct sessions.
FIRST: Final = 5
NDCG_DEPTH: Final = 10
# Suffix of questions that nothing in the haystack answers.
_WITHOUT_ANSWER: Final = "_abs"
# "2023/05/30 (Tue) 23:25": the weekday is redundant and depends on the locale.
_WEEKDAY = re.compile(r"\s*\(.*?\)\s*")


@dataclass(frozen=True, slots=True)
class SessionQuestion:
    """A question, the agent whose memory is its haystack, the sessions with the answer, and the answer."""

    text: str
    kind: str
    haystack: Haystack
    gold: frozenset[str]
    answer: str = ""


def load_longmemeval(path: Path, *, limit: int | None = None, kind: str | None = None) -> list[SessionQuestion]:
    """Return the answerable questions of a file of JSON lines, compressed or not, at most `limit`.

    With `kind`, only the questions of that type.

    Raises UnusableData: if the file has another format.
    """
    try:
        return list(islice((one for one in _session_questions(path) if kind in (None, one.kind)), limit))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnusableData(f"{path} has not the form of LongMemEval: {error!r}") from error


def session_measures(found: Sequence[str], gold: frozenset[str]) -> dict[str, float]:
    """Return all@5 and any@5 (all, or one, of the gold sessions among the first five distinct sessions) and NDCG@10."""
    distinct = list(dict.fromkeys(found))
    hits = gold & set(distinct[:FIRST])
    return {
        f"all_at_{FIRST}": float(hits == gold),
        f"any_at_{FIRST}": float(bool(hits)),
        f"ndcg_at_{NDCG_DEPTH}": _ndcg(distinct, gold),
    }


def _ndcg(distinct: Sequence[str], gold: frozenset[str]) -> float:
    """Return NDCG as in the paper's own code (`src/retrieval/eval_utils.py`): rank 1 in full, rank i by 1 / log2(i)."""
    gains = [1.0 if rank == 1 else 1.0 / math.log2(rank) for rank in range(1, NDCG_DEPTH + 1)]
    reached = sum(gain for gain, session in zip(gains, distinct, strict=False) if session in gold)
    return reached / sum(gains[: len(gold)])


def _session_questions(path: Path) -> Iterator[SessionQuestion]:
    for entry in read_json_lines(path):
        if not entry["question_id"].endswith(_WITHOUT_ANSWER):
            yield _session_question(entry)


def _session_question(entry: Mapping[str, Any]) -> SessionQuestion:
    haystack = Haystack(str(entry["question_id"]), list(_haystack_messages(entry)))
    return SessionQuestion(
        entry["question"],
        entry["question_type"],
        haystack,
        frozenset(map(str, entry["answer_session_ids"])),
        str(entry.get("answer", "")),
    )


def _haystack_messages(entry: Mapping[str, Any]) -> Iterator[DatasetMessage]:
    sessions = zip(entry["haystack_session_ids"], entry["haystack_dates"], entry["haystack_sessions"], strict=True)
    # A session may occur twice in a haystack, at two dates: the position tells its messages apart.
    for place, (session, date, turns) in enumerate(sessions):
        began = datetime.strptime(_WEEKDAY.sub(" ", date), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)
        for number, turn in enumerate(turns):
            if turn["content"].strip():
                yield DatasetMessage(
                    id=f"{place}:{number}",
                    session=str(session),
                    role=turn["role"],
                    content=turn["content"],
                    created_at=began + timedelta(seconds=number),
                )


@dataclass(frozen=True, slots=True)
class PersonQuestion:
    """What a person says in a session, and the earlier sessions that the answer to it uses.

    `earlier` are all sessions before it: what was said later, or in its own session, is not to be found. `before` is
    the last moment before its session.
    """

    text: str
    kind: str
    gold: frozenset[str]
    earlier: frozenset[str]
    before: datetime


@dataclass(frozen=True, slots=True)
class Person:
    """All sessions of one person, which an agent of their own gets, and the questions."""

    haystack: Haystack
    questions: list[PersonQuestion]


def load_realmem(path: Path, *, limit: int | None = None) -> list[Person]:
    """Return the people of a file of JSON lines, compressed or not, at most `limit`.

    Raises UnusableData: if the file has another format.
    """
    try:
        return [_person(entry) for entry in islice(read_json_lines(path), limit)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnusableData(f"{path} has not the form of RealMem: {error!r}") from error


def _person(entry: Mapping[str, Any]) -> Person:
    order = [str(session["id"]) for session in entry["sessions"]]
    questions = []
    for query in entry["queries"]:
        place = order.index(str(query["session"]))
        earlier = frozenset(order[:place])
        gold = frozenset(map(str, query["gold_sessions"])) & earlier
        before = _began(entry["sessions"][place], place) - timedelta(seconds=1)
        if gold:
            questions.append(PersonQuestion(query["text"], str(query.get("category", "")), gold, earlier, before))
    return Person(Haystack(str(entry["person"]), list(_person_messages(entry))), questions)


def _person_messages(entry: Mapping[str, Any]) -> Iterator[DatasetMessage]:
    for place, session in enumerate(entry["sessions"]):
        began = _began(session, place)
        for number, turn in enumerate(session["turns"]):
            if turn["text"].strip():
                yield DatasetMessage(
                    id=f"{session['id']}:{number}",
                    session=str(session["id"]),
                    role=turn["role"],
                    content=turn["text"],
                    created_at=began + timedelta(seconds=number),
                )


def _began(session: Mapping[str, Any], place: int) -> datetime:
    # Only the day is known: the place among the sessions keeps their order within it.
    return datetime.strptime(session["time"], "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(minutes=place)


_GZIP: Final = b"\x1f\x8b"


def read_json_lines(path: Path) -> Iterator[Any]:
    """Yield the value of each line that is not blank. Raises OSError and ValueError."""
    with path.open("rb") as look:
        opened = gzip.open if look.read(2) == _GZIP else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, filter(str.strip, lines))
