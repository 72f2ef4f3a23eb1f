"""Write the page about the simulated month. It contains figures only, and no text of a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.result import Result, shown
from benchmarks.story.census import Day

_DONE: Final = {
    "extract": "memories extracted from what users said (entries; one may hold several)",
    "supersede": "memories and facts superseded by a newer statement",
    "promote": "short-term memories that became long-term",
    "dream": "promotions of dream sweeps",
    "merge": "near-duplicates merged",
    "prune": "faded memories pruned",
    "expire": "memories that expired",
    "cap": "memories over a cap removed",
    "summarise": "summaries of conversations written or extended",
    "close": "idle sessions closed",
    "clear": "working notes cleared with their conversation",
}


def write_page(path: Path, result: Result, days: Sequence[Day], rows: Sequence[Sequence[str]]) -> None:
    """Write the page."""
    path.write_text("\n".join(_lines(result, days, rows)) + "\n", encoding="utf-8")


def _lines(result: Result, days: Sequence[Day], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    figures = result.figures
    count = "thirty" if len(days) == 30 else str(len(days))
    yield f"# {count.capitalize()} days of an agent's memory"
    yield ""
    yield "<!-- Written by `make story`; change benchmarks/story/page.py instead. -->"
    yield ""
    yield (
        f"{shown(figures['messages'])} messages are stored over {count} simulated days,"
        f" {shown(figures['questions_asked_during_the_month'])} questions are asked meanwhile, and the jobs run at"
        " their intervals. Pipeline, recall and tasks are the real ones; only the clock is simulated."
    )
    yield ""
    yield from _quality(rows, count)
    yield from _done(days)
    yield from _last_day(result, days)
    yield from _how_to_repeat(result)


def _quality(rows: Sequence[Sequence[str]], count: str) -> Iterator[str]:
    yield "## Recall and context with and without the jobs"
    yield ""
    yield (
        "The same questions are put to an agent after its month, and to a twin that had the same month without any job."
        " any@k: a turn with the answer is among the first k results, in percent. Context any: that turn, or a memory"
        " made from it, is in the context of a new session."
    )
    yield ""
    if not rows:
        yield "This conversation has no marked answers, so nothing could be measured: give a data set with `--locomo`."
        yield ""
        return
    yield f"| questions | without jobs | after {count} days of jobs |"
    yield "| --- | --- | --- |"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _done(days: Sequence[Day]) -> Iterator[str]:
    total: Counter[str] = Counter()
    for day in days:
        total.update(day.done)
    yield "## What the jobs did"
    yield ""
    yield "Each is an entry of the curation log and can be undone by itself."
    yield ""
    yield "| entries | action |"
    yield "| --- | --- |"
    for action, count in total.most_common():
        yield f"| {count:,} | {_DONE.get(action, action)} |"
    yield ""


def _last_day(result: Result, days: Sequence[Day]) -> Iterator[str]:
    last = days[-1]
    figures = result.figures
    kinds = Counter(one.kind for one in last.standing).most_common()
    sources = Counter(one.source for one in last.standing).most_common()
    yield "## Memories at the end"
    yield ""
    yield (
        f"{len(last.standing):,} memories: {last.of_lifetime('long_term'):,} long-term,"
        f" {last.of_lifetime('short_term'):,} short-term; {last.superseded:,} more are kept as superseded."
        f" By kind: {_listed(kinds)}. By source: {_listed(sources)}."
    )
    yield ""
    yield (
        f"Then everything was undone, newest first: {shown(figures['undone'])} entries."
        f" {shown(figures['refused_to_be_undone'])} were refused because normal use had changed the same row since,"
        " such as a session that had become active again. Afterwards"
        f" {shown(figures['rows_that_differ_after_undoing_all'])} rows differed from those of the twin without jobs."
    )
    yield ""


def _listed(counts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts) or "none"


def _how_to_repeat(result: Result) -> Iterator[str]:
    yield "## Repeating it"
    yield ""
    yield "    make story ARGS='--locomo path/to/locomo.json'"
    yield ""
    yield (
        "The page is written to `build/story`. Without `--locomo` the conversation of `make demo` is"
        " used."
        f" Seed {result.seed}, measured on {result.date[:10]}, data: {result.settings.get('locomo') or 'the demo'}."
    )
