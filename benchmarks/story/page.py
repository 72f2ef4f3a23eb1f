"""The page about the month: what was done, in figures; never a word of what was said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.result import Result, shown
from benchmarks.story.census import Day

_DONE: Final = {
    "extract": "memories extracted from what users said (entries; one may hold several)",
    "supersede": "memories and facts whose place a newer statement took",
    "promote": "short-term memories that became long-term",
    "dream": "promotions of dream sweeps",
    "merge": "near-duplicates merged",
    "prune": "faded memories pruned",
    "expire": "memories that expired",
    "cap": "memories over a cap removed",
    "summarise": "summaries of conversations written or gone on with",
    "close": "sessions that ended by themselves",
    "clear": "working notes cleared with their conversation",
}


def write_page(
    path: Path,
    picture: Path,
    result: Result,
    days: Sequence[Day],
    rows: Sequence[Sequence[str]],
    example: Iterable[str],
) -> None:
    """Write the page, with a link to the picture beside it."""
    path.write_text("\n".join(_lines(picture.name, result, days, rows, example)) + "\n", encoding="utf-8")


def _lines(
    picture: str, result: Result, days: Sequence[Day], rows: Sequence[Sequence[str]], example: Iterable[str]
) -> Iterator[str]:
    figures = result.figures
    yield "# Thirty days of an agent's memory"
    yield ""
    yield "<!-- Written by `make story`; change benchmarks/story/page.py instead. -->"
    yield ""
    yield (
        f"What the jobs together make of a memory: {shown(figures['messages'])} messages told over thirty simulated"
        f" days, {shown(figures['questions_asked_during_the_month'])} questions asked meanwhile, and the jobs run as"
        " the clock runs them. The pipeline, the recall and the tasks are the real ones; only the clock is set. Of a"
        " data set the page holds figures alone, and nothing that was said."
    )
    yield ""
    yield f"![How memories, relevance, access and the work of the jobs moved over thirty days]({picture})"
    yield ""
    yield from _quality(rows)
    yield from _done(days)
    yield from _end(result, days)
    yield from example
    yield from _again(result)


def _quality(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "## What a recall gives, before and after"
    yield ""
    yield (
        "The same questions are asked of an agent after its month and of a twin that lived the same month without any"
        " job. any@k: a turn that holds the answer is among the first k results, in percent."
    )
    yield ""
    if not rows:
        yield "This conversation has no marked answers, so nothing could be measured: name a data set with `--locomo`."
        yield ""
        return
    yield "| questions | without maintenance | after thirty days of it |"
    yield "| --- | --- | --- |"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _done(days: Sequence[Day]) -> Iterator[str]:
    total: Counter[str] = Counter()
    for day in days:
        total.update(day.done)
    yield "## What was done"
    yield ""
    yield "Each is an entry of the curation log, and could be undone alone."
    yield ""
    yield "| entries | of what |"
    yield "| --- | --- |"
    for action, count in total.most_common():
        yield f"| {count:,} | {_DONE.get(action, action)} |"
    yield ""


def _end(result: Result, days: Sequence[Day]) -> Iterator[str]:
    last = days[-1]
    figures = result.figures
    kinds = Counter(one.kind for one in last.standing).most_common()
    sources = Counter(one.source for one in last.standing).most_common()
    yield "## What stands at the end"
    yield ""
    yield (
        f"{len(last.standing):,} memories: {last.of_lifetime('long_term'):,} long-term,"
        f" {last.of_lifetime('short_term'):,} short-term; {last.superseded:,} more are kept as superseded."
        f" By kind: {_listed(kinds)}. By source: {_listed(sources)}."
    )
    yield ""
    yield (
        f"Then all of it was undone, the newest first: {shown(figures['undone'])} entries."
        f" {shown(figures['refused_to_be_undone'])} were refused, because use had changed the same row since (a session"
        " that was opened again is open). Afterwards"
        f" {shown(figures['rows_that_differ_after_undoing_all'])} rows differed from those of a memory that no job ever"
        " touched."
    )
    yield ""


def _listed(counts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts) or "none"


def _again(result: Result) -> Iterator[str]:
    yield "## To tell it again"
    yield ""
    yield "    make story ARGS='--locomo path/to/locomo.json'"
    yield ""
    yield (
        "The page and the picture are written to `build/story`. Without `--locomo` it lives the conversation of"
        " `make demo`."
        f" Seed {result.seed}, measured on {result.date[:10]}, data: {result.settings.get('locomo') or 'the demo'}."
    )
