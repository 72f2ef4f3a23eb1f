"""A context follows what its best texts name, when a question describes somebody instead of naming them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from adapters.tokens import EstimatedTokens
from retrieval.context.links import searches_for, with_diets
from retrieval.context.write import build_context
from retrieval.query import RecallRequest
from retrieval.recaller import Recaller, RecallOutcome
from support.contexts import context_request
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import BagOfWords

FACTS = (
    "The lighthouse of Tarn was designed by Mira Olsen.",
    "Mira Olsen is married to Piet Haan.",
    "Piet Haan lives in Delft.",
    *(f"The lighthouse of Port {number} was painted by somebody who lives there." for number in range(30)),
    *(f"The spouse of nobody in particular bought lamp {number}." for number in range(30)),
)
ASKED = "Where does the spouse of the designer of the lighthouse of Tarn live?"


@pytest.mark.parametrize(
    ("question", "searches"),
    [
        (ASKED, 3),
        ("What is the capital of the country that Ann comes from?", 3),
        ("Which country does the current head of Acme live in?", 1),
        ("What is the capital of Peru?", 0),
        ("Where does Ann's sister live?", 0),
        ("when did we go to the harbour?", 0),
        ("", 0),
    ],
)
def test_a_question_that_describes_what_it_asks_about_needs_more_searches(question: str, searches: int) -> None:
    """Given questions with one description inside another, or a description that is not itself asked for, or none."""
    assert searches_for(question) == searches


def test_what_the_first_texts_name_is_followed(tmp_path: Path) -> None:
    """Given an answer two names away from the question, then a small context has the whole chain, in three searches."""
    pipe = Pipeline(tmp_path, embedder=BagOfWords())
    pipe.say("hello", session="s")
    pipe.say(*FACTS, session="told")
    pipe.settle()
    recaller = Recaller(pipe.stores, lambda tx: pipe.embedder, pipe.indexes)
    modes: list[str] = []

    def recall(request: RecallRequest) -> RecallOutcome:
        modes.append(request.mode)
        return recaller.recall(WORKSPACE, request)

    build = partial(build_context, pipe.store, recall, EstimatedTokens(), room=400, refiner=None)
    document = build(request=context_request(ASKED, now=pipe.now(), memory_tokens=400)).text
    assert all(fact in document for fact in FACTS[:3])
    assert modes == ["hybrid", "keyword", "keyword", "keyword"]
    modes.clear()
    build(request=context_request("Who painted lighthouses?", now=pipe.now()))
    assert modes == ["hybrid"]
    pipe.close()


@pytest.mark.parametrize(
    ("said", "query", "told"),
    [
        (("Nora is vegan",), "Suggest a restaurant for Nora and me", True),
        (("Nora is vegan",), "Suggest a present for Nora and me", False),
        (("Nora is vegan",), "Suggest a restaurant for Piet and me", False),
        (("my wife is coeliac",), "What should I cook for us tonight?", True),
        (("My daughter has a nut allergy",), "a cake for my daughter, please", True),
        (("Nora can't have dairy",), "Where could Nora and I have lunch?", True),
        (("Lunch with Tom, a vegan, was long",), "Where could Nora and I have lunch?", False),
        (("Tom's vegan",), "Where could Nora's parents have lunch?", False),
        (("Is Nora vegan?",), "Suggest a restaurant for Nora and me", False),
        (("I never eat at my desk",), "What should we cook?", False),
        (("Nora is vegan",), "Where did Nora and I have lunch on the first day?", False),
    ],
)
def test_what_the_others_do_not_eat_is_in_the_context_of_a_request_for_food(
    tmp_path: Path, said: tuple[str, ...], query: str, told: bool
) -> None:
    """Given many texts about the same people, then the diet is among them if the request is about food for them."""
    pipe = Pipeline(tmp_path, embedder=BagOfWords())
    pipe.say("hello", session="s")
    pipe.say(*said, {"role": "tool", "name": "fetch", "content": "Nora is vegan and eats at Inn 5"}, session="told")
    people = ("Nora and I", "Piet and I", "My wife and I", "My daughter and I")
    pipe.say(*(f"{who} went to restaurant {number} for lunch" for who in people for number in range(9)), session="more")
    pipe.settle()
    recaller = Recaller(pipe.stores, lambda tx: pipe.embedder, pipe.indexes)
    request = context_request(query, now=pipe.now(), memory_tokens=150, min_best=0.05)
    recall = partial(recaller.recall, WORKSPACE)
    document = build_context(pipe.store, recall, EstimatedTokens(), room=200, refiner=None, request=request).text
    assert all(one in document for one in said) is told
    assert "Inn 5" not in document, "a tool's words are no person's"
    pipe.close()


def test_a_diet_takes_no_place_of_what_fits(tmp_path: Path) -> None:
    """Given a recall whose best result is little relevant, then a diet before it is not more relevant than that."""
    pipe = Pipeline(tmp_path, embedder=BagOfWords())
    pipe.say("Nora is vegan", "Nora and I liked the Old Mill")
    pipe.settle()
    recaller = Recaller(pipe.stores, lambda tx: pipe.embedder, pipe.indexes)
    requests = [RecallRequest(query=one, agent="ana", limit=1) for one in ("vegan", "Old Mill")]
    diet, place = (recaller.recall(WORKSPACE, request) for request in requests)
    little = replace(place, hits=tuple(hit._replace(relevance=0.02) for hit in place.hits))
    for least, texts in ((0.01, ["Nora is vegan", "Nora and I liked the Old Mill"]), (0.1, ["Nora is vegan"])):
        found = with_diets("A restaurant for Nora", little, lambda _: diet, least=least)
        assert [result.text for result in found.response.results] == texts
        assert found.hits[0].relevance == max(0.02, least)
    pipe.close()
