"""`context`: what an agent should know for its next answer, as one document within a number of tokens.

Nothing here asks a language model unless the caller wants its selection refined; the same store, query and moment
give the same document. The newest turn is always in it, and what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from adapters.language_models import LanguageModel
from adapters.tokens import TokenCounter, cut, newest_lines
from retrieval import refinement
from retrieval.budget import fit
from retrieval.prompt import Frame, Item, arranged, assemble, head_of, headings_of, line_of, remembered, turn
from retrieval.scopes import Candidate
from retrieval.selection import Asking, Search, Selected, select
from retrieval.trihybrid import IMPORTANT, in_order
from reverie.clock import to_micros
from reverie.types import ContextMemory, LeftOut
from storage.pipeline.records import MessageRecord
from storage.recall.records import Hit
from storage.sessions.summary_text import without_quoted
from storage.stores import Store

# Lines are counted in groups of about this many characters, so that no more is counted than fits.
_COUNTED_CHARACTERS: Final = 65_536
# A summary and the facts of a session may be long; the turns come first.
_SUMMARY_SHARE: Final = 4
_FRAME_SHARE: Final = 2


@dataclass(frozen=True, slots=True)
class Built:
    """A document and what it is made of; `hits` are the chunks of its memories, for who records what was recalled."""

    text: str
    tokens: int
    messages: list[MessageRecord]
    memories: list[ContextMemory]
    hits: list[Hit]
    query: str
    left_out: LeftOut
    degraded: str


@dataclass(frozen=True, slots=True)
class _Draft:
    frame: Frame
    items: list[Item]
    text: str
    tokens: int
    shortened: int


def build_context(
    store: Store,
    search: Search,
    counter: TokenCounter,
    asking: Asking,
    *,
    room: int,
    refiner: LanguageModel | None,
    account: Store | None = None,
) -> Built:
    """The document for one session, of at most `room` tokens. With a `refiner` it makes the last selection.

    `account` is the store of the memories that hold across workspaces, where `search` looks there.

    Raises `NotFound` for an unknown session and `Rejected` for a query at fault.
    """
    return write(select(store, search, asking, account=account), counter, room=room, refiner=refiner)


def write(selected: Selected, counter: TokenCounter, *, room: int, refiner: LanguageModel | None = None) -> Built:
    """The document for what was selected, of at most `room` tokens."""
    wanted = _items(selected)
    draft = _draft(selected, wanted, counter, room)
    refined, why = 0, ""
    if refiner is not None:
        draft, refined, why = _refined(draft, selected.query, refiner, counter)
    degraded = "; ".join(part for part in (selected.degraded, why) if part)
    return _built(selected, wanted, draft, refined, degraded)


def _items(selected: Selected) -> list[Item]:
    """Everything that was selected, in the order of what matters most: what stands last is dropped first."""
    talk = selected.conversation
    recent = [turn("recent", message, flagged=message.importance >= IMPORTANT) for message in reversed(talk.recent)]
    important = [turn("important", message, flagged=False) for message in talk.important]
    relevant = [turn("relevant", message, flagged=False) for message in talk.relevant]
    memories = [remembered(found, said_at=to_micros(found.memory.created_at)) for found in selected.memories]
    return [*recent, *important, *relevant, *memories]


def _draft(selected: Selected, items: Sequence[Item], counter: TokenCounter, room: int) -> _Draft:
    """The document with as many of the items as fit."""
    frame = _frame(selected, counter, room)
    (overhead,) = counter.count([head_of(frame) + headings_of(items)])
    if overhead > room // _FRAME_SHARE:
        # Too little room for more than the newest turns: neither facts nor summary, one heading.
        frame, items = Frame(), [item for item in items if item.kind == "recent"]
        (overhead,) = counter.count([head_of(frame) + headings_of(items)])
    recent = sum(item.kind == "recent" for item in items)
    fitted = fit(_costs(items, counter), room - overhead, cuttable=recent)
    kept, shortened = list(items[: fitted.kept]), 0
    if kept and fitted.cut_last_to is not None:
        kept[-1] = _cut(kept[-1], fitted.cut_last_to, counter)
        shortened = 1
    frame = _without_shown(frame, selected.summary, kept, counter)
    return _within(_Draft(frame, kept, "", 0, shortened), counter, room)


def _frame(selected: Selected, counter: TokenCounter, room: int) -> Frame:
    summary = newest_lines(selected.summary, room // _SUMMARY_SHARE, counter)
    last_at = selected.conversation.recent[-1].created_at if selected.conversation.recent else 0
    return Frame(selected.session, selected.channel, summary, last_at)


def _without_shown(frame: Frame, summary: str, shown: Sequence[Item], counter: TokenCounter) -> Frame:
    """The frame with other lines of the summary in place of those that quote what is shown as it was said."""
    (room,) = counter.count([frame.summary])
    rest = without_quoted(summary, [item.text for item in shown])
    return replace(frame, summary=newest_lines(rest, room, counter) if frame.summary else "")


def _costs(items: Sequence[Item], counter: TokenCounter) -> Iterator[int]:
    """The tokens of each item's lines, read no further than they are asked for."""
    group: list[str] = []
    for item in items:
        group.append(line_of(item))
        if sum(map(len, group)) >= _COUNTED_CHARACTERS:
            yield from counter.count(group)
            group = []
    yield from counter.count(group)


