"""Builds a context: what an agent should know for its next answer, as one document within a token budget.

No language model is called unless a refiner is given: the same store, query and time give the same document. The newest
turn is always included, and everything that is left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as replace_fields

from adapters.language_models import LanguageModel
from adapters.tokens import TokenCounter, last_lines, truncate
from retrieval.context import refinement
from retrieval.context.budget import Cost, fill, fit
from retrieval.context.conversation import MIN_IMPORTANCE, chronological
from retrieval.context.instructions import write_section
from retrieval.context.prompt import (
    Frame,
    Item,
    assemble,
    day_of,
    headings,
    in_document_order,
    item_lines,
    memory_item,
    preamble,
    turn,
)
from retrieval.context.relevance import Candidate
from retrieval.context.selection import ContextRequest, Recall, Selection, select
from reverie.clock import from_micros
from reverie.memories.types import Provenance
from reverie.recall.types import ContextMemory, LeftOut
from storage.memories.instructions import StandingInstruction
from storage.pipeline.records import MessageRecord
from storage.recall.records import Hit
from storage.sessions.summary_text import without_quoted
from storage.stores import Store

# Lines are counted in groups of about this many characters, so that not many more are counted than fit.
_COUNT_GROUP_CHARACTERS: Final = 65_536
# At most this fraction (1/n) of the room is for the summary, for instructions, and for everything but the items: the
# turns come first.
_SUMMARY_SHARE: Final = 4
_INSTRUCTION_SHARE: Final = 4
_FRAME_SHARE: Final = 2
# With fewer tokens for memories, the sessions that they come from would take the place of memories.
_PLACES_FROM_TOKENS: Final = 1_000


@dataclass(frozen=True, slots=True)
class BuiltContext:
    """A document and its contents; `hits` are the chunks of its memories, to be recorded as recalled."""

    text: str
    tokens: int
    messages: list[MessageRecord]
    instructions: list[ContextMemory]
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
    recall: Recall,
    counter: TokenCounter,
    request: ContextRequest,
    *,
    room: int,
    refiner: LanguageModel | None,
    account: Store | None = None,
) -> BuiltContext:
    """Return the context of a session, at most `room` tokens.

    A `refiner` makes the last selection. `account` is the account's store, if `recall` searches it.

    Raises `NotFound` for an unknown session or channel, and `Rejected` for an invalid query.
    """
    selection = select(store, recall, request, account=account)
    return write(
        selection,
        counter,
        room=room,
        memory_room=request.memory_tokens,
        instruction_room=request.instruction_tokens,
        refiner=refiner,
    )


def write(
    selection: Selection,
    counter: TokenCounter,
    *,
    room: int,
    memory_room: int | None = None,
    instruction_room: int = 0,
    refiner: LanguageModel | None = None,
) -> BuiltContext:
    """Return the document of a selection, at most `room` tokens, of them `memory_room` for memories.

    The section of standing instructions has at most `instruction_room`.
    """
    instructions = write_section(
        selection.instructions, counter, room=min(instruction_room, room // _INSTRUCTION_SHARE)
    )
    selection = replace(selection, instructions=instructions)
    memory_room = room if memory_room is None else memory_room
    items = _items(selection, with_places=min(room, memory_room) >= _PLACES_FROM_TOKENS)
    draft = _draft(selection, items, counter, room, memory_room)
    refined, why = 0, ""
    if refiner is not None:
        draft, refined, why = _refine(draft, selection.query, refiner, counter)
    shown = [item for item in in_document_order(draft.items) if item.candidate is not None]
    candidates = [item.candidate for item in shown if item.candidate is not None]
    return BuiltContext(
        text=draft.text,
        tokens=draft.tokens,
        messages=chronological([item.message for item in draft.items if item.message is not None]),
        instructions=[_instruction(one, instructions.provenances.get(one.id)) for one in instructions.shown],
        memories=[_memory(item.text, candidate) for item, candidate in zip(shown, candidates, strict=True)],
        hits=[
            Hit(candidate.chunk_id, candidate.score, candidate.store, candidate.result.relevance)
            for candidate in candidates
        ],
        query=selection.query,
        left_out=replace_fields(
            _left_out(items, draft.items, draft.shortened, refined), instructions=instructions.left_out
        ),
        degraded="; ".join(part for part in (selection.degraded, why) if part),
    )


def _items(selection: Selection, *, with_places: bool) -> list[Item]:
    """Return everything that was selected, most important first: the last items are dropped first."""
    conversation = selection.conversation
    return [
        *(
            turn("recent", message, flagged=message.importance >= MIN_IMPORTANCE)
            for message in conversation.recent[::-1]
        ),
        *(turn("important", message, flagged=False) for message in conversation.important),
        *(turn("relevant", message, flagged=False) for message in conversation.relevant),
        *(
            memory_item(candidate, selection.session, selection.searched_channel, with_place=with_places)
            for candidate in selection.memories
            if not _is_told(candidate, selection)
        ),
    ]


def _is_told(candidate: Candidate, selection: Selection) -> bool:
    """Return whether a standing instruction says the same."""
    result = candidate.result
    return selection.instructions.repeats(
        memory=result.id if result.kind == "memory" else None,
        message=result.id if result.kind == "message" else result.source_message,
        text=result.text,
    )


def _draft(selection: Selection, items: Sequence[Item], counter: TokenCounter, room: int, memory_room: int) -> _Draft:
    """Return the document with as many of the items as fit."""
    frame = _frame(selection, counter, room)
    (overhead,) = counter.count([preamble(frame) + headings(items)])
    if overhead > room // _FRAME_SHARE:
        # Too little room for more than the newest turns: neither facts nor summary, one heading.
        frame, items = Frame(instructions=frame.instructions), [item for item in items if item.kind == "recent"]
        (overhead,) = counter.count([preamble(frame) + headings(items)])
    turns = [item for item in items if item.kind != "memory"]
    recent = sum(item.kind == "recent" for item in turns)
    costs = list(_with_days(_costs(turns, counter)))
    fitted = fit(costs, room - overhead, cuttable=recent)
    fitting, shortened = list(turns[: fitted.count]), 0
    if fitting and fitted.cut_last_to is not None:
        fitting[-1] = _cut(fitting[-1], fitted.cut_last_to, counter)
        shortened = 1
    elif fitted.count == len(turns):
        memories = [item for item in items if item.kind == "memory"]
        left = min(memory_room, room - overhead - sum(costs))
        fitting += (memories[position] for position in fill(_costs(memories, counter), left))
    frame = _without_quotes(frame, selection.summary, fitting, counter)
    return _shrink(_Draft(frame, fitting, "", 0, shortened), counter, room)


def _frame(selection: Selection, counter: TokenCounter, room: int) -> Frame:
    summary = last_lines(selection.summary, room // _SUMMARY_SHARE, counter)
    last_at = selection.conversation.recent[-1].created_at if selection.conversation.recent else 0
    return Frame(
        selection.session,
        selection.channel,
        summary,
        last_at,
        instructions=selection.instructions.section,
        nothing_fits=selection.nothing_fits,
        searched_channel=selection.searched_channel,
    )


def _without_quotes(frame: Frame, summary: str, shown: Sequence[Item], counter: TokenCounter) -> Frame:
    """Replace the lines of the summary that quote an item of the document by other lines of the summary."""
    (room,) = counter.count([frame.summary])
    rest = without_quoted(summary, [item.text for item in shown])
    return replace(frame, summary=last_lines(rest, room, counter) if frame.summary else "")


def _costs(items: Sequence[Item], counter: TokenCounter) -> Iterator[Cost]:
    """Yield the tokens of each item; items are counted in groups, as they are needed."""
    days = [day_of(item) for item in items]
    distinct = list(dict.fromkeys(day for _, day in days))
    day_tokens = dict(zip(distinct, counter.count(distinct), strict=True))
    return (
        Cost(tokens, day, day_tokens[day[1]]) for tokens, day in zip(_line_costs(items, counter), days, strict=False)
    )


def _line_costs(items: Sequence[Item], counter: TokenCounter) -> Iterator[int]:
    group: list[str] = []
    for item in items:
        group.append(item_lines(item))
        if sum(map(len, group)) >= _COUNT_GROUP_CHARACTERS:
            yield from counter.count(group)
            group = []
    yield from counter.count(group)


def _with_days(costs: Iterable[Cost]) -> Iterator[int]:
    """Yield the tokens of each item, the first of each day together with the line of that day."""
    days: set[tuple[str, str]] = set()
    for cost in costs:
        yield cost.tokens + (0 if cost.day in days else cost.day_tokens)
        days.add(cost.day)


def _cut(item: Item, limit: int, counter: TokenCounter) -> Item:
    """Cut an item's text so that it has at most `limit` tokens with its day; without text it may still have more."""
    (day,) = counter.count([day_of(item)[1]])
    allowed = limit = limit - day
    while True:
        shorter = item.shortened(truncate(item.text, allowed, counter))
        (tokens,) = counter.count([item_lines(shorter)])
        if tokens <= limit:
            return shorter
        if allowed <= 0:
            return shorter.nameless()
        # What precedes the text, and the quote mark of each of its lines, cost tokens too.
        allowed = min(allowed - 1, allowed * limit // tokens) if limit > 0 else 0


def _shrink(draft: _Draft, counter: TokenCounter, room: int) -> _Draft:
    """Write the draft's text, and drop or cut items until it fits: a whole may have more tokens than its parts."""
    items, shortened = draft.items, draft.shortened
    while True:
        text = assemble(draft.frame, items)
        (tokens,) = counter.count([text])
        if tokens > room and len(items) > 1:
            items = items[:-1]
            continue
        if tokens > room and items:
            (size,) = counter.count([day_of(items[0])[1] + item_lines(items[0])])
            shorter = _cut(items[0], size - (tokens - room), counter)
            if shorter != items[0]:
                items, shortened = [shorter], 1
                continue
        return replace(draft, items=items, text=text, tokens=tokens, shortened=shortened)


def _refine(draft: _Draft, query: str, refiner: LanguageModel, counter: TokenCounter) -> tuple[_Draft, int, str]:
    """Return the draft without the items that the model drops, how many these are, and why it was not refined.

    Recent turns have no number, so a model cannot drop them.
    """
    optional = [item for item in in_document_order(draft.items) if item.kind != "recent"]
    numbers = {item.key: position for position, item in enumerate(optional, start=1)}
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


def _memory(text: str, candidate: Candidate) -> ContextMemory:
    result = candidate.result
    return ContextMemory(
        id=result.id,
        kind=result.kind,
        tier=candidate.tier,
        text=text,
        created_at=result.created_at,
        session=result.session,
        role=result.role,
        name=result.name,
        tags=result.tags,
        source_message=result.source_message,
        provenance=candidate.provenance,
    )


def _instruction(one: StandingInstruction, provenance: Provenance | None) -> ContextMemory:
    return ContextMemory(
        id=one.id,
        kind="memory",
        tier=one.tier,
        text=one.content,
        created_at=from_micros(one.created_at),
        session=one.session,
        source_message=one.source_message,
        provenance=provenance,
    )


def _left_out(selected: Sequence[Item], included: Sequence[Item], shortened: int, refined: int) -> LeftOut:
    """Count the selected items of each kind that are not included, and of them those that the refiner dropped."""

    def missing(kind: str) -> int:
        return sum(item.kind == kind for item in selected) - sum(item.kind == kind for item in included)

    return LeftOut(
        memories=missing("memory"),
        relevant=missing("relevant"),
        important=missing("important"),
        recent=missing("recent"),
        shortened=shortened,
        refined=refined,
    )
