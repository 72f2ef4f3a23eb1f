"""What two made-up people told an assistant, in English, Chinese, Japanese and Korean, with a question about each.

The sentences were written for this repository and say the same in all languages. Each person's are a store, and the
questions about the other person have no answer in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.haystack import DatasetMessage, Haystack

FACT_LANGUAGES: Final = ("en", "zh", "ja", "ko")
_FILE: Final = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement of a person and a question about it, both by language; `id` is that of the message."""

    id: str
    person: str
    messages: Mapping[str, str]
    questions: Mapping[str, str]


def load_facts(limit: int | None = None) -> list[Fact]:
    """Return the facts, of each person at most `limit`."""
    found: list[Fact] = []
    for number, entry in enumerate(json.loads(_FILE.read_text(encoding="utf-8"))):
        if limit is None or sum(fact.person == entry["person"] for fact in found) < limit:
            messages = {language: entry[language][0] for language in FACT_LANGUAGES}
            questions = {language: entry[language][1] for language in FACT_LANGUAGES}
            found.append(Fact(f"fact-{number}", entry["person"], messages, questions))
    return found


def fact_haystacks(facts: Sequence[Fact]) -> list[Haystack]:
    """Return a store for each person and language, in which every statement is a session of its own."""
    people = dict.fromkeys(fact.person for fact in facts)
    return [
        Haystack(
            agent_of(person, language),
            [
                DatasetMessage(id=fact.id, session=fact.id, role="user", content=fact.messages[language])
                for fact in facts
                if fact.person == person
            ],
        )
        for person in people
        for language in FACT_LANGUAGES
    ]


def agent_of(person: str, language: str) -> str:
    """Return the agent that holds what a person said in a language."""
    return f"{person}-{language}"
