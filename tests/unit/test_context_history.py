"""What a context tells of the past: what held before, what contradicts it, and the context of an earlier time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.tokens import EstimatedTokens
from retrieval.context.document import past_of
from retrieval.context.write import BuiltContext, build_context
from reverie.clock import to_micros
from storage.recall.chunk_sources import Said
from storage.recall.sameness import contradicts, statement
from storage.sessions.summaries import until_day
from support.contexts import context_request
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import BagOfWords, OneDirection, find
from support.statements import DIFFERENT

MAY, JUNE, JULY = ("2023-05-03T09:30:00Z", "2023-06-10T12:00:00Z", "2023-07-20T08:00:00Z")


def at(moment: str) -> int:
    return to_micros(datetime.fromisoformat(moment))


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline whose session has a turn of May and one of July."""
    made = Pipeline(tmp_path, embedder=BagOfWords())
    made.say({"content": "Hello", "created_at": MAY}, {"content": "Good evening", "created_at": JULY})
    made.settle()
    yield made
    made.close()


@pytest.fixture
def ana(pipe: Pipeline) -> Knowing:
    """What ana knows."""
    return Knowing(pipe.stores, workspace=WORKSPACE)


def context(pipe: Pipeline, query: str | None, **changes: Any) -> BuiltContext:
    """The context of the session, with the account's memories."""
    account = pipe.stores.account_store()
    request = context_request(query, **{"now": pipe.now(), **changes})
    return build_context(
        pipe.store,
        lambda request: find(pipe.store, pipe.embedder, request, account=account),
        EstimatedTokens(),
        request,
        room=10_000,
        refiner=None,
        account=account,
    )


def remembered(built: BuiltContext) -> list[str]:
    """The lines of what is remembered, each with the day that it is told under."""
    section = built.text.partition("## Remembered")[2].partition("## Recent")[0]
    lines, day = [], ""
    for line in re.findall(r"^(?:- .*|\d+ \w{3} \d{4}:)$", section, re.MULTILINE):
        if line.startswith("- "):
            lines.append(f"{day}, {line.removeprefix('- ')}")
        else:
            day = line.removesuffix(":")
    return lines


def test_a_message_that_only_has_an_original_is_no_turn(pipe: Pipeline) -> None:
    """Given a message without content, whose original a framework keeps, then the context tells the others only."""
    pipe.say({"role": "assistant", "content": "", "original": '{"encrypted_content": "gAAAA"}', "created_at": JULY})
    pipe.settle()
    document = context(pipe, None).text
    assert "Good evening" in document
    assert "(nothing)" not in document
    assert "gAAAA" not in document


def test_what_held_before_is_told_as_the_past(pipe: Pipeline, ana: Knowing) -> None:
    """Given a fact with a history, then its line says since when it holds and what held before; others say nothing."""
    ana.set_fact("profile", "city", "Porto", at=at(MAY))
    ana.set_fact("profile", "city", "Lisbon", at=at(JUNE))
    ana.set_fact("city", "tram", "the 28", at=at(JULY))
    pipe.settle()
    built = context(pipe, "city")
    assert remembered(built) == [
        "10 Jun 2023, fact: The city is Lisbon (profile) (agent; since 10 Jun 2023; before that Porto)",
        "20 Jul 2023, fact: The tram is the 28 (city) (agent)",
    ]
    assert built.memories[0].text == "The city is Lisbon (profile)"


def test_the_past_of_the_account_is_told_too(pipe: Pipeline, ana: Knowing) -> None:
    """Given a preference of the account that changed, then what was preferred before is told with it."""
    for moment, drink in ((MAY, "coffee"), (JUNE, "tea")):
        ana.remember(f"Prefers {drink}.", tier="account", kind="preference", subject="drink", at=at(moment))
    pipe.settle()
    account = pipe.stores.account_store()
    ids = [memory.id for memory in _memories(account)]
    assert len(ids) == 1
    with account.reading() as tx:
        histories = tx.for_agent("ana").past_memories.histories(ids)
    assert past_of(histories[ids[0]]) == "since 10 Jun 2023; before that Prefers coffee"


def _memories(store: Any) -> list[Any]:
    with store.reading() as tx:
        return list(tx.for_agent("ana").memories.iterate())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([("Lisbon", JUNE)], ""),
        ([("Lisbon", JULY), ("lisbon.", JUNE), ("Porto", MAY)], "since 10 Jun 2023; before that Porto"),
        ([("Lisbon", JULY), ("Lisbon", JUNE)], ""),
        ([("Lisbon", JUNE), ("Porto", JUNE), ("Faro", MAY)], "at the same time also said: Porto"),
        ([("Lisbon", JUNE), ("#(x)\n" + "y" * 200, MAY)], "since 10 Jun 2023; before that x " + "y" * 117 + "…"),
    ],
)
def test_a_history_is_told_in_a_few_words(said: list[tuple[str, str]], expected: str) -> None:
    """Given histories, then the last other value is told, a repeated one counts from its beginning."""
    assert past_of([Said("m", f"is {value}", value, at(moment)) for value, moment in said]) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("The meeting is on Monday", "The meeting is on Tuesday", True),
        ("The tests must pass before a merge", "The tests must never pass before a merge", True),
        ("The rent is 900 euros", "The rent is 950 euros", True),
        ("The rent is 900 euros", "The rent is 900 euros", False),
        ("Anna owes Ben 5 euros", "Carla owes Dora 7 euros", False),
        ("The flight from Rome to Paris", "The flight from Paris to Rome", False),
    ],
)
def test_statements_contradict_by_numbers_negation_and_opposites(one: str, other: str, expected: bool) -> None:
    """Given pairs with nearly the same vector, then only a number, a negation or an opposite makes a contradiction."""
    assert contradicts(statement(one), statement(other)) is expected


