"""`reverie recall`, `context` and `recalls`: what fits a query, what an agent should know, and what recalls found."""

from __future__ import annotations

from cli.application import Invocation
from cli.groups import Group, Row, root
from cli.output import AsJson, day_of, note, print_result, print_table, say, shortened, when
from reverie.counts import counted
from reverie.memories.types import changed_text
from reverie.recall.calls import GetContext, ListContexts, ListRecallEvents, Recall, ShowContext
from reverie.recall.types import Context, Explanation, RecallResponse, ServedContext

contexts = Group("contexts")


@root.says(
    "recall",
    Recall,
    arguments=("query",),
    leave_out=("query_embedding",),
    options={"rerank": "--rerank/--no-rerank"},
)
def _print_recall(response: RecallResponse) -> None:
    """Recall messages, files and memories that fit a query, best first."""
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
        ended = memory.valid_to or memory.replaced_at
        until = f", {'until' if memory.valid_to else 'replaced on'} {day_of(ended)}" if ended else ""
        if memory.changed_since is not None:
            say(f"     {changed_text(memory.changed_since)}")
        if memory.waits:
            say("     waits for approval: no context has it")
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


@root.says("context", GetContext, arguments=("session", "query"), options={"token_budget": "--budget"})
def _print_context(document: Context) -> None:
    """Show what an agent should know before it answers."""
    say(document.text.rstrip())
    note(_summary(document))


def _summary(document: Context) -> str:
    """Return one line about the size of the document, and what was left out of it."""
    left = document.left_out
    turns, memories = counted(len(document.messages), "turn"), counted(len(document.memories), "memory")
    instructions = f"{counted(len(document.instructions), 'standing instruction')}, " if document.instructions else ""
    parts = [f"{counted(document.tokens, 'token')}, {instructions}{turns}, {memories}"]
    dropped = left.memories + left.relevant + left.important + left.recent + left.instructions
    if dropped or left.shortened:
        parts.append(f"{dropped} left out, {left.shortened} shortened")
    if left.duplicates:
        parts.append(f"{counted(left.duplicates, 'duplicate')} not repeated")
    return "(" + "; ".join([*parts, document.degraded] if document.degraded else parts) + ")"


@root.command("recalls", ListRecallEvents, helps={"explain": "Show scores."})
def recalls(command: Invocation, call: ListRecallEvents, as_json: AsJson = False) -> None:
    """List what the agent's recalls found, newest first, and how often."""
    events = command.send(call).recall_events
    rows = (
        (
            when(event.at),
            shortened(event.query, 60),
            f"{event.kind} {event.id}",
            shortened(event.session or "-", 30),
            event.access_count,
            *((f"{event.score:.3f}",) if event.score is not None else ()),
        )
        for event in events
    )
    columns = ("at", "query", "found", "session", "times", *(("score",) if call.explain else ()))
    empty = f"Agent {command.agent} has recalled nothing in workspace {command.workspace} yet."
    empty += "" if call.user else " What it recalled for a user is listed with --user NAME."
    print_result(events, as_json, lambda: print_table(columns, rows, empty=empty))


@contexts.lists(
    "list",
    ListContexts,
    ("id", "at", "session", "query", "included", "left out", "tokens"),
    none="contexts",
)
def _context_row(served: ServedContext) -> Row:
    """List the contexts that the agent got in the last days, newest first."""
    query = shortened(served.query or _unasked(served), 60)
    return served.id, when(served.at), served.session, query, served.included, served.left_out, served.tokens


def _unasked(served: ServedContext) -> str:
    return "the newest message of the user" if served.session else "no query"


@contexts.says("show", ShowContext, arguments=("id",))
def _show_context(served: ServedContext) -> None:
    """Show what a context included, in which order and how relevant, and what it left out and why."""
    asked = f"for {served.query!r}" if served.query else f"for {_unasked(served)}"
    say(f"{when(served.at)}  {f'session {served.session}, ' if served.session else ''}{asked}")
    say(f"{served.tokens:,} of {served.token_budget:,} tokens, {served.included} included, {served.left_out} left out")
    if served.degraded:
        say(f"({served.degraded})")
    section = ""
    for item in served.items:
        heading = f"left out: {item.left_out}" if item.left_out else item.section
        if heading != section:
            section = heading
            say(f"\n{heading}")
        relevance = "" if item.relevance is None else f"  relevance {item.relevance:.2f}"
        changed = "  (changed since)" if item.changed else ""
        text = "(forgotten)" if item.forgotten else shortened(item.text or "", 160)
        say(f"  {text}{changed}\n      {item.kind} {item.id}{relevance}")
