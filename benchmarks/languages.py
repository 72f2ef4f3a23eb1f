"""Measure recall in English, in Chinese, and from one to the other, with each local model: MADial-Bench.

Every memory is ingested as a message, and every end of a dialogue goes through `client.recall`. Each model has a stack
of its own. Options name the data file, which is only read. Of MADial, and of statements of made-up people in four
languages, it is also measured what is left in contexts of questions with an answer, and without one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.table import Table

from adapters.embedders.base import DEFAULT_MODEL
from benchmarks.harness.figures import rounded
from benchmarks.harness.haystack import ask, take_up
from benchmarks.harness.language_gate import add_gate, facts_gate, madial_gate
from benchmarks.harness.made_up_facts import fact_haystacks, load_facts
from benchmarks.harness.madial import DEPTH, LANGUAGES, DialogueEnd, Madial, load_madial
from benchmarks.harness.options import parser, run
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, console, settings_of, shown
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.recall.types import RecallResponse

MULTILINGUAL: Final = "multilingual"
_DEFAULT: Final = "default"
_QUICK_DIALOGUES: Final = 2
_QUICK_FACTS: Final = 2
# Points that the multilingual model may lose against English asked in English.
SAME_LANGUAGE_LOSS: Final = 3.0
ACROSS_LOSS: Final = 10.0


def main() -> None:
    """Measure and write the result."""
    options = _options()
    result = Result(benchmark="languages", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    madial = None
    if options.madial is None or not options.madial.is_file():
        why = (
            f"madial is not measured: {f'there is no file {options.madial}' if options.madial else 'no --madial FILE'}"
        )
        console.print(why, markup=False)
        result.notes.append(why)
    else:
        limit = _QUICK_DIALOGUES if options.quick else None
        madial = load_madial(options.madial, one_session=options.one_session, limit=limit)
    for model in options.models:
        _measure(model, madial, options, result, Progress())
    _add_goals(result)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("languages", __doc__, data=False)
    options.add_argument("--madial", type=Path, help="MADial-Bench in two languages as JSON")
    options.add_argument("--models", nargs="+", default=[DEFAULT_MODEL, MULTILINGUAL], help="the embedding models")
    options.add_argument("--mode", nargs="+", default=[], help="also measure these modes: keyword, vector")
    options.add_argument("--one-session", action="store_true", help="store the memories of a language in one session")
    return options.parse_args()


def _measure(model: str, madial: Madial | None, options: argparse.Namespace, result: Result, tell: Progress) -> None:
    facts = load_facts(_QUICK_FACTS if options.quick else None)
    with Stack(env={"REVERIE_EMBEDDING_MODEL": model}) as stack:
        if not stack.wait_server():
            raise RuntimeError("the server does not answer: recall goes over HTTP, so nothing can be measured")
        result.settings[f"embedder {model}"] = stack.embedder
        if madial is not None:
            _measure_madial(stack, model, madial, options.mode, result, tell)
            add_gate(result, f"{model}_madial", madial_gate(stack, "madial", madial, facts, tell))
        take_up(stack, "facts", fact_haystacks(facts), tell)
        add_gate(result, f"{model}_facts", facts_gate(stack, "facts", facts, tell))


def _measure_madial(stack: Stack, model: str, madial: Madial, modes: list[str], result: Result, tell: Progress) -> None:
    haystacks = list(madial.haystacks.values())
    seconds = take_up(stack, "madial", haystacks, tell)
    messages = sum(len(haystack.messages) for haystack in haystacks)
    result.add(f"{model}_ingest", rounded(messages / seconds), "messages/s")
    for mode in [_DEFAULT, *modes]:
        found = {pair: _any(stack, madial, pair, mode, result, tell) for pair in product(LANGUAGES, LANGUAGES)}
        for (stored, asked), percent in found.items():
            result.add(_figure(model, stored, asked, mode), percent, "%")
        _print(model, mode, found)


def _any(stack: Stack, madial: Madial, pair: tuple[str, str], mode: str, result: Result, tell: Progress) -> float:
    """Return the percentage of the dialogues with a fitting memory among the first ten."""
    stored, asked = pair
    options: dict[str, Any] = {} if mode == _DEFAULT else {"mode": mode}

    def call(client: Reverie, end: DialogueEnd) -> RecallResponse:
        return client.recall(end.text, limit=DEPTH, **options)

    ends = [end for end in madial.dialogues[asked] if end.relevant]
    answers = ask(stack, "madial", [(stored, end) for end in ends], call, tell)
    degraded = [answer.degraded for answer in answers if answer.degraded]
    if degraded:
        result.notes.append(f"{stored} by {asked}: {len(degraded)} responses were degraded: {degraded[0]}")
    hits = [bool(end.relevant & {found.id for found in answer}) for end, answer in zip(ends, answers, strict=True)]
    return rounded(100 * fmean(hits))


def _figure(model: str, stored: str, asked: str, mode: str = _DEFAULT) -> str:
    return f"{model}_{stored}_by_{asked}_any_at_{DEPTH}" + ("" if mode == _DEFAULT else f" ({mode})")


def _add_goals(result: Result) -> None:
    english = result.figures.get(_figure(MULTILINGUAL, "en", "en"))
    for stored, asked, loss in _losses():
        figure = result.figures.get(_figure(MULTILINGUAL, stored, asked))
        lost = None if english is None or figure is None else rounded(english - figure)
        result.goals.append(
            Goal(
                what=f"multilingual, {stored} memories by {asked} dialogues, any@{DEPTH}: points below en by en",
                relation="<=",
                goal=loss,
                figure=lost,
                unit="points",
                note="" if lost is not None else "the multilingual model was not measured",
            )
        )


def _losses() -> Iterator[tuple[str, str, float]]:
    for stored, asked in product(LANGUAGES, LANGUAGES):
        if (stored, asked) != ("en", "en"):
            yield stored, asked, SAME_LANGUAGE_LOSS if stored == asked else ACROSS_LOSS


def _print(model: str, mode: str, found: dict[tuple[str, str], float]) -> None:
    table = Table(title=f"{model}, {mode}: any@{DEPTH}, percent", title_justify="left", header_style="bold")
    table.add_column("memories")
    for asked in LANGUAGES:
        table.add_column(f"by {asked}", justify="right")
    for stored in LANGUAGES:
        table.add_row(stored, *(shown(found[stored, asked]) for asked in LANGUAGES))
    console.print(table)


if __name__ == "__main__":
    run(main)
