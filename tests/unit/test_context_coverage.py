"""What makes more fit into a context: excerpts behind the first results, and people's words for a whole history."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from adapters.tokens import EstimatedTokens
from retrieval.context.fit import Fitted, fit
from retrieval.context.links import asks_for_history
from retrieval.context.select import Candidate
from retrieval.context.write import build_context
from retrieval.recaller import Recaller
from support.contexts import candidate, context_request, message, selected
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import BagOfWords

FILLER = "It rained all day and nobody had a coat with a hood."
LANTERN = "The lantern hangs above the door."


def fitted(*memories: Candidate, room: int) -> Fitted:
    """Return the context of these results, for a question about a lantern."""
    selection = replace(selected([message(1, "hello")], memories=list(memories)), query="where is the lantern?")
    return fit(selection, EstimatedTokens(), room=room)


def told(document: Fitted) -> list[str]:
    """Return the texts of the results that are told, best first."""
    return [item.text for item in document.items if item.kind == "memory"]


def test_behind_the_first_third_a_message_is_told_by_its_sentence_on_the_question() -> None:
    """Given more results than fit, then the first is whole, and of others the sentence with most of its words is told,
    with a mark where something is left out; a question of their own is not."""
    text = f"{FILLER} Do you know the lantern? {LANTERN} {FILLER}"
    texts = told(fitted(*(candidate(number, f"{text} {number}.") for number in range(9)), room=300))
    assert texts[0] == f"{text} 0."
    assert len(texts) > 4
    assert set(texts[3:]) == {f"{LANTERN} …"}


def test_the_last_sentence_has_its_mark_before_it() -> None:
    """Given messages that say it last, then the mark stands before the sentence."""
    texts = told(fitted(*(candidate(n, f"{n} {FILLER} {FILLER} {FILLER} {LANTERN}") for n in range(9)), room=300))
    assert texts[-1] == f"… {LANTERN}"


def test_what_fits_whole_is_told_whole() -> None:
    """Given room for all results, then none is shortened."""
    texts = [f"{FILLER} {LANTERN} {number} {FILLER}" for number in range(9)]
    assert told(fitted(*map(candidate, range(9), texts), room=2_000)) == texts


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_only_messages_are_shortened(kind: str) -> None:
    """Given memories or files of several sentences, then as many as fit are told whole."""
    texts = [f"{FILLER} {LANTERN} {number} {FILLER}" for number in range(9)]
    shown = told(fitted(*(candidate(n, one, kind=kind, role=None) for n, one in enumerate(texts)), room=300))
    assert shown == texts[: len(shown)]


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        ("In which order did I bring up the parts of my thesis?", True),
        ("Can you summarise the renovation?", True),
        ("How has my garden progressed over time?", True),
        ("Give me a timeline of the trip.", True),
        ("What happened first, and what came next?", True),
        ("When did we order the sofa?", False),
        ("What do I need in order to renew my passport?", False),
        ("Can you summarise the advice you gave me on the garden?", False),
        ("Where does Ann live?", False),
        ("Good summary! " + "Now let us go on with the plan. " * 9, False),
    ],
)
def test_a_question_over_a_whole_history_is_known_by_its_words(question: str, is_asked: bool) -> None:
    """Given questions for an order or a summary, for one thing, for the assistant's words, and a turn of a talk."""
    assert asks_for_history(question) is is_asked


def test_a_whole_history_is_told_in_the_words_of_people(tmp_path: Path) -> None:
    """Given steps that hardly name the subject among answers that repeat it, then a small context has all steps; for
    another question about the subject it has the best results."""
    pipe = Pipeline(tmp_path, embedder=BagOfWords())
    pipe.say("hello", session="s")
    steps = [f"The {part} of the model is glued." for part in ("hull", "mast", "deck", "keel", "sail", "anchor")]
    answers = [f"A model of a harbour, model {n}, takes time." for n in range(30)]
    pipe.say(*steps, session="told")
    pipe.say(*({"role": "assistant", "content": answer} for answer in answers), session="told")
    pipe.settle()
    recall = Recaller(pipe.stores, lambda tx: pipe.embedder, pipe.indexes).recall
    build = partial(build_context, pipe.store, partial(recall, WORKSPACE), EstimatedTokens(), room=400, refiner=None)

    def texts(question: str) -> list[str]:
        request = context_request(question, now=pipe.now(), memory_tokens=400, max_memories=100)
        return [memory.text for memory in build(request=request).memories]

    assert set(steps) <= set(texts("Summarise my harbour model"))
    assert not set(steps) <= set(texts("Describe my harbour model"))
    pipe.close()
