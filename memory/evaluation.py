"""Compares what captured questions find in two runs over the same store: before and after a change.

Which results were of use is judged by the words of the agent's next answers: a result is `used` if the answers have
words of it that neither the question nor many other results have. Both runs are judged alike, whatever the agent was
told at that time, so a change gains by results that were not found then. It is an estimate: an answer may have its
words from elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median
from typing import Any, Final, TypeAlias

from memory.conversion import convert
from reverie.recall.types import Context, ContextMemory, RecallResponse, RecallResult
from storage.recall.captured import CapturedQuery
from storage.recall.words import STOP_WORDS, hash_of, words_of

# Kind, session and id of a message, file or memory; only a message has the session, within which its id is unique.
Item: TypeAlias = tuple[str, str | None, str]
# One word in common is often chance. Words that are in many results, such as the speakers' names, tell nothing.
_SHARED_WORDS: Final = 2
_RESULTS_WITH_WORD: Final = 2
# The ranks that are reported.
CUTS: Final = (5, 10)


def items_of(response: RecallResponse | Context, *, session: str | None) -> dict[Item, str]:
    """Return the items of a recall, or of a context for `session`, with their texts, in the response's order."""
    found: Sequence[RecallResult | ContextMemory]
    if isinstance(response, RecallResponse):
        found, turns = response.results, []
    else:
        found, turns = [*response.instructions, *response.memories], response.messages
    items: dict[Item, str] = {}
    items |= {(one.kind, one.session if one.kind == "message" else None, one.id): one.text for one in found}
    return items | {("message", session, turn.id): turn.content for turn in turns}


def used_items(texts: Mapping[Item, str], query: str, answers: Iterable[str]) -> set[Item]:
    """Return the items that share two words with the answers. Words of the query or of many items do not count."""
    words = {item: _content(text) for item, text in texts.items()}
    numbers = Counter(word for one in words.values() for word in one)
    answered = {word for answer in answers for word in _content(answer) if numbers[word] <= _RESULTS_WITH_WORD}
    answered -= _content(query)
    return {item for item, one in words.items() if len(answered & one) >= _SHARED_WORDS}


def _content(text: str) -> set[int]:
    return {hash_of(word) for word in words_of(text) if word not in STOP_WORDS}


@dataclass(frozen=True, slots=True)
class Run:
    """The items that one run found for a question, best first. An agent would have got the first `limit`.

    `degraded` says why the run found less than was asked for, `error` why the question could not be asked.
    """

    found: Mapping[Item, str]
    limit: int = 0
    seconds: float = 0.0
    degraded: str = ""
    error: str = ""

    def ranks(self, limit: int | None = None) -> dict[Item, int]:
        """Return the first items with their ranks, from 1; by default those that an agent would have got."""
        return {item: rank for rank, item in enumerate(list(self.found)[: limit or self.limit], start=1)}


@dataclass(frozen=True, slots=True)
class Change:
    """A result that came in, went out or changed its rank, with its ranks before and after."""

    kind: str
    session: str | None
    id: str
    text: str
    before: int | None
    after: int | None
    used: bool


@dataclass(frozen=True, slots=True)
class Question:
    """One captured question in both runs. `overlap` is the share of the results that both returned.

    `used` counts the results of either run that were of use. Each pair is of the run before and the run after: the rank
    of the first result of use, the number of results of use, and why a run found less.
    """

    id: str
    at: datetime
    kind: str
    agent: str
    user: str | None
    session: str | None
    query: str
    overlap: float
    used: int
    first_used: tuple[int | None, int | None]
    used_returned: tuple[int, int]
    degraded: tuple[str, str]
    changes: Sequence[Change]

    @property
    def gain(self) -> float:
        """Return how much better results of use are found: by rank in a recall, by number in a context."""
        if self.kind == "context":
            return self.used_returned[1] - self.used_returned[0]
        return _reciprocal(self.first_used[1]) - _reciprocal(self.first_used[0])


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run over all questions: shares from 0 to 1, None without a question that can tell.

    `used_in_5`, `used_in_10`: of the recalls with a result of use, the share with one among the first 5 or 10. The rank
    is that of the first one. `used_told`: of the results of use that contexts could tell, the share that they tell.
    """

    used_in_5: float | None
    used_in_10: float | None
    mean_reciprocal_rank: float | None
    used_told: float | None
    median_ms: float
    slowest_twentieth_ms: float
    degraded: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The effect of a change on captured questions, the most changed first.

    `overlap_with_then` is the share of the captured results that the run before the change returns, too; it falls if
    the store has changed. `better` and `worse` count the questions whose results of use are found better or worse.
    """

    asked: int
    not_asked: Mapping[str, str]
    changed: int
    overlap: float | None
    overlap_with_then: float | None
    with_used: int
    better: int
    worse: int
    before: Figures
    after: Figures
    questions: Sequence[Question]


