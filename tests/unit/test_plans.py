"""A plan whose day has passed is told as one of then, by every face, and never as something to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.lifecycle.curation import review
from memory.memories.memories import confirm_memory, read_memory
from memory.memories.patterns.statements import find_statements
from memory.upkeep.notebook import Notebooks, _render
from retrieval.context.document import items_of
from reverie.clock import to_micros
from reverie.memories.types import LaterChange, changed_text
from storage.recall.days import end_of, passed_day
from support.contexts import candidate, selected
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import BagOfWords


def day(text: str) -> int:
    return to_micros(datetime.fromisoformat(f"{text}T12:00:00Z"))


# A Friday.
SAID = day("2026-02-06")
LATER = day("2027-06-01")


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("I am going to Lisbon on 3 March.", "2026-03-03"),
        ("User is going to Lisbon on 3 March (3 March 2026).", "2026-03-03"),
        ("We're moving to Bergen in May.", "2026-05-31"),
        ("The deadline for the report is next Friday.", "2026-02-13"),
        ("My husband is away until Sunday.", "2026-02-08"),
        ("My passport expires on 4 June 2026.", "2026-06-04"),
        ("The party is planned for the 21st.", None),
        ("The party is planned for 21 March.", "2026-03-21"),
        ("I've got an exam on 9 March.", "2026-03-09"),
        ("I booked flights for 7 to 14 November.", "2026-11-14"),
        ("I fly on 3 March. I'm back on 9 March.", "2026-03-09"),
        ("I see the dentist on the 9th and the optician on the 12th.", "2026-02-12"),
        ("User asked to remember: my flight leaves on Friday.", None),
        ("User asked to remember: my flight leaves on Monday.", "2026-02-09"),
        ("I'm painting the boat this month.", "2026-02-28"),
        ("This month has been hard for us.", None),
        ("I lost my keys this week.", None),
        ("I moved to Lisbon on 3 March.", None),
        ("I went to Lisbon in May.", None),
        ("I hurt my knee playing football on Thursday.", None),
        ("I have been here since 3 March.", None),
        ("Starting next month I work from home.", None),
        ("My birthday is on 3 May.", None),
        ("Emil's birthday party is on 3 May.", "2026-05-03"),
        ("Grandma is staying from 3 May to 9 May.", "2026-05-09"),
        ("We gave notice on the flat, last day is 31 July.", "2026-07-31"),
        ("The surgery was moved to 13 March.", "2026-03-13"),
        ("From September on I study in Ghent.", None),
        ("User will be head nurse from 1 March (1 March 2026).", None),
        ("User will be head nurse from March (March 2026).", None),
        ("I'm away from the 12th, back on the 14th.", "2026-02-14"),
        ("I play chess every Friday.", None),
        ("I work there on Saturday and Wednesday evening.", None),
        ("No meetings on Friday afternoon, ever.", None),
        ("Never call me on Monday.", None),
        ("I prefer meetings on Monday.", None),
        ("Are you coming on 3 March?", None),
        ("I live in Lisbon.", None),
        ("I ran yesterday and I swim today.", None),
        ("I fly to Rome on 3 March 2199.", None),
        ("It is 31 February.", None),
        ("on 3 March " * 60, None),
    ],
)
def test_a_day_ahead_that_is_over_later_is_found(text: str, passed: str | None) -> None:
    """Given a text said on a day, then what it plans is over after its last day, and after nothing else."""
    found = passed_day(text, SAID, now=LATER)
    assert (found and f"{found:%Y-%m-%d}") == passed


def test_a_plan_is_over_when_its_day_has_ended_everywhere() -> None:
    """Given a plan for a day, then it is one until noon of the next day in UTC, when the day ends in the last zone."""
    text = "I am going to Lisbon on 3 March."
    assert passed_day(text, SAID, now=day("2026-03-04") - 1) is None
    assert passed_day(text, SAID, now=day("2026-03-04")) is not None
    assert passed_day("I fly on 3 March. I'm back on 9 March.", SAID, now=day("2026-03-05")) is None


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path / "data", embedder=BagOfWords())
    yield made
    made.close()


@pytest.mark.parametrize("said", [datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@pytest.mark.parametrize("words", ["next week", "last Friday", "tomorrow", "in May", "on the 31st", "on 9999-12-31"])
def test_days_at_both_ends_of_the_calendar_are_no_obstacle(words: str, said: datetime) -> None:
    """Given a text of the first or the last moment of the calendar, then it is read, and ends by its last moment."""
    text, at = f"My flight leaves {words}.", to_micros(said)
    passed_day(text, at, now=at)
    assert (end_of(text, at) or 0) <= to_micros(datetime.max.replace(tzinfo=UTC))
    find_statements(text, at=at)


def test_recall_says_it_of_memories_and_of_what_users_said(pipe: Pipeline) -> None:
    """Given a plan as a memory, as a message of a user and as one of an assistant, then the first two say it, but
    neither in the past of then."""
    Knowing(pipe.stores, workspace=WORKSPACE).remember("User is going to Lisbon on 3 March.", id="plan", at=SAID)
    at = {"created_at": "2026-02-06T12:00:00Z"}
    pipe.say(
        {"content": "Lisbon on 3 March, I will go.", **at}, {"content": "You go on 3 March.", "role": "assistant", **at}
    )
    pipe.settle()
    found = pipe.recall("going to Lisbon on 3 March", limit=10).results
    assert [(one.role, changed_text(one.changed_since)) for one in found if one.changed_since is not None] == [
        (role, "its day has passed: 3 Mar 2026") for role in (None, "user")
    ]
    before = pipe.recall("going to Lisbon", as_of=datetime.fromisoformat("2026-03-01T00:00:00Z"), limit=10).results
    assert [one.changed_since for one in before] == [None] * 3


def test_the_review_and_the_notebook_say_it_until_it_is_confirmed(pipe: Pipeline) -> None:
    """Given the note of a plan, then both say that its day has passed, and the review no more once it is confirmed."""
    ana = Knowing(pipe.stores, workspace=WORKSPACE)
    note = ana.note("I am going to Lisbon on 3 March.", note_id="lisbon", at=SAID)
    assert review(ana.memories, now=SAID, limit=10).due == []
    assert [one.why for one in review(ana.memories, now=LATER, limit=10).due] == ["its day has passed: 3 Mar 2026"]
    assert (
        "its day has passed: 3 Mar 2026" in _render(pipe.store, "ana", Notebooks(None), LATER).files["notes/lisbon.md"]
    )
    memories = replace(ana.memories, now=LATER)
    assert read_memory(memories, note.id).review == "its day has passed: 3 Mar 2026"
    confirm_memory(memories, note.id, now=LATER)
    assert review(memories, now=LATER, limit=10).due == []
    assert read_memory(memories, note.id).review == ""
    assert "its day has passed" not in _render(pipe.store, "ana", Notebooks(None), LATER).files["notes/lisbon.md"]


def test_a_context_says_it_behind_the_text() -> None:
    """Given a plan in a recall that says that its day has passed, then its line does."""
    one = candidate(1, "I fly on 3 March.", changed_since=LaterChange(id="", text="", at=datetime(2026, 3, 3)))
    (item,) = items_of(selected([], memories=[one]), with_places=False)
    assert item.lines().endswith("I fly on 3 March. (its day has passed: 3 Mar 2026)\n")
