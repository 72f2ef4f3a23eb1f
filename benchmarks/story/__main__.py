"""Simulate thirty days of agents (`make story`) with the real pipeline, recall and tasks on a simulated clock.

Every agent stores its conversations over the month, takes notes, and answers questions; the jobs run at their
intervals. Afterwards it gets questions that were not asked during the month, and so does a twin that had the same month
without any job. Without a data set, a conversation from the repository is used.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.harness.datasets import (
    DEPTHS,
    Conversation,
    TurnQuestion,
    load_locomo,
    turn_measures,
)
from benchmarks.harness.haystack import DatasetMessage, Haystack
from benchmarks.harness.options import ROOT, UnusableData, parser, run
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, console
from benchmarks.story.census import Day
from benchmarks.story.month import DAY, DAYS, Life, Month, Observation, load_observations
from benchmarks.story.page import write_page
from benchmarks.story.undoing import UndoneMonth, undo_month
from benchmarks.story.world import World, micros, opened
from cli.demo.showing import CONVERSATION, QUESTIONS

# Tokens of the whole document.
CONTEXT_TOKENS: Final = 500
CONTEXT_ANY: Final = f"context_any_at_{CONTEXT_TOKENS}"
_CONTEXT_SHARE: Final = f"context_share_at_{CONTEXT_TOKENS}"
_SESSION: Final = "asking-now"


def greet(world: World, agents: Iterable[str]) -> None:
    """Start the session of each agent in which its contexts are built."""
    greeting = DatasetMessage(id="greeting", session=_SESSION, role="user", content="Hello!")
    for agent in agents:
        world.say(agent, _SESSION, [greeting])


def context_measures(world: World, asked: Sequence[tuple[str, TurnQuestion]]) -> dict[str, float]:
    """Return in percent how often any turn of the evidence is in the context, and the share of it that is.

    A turn counts as itself or by a memory made from it. Empty if no question has marked evidence.
    """
    shares = []
    for agent, question in asked:
        if question.evidence:
            built = world.context(agent, _SESSION, question.text, tokens=CONTEXT_TOKENS)
            found = {memory.source_message or memory.id for memory in built.memories}
            shares.append(len(question.evidence & found) / len(question.evidence))
    if not shares:
        return {}
    return {CONTEXT_ANY: 100 * fmean(share > 0 for share in shares), _CONTEXT_SHARE: 100 * fmean(shares)}


# Not the page in docs/: that one is only written with --page.
_FOLDER: Final = ROOT / "build" / "story"
_QUICK_CONVERSATIONS: Final = 1
# Enough for sessions to end and for a dream sweep to find what was recalled on several days.
_QUICK_DAYS: Final = 6
# Every other question is asked during the month as well, the rest only at its end.
_ASKED_DURING: Final = slice(0, None, 2)
_ASKED_AT_THE_END: Final = slice(1, None, 2)
_WHICH: Final = {"unseen": _ASKED_AT_THE_END, "asked_during": _ASKED_DURING}
_ABOUT: Final = {"unseen": "never asked in the month", "asked_during": "asked in the month"}
# The measures that are compared before and after, with their names for readers.
_COMPARED: Final = {"any_at_5": "any@5", "any_at_10": "any@10", CONTEXT_ANY: f"context any at {CONTEXT_TOKENS} tokens"}

Measures = dict[str, float]


def main() -> None:
    """Simulate the month, measure, and write the result and the page."""
    options = _options()
    result = Result.of("story", options)
    tell = Progress()
    conversations = _conversations(options, result)
    notes = load_observations(options.locomo, options.seed) if options.locomo else {}
    with _world(options) as twin:
        _month(twin, conversations, notes, options, tell, maintained=False).live()
        before = _measures(twin, conversations, tell)
    with _world(options) as world:
        days = _month(world, conversations, notes, options, tell, maintained=True).live()
        after = _measures(world, conversations, tell)
        undone = undo_month(world, [one.haystack.agent for one in conversations], tell)
    quality = {which: (before[which], after[which]) for which in before}
    _note(result, days, undone, quality)
    rows = _rows(quality)
    result.finish(options.output)
    write_page(options.page, result, days, rows)
    console.print(f"the page: {options.page}", markup=False, soft_wrap=True)


def _options() -> argparse.Namespace:
    options = parser("story", __doc__, data=False)
    options.set_defaults(output=_FOLDER / "story.json")
    options.add_argument("--locomo", type=Path, help="LoCoMo conversations as JSON; by default the demo's conversation")
    options.add_argument("--conversations", type=int, help="use only the first N conversations (1 with --quick)")
    options.add_argument("--decay-profile", default="standard", choices=("standard", "fast"))
    options.add_argument("--embedding-provider", default="sentence-transformers", help="hash is for trial runs")
    options.add_argument("--page", type=Path, default=_FOLDER / "story.md", help="where to write the page")
    arguments = options.parse_args()
    if arguments.locomo is not None and not arguments.locomo.is_file():
        raise UnusableData(f"there is no file {arguments.locomo}: name another, or omit the option")
    for written in (arguments.output, arguments.page):
        written.parent.mkdir(parents=True, exist_ok=True)
    return arguments


def _conversations(options: argparse.Namespace, result: Result) -> list[Conversation]:
    if options.locomo:
        limit = options.conversations or (_QUICK_CONVERSATIONS if options.quick else None)
        return load_locomo(options.locomo, limit=limit)
    result.notes.append("no --locomo FILE: the conversation of `make demo` was used, which has no marked answers")
    console.print(result.notes[-1], markup=False)
    return [_demo_conversation()]


def _demo_conversation() -> Conversation:
    lines = CONVERSATION.read_text(encoding="utf-8").splitlines()
    messages = [
        DatasetMessage(
            id=turn["id"], session=turn["session"], role=turn["role"], content=turn["content"],
            created_at=datetime.fromisoformat(turn["created_at"]),
        )
        for turn in map(json.loads, lines)
    ]  # fmt: skip
    return Conversation(Haystack("demo", messages), [TurnQuestion(text, 0, frozenset()) for text in QUESTIONS])


@contextmanager
def _world(options: argparse.Namespace) -> Iterator[World]:
    settings = {"embedding_provider": options.embedding_provider, "decay_profile": options.decay_profile}
    with opened(settings) as world:
        yield world


def _days(options: argparse.Namespace) -> int:
    return _QUICK_DAYS if options.quick else DAYS


def _start(conversations: Sequence[Conversation]) -> int:
    """Return the midnight after the newest message, in microseconds, so that all messages lie in the past."""
    times = (message.created_at for one in conversations for message in one.haystack.messages)
    newest = max((time for time in times if time is not None), default=datetime.now(UTC))
    return (micros(newest) // DAY + 1) * DAY


def _month(
    world: World,
    conversations: Sequence[Conversation],
    notes: Mapping[str, Mapping[str, Sequence[Observation]]],
    options: argparse.Namespace,
    tell: Callable[[str], None],
    *,
    maintained: bool,
) -> Month:
    lives = [
        Life(one.haystack, [asked.text for asked in one.questions[_ASKED_DURING]], notes.get(one.haystack.agent, {}))
        for one in conversations
    ]
    return Month(world, lives, _start(conversations), options.seed, tell, _days(options), maintained)


def _measures(world: World, conversations: Sequence[Conversation], tell: Callable[[str], None]) -> dict[str, Measures]:
    """Return the averages of recall and of contexts, in percent, for each half of the questions.

    All recalls come first: they find nothing of the sessions in which the contexts are built.
    """
    measures = {which: _ask_all(world, conversations, half, tell) for which, half in _WHICH.items()}
    greet(world, [one.haystack.agent for one in conversations])
    for which, half in _WHICH.items():
        asked = [(one.haystack.agent, question) for one in conversations for question in one.questions[half]]
        measures[which] |= context_measures(world, asked)
        tell(f"built {len(asked)} contexts")
    return measures


def _ask_all(
    world: World, conversations: Sequence[Conversation], which: slice, tell: Callable[[str], None]
) -> Measures:
    """Return the averages, in percent, over the questions with marked answers."""
    scores = []
    for one in conversations:
        for asked in one.questions[which]:
            found = world.recall(one.haystack.agent, asked.text, limit=max(DEPTHS), noted=False).response
            if asked.evidence:
                scores.append(turn_measures([result.id for result in found], asked.evidence))
        tell(f"asked {one.haystack.agent}")
    averages = {name: 100 * fmean(score[name] for score in scores) for name in scores[0]} if scores else {}
    return {**averages, "questions": float(len(scores))}


def _rows(quality: Mapping[str, tuple[Measures, Measures]]) -> list[tuple[str, str, str]]:
    """Return the rows of the table on the page."""
    return [
        (f"{shown}, questions {_ABOUT[which]}", f"{before[name]:.1f}", f"{after[name]:.1f}")
        for name, shown in _COMPARED.items()
        for which, (before, after) in quality.items()
        if name in before
    ]


def _note(
    result: Result,
    days: Sequence[Day],
    undone: UndoneMonth,
    quality: dict[str, tuple[Measures, Measures]],
) -> None:
    total: Counter[str] = Counter()
    for day in days:
        total.update(day.done)
    last = days[-1]
    result.add("messages", sum(day.messages for day in days))
    result.add("questions_asked_during_the_month", sum(day.asked for day in days))
    result.add("memories_at_the_end", len(last.standing))
    result.add("long_term_at_the_end", last.of_lifetime("long_term"))
    result.add("superseded_at_the_end", last.superseded)
    for action, count in sorted(total.items()):
        result.add(f"done_{action}", count)
    for which, (before, after) in quality.items():
        for name in before:
            result.add(f"{which}_{name}_before", round(before[name], 2))
            result.add(f"{which}_{name}_after", round(after[name], 2))
    result.add("undone", undone.undone)
    result.add("refused_to_be_undone", len(undone.refused))
    result.notes += [f"not undone: {why}" for why in undone.refused[:3]]
    result.add("rows_that_differ_after_undoing_all", undone.differing)
    result.goals += _goals(quality, undone)


def _goals(quality: dict[str, tuple[Measures, Measures]], undone: UndoneMonth) -> list[Goal]:
    goals: list[Goal] = [
        Goal(what="rows that differ after undoing the month", relation="==", goal=0, figure=undone.differing)
    ]
    for which, (before, after) in quality.items():
        for name, shown in _COMPARED.items():
            if name in before:
                what = f"{shown} after the month, questions {which.replace('_', ' ')}"
                goal: Any = round(before[name], 2)
                goals.append(Goal(what=what, relation=">=", goal=goal, figure=round(after[name], 2), unit="%"))
    return goals


if __name__ == "__main__":
    run(main)
