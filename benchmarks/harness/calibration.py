"""Compare the relevance of results with what is relevant: how reliable it is, and what a floor keeps and leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, Literal, NamedTuple

from rich.table import Table

from benchmarks.harness.figures import rounded
from benchmarks.harness.haystack import ask
from benchmarks.harness.locomo import Conversation
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Result, console, shown
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.recall.types import RecallResponse

# "unanswerable": asked about things that were never said. "foreign": asked of another conversation.
Origin = Literal["answerable", "unanswerable", "foreign"]
FLOORS: Final = (0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)
_BINS: Final = 10
# Results of each recall that are judged.
_JUDGED: Final = 10


class _Question(NamedTuple):
    origin: Origin
    text: str
    evidence: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JudgedRecall:
    """One recall: where its question comes from, and the relevance of each result, and whether it is evidence."""

    origin: Origin
    results: Sequence[tuple[float, bool]]

    def kept(self, floor: float) -> list[bool]:
        """Return for each result that reaches a floor whether it is evidence."""
        return [is_evidence for relevance, is_evidence in self.results if relevance >= floor]


def reliability(recalls: Sequence[JudgedRecall]) -> list[dict[str, Any]]:
    """Return for each tenth of the scale the number of results, their mean relevance, and the share of evidence."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(_BINS)]
    for recall in recalls:
        for result in recall.results:
            bins[min(_BINS - 1, int(result[0] * _BINS))].append(result)
    return [
        {
            "from": number / _BINS,
            "results": len(found),
            "relevance": rounded(fmean(relevance for relevance, _ in found)),
            "observed": rounded(fmean(is_evidence for _, is_evidence in found)),
        }
        for number, found in enumerate(bins)
        if found
    ]


def calibration_error(rows: Sequence[dict[str, Any]]) -> float:
    """Return the expected calibration error: the mean difference in the rows of `reliability`, by their results."""
    results = sum(row["results"] for row in rows)
    error = sum(row["results"] * abs(row["relevance"] - row["observed"]) for row in rows)
    return rounded(error / results) if results else 0.0


def by_floor(recalls: Sequence[JudgedRecall]) -> list[dict[str, Any]]:
    """Return for each floor how often evidence is found, and how often nothing and how much is returned, in percent."""
    return [{"floor": floor, **_at(recalls, floor)} for floor in (0.0, *FLOORS)]


def _at(recalls: Sequence[JudgedRecall], floor: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    for origin in ("answerable", "unanswerable", "foreign"):
        kept = [recall.kept(floor) for recall in recalls if recall.origin == origin]
        if not kept:
            continue
        if origin == "answerable":
            figures["any"] = rounded(100 * fmean(any(one) for one in kept))
        figures[f"{origin}_empty"] = rounded(100 * fmean(not one for one in kept))
        figures[f"{origin}_results"] = rounded(fmean(len(one) for one in kept))
    return figures


def judge(stack: Stack, conversations: Sequence[Conversation], tell: Progress) -> list[JudgedRecall]:
    """Recall with the questions of each conversation, its unanswerable ones, and those of the next conversation."""
    asked: list[tuple[str, _Question]] = []
    for one, following in zip(conversations, [*conversations[1:], *conversations[:1]], strict=True):
        questions = [_Question("answerable", question.text, question.evidence) for question in one.questions]
        questions += [_Question("unanswerable", text) for text in one.unanswerable]
        if following is not one:
            questions += [_Question("foreign", question.text) for question in following.questions]
        asked += [(one.haystack.agent, question) for question in questions]

    def call(client: Reverie, question: _Question) -> RecallResponse:
        return client.recall(question.text, limit=_JUDGED)

    answers = ask(stack, "locomo", asked, call, tell)
    return [
        JudgedRecall(question.origin, [(found.relevance, found.id in question.evidence) for found in answer])
        for (_, question), answer in zip(asked, answers, strict=True)
    ]


def add_calibration(result: Result, recalls: Sequence[JudgedRecall]) -> None:
    """Add to a result, and print, how reliable the relevance is, and what each floor keeps."""
    rows, floors = reliability(recalls), by_floor(recalls)
    result.add("locomo_calibration_error", calibration_error(rows))
    result.add("locomo_reliability", rows)
    result.add("locomo_by_floor", floors)
    _print("locomo: relevance, and the observed share of evidence", rows)
    _print("locomo: by floor, questions in percent and results", floors)


def _print(title: str, figures: Sequence[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in figures for name in row))
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for row in figures:
        table.add_row(*(shown(row[name]) if name in row else "" for name in names))
    console.print(table)