def test_a_value_that_was_replaced_is_told_with_the_day(pipe: Pipeline, ana: Knowing) -> None:
    """Given two current memories with different values, then the older says since when it does not hold."""
    text = "The monthly rent of the old flat by the river is {} euros"
    for moment, rent in ((MAY, 900), (JUNE, 950)):
        ana.remember(text.format(rent), at=at(moment))
    pipe.settle()
    assert remembered(context(pipe, "monthly rent of the flat")) == [
        f"3 May 2023, fact: {text.format(900)} (agent; replaced on 10 Jun 2023)",
        f"10 Jun 2023, fact: {text.format(950)} (agent)",
    ]


def test_memories_that_contradict_each_other_are_both_told(pipe: Pipeline, ana: Knowing) -> None:
    """Given two current memories that differ in a number, then both are told, and the newer one says so."""
    text = "They pay {} euros a month for the old flat by the river"
    for moment, rent in ((MAY, 900), (JUNE, 950)):
        ana.remember(text.format(rent), at=at(moment))
    pipe.settle()
    assert remembered(context(pipe, "monthly rent of the flat")) == [
        f"3 May 2023, fact: {text.format(900)} (agent)",
        f"10 Jun 2023, fact: {text.format(950)} (agent; may contradict that of 3 May 2023)",
    ]


def test_a_context_of_an_earlier_time_is_what_was_known_then(pipe: Pipeline, ana: Knowing) -> None:
    """Given what came later, then neither its turns nor its memories are told, and what was replaced since is."""
    ana.set_fact("profile", "city", "Porto", at=at(MAY))
    ana.set_fact("profile", "city", "Lisbon", at=at(JUNE))
    pipe.say({"content": "The city is loud", "created_at": JULY}, session="other")
    pipe.settle()
    built = context(pipe, "city", until=at(JUNE) - 1)
    assert remembered(built) == ["3 May 2023, fact: The city is Porto (profile) (agent)"]
    assert [message.content for message in built.messages] == ["Hello"]
    assert "- since 3 May 2023 09:30, 1 message, the last at 09:30\n" in built.text
    assert "Lisbon" not in built.text


def test_a_context_from_before_everything_is_empty(pipe: Pipeline, ana: Knowing) -> None:
    """Given a time before the first message, then the document says that nothing fits."""
    ana.set_fact("profile", "city", "Porto", at=at(MAY))
    pipe.settle()
    built = context(pipe, "city", until=at(MAY) - 1)
    assert (built.messages, built.memories) == ([], [])
    assert "0 messages" in built.text
    assert "Nothing else that is stored fits the query." in built.text


def test_a_summary_is_told_up_to_the_day_before() -> None:
    """Given lines of several days, then only those of days that were over are kept, and none without a date."""
    summary = "- 2023-05-03 Ann: One.\n- 2023-05-04 Ann: Two.\nNo date.\n- 2023-05-05 Ann: Three."
    assert until_day(summary, "2023-05-05") == "- 2023-05-03 Ann: One.\n- 2023-05-04 Ann: Two."


@pytest.mark.parametrize("stored", ["messages", "memories"])
def test_what_differs_is_told_twice_and_counted_nowhere(tmp_path: Path, stored: str) -> None:
    """Given agents who know two that contradict each other, however near their vectors are, then both are told, the
    newer one last."""
    pipe = Pipeline(tmp_path, embedder=OneDirection())
    agents = {f"agent-{number}": pair for number, pair in enumerate(DIFFERENT)}
    for agent, pair in agents.items():
        pipe.say({"content": "Hello", "created_at": MAY}, agent=agent)
        knowing = Knowing(pipe.stores, agent=agent, workspace=WORKSPACE)
        for moment, text in zip((MAY, JUNE), pair, strict=True):
            if stored == "messages":
                pipe.say({"content": text, "created_at": moment}, session="other", agent=agent)
            else:
                knowing.remember(text, at=at(moment))
    pipe.settle()
    for agent, (older, newer) in agents.items():
        built = context(pipe, newer, agent=agent)
        told = [one.text for one in sorted(built.memories, key=lambda one: one.created_at)]
        assert (told, built.left_out.duplicates) == ([older, newer], 0), (older, newer)
    pipe.close()


def test_what_is_said_again_is_told_once_as_of_its_last_time(pipe: Pipeline) -> None:
    """Given the same words three times, then the newest is told, and the others are counted."""
    for moment in (MAY, JUNE, JULY):
        pipe.say({"content": "I live on floor 3.", "created_at": moment}, session=f"other-{moment[:7]}")
    pipe.settle()
    built = context(pipe, "floor")
    assert [to_micros(one.created_at) for one in built.memories] == [at(JULY)]
    assert built.left_out.duplicates == 2
