"""What the floor of relevance leaves in a context, by language: of questions with an answer, and of those without.

A context is empty if nothing that is stored is relevant enough. In a language that a model hardly knows, either
everything is, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Final

from rich.table import Table

from benchmarks.harness.figures import rounded
from benchmarks.harness.haystack import ask, client_of
from benchmarks.harness.made_up_facts import FACT_LANGUAGES, Fact, agent_of
from benchmarks.harness.madial import LANGUAGES, Madial
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Result, console, shown
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.recall.types import Context

_SESSION: Final = "asking-now"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question to an agent, and the ids of the messages that answer it: none, if it has no answer there."""

    agent: str
    text: str
    fitting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GateRow:
    """Percentages of one pair of languages.

    `right` are the questions with an answer whose answer is in the context, `others` the questions without one for
    which the context holds something.
    """

    stored: str
    asked: str
    right: float
    others: float


def facts_gate(stack: Stack, workspace: str, facts: Sequence[Fact], tell: Progress) -> list[GateRow]:
    """Ask each person's store in each language about that person, and about the other."""
    people = list(dict.fromkeys(fact.person for fact in facts))
    pairs = list(product(FACT_LANGUAGES, FACT_LANGUAGES))
    _greet(stack, workspace, [agent_of(person, language) for person in people for language in FACT_LANGUAGES])
    rows = []
    for stored, asked in pairs:
        own = [_Asked(agent_of(fact.person, stored), fact.questions[asked], frozenset({fact.id})) for fact in facts]
        others = [
            _Asked(agent_of(person, stored), fact.questions[asked])
            for person, fact in product(people, facts)
            if fact.person != person
        ]
        rows.append(_row(stack, workspace, (stored, asked), own, others, tell))
    return rows


def madial_gate(stack: Stack, workspace: str, madial: Madial, facts: Sequence[Fact], tell: Progress) -> list[GateRow]:
    """Ask the memories of MADial in each language by its dialogues, and by questions about made-up people."""
    _greet(stack, workspace, [haystack.agent for haystack in madial.haystacks.values()])
    rows = []
    for stored, asked in product(LANGUAGES, LANGUAGES):
        own = [_Asked(stored, end.text, end.relevant) for end in madial.dialogues[asked] if end.relevant]
        others = [_Asked(stored, fact.questions[asked]) for fact in facts]
        rows.append(_row(stack, workspace, (stored, asked), own, others, tell))
    return rows


def add_gate(result: Result, name: str, rows: Sequence[GateRow]) -> None:
    """Add the rows to a result, and print them."""
    table = Table(title=f"{name}: what is left in a context, percent", title_justify="left", header_style="bold")
    for column in ("stored", "asked", "right", "others"):
        table.add_column(column, justify="right" if column in ("right", "others") else "left")
    for row in rows:
        table.add_row(row.stored, row.asked, shown(row.right), shown(row.others))
        result.add(f"{name}_{row.stored}_by_{row.asked}_right", row.right, "%")
        result.add(f"{name}_{row.stored}_by_{row.asked}_others", row.others, "%")
    console.print(table)


def _row(
    stack: Stack,
    workspace: str,
    pair: tuple[str, str],
    own: Sequence[_Asked],
    others: Sequence[_Asked],
    tell: Progress,
) -> GateRow:
    contexts = ask(stack, workspace, [(one.agent, one) for one in (*own, *others)], _context, tell)
    right = [
        bool(one.fitting & {memory.id for memory in context.memories})
        for one, context in zip(own, contexts, strict=False)
    ]
    something = [bool(context.memories) for context in contexts[len(own) :]]
    return GateRow(*pair, rounded(100 * fmean(right)), rounded(100 * fmean(something)))


def _context(client: Reverie, question: _Asked) -> Context:
    return client.context(_SESSION, question.text)


def _greet(stack: Stack, workspace: str, agents: Sequence[str]) -> None:
    """Begin a session of each agent, in which it asks for contexts."""
    for agent in agents:
        with client_of(stack, agent, workspace) as client:
            client.ingest(_SESSION, {"id": "greeting", "role": "user", "content": "Hello!"}, wait="searchable")
