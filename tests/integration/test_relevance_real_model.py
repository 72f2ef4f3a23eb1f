"""Relevance with the real model: what is asked for is found, counts and lasts; fillers and what fits nothing do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

from memory.recall import record_recalls
from memory.upkeep.dream_sweep import dream_sweep
from memory.upkeep.dreaming import DreamRules
from memory.upkeep.notebook import Notebooks
from reverie import Reverie
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime


class Talk(NamedTuple):
    """What was said, by the user and the assistant in turn; questions about one message; and others that none fits."""

    said: Sequence[str]
    asked: Sequence[str]
    about: str
    unanswerable: Sequence[str]


DENTIST = Talk(
    (
        "I have a dentist appointment on Tuesday at four.",
        "Noted.",
        "The cat threw up on the carpet again.",
        "Oh no, poor cat.",
        "My sister is visiting us next weekend.",
        "That sounds lovely.",
        "We ran out of coffee this morning.",
        "OK, thanks.",
        "When is the next train to the airport?",
        "Noted.",
    ),
    (
        "when is my dentist appointment",
        "what did I say about the dentist",
        "dentist on which day?",
        "do I have to see the dentist soon",
        "dental appointment time",
    ),
    "I have a dentist appointment on Tuesday at four.",
    ("walrus", "what do I feed my walrus?", "what is the capital of Mongolia"),
)
RELEASE = Talk(
    (
        "The release of version 3 is planned for the ninth of March.",
        "Got it, I will keep that in mind.",
        "Bert will write the migration guide.",
        "Noted.",
        "Lunch was terrible today.",
        "Sorry to hear that.",
        "I prefer tabs over spaces, as you know.",
        "Sure.",
        "The build server is down again.",
        "OK, thanks.",
        "Can you remind me to call Anna?",
        "Of course.",
    ),
    (
        "when do we release version 3",
        "release date of version 3",
        "what is the date of the version 3 release?",
        "version 3 planned for when",
        "planned release in March",
    ),
    "The release of version 3 is planned for the ninth of March.",
    ("walrus", "how tall is Mount Everest", "what is my blood type"),
)
ALLERGY = Talk(
    (
        "We fly to Porto on 12 June and stay for two weeks.",
        "Sounds great!",
        "I am allergic to peanuts.",
        "Noted.",
        "The garden needs water.",
        "OK.",
        "My bike has a flat tyre.",
        "That is annoying.",
        "Did you know that octopuses have three hearts?",
        "Yes!",
    ),
    (
        "what am I allergic to",
        "any food allergies?",
        "can I eat peanuts",
        "peanut allergy",
        "which nuts am I allergic to",
    ),
    "I am allergic to peanuts.",
    ("walrus", "who won the election", "my bank account number"),
)
TALKS = [DENTIST, RELEASE, ALLERGY]


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime with the default model."""
    return make_runtime(embedding_provider="sentence-transformers")


@pytest.fixture(params=TALKS, ids=["dentist", "release", "allergy"])
def talk(request: pytest.FixtureRequest) -> Talk:
    """One of the conversations."""
    found: Talk = request.param
    return found


@pytest.fixture
def ana(runtime: Runtime, talk: Talk) -> Iterator[Reverie]:
    """A client whose agent had the conversation, and has a new session that begins with a greeting."""
    turns = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(talk.said)]
    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        client.ingest("before", turns)
        client.ingest("now", [{"role": "user", "content": "Hello!"}])
        drain(runtime)
        yield client


def record(runtime: Runtime) -> None:
    runtime.recall_buffer.flush()
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")


def test_what_is_asked_for_is_promoted_and_no_filler(ana: Reverie, runtime: Runtime, talk: Talk) -> None:
    """Given five recalls about one message, then only that one counts as recalled, and a sweep promotes it alone."""
    for query in talk.asked:
        assert next(iter(ana.recall(query))).text == talk.about
    for query in talk.unanswerable:
        ana.recall(query)
    record(runtime)
    hits = [event.query for event in ana.memories.recall_events(limit=100)]
    assert set(hits) == set(talk.asked)

    dream_sweep(runtime.stores, Notebooks(None), rules=DreamRules(), now=runtime.now())
    assert [memory.content for memory in ana.memories.list(source="dream")] == [talk.about]


def test_contexts_promote_no_filler_either(ana: Reverie, runtime: Runtime, talk: Talk) -> None:
    """Given contexts instead of recalls, then they promote the same."""
    for query in (*talk.asked, *talk.unanswerable):
        ana.context("now", query)
    record(runtime)
    dream_sweep(runtime.stores, Notebooks(None), rules=DreamRules(), now=runtime.now())
    assert [memory.content for memory in ana.memories.list(source="dream")] == [talk.about]


def test_a_floor_keeps_what_was_asked_for_and_drops_the_rest(ana: Reverie, talk: Talk) -> None:
    """Given the floor of contexts, then each question finds its message first, and what nothing fits finds nothing."""
    for query in talk.asked:
        found = list(ana.recall(query, min_score=0.05))
        assert found[0].text == talk.about
        assert len(found) <= 2
    for query in talk.unanswerable:
        assert list(ana.recall(query, min_score=0.05)) == []
        assert len(ana.recall(query)) == 5, "without a floor a recall returns the best there is"


def test_a_context_says_that_nothing_fits(ana: Reverie, talk: Talk) -> None:
    """Given a question that nothing fits, then the context has nothing from elsewhere, and says so."""
    for query in talk.unanswerable:
        context = ana.context("now", query)
        assert context.memories == []
        assert "Nothing else that is stored fits the query." in context.text
    context = ana.context("now", talk.asked[0])
    assert talk.about in [memory.text for memory in context.memories]
    assert "Nothing else" not in context.text
    assert not {"Noted.", "OK, thanks.", "OK."} & {memory.text for memory in context.memories}


@pytest.mark.parametrize("filler", ["Of course.", "Noted.", "OK, thanks!", "Sure, let me know."])
def test_an_acknowledgement_is_not_promoted_with_the_question_that_it_follows(runtime: Runtime, filler: str) -> None:
    """Given a filler after a question that is asked again and again, then it is recalled with it, but not promoted."""
    with running_server(runtime) as url, Reverie("ana", url=url) as ana:
        question = "Can you water the tulips on Friday?"
        ana.ingest("s", [{"role": "user", "content": question}, {"role": "assistant", "content": filler}])
        drain(runtime)
        for query in (question, "who waters the tulips on Friday", "the tulips on Friday", "tulips", "watering tulips"):
            ana.recall(query)
        record(runtime)
        assert ana.memories.recall_events()
        counts = dream_sweep(runtime.stores, Notebooks(None), rules=DreamRules(), now=runtime.now())
        assert ana.memories.list() == []
    assert counts["promoted"] == 0