def evaluate(
    asked: Sequence[CapturedQuery], answers: Sequence[Iterable[str]], before: Sequence[Run], after: Sequence[Run]
) -> Evaluation:
    """Compare two runs over the same questions; `answers` are the agent's answers that followed each question."""
    rows = list(zip(asked, answers, before, after, strict=True))
    failed = {one.id: old.error or new.error for one, _, old, new in rows if old.error or new.error}
    rows = [row for row in rows if row[0].id not in failed]
    questions = [compare(*row) for row in rows]
    return Evaluation(
        asked=len(rows),
        not_asked=failed,
        changed=sum(bool(one.changes) for one in questions),
        overlap=_mean([one.overlap for one in questions]),
        overlap_with_then=_mean([overlap([tuple(item) for item in one.found], old.ranks()) for one, _, old, _ in rows]),
        with_used=sum(bool(one.used) for one in questions),
        better=sum(one.gain > 0 for one in questions),
        worse=sum(one.gain < 0 for one in questions),
        before=_figures(questions, [old for _, _, old, _ in rows], 0),
        after=_figures(questions, [new for _, _, _, new in rows], 1),
        questions=sorted(questions, key=lambda one: (one.overlap, -abs(one.gain), -len(one.changes))),
    )


def overlap(one: Collection[Any], other: Collection[Item]) -> float:
    """Return which share of the longer of two collections is in both; 1 if both are empty."""
    longer = max(len(one), len(other))
    return len({*one} & {*other}) / longer if longer else 1.0


def compare(asked: CapturedQuery, answers: Iterable[str], before: Run, after: Run) -> Question:
    """Compare two runs of one question. The order of a context's memories is no ranking and is not compared."""
    old, new = before.ranks(), after.ranks()
    texts = {**before.found, **after.found}
    used = used_items(texts, asked.query, answers)
    is_ranked = asked.kind == "recall"
    changed = [
        *(item for item in new if item not in old),
        *(item for item in old if item not in new),
        *(item for item in new if is_ranked and item in old and old[item] != new[item]),
    ]
    first = [
        min((rank for item, rank in run.ranks(max(CUTS)).items() if item in used), default=None)
        for run in (before, after)
    ]
    return convert(
        asked,
        Question,
        overlap=overlap(old, new),
        used=len(used),
        first_used=(first[0], first[1]),
        used_returned=(len(used & old.keys()), len(used & new.keys())),
        degraded=(before.degraded, after.degraded),
        changes=[Change(*item, texts[item], old.get(item), new.get(item), item in used) for item in changed],
    )


def _figures(questions: Sequence[Question], runs: Sequence[Run], side: int) -> Figures:
    ranks = [one.first_used[side] for one in questions if one.kind == "recall" and one.used]
    times = sorted(1_000 * run.seconds for run in runs) or [0.0]
    within = [_mean([rank is not None and rank <= cut for rank in ranks]) for cut in CUTS]
    return Figures(
        used_in_5=within[0],
        used_in_10=within[1],
        mean_reciprocal_rank=_mean([_reciprocal(rank) for rank in ranks]),
        used_told=_mean(
            [one.used_returned[side] / one.used for one in questions if one.kind == "context" and one.used]
        ),
        median_ms=median(times),
        slowest_twentieth_ms=times[len(times) * 19 // 20],
        degraded=sum(bool(run.degraded) for run in runs),
    )


def _reciprocal(rank: int | None) -> float:
    return 1 / rank if rank else 0.0


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
