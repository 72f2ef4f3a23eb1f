"""RealMem (ACL 2026, AvatarMemory/RealMemBench): people who plan with an assistant over months, asking as they go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harness.haystack import DatasetMessage, Haystack
from benchmarks.harness.json_lines import read_json_lines
from benchmarks.harness.options import UnusableData


@dataclass(frozen=True, slots=True)
class PersonQuestion:
    """What a person says in a session, and the earlier sessions that the answer to it uses.

    `earlier` are all sessions before it: what was said later, or in its own session, is not to be found. `before` is
    the last moment before its session; None if dates are left out.
    """

    text: str
    kind: str
    gold: frozenset[str]
    earlier: frozenset[str]
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Person:
    """All sessions of one person, an agent of its own, and the questions."""

    haystack: Haystack
    questions: list[PersonQuestion]


def load_realmem(path: Path, *, dates: bool = True, limit: int | None = None) -> list[Person]:
    """Return the people of a file of JSON lines, compressed or not, at most `limit`.

    Raises UnusableData: if the file has another format.
    """
    try:
        return [_person(entry, dates) for entry in islice(read_json_lines(path), limit)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnusableData(f"{path} has not the form of RealMem: {error!r}") from error


def _person(entry: Mapping[str, Any], dates: bool) -> Person:
    order = [str(session["id"]) for session in entry["sessions"]]
    questions = []
    for query in entry["queries"]:
        place = order.index(str(query["session"]))
        earlier = frozenset(order[:place])
        gold = frozenset(map(str, query["gold_sessions"])) & earlier
        before = _began(entry["sessions"][place], place) - timedelta(seconds=1) if dates else None
        if gold:
            questions.append(PersonQuestion(query["text"], str(query.get("category", "")), gold, earlier, before))
    return Person(Haystack(str(entry["person"]), list(_messages(entry, dates))), questions)


def _messages(entry: Mapping[str, Any], dates: bool) -> Iterator[DatasetMessage]:
    for place, session in enumerate(entry["sessions"]):
        began = _began(session, place)
        for number, turn in enumerate(session["turns"]):
            if turn["text"].strip():
                yield DatasetMessage(
                    id=f"{session['id']}:{number}",
                    session=str(session["id"]),
                    role=turn["role"],
                    content=turn["text"],
                    created_at=began + timedelta(seconds=number) if dates else None,
                )


def _began(session: Mapping[str, Any], place: int) -> datetime:
    # Only the day is known: the place among the sessions keeps their order within it.
    return datetime.strptime(session["time"], "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(minutes=place)
