"""`reverie recall`: what fits a query, best first."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, day_of, print_json, say, shortened, when
from reverie.counts import counted
from reverie.recall.calls import Recall
from reverie.recall.types import Explanation, RecallResponse


@application.command()
@takes(Recall, arguments=("query",), leave_out=("query_embedding",), options={"rerank": "--rerank/--no-rerank"})
def recall(context: typer.Context, call: Recall, as_json: AsJson = False) -> None:
    """Recall messages, files and memories that fit a query, best first."""
    response = invocation(context).send(call)
    if as_json:
        print_json(response)
    else:
        _print_recall(response)


def _print_recall(response: RecallResponse) -> None:
    if response.degraded:
        say(f"({response.degraded})")
    for place, memory in enumerate(response.results, start=1):
        who = memory.name or memory.role or " ".join(part for part in (memory.tier, memory.kind) if part)
        for turn in memory.before:
            say(f"     {turn.name or turn.role}: {shortened(turn.text, 120)}")
        # An excerpt is a chunk, which begins with the speaker's name.
        text = (memory.excerpt or memory.text).removeprefix(f"{memory.name}: ")
        say(f"{place}. {when(memory.created_at)}  {who}: {shortened(text, 200)}")
        for turn in memory.after:
            say(f"     {turn.name or turn.role}: {shortened(turn.text, 120)}")
        code = f" ({memory.ref_code})" if memory.ref_code else ""
        place_of = f" in session {memory.session}{code}" if memory.session else ""
        tags = f", tags {' '.join(memory.tags)}" if memory.tags else ""
        folded = f", {counted(memory.duplicates, 'duplicate')} left out" if memory.duplicates else ""
        until = f", until {day_of(memory.valid_to)}" if memory.valid_to else ""
        say(f"     {memory.kind} {memory.id}{place_of}{until}, relevance {memory.relevance:.2f}{tags}{folded}")
        if memory.explanation is not None:
            say(f"     {_explained(memory.explanation)}")
    if not response.results:
        say("Nothing found.")


def _explained(explanation: Explanation) -> str:
    names = ("keyword", "keyword_around", "vector", "vector_around", "speaker", "date")
    scores = [(name.replace("_", " "), getattr(explanation, name)) for name in names]
    parts = [f"{name} rank {one.rank} ({one.normalised:.3f})" for name, one in scores if one is not None]
    reranked = "" if explanation.reranker is None else f"; reranker {explanation.reranker:.3f}"
    return f"score {explanation.score:.3f}: " + (", ".join(parts) or "-") + reranked
