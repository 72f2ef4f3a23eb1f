"""Measure how much of the evidence reaches the prompt, by budget: LoCoMo by turn, LongMemEval and RealMem by session.

For each question a session that holds one greeting asks for a context, as an agent does for a new conversation, and the
document is searched for the evidence. Beside it stand the first results of `recall`, cut at the same number of tokens.
Of questions about what changed, it is also measured whether the newest evidence is told after an older one. Long
conversations of our own have questions over a whole history, for an order and for a summary. Last, a context and a
recall are timed in turns.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Final

from rich.table import Table

from adapters.embedders.base import DEFAULT_MODEL
from adapters.tokens import TokenCounter, build_token_counter
from benchmarks.harness.datasets import Conversation, SessionQuestion, load_locomo, load_longmemeval, load_realmem
from benchmarks.harness.haystack import DatasetMessage, Haystack, ask, client_of, take_up
from benchmarks.harness.long_histories import HistoryKind, load_histories
from benchmarks.harness.options import parser, run
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, console, median, percentile, rounded, shown
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.recall.calls import ContextRanking

# Tokens of the whole document. None is a call without a budget.
BUDGETS: Final = (250, 500, 1_000, 2_000, None)
# The goals with LoCoMo in percent: of questions with any evidence in the context, and of the evidence itself.
GOALS: Final[Mapping[int, tuple[float, float]]] = {500: (90.0, 80.0), 1_000: (94.0, 85.0)}
# The goal for questions over a whole history: the percentage of their evidence in the context, at these budgets.
HISTORY_GOAL: Final = 65.0
HISTORY_BUDGETS: Final = (500, 1_000)
# Questions whose answer changed in the history. The goal: for this percentage, the newest statement comes last.
UPDATES: Final = "knowledge-update"
UPDATE_GOAL: Final = 90.0
_GOAL_BUDGET: Final = 1_000
# A context takes at most this many times as long as a recall. Both are timed in turns with this many questions.
_TIMES_A_RECALL: Final = 2.0
_TIMED: Final = 200
_WARMED_UP: Final = 10
_SESSION: Final = "asking-now"
_RECALLED: Final = 100
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class _Question:
    """A question, the gold ids of turns or sessions, and the words of the answer.

    `newest` is the newest of the gold sessions if the question is about something that changed, else empty. With
    `as_of` it is asked at that time, and what was said later is not to be found.
    """

    agent: str
    text: str
    gold: frozenset[str]
    answer: str
    by_session: bool
    newest: str = ""
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Shown:
    """What one call showed: ids of turns and sessions, the text, its tokens, and the seconds that the call took.

    `sessions` has the session of each turn, in the order shown.
    """

    turns: frozenset[str]
    sessions: tuple[str, ...]
    text: str
    tokens: int
    seconds: float


def main() -> None:
    """Measure and write the result."""
    options = parser("context_quality", __doc__, data=False)
    options.add_argument("--locomo", type=Path, help="LoCoMo conversations as JSON")
    options.add_argument("--longmemeval", type=Path, help="LongMemEval-S as JSON lines, compressed or not")
    options.add_argument("--realmem", type=Path, help="RealMem as JSON lines, compressed or not")
    options.add_argument("--people", type=int, help="use only the first N people of RealMem")
    options.add_argument("--conversations", type=int, help="use only the first N conversations of LoCoMo")
    options.add_argument("--questions", type=int, help="use only the first N questions of LongMemEval")
    options.add_argument("--question-type", help="use only the questions of this type of LongMemEval")
    options.add_argument(
        "--ranking", nargs="+", choices=("recall", "decay"), default=["recall"], help="the rankings of the context"
    )
    arguments = options.parse_args()
    result = Result.of("context_quality", arguments)
    tell = Progress()
    loaded = {}
    for name, load in (("locomo", _load_locomo), ("longmemeval", _load_longmemeval), ("realmem", _load_realmem)):
        path: Path | None = getattr(arguments, name)
        if path is None or not path.is_file():
            result.notes.append(f"{name} is not measured: " + (f"no --{name} FILE" if path is None else f"no {path}"))
        else:
            loaded[name] = load(path, arguments)
    loaded["ordering"] = _load_histories("order", arguments)
    loaded["summaries"] = _load_histories("summary", arguments)
    with Stack() as stack:
        if not stack.wait_server():
            raise RuntimeError("the server does not answer, so nothing can be measured")
        for name, (haystacks, questions) in loaded.items():
            take_up(stack, name, [_with_greeting(haystack) for haystack in haystacks], tell)
            _measure(_DataSet(name, questions, stack, result, tell), arguments.ranking)
    add_goals(result)
    result.finish(arguments.output)


def _load_histories(kind: HistoryKind, options: argparse.Namespace) -> tuple[list[Haystack], list[_Question]]:
    haystacks, questions = _by_turn(load_histories(kind, seed=options.seed)[: 1 if options.quick else None])
    return haystacks, questions[: 2 if options.quick else None]


def _load_locomo(path: Path, options: argparse.Namespace) -> tuple[list[Haystack], list[_Question]]:
    return _by_turn(load_locomo(path, limit=1 if options.quick else options.conversations))


def _by_turn(conversations: Sequence[Conversation]) -> tuple[list[Haystack], list[_Question]]:
    questions = [
        _Question(one.haystack.agent, question.text, question.evidence, question.answer, by_session=False)
        for one in conversations
        for question in one.questions
    ]
    return [one.haystack for one in conversations], questions


def _load_longmemeval(path: Path, options: argparse.Namespace) -> tuple[list[Haystack], list[_Question]]:
    found = load_longmemeval(path, limit=2 if options.quick else options.questions, kind=options.question_type)
    questions = [
        _Question(one.haystack.agent, one.text, one.gold, one.answer, by_session=True, newest=_newest(one))
        for one in found
    ]
    return [one.haystack for one in found], questions


def _newest(question: SessionQuestion) -> str:
    if question.kind != UPDATES:
        return ""
    dated = [(one.created_at, one.session) for one in question.haystack.messages if one.session in question.gold]
    return max(dated, key=lambda one: str(one[0]))[1]


def _load_realmem(path: Path, options: argparse.Namespace) -> tuple[list[Haystack], list[_Question]]:
    people = load_realmem(path, limit=1 if options.quick else options.people)
    questions = [
        _Question(one.haystack.agent, question.text, question.gold, "", by_session=True, as_of=question.before)
        for one in people
        for question in one.questions
    ]
    return [one.haystack for one in people], questions


def _measure(measured: _DataSet, rankings: Sequence[ContextRanking]) -> None:
    for budget in BUDGETS:
        for ranking in rankings:
            measured.cover(budget, ranking)
    measured.time_in_turns()
    measured.result.add(f"{measured.name}_rows", measured.rows)
    _print(f"{measured.name}: what reaches the prompt, in percent", measured.rows)
    if measured.updates:
        _print(f"{measured.name}: contexts that tell changed facts, in percent", measured.updates)


@dataclass(slots=True)
class _DataSet:
    """A data set that a stack has stored, its questions, and the rows of the tables about it."""

    name: str
    questions: Sequence[_Question]
    stack: Stack
    result: Result
    tell: Progress
    rows: dict[str, Mapping[str, float]] = field(default_factory=dict)
    updates: dict[str, Mapping[str, float]] = field(default_factory=dict)
    counter: TokenCounter = field(default_factory=lambda: build_token_counter("sentence-transformers", DEFAULT_MODEL))

    def cover(self, budget: int | None, ranking: ContextRanking) -> None:
        """Measure contexts with this budget and ranking, and recalls cut at the same number of tokens."""
        other = "" if ranking == "recall" else f" ({ranking})"
        contexts = self._ask(partial(_context, budget=budget, ranking=ranking))
        figures = _figures(self.questions, contexts)
        label = ("default" if budget is None else f"{budget:,}") + other
        self.rows[f"context, {label}"] = figures
        key = ("default" if budget is None else str(budget)) + other
        if changed := _updates(self.questions, contexts):
            self.updates[label] = changed
            for measure, figure in changed.items():
                self.result.add(f"{self.name}_{measure}_{key}", figure)
        for measure, figure in figures.items():
            self.result.add(f"{self.name}_{measure}_{key}", figure, "ms" if measure == "p50" else "")
        if not other:
            room = budget or round(figures["tokens"])
            recalls = self._ask(partial(_recall, room=room, counter=self.counter))
            self.rows[f"recall, {room:,}"] = _figures(self.questions, recalls)

    def time_in_turns(self) -> None:
        """Measure a context and a recall of the same questions, both without options, one after the other."""
        clients = {one.agent: client_of(self.stack, one.agent, self.name) for one in self.questions}
        contexts: list[float] = []
        recalls: list[float] = []
        try:
            for number, one in enumerate(_spread(self.questions, _WARMED_UP) + _spread(self.questions, _TIMED)):
                client = clients[one.agent]
                calls: list[tuple[list[float], Callable[[], object]]] = [
                    (contexts, partial(client.context, _SESSION, one.text, as_of=one.as_of)),
                    (recalls, partial(client.recall, one.text, as_of=one.as_of)),
                ]
                for seconds, call in calls if number % 2 else calls[::-1]:
                    began = time.perf_counter()
                    call()
                    seconds.append(time.perf_counter() - began)
        finally:
            for client in clients.values():
                client.close()
        warm = len(_spread(self.questions, _WARMED_UP))
        timed = {"context": contexts[warm:], "recall": recalls[warm:]}
        for kind, seconds in timed.items():
            self.result.add(f"{self.name}_{kind}_p50", median([1_000 * one for one in seconds]), "ms")
            self.result.add(f"{self.name}_{kind}_p95", rounded(1_000 * percentile(seconds, 0.95)), "ms")
        times = median(timed["context"]) / median(timed["recall"])
        self.result.add(f"{self.name}_times_a_recall", rounded(times))

    def _ask(self, call: Callable[[Reverie, _Question], _Shown]) -> list[_Shown]:
        asked = [(question.agent, question) for question in self.questions]
        return ask(self.stack, self.name, asked, call, self.tell)


def _spread(questions: Sequence[_Question], count: int) -> list[_Question]:
    """Return at most `count` of the questions, evenly distributed."""
    step = max(1, len(questions) // count)
    return list(questions[::step])[:count]


def _with_greeting(haystack: Haystack) -> Haystack:
    greeting = DatasetMessage(id="greeting", session=_SESSION, role="user", content="Hello!")
    return Haystack(haystack.agent, [*haystack.messages, greeting])


def _context(client: Reverie, question: _Question, *, budget: int | None, ranking: ContextRanking) -> _Shown:
    began = time.perf_counter()
    context = client.context(_SESSION, question.text, token_budget=budget, ranking=ranking, as_of=question.as_of)
    seconds = time.perf_counter() - began
    turns = {memory.source_message or memory.id for memory in context.memories}
    sessions = tuple(memory.session for memory in context.memories if memory.session)
    return _Shown(frozenset(turns), sessions, context.text, context.tokens, seconds)


def _recall(client: Reverie, question: _Question, *, room: int, counter: TokenCounter) -> _Shown:
    began = time.perf_counter()
    results = client.recall(question.text, limit=_RECALLED, as_of=question.as_of).results
    seconds = time.perf_counter() - began
    lines = [
        f"- {found.created_at:%Y-%m-%d}, {found.name or found.role}: {found.excerpt or found.text}\n"
        for found in results
    ]
    used, kept = 0, 0
    for tokens in counter.count(lines):
        if used + tokens > room:
            break
        used += tokens
        kept += 1
    shown = [found for found in results[:kept] if found.session != _SESSION]
    return _Shown(
        frozenset(found.source_message or found.id for found in shown),
        tuple(found.session for found in shown if found.session),
        "".join(lines[:kept]),
        used,
        seconds,
    )


def _figures(questions: Sequence[_Question], shown_for: Sequence[_Shown]) -> dict[str, float]:
    """Return coverage and answer words in percent, tokens, and the median milliseconds."""
    found, words = [], []
    for question, one in zip(questions, shown_for, strict=True):
        found.append(
            len(question.gold.intersection(one.sessions if question.by_session else one.turns)) / len(question.gold)
        )
        wanted = set(_WORD.findall(question.answer.lower()))
        if wanted:
            words.append(len(wanted & set(_WORD.findall(one.text.lower()))) / len(wanted))
    return {
        "any": rounded(100 * fmean(share > 0 for share in found)),
        "share": rounded(100 * fmean(found)),
        "half_of_the_answer_words": rounded(100 * fmean(share >= 0.5 for share in words)) if words else 0.0,
        "tokens": rounded(fmean(one.tokens for one in shown_for)),
        "p50": rounded(1_000 * median([one.seconds for one in shown_for])),
    }


def _updates(questions: Sequence[_Question], shown_for: Sequence[_Shown]) -> dict[str, float]:
    """Return in percent how often the new and an old statement of a change are told, and how often the newest is last.

    `newest_told_last` counts questions whose newest gold session and an older one are told, and a turn of the newest is
    the last of them. Empty if nothing changed in any question.
    """
    told, both, last = [], [], []
    for question, one in zip(questions, shown_for, strict=True):
        if question.newest:
            gold = [session for session in one.sessions if session in question.gold]
            told.append(question.newest in gold)
            both.append(question.newest in gold and len(set(gold)) > 1)
            last.append(both[-1] and gold[-1] == question.newest)
    if not told:
        return {}
    measures = {"newest_told": told, "newest_and_older_told": both, "newest_told_last": last}
    return {name: rounded(100 * fmean(values)) for name, values in measures.items()}


def add_goals(result: Result) -> None:
    """Add the goals with the figures that were measured."""
    figure = result.figures.get(f"longmemeval_newest_told_last_{_GOAL_BUDGET}")
    what = f"LongMemEval, {_GOAL_BUDGET:,} tokens: what changed, newest told last"
    note = "" if figure is not None else "no question about what changed was measured"
    result.goals.append(Goal(what=what, relation=">=", goal=UPDATE_GOAL, figure=figure, unit="%", note=note))
    for budget, goals in GOALS.items():
        for measure, goal in zip(("any", "share"), goals, strict=True):
            figure = result.figures.get(f"locomo_{measure}_{budget}")
            what = f"LoCoMo, {budget:,} tokens: evidence, {measure}"
            note = "" if figure is not None else "locomo was not measured"
            result.goals.append(Goal(what=what, relation=">=", goal=goal, figure=figure, unit="%", note=note))
    for name, budget in ((name, budget) for name in ("ordering", "summaries") for budget in HISTORY_BUDGETS):
        figure = result.figures.get(f"{name}_share_{budget}")
        what = f"Whole histories, {name}, {budget:,} tokens: evidence, share"
        result.goals.append(Goal(what=what, relation=">=", goal=HISTORY_GOAL, figure=figure, unit="%"))
    figure = result.figures.get("locomo_times_a_recall")
    result.goals.append(
        Goal(what="LoCoMo: a context takes times a recall", relation="<=", goal=_TIMES_A_RECALL, figure=figure)
    )


def _print(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("tokens")
    measures = list(next(iter(rows.values())))
    for measure in measures:
        table.add_column(measure.replace("_", " ") + (" ms" if measure == "p50" else ""), justify="right")
    for label, figures in rows.items():
        table.add_row(label, *(shown(figures[measure]) for measure in measures))
    console.print(table)


if __name__ == "__main__":
    run(main)
