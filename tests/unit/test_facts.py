"""Facts: one value for each category and key, the older ones kept behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.memories.facts import content_of_fact, fact_history, forget_fact, list_facts, read_fact
from memory.memories.memories import forget, memory_stats
from reverie.calls import validated
from reverie.errors import NotFound, Rejected
from reverie.memories.calls import GetFact
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline over an empty data folder."""
    made = Pipeline(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ana(pipe: Pipeline) -> Knowing:
    """What ana knows."""
    return Knowing(pipe.stores, workspace=WORKSPACE)


def test_the_newest_value_stands_and_the_older_are_kept(ana: Knowing) -> None:
    """Given three values in turn, then the last is the fact, and the history has all of them, the newest first."""
    for value in ("Porto", "Lisbon", "Porto"):
        ana.set_fact("profile", "city", value, source="user" if value == "Lisbon" else "agent")
    assert read_fact(ana.memories, "profile", "city").value == "Porto"
    history = fact_history(ana.memories, "profile", "city")
    assert [fact.value for fact in history] == ["Porto", "Lisbon", "Porto"]
    assert [fact.superseded_at is None for fact in history] == [True, False, False]
    assert memory_stats(ana.memories).facts == 1


def test_the_same_value_again_refreshes_the_fact(ana: Knowing) -> None:
    """Given a fact that is said again, then it is the same one, newer; what a person said stays a person's."""
    first = ana.set_fact("profile", "city", "Porto", importance=0.2)
    again = ana.set_fact("profile", "city", "Porto", importance=0.8, tags=["home"], source="user")
    assert (again.id, again.created_at) == (first.id, first.created_at)
    assert (again.importance, again.tags, again.source) == (0.8, ("home",), "user")
    assert again.updated_at > first.updated_at
    assert ana.set_fact("profile", "city", "Porto").source == "user"
    assert len(fact_history(ana.memories, "profile", "city")) == 1


def test_an_explicit_call_may_replace_what_a_person_said(ana: Knowing) -> None:
    """Given a person's fact, when an agent sets it, then the agent's stands; the person's is kept behind it."""
    ana.set_fact("profile", "city", "Porto", source="user")
    ana.set_fact("profile", "city", "Lisbon")
    assert [(fact.value, fact.source) for fact in fact_history(ana.memories, "profile", "city")] == [
        ("Lisbon", "agent"),
        ("Porto", "user"),
    ]


def test_a_fact_is_recalled_by_what_it_says_now(ana: Knowing, pipe: Pipeline) -> None:
    """Given a fact that changed, then the words of its new value find it and those of the old one do not."""
    ana.set_fact("profile", "home_city", "Porto")
    pipe.settle()
    ana.set_fact("profile", "home_city", "Lisbon")
    pipe.settle()
    assert pipe.found("home city") == ["The home city is Lisbon (profile)"]
    assert pipe.found("Porto") == []


@pytest.mark.parametrize(
    ("category", "key", "expected"),
    [
        ("profile", "home_city", "The home city is x (profile)"),
        ("project.atlas", "due", "The due is x (project atlas)"),
        ("_", ".", "The . is x (_)"),
    ],
)
def test_a_fact_says_its_category_and_key(category: str, key: str, expected: str) -> None:
    """Given names as programs write them, then the fact says them as people do."""
    assert content_of_fact(category, key, "x") == expected


def test_facts_are_listed_by_category(ana: Knowing, pipe: Pipeline) -> None:
    """Given facts of two categories and a memory, then each list has its own, the newest first."""
    ana.remember("no fact")
    for category, key in (("a", "1"), ("b", "1"), ("a", "2")):
        ana.set_fact(category, key, "x")
    assert [(f.category, f.key) for f in list_facts(ana.memories, category=None, limit=9, offset=0)] == [
        ("a", "2"),
        ("b", "1"),
        ("a", "1"),
    ]
    assert [f.key for f in list_facts(ana.memories, category="a", limit=1, offset=1)] == ["1"]
    kate = Knowing(pipe.stores, agent="kate", workspace=WORKSPACE)
    assert list_facts(kate.memories, category=None, limit=9, offset=0) == []
    kate.set_fact("a", "1", "hers")
    assert read_fact(ana.memories, "a", "1").value == "x"


def test_deleting_a_fact_leaves_none_of_its_values(ana: Knowing, pipe: Pipeline) -> None:
    """Given a fact with a history beside another, when it is deleted, by its name or its id, then all of it is gone."""
    for delete in ("name", "id"):
        ana.set_fact("a", "kept", "stays")
        ana.set_fact("a", "b", "Porto")
        standing = ana.set_fact("a", "b", "Lisbon")
        pipe.settle()
        assert forget_fact(ana.memories, "a", "b") if delete == "name" else forget(ana.memories, standing.id)
        assert not forget_fact(ana.memories, "a", "b")
        for read in (read_fact, fact_history):
            with pytest.raises(NotFound, match="has no fact a/b"):
                read(ana.memories, "a", "b")
        assert pipe.count("memories") == 1
        assert pipe.found("Lisbon") == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"value": ""}, "value"),
        ({"value": " \n"}, "value"),
        ({"value": "x" * 8_193}, "value"),
        ({"value": 42}, "value"),
        ({"value": "a\x00"}, "value"),
        ({"value": "x", "source": "extraction"}, "source"),
        ({"value": "x", "importance": 2}, "importance"),
        ({"value": "x", "confidence": -1}, "confidence"),
        ({"value": "x", "tags": [""] + [str(n) for n in range(17)]}, "tags"),
        ({"value": "x", "tier": "account"}, "tier"),
    ],
)
def test_a_fact_at_fault_is_refused(ana: Knowing, given: dict[str, Any], field: str) -> None:
    """Given a value that cannot be, then the error names the field, and the fact stays as it was."""
    ana.set_fact("a", "b", "before")
    with pytest.raises(Rejected) as caught:
        ana.set_fact("a", "b", **given)
    assert caught.value.field == field
    assert read_fact(ana.memories, "a", "b").value == "before"


@pytest.mark.parametrize(
    ("category", "key", "field"),
    [
        ("", "k", "category"),
        ("c", " ", "key"),
        ("c" * 129, "k", "category"),
        ("c", "a\tb", "key"),
        (3, "k", "category"),
    ],
)
def test_a_name_at_fault_is_refused(category: Any, key: Any, field: str) -> None:
    """Given a category or a key that cannot be one, then the error names it; blanks around it are taken off."""
    with pytest.raises(Rejected) as caught:
        validated(GetFact(category, key))
    assert caught.value.field == field
    fact = validated(GetFact(" a ", "b "))
    assert (fact.category, fact.key) == ("a", "b")


def test_a_fact_is_changed_under_its_name_alone(ana: Knowing) -> None:
    """Given a fact, when its memory's content is changed, then the error says where to; its importance can be."""
    fact = ana.set_fact("a", "b", "c")
    with pytest.raises(Rejected, match="is the fact a/b: set the value of the fact instead"):
        ana.update(fact.id, content="d")
    assert ana.update(fact.id, importance=0.9).importance == 0.9
