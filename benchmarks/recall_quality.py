"""Measure whether recall finds what was said: LoCoMo by turn, LongMemEval and RealMem by session.

Every turn is ingested through the queue as by an agent, and every question goes through `client.recall` or
`client.sessions.search`; there is no shortcut. Options name the data files, which are only read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from rich.table import Table

from benchmarks.harness.datasets import (
    DEPTHS,
    NDCG_DEPTH,
    Conversation,
    PersonQuestion,
    SessionQuestion,
    TurnQuestion,
    load_locomo,
    load_longmemeval,
    load_realmem,
    session_measures,
    turn_measures,
)
from benchmarks.harness.haystack import Haystack, ask, take_up
from benchmarks.harness.options import parser, run
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, console, rounded, shown
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.recall.types import FoundSessions, RecallResponse

# Goals on the development sets, in percent.
GOALS: Final = {
    "locomo_any_at_10": 89.0,
    "locomo_any_at_5": 81.0,
    "longmemeval_all_at_5": 96.0,
    "longmemeval_any_at_5": 99.8,
}
_QUICK_QUESTIONS: Final = 2
_QUICK_CONVERSATIONS: Final = 1
# How many results are read to find those of earlier sessions.
_BEFORE_SESSIONS: Final = 100
# Enough for a loaded machine: the benchmark measures quality, and a recall that is not reranked would spoil it.
_RERANKER_SECONDS: Final = 20
_ALL: Final = "all"

Scores = Mapping[str, float]
Grouped = dict[str, list[Scores]]


@dataclass(slots=True)
class Strategy:
    """One way to recall: the arguments that differ from the defaults."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """The suffix that distinguishes its figures from those of the defaults."""
        return f" ({self.name})" if self.options else ""


def main() -> None:
    """Measure and write the result."""
    options = _options()
    result = Result.of("recall_quality", options)
    strategies = _strategies(options)
    tell = Progress()
    measures = []
    for name, measure in (("locomo", _locomo), ("longmemeval", _longmemeval), ("realmem", _realmem)):
        why = _why_not(name, getattr(options, name))
        if why:
            console.print(why, markup=False)
            result.notes.append(why)
        else:
            measures.append(measure)
    if measures:
        with _ready(result, options) as stack:
            for measure in measures:
                measure(stack, options, strategies, result, tell)
    _conclude(result)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("recall_quality", __doc__, data=False)
    options.add_argument("--locomo", type=Path, help="LoCoMo conversations as JSON")
    options.add_argument("--longmemeval", type=Path, help="LongMemEval-S as JSON lines, compressed or not")
    options.add_argument("--realmem", type=Path, help="RealMem as JSON lines, compressed or not")
    options.add_argument("--people", type=int, help="use only the first N people of RealMem (1 with --quick)")
    options.add_argument(
        "--conversations", type=int, help="use only the first N conversations of LoCoMo (1 with --quick)"
    )
    options.add_argument("--questions", type=int, help="use only the first N questions of LongMemEval (2 with --quick)")
    options.add_argument("--mode", nargs="+", default=[], help="also measure these modes: keyword, vector, hybrid")
    options.add_argument("--fusion", nargs="+", default=[], help="also measure these fusions: weighted, rrf")
    options.add_argument("--reranker", help="base URL of a rerank endpoint; recalls are measured without it as well")
    options.add_argument("--reranker-model", help="the model at that endpoint")
    return options.parse_args()


def _strategies(options: argparse.Namespace) -> list[Strategy]:
    """Return the defaults first, to which the goals apply, then the variants to measure on the same store."""
    modes = [Strategy(mode, {"mode": mode}) for mode in options.mode]
    fusions = [Strategy(fusion, {"fusion": fusion}) for fusion in options.fusion]
    without_reranker = [Strategy("not reranked", {"rerank": False})] if options.reranker else []
    return [Strategy("default"), *without_reranker, *modes, *fusions]


def _why_not(name: str, path: Path | None) -> str:
    if path is None:
        return f"{name} is not measured: no --{name} FILE"
    return "" if path.is_file() else f"{name} is not measured: there is no file {path}"


def _locomo(
    stack: Stack, options: argparse.Namespace, strategies: Sequence[Strategy], result: Result, tell: Progress
) -> None:
    limit = _limit(options.conversations, options.quick, _QUICK_CONVERSATIONS)
    conversations = load_locomo(options.locomo, limit=limit)
    asked = [(one, question) for one in conversations for question in one.questions]
    haystacks = [one.haystack for one in conversations]
    _note_ingest(result, "locomo", haystacks, take_up(stack, "locomo", haystacks, tell))
    for strategy in strategies:
        grouped = _ask_turns(stack, asked, strategy, result, tell)
        _add(result, "locomo", strategy, grouped)
        result.add(f"locomo_questions{strategy.suffix}", len(asked))


def _ask_turns(
    stack: Stack,
    asked: Sequence[tuple[Conversation, TurnQuestion]],
    strategy: Strategy,
    result: Result,
    tell: Progress,
) -> Grouped:
    seconds: list[float] = []

    def call(client: Reverie, question: TurnQuestion) -> RecallResponse:
        started = time.perf_counter()
        answer = client.recall(question.text, limit=max(DEPTHS), **strategy.options)
        seconds.append(time.perf_counter() - started)
        return answer

    answers = ask(stack, "locomo", [(one.haystack.agent, question) for one, question in asked], call, tell)
    result.add(f"locomo_recall_p50{strategy.suffix}", rounded(1_000 * median(seconds)), "ms")
    _note_degraded(result, "locomo", strategy, (answer.degraded for answer in answers))
    grouped: Grouped = {_ALL: []}
    for (one, question), answer in zip(asked, answers, strict=True):
        scores = turn_measures([memory.id for memory in answer], question.evidence)
        for group in (_ALL, one.haystack.agent, f"category {question.category}"):
            grouped.setdefault(group, []).append(scores)
    return grouped


def _longmemeval(
    stack: Stack, options: argparse.Namespace, strategies: Sequence[Strategy], result: Result, tell: Progress
) -> None:
    limit = _limit(options.questions, options.quick, _QUICK_QUESTIONS)
    questions = load_longmemeval(options.longmemeval, limit=limit)
    haystacks = [question.haystack for question in questions]
    _note_ingest(result, "longmemeval", haystacks, take_up(stack, "longmemeval", haystacks, tell))
    for strategy in strategies:
        if strategy.options.keys() & {"fusion", "rerank"}:
            continue  # the session search has only one fusion, and is not reranked
        grouped = _ask_sessions(stack, questions, strategy, result, tell)
        _add(result, "longmemeval", strategy, grouped)
        result.add(f"longmemeval_questions{strategy.suffix}", len(questions))


def _ask_sessions(
    stack: Stack, questions: Sequence[SessionQuestion], strategy: Strategy, result: Result, tell: Progress
) -> Grouped:
    def call(client: Reverie, question: SessionQuestion) -> FoundSessions:
        return client.sessions.search(question.text, limit=NDCG_DEPTH, **strategy.options)

    answers = ask(stack, "longmemeval", [(one.haystack.agent, one) for one in questions], call, tell)
    _note_degraded(result, "longmemeval", strategy, (answer.degraded for answer in answers))
    grouped: Grouped = {_ALL: []}
    for question, answer in zip(questions, answers, strict=True):
        scores = session_measures([found.session for found in answer.results], question.gold)
        for group in (_ALL, question.kind):
            grouped.setdefault(group, []).append(scores)
    return grouped


def _realmem(
    stack: Stack, options: argparse.Namespace, strategies: Sequence[Strategy], result: Result, tell: Progress
) -> None:
    limit = _limit(options.people, options.quick, _QUICK_CONVERSATIONS)
    people = load_realmem(options.realmem, limit=limit)
    asked = [(person.haystack.agent, question) for person in people for question in person.questions]
    haystacks = [person.haystack for person in people]
    _note_ingest(result, "realmem", haystacks, take_up(stack, "realmem", haystacks, tell))
    for strategy in strategies:

        def call(client: Reverie, question: PersonQuestion, strategy: Strategy = strategy) -> RecallResponse:
            return client.recall(question.text, limit=_BEFORE_SESSIONS, **strategy.options)

        answers = ask(stack, "realmem", asked, call, tell)
        _note_degraded(result, "realmem", strategy, (answer.degraded for answer in answers))
        grouped: Grouped = {_ALL: []}
        for (_, question), answer in zip(asked, answers, strict=True):
            sessions = [found.session for found in answer if found.session in question.earlier]
            scores = session_measures([session for session in sessions if session], question.gold)
            for group in (_ALL, question.kind):
                grouped.setdefault(group, []).append(scores)
        _add(result, "realmem", strategy, grouped)
        result.add(f"realmem_questions{strategy.suffix}", len(asked))


@contextmanager
def _ready(result: Result, options: argparse.Namespace) -> Iterator[Stack]:
    """Yield a stack whose server answers; record its embedder."""
    with Stack(env=_reranker_settings(options)) as stack:
        if not stack.wait_server():
            raise RuntimeError("the server does not answer: recall goes over HTTP, so nothing can be measured")
        result.settings["embedder"] = stack.embedder
        yield stack


def _reranker_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment of a stack with the reranker of these options; empty without one."""
    if not options.reranker:
        return {}
    model = {"REVERIE_RERANKER_MODEL": options.reranker_model} if options.reranker_model else {}
    return {
        "REVERIE_RERANKER_BASE_URL": options.reranker,
        "REVERIE_RERANKER_TIMEOUT_SECONDS": str(_RERANKER_SECONDS),
        **model,
    }