def _cut(item: Item, limit: int, counter: TokenCounter) -> Item:
    """An item whose lines have at most `limit` tokens, as far as cutting its text can bring that about."""
    allowed = limit
    while True:
        shorter = item.shortened(cut(item.text, allowed, counter))
        (tokens,) = counter.count([line_of(shorter)])
        if tokens <= limit:
            return shorter
        if allowed <= 0:
            return shorter.nameless()
        # What stands before the text, and the marks of each of its lines, cost tokens too.
        allowed = min(allowed - 1, allowed * limit // tokens) if limit > 0 else 0


def _within(draft: _Draft, counter: TokenCounter, room: int) -> _Draft:
    """The draft with its text, counted as a whole: a tokenizer may give a whole more tokens than its parts have."""
    items, shortened = draft.items, draft.shortened
    while True:
        text = assemble(draft.frame, items)
        (tokens,) = counter.count([text])
        if tokens <= room:
            return replace(draft, items=items, text=text, tokens=tokens, shortened=shortened)
        if len(items) > 1:
            items = items[:-1]
            continue
        if not items:
            return replace(draft, items=items, text=text, tokens=tokens, shortened=shortened)
        (size,) = counter.count([line_of(items[0])])
        shorter = _cut(items[0], size - (tokens - room), counter)
        if shorter == items[0]:
            return replace(draft, items=items, text=text, tokens=tokens, shortened=shortened)
        items, shortened = [shorter], 1


def _refined(draft: _Draft, query: str, refiner: LanguageModel, counter: TokenCounter) -> tuple[_Draft, int, str]:
    """The draft without the items that the model does not keep, how many they are, or why it stays as it is.

    Recent turns have no number: a model cannot drop them.
    """
    optional = [item for item in arranged(draft.items) if item.kind != "recent"]
    numbers = {item.key: place for place, item in enumerate(optional, start=1)}
    if not numbers:
        return draft, 0, ""
    numbered = assemble(draft.frame, draft.items, numbers=numbers)
    try:
        keep = refinement.ask(refiner, query=query, document=numbered, items=len(numbers))
    except refinement.NoVerdict as error:
        return draft, 0, f"not refined: {error}"
    items = [item for item in draft.items if numbers.get(item.key) in keep or item.key not in numbers]
    dropped = len(draft.items) - len(items)
    if not dropped:
        return draft, 0, ""
    text = assemble(draft.frame, items)
    return replace(draft, items=items, text=text, tokens=counter.count([text])[0]), dropped, ""


def _built(selected: Selected, wanted: Sequence[Item], draft: _Draft, refined: int, degraded: str) -> Built:
    items = draft.items
    shown = [item for item in arranged(items) if item.candidate is not None]
    candidates = [item.candidate for item in shown if item.candidate is not None]
    return Built(
        text=draft.text,
        tokens=draft.tokens,
        messages=in_order([item.message for item in items if item.message is not None]),
        memories=[_memory(item.text, candidate) for item, candidate in zip(shown, candidates, strict=True)],
        hits=[Hit(candidate.chunk_id, candidate.score, candidate.store) for candidate in candidates],
        query=selected.query,
        left_out=_left_out(wanted, items, draft.shortened, refined),
        degraded=degraded,
    )


def _memory(text: str, candidate: Candidate) -> ContextMemory:
    memory = candidate.memory
    return ContextMemory(
        id=memory.id,
        kind=memory.kind,
        tier=candidate.tier,
        text=text,
        created_at=memory.created_at,
        session=memory.session,
        role=memory.role,
        name=memory.name,
        tags=memory.tags,
        source_message=memory.source_message,
    )


def _left_out(wanted: Sequence[Item], kept: Sequence[Item], shortened: int, refined: int) -> LeftOut:
    """How many of each kind did not get in, and of them how many the language model left out."""

    def missing(kind: str) -> int:
        return sum(item.kind == kind for item in wanted) - sum(item.kind == kind for item in kept)

    return LeftOut(
        memories=missing("memory"),
        relevant=missing("relevant"),
        important=missing("important"),
        recent=missing("recent"),
        shortened=shortened,
        refined=refined,
    )