def _limit(asked_for: int | None, quick: bool, tiny: int) -> int | None:
    return tiny if quick and asked_for is None else asked_for


def _note_ingest(result: Result, name: str, haystacks: Sequence[Haystack], seconds: float) -> None:
    messages = sum(len(haystack.messages) for haystack in haystacks)
    result.add(f"{name}_agents", len(haystacks))
    result.add(f"{name}_messages", messages)
    result.add(f"{name}_ingest", rounded(messages / seconds), "messages/s")


def _note_degraded(result: Result, name: str, strategy: Strategy, reasons: Iterable[str]) -> None:
    """Record degraded responses: keyword-only results measure something else."""
    degraded = [reason for reason in reasons if reason]
    if degraded:
        result.notes.append(f"{name}{strategy.suffix}: {len(degraded)} responses were degraded: {degraded[0]}")


def _add(result: Result, name: str, strategy: Strategy, grouped: Grouped) -> None:
    """Add and print the averages over all questions, and those of each group."""
    averages = {group: _averages(scores) for group, scores in grouped.items() if scores}
    for measure, percent in averages.get(_ALL, {}).items():
        result.add(f"{name}_{measure}{strategy.suffix}", percent, "%")
    result.add(f"{name}_groups{strategy.suffix}", averages)
    table = Table(title=f"{name}{strategy.suffix}, percent", title_justify="left", header_style="bold")
    table.add_column("questions")
    for measure in averages.get(_ALL, {}):
        table.add_column(measure.replace("_at_", "@").replace("ndcg", "NDCG"), justify="right")
    table.add_column("of them", justify="right")
    for group in sorted(averages, key=lambda each: (each != _ALL, each)):
        table.add_row(group, *map(shown, averages[group].values()), str(len(grouped[group])))
    console.print(table)


def _averages(scores: Sequence[Scores]) -> dict[str, float]:
    return {measure: rounded(100 * fmean(score[measure] for score in scores)) for measure in scores[0]}


def _conclude(result: Result) -> None:
    parts = any(result.settings.get(option) for option in ("conversations", "questions", "people")) or result.quick
    if parts:
        result.notes.append("only some of the questions were asked")
    if result.settings.get("reranker"):
        result.notes.append("a reranker ordered the results: the goals are those without one")
    for measure, goal in GOALS.items():
        figure = result.figures.get(measure)
        note = "" if figure is not None else f"{measure.split('_')[0]} was not measured"
        result.goals.append(Goal(what=_readable(measure), relation=">=", goal=goal, figure=figure, unit="%", note=note))


def _readable(measure: str) -> str:
    """Return `locomo_any_at_10` in readable form."""
    return measure.replace("_at_", "@").replace("_", ", ")


if __name__ == "__main__":
    run(main)
