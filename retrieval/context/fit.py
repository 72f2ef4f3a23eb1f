"""Fits the selected items into a token budget: the second of the three phases of a context.

The newest turn is always included. The first turn of the conversation that does not fit ends the list of turns, so the
last are dropped first: relevant turns, then important turns, then the oldest of the recent turns. Memories from
elsewhere fill the rest: an item that does not fit is skipped, and smaller ones of a lower rank may still fit. If not
all fit, the first are included whole, and of each further message only the sentence with most of the query's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from adapters.tokens import ELLIPSIS, TokenCounter, last_lines, truncate
from retrieval.context.document import (
    INSTRUCTIONS_HEADING,
    Frame,
    Item,
    assemble,
    date_of,
    headings_of,
    items_of,
    label,
    lines_of,
)
from retrieval.context.select import Selection
from retrieval.context.standing import Instructions
from reverie.errors import Rejected
from reverie.memories.types import changed_text
from reverie.parts import in_parts
from reverie.recall.calls import MIN_CONTEXT_TOKENS
from storage.memories.instructions import MAX_COUNTED, StandingInstruction
from storage.recall.words import is_function_word, words_of
from storage.sessions.summaries import without_quoted

# Lines are counted in groups of about this many characters: some 1,000 tokens, so that not many more are counted than
# fit.
_COUNT_GROUP_CHARACTERS: Final = 4_096
# At most this fraction (1/n) of the room is for the summary, for instructions, and for all but the items: turns come
# first.
_SUMMARY_SHARE: Final = 4
_INSTRUCTION_SHARE: Final = 4
_FRAME_SHARE: Final = 2
# An instruction longer than this share (1/n) of the tokens for instructions is cut: it must not displace all others.
_LONGEST_INSTRUCTION_SHARE: Final = 2
# With fewer tokens for memories, the names of their sessions would take the place of memories.
_PLACES_FROM_TOKENS: Final = 1_000
# Hardly any item has fewer tokens: a date, a speaker and a few words.
_SHORT_ITEM_TOKENS: Final = 16
# This part (1/n) of the room for memories is for whole texts. docs/recall-measurements.md has the figures.
_WHOLE_SHARE: Final = 3
# An excerpt that has more than this share of a text saves too little.
_EXCERPT_SHARE: Final = 0.8
_SENTENCE = re.compile("(?<=[.!?])\\s{1,9}|(?<=[\u3002\uff01\uff1f])|\n")
_QUESTION_MARKS: Final = ("?", "\uff1f", "\u061f")
# Origins of an instruction that need no mark: a user, or the agent itself, on behalf of its users.
_OWN_WORD: Final = frozenset({"user", "agent", "unknown"})


@dataclass(frozen=True, slots=True)
class Fitted:
    """A document within its tokens: the frame and the items that fit, most important first, and its text.

    `selected` are all items that should be included, `instructions` the instructions in the frame. `shortened` counts
    messages that were cut.
    """

    selected: Sequence[Item]
    instructions: Sequence[StandingInstruction]
    frame: Frame
    items: Sequence[Item]
    shortened: int = 0
    text: str = ""
    tokens: int = 0


def room_of(token_budget: int, *, reserved: int = 0) -> int:
    """Return the tokens that a document may have. Raises `Rejected`, naming the field, if they are too few."""
    if token_budget - reserved >= MIN_CONTEXT_TOKENS:
        return token_budget - reserved
    if token_budget < MIN_CONTEXT_TOKENS:
        text = f"token_budget is {token_budget:,}: a document needs at least {MIN_CONTEXT_TOKENS}"
        raise Rejected(text, field="token_budget")
    raise Rejected(
        f"reserved_tokens is {reserved:,}, which leaves less than {MIN_CONTEXT_TOKENS} of {token_budget:,} tokens for"
        " the document: lower it, or leave it out",
        field="reserved_tokens",
    )


def fit(
    selection: Selection,
    counter: TokenCounter,
    *,
    room: int,
    memory_room: int | None = None,
    instruction_room: int = 0,
) -> Fitted:
    """Return the document of a selection with as many of the items as fit into `room` tokens.

    Of these tokens, `memory_room` are for memories, and at most `instruction_room` for standing instructions.
    """
    instructions, section = instruction_section(
        selection.instructions, counter, room=min(instruction_room, room // _INSTRUCTION_SHARE)
    )
    selection = replace(selection, instructions=replace(selection.instructions, newest=instructions))
    memory_room = room if memory_room is None else memory_room
    selected = items_of(selection, with_places=min(room, memory_room) >= _PLACES_FROM_TOKENS)
    frame, items = _frame(selection, section, counter, room), selected
    (overhead,) = counter.count([frame.text() + headings_of(items)])
    if overhead > room // _FRAME_SHARE:
        # There is room only for the newest turns: no facts, no summary, one heading.
        frame, items = Frame(instructions=section), [item for item in items if item.kind == "recent"]
        (overhead,) = counter.count([frame.text() + headings_of(items)])
    included, shortened = _included(items, counter, room - overhead, memory_room, selection.query)
    frame = _without_quotes(frame, selection.summary, included, counter)
    return _shrunk_to_fit(Fitted(selected, instructions, frame, included, shortened), counter, room)


def _frame(selection: Selection, section: str, counter: TokenCounter, room: int) -> Frame:
    recent = selection.conversation.recent
    return Frame(
        selection.session if selection.session.id else None,
        last_lines(selection.summary, room // _SUMMARY_SHARE, counter),
        last_at=recent[-1].created_at if recent else 0,
        instructions=section,
        nothing_fits=selection.nothing_fits,
        searched_channel=selection.searched_channel,
    )


def _without_quotes(frame: Frame, summary: str, shown: Sequence[Item], counter: TokenCounter) -> Frame:
    """Replace the lines of the summary that quote an item of the document by other lines of the summary."""
    (room,) = counter.count([frame.summary])
    rest = without_quoted(summary, [item.text for item in shown])
    return replace(frame, summary=last_lines(rest, room, counter) if frame.summary else "")


def _included(
    items: Sequence[Item], counter: TokenCounter, room: int, memory_room: int, query: str
) -> tuple[list[Item], int]:
    """Return the items that fit, the last turn cut if necessary, and the number of cut items."""
    turns = [item for item in items if item.kind != "memory"]
    costs = list(_with_days(_costs(turns, counter)))
    count, cut_to = fitting_prefix(costs, room, cuttable=sum(item.kind == "recent" for item in turns))
    included = turns[:count]
    if included and cut_to is not None:
        return [*included[:-1], _cut(included[-1], cut_to, counter)], 1
    if count == len(turns):
        memories = [item for item in items if item.kind == "memory"]
        included += _fitting_items(memories, counter, min(memory_room, room - sum(costs)), query)
    return included, 0


# --- what an item costs ---


class _Cost(NamedTuple):
    """The tokens of an item, and the tokens of the line of its day, which all items of that day share."""

    tokens: int
    day: tuple[str, str]
    day_tokens: int


def _costs(items: Sequence[Item], counter: TokenCounter) -> Iterator[_Cost]:
    """Yield the tokens of each item; items are counted in groups, as they are needed."""
    days = [item.day for item in items]
    distinct = list(dict.fromkeys(day for _, day in days))
    day_tokens = dict(zip(distinct, counter.count(distinct), strict=True))
    return (
        _Cost(tokens, day, day_tokens[day[1]]) for tokens, day in zip(_line_costs(items, counter), days, strict=False)
    )


def _line_costs(items: Sequence[Item], counter: TokenCounter) -> Iterator[int]:
    sized = ((lines, len(lines)) for lines in (item.lines() for item in items))
    for group in in_parts(sized, size=_COUNT_GROUP_CHARACTERS):
        yield from counter.count(group)


def _with_days(costs: Iterable[_Cost]) -> Iterator[int]:
    """Yield the tokens of each item; the first item of a day includes the line of that day."""
    days: set[tuple[str, str]] = set()
    for cost in costs:
        yield cost.tokens + (0 if cost.day in days else cost.day_tokens)
        days.add(cost.day)


# --- what fits ---


def fitting_prefix(costs: Iterable[int], room: int, *, cuttable: int) -> tuple[int, int | None]:
    """Return how many items fit into `room` tokens, and the tokens to which the last one has to be cut, or None.

    `costs` are the tokens of the items, read no further than needed. The first item is always included. If one of the
    first `cuttable` items is larger than the whole room, it is included as the last, cut to the tokens that are left,
    if these are enough for a document.
    """
    used = count = 0
    for cost in costs:
        left = room - used
        if cost > left:
            is_cut = count == 0 or (count < cuttable and cost > room and left >= MIN_CONTEXT_TOKENS)
            return (count + 1, left) if is_cut else (count, None)
        used += cost
        count += 1
    return count, None


def _fitting_items(items: Sequence[Item], counter: TokenCounter, room: int, query: str) -> list[Item]:
    """Return the items that fit into `room` tokens; each is taken if it fits into the rest of the room.

    After the first third of the room, items are taken as excerpts. Tokens that are left in the end replace excerpts by
    whole texts again, best first.
    """
    chosen: list[tuple[Item, Item, int]] = []
    days: set[tuple[str, str]] = set()
    asked, left = _words(query), room
    for whole, cost in zip(items, _costs(items, counter), strict=False):
        item, tokens = whole, cost.tokens
        if room - left >= room // _WHOLE_SHARE:
            item = _excerpt(whole, asked)
            (tokens,) = counter.count([item.lines()]) if item is not whole else (tokens,)
        with_day = tokens + (0 if cost.day in days else cost.day_tokens)
        if with_day <= left:
            chosen.append((item, whole, cost.tokens - tokens))
            days.add(cost.day)
            left -= with_day
        if left < _SHORT_ITEM_TOKENS:
            break
    included = []
    for item, whole, more in chosen:
        if item is not whole and more <= left:
            item, left = whole, left - more
        included.append(item)
    return included


def _excerpt(item: Item, asked: frozenset[str]) -> Item:
    """Return a message shortened to the sentence with most of the words `asked`, preferably no question.

    Other items are returned unchanged, and so are messages with a remark about the whole text.
    """
    is_message = item.candidate is not None and item.candidate.result.kind == "message"
    if not is_message or item.remarks or not (statements := _statements(item.text)):
        return item
    best, _, is_last = max(statements, key=lambda one: (len(one[1] & asked), len(one[1])))
    shown = f"{ELLIPSIS} {best}" if is_last else f"{best} {ELLIPSIS}"
    return item if len(best) > _EXCERPT_SHARE * len(item.text) else item.shortened(shown)


@lru_cache(maxsize=4_096)
def _statements(text: str) -> tuple[tuple[str, frozenset[str], bool], ...]:
    """Return the sentences that are no questions, or all if there are no others; none if there is only one sentence.

    Each comes with its words, and whether it is the last of the text.
    """
    sentences = [part.strip() for part in _SENTENCE.split(text) if part.strip()]
    if len(sentences) < 2:
        return ()
    statements = [sentence for sentence in sentences if not sentence.endswith(_QUESTION_MARKS)] or sentences
    return tuple((sentence, _words(sentence), sentence == sentences[-1]) for sentence in statements)


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in words_of(text) if not is_function_word(word))


def _cut(item: Item, limit: int, counter: TokenCounter) -> Item:
    """Cut an item's text so that item and day have at most `limit` tokens; even without text they may have more."""
    (day,) = counter.count([item.day[1]])
    allowed = limit = limit - day
    while True:
        shorter = item.shortened(truncate(item.text, allowed, counter))
        (tokens,) = counter.count([shorter.lines()])
        if tokens <= limit:
            return shorter
        if allowed <= 0:
            return shorter.nameless()
        # The part before the text and the quotation mark of each line cost tokens, too.
        allowed = min(allowed - 1, allowed * limit // tokens) if limit > 0 else 0


def _shrunk_to_fit(fitted: Fitted, counter: TokenCounter, room: int) -> Fitted:
    """Assemble the text, and drop or cut items until it fits: it may have more tokens than its parts together."""
    items, shortened = fitted.items, fitted.shortened
    while True:
        text = assemble(fitted.frame, items)
        (tokens,) = counter.count([text])
        if tokens > room and len(items) > 1:
            items = items[:-1]
            continue
        if tokens > room and items:
            (size,) = counter.count([items[0].day[1] + items[0].lines()])
            shorter = _cut(items[0], size - (tokens - room), counter)
            if shorter != items[0]:
                items, shortened = [shorter], 1
                continue
        return replace(fitted, items=items, text=text, tokens=tokens, shortened=shortened)


# --- standing instructions ---


def instruction_section(
    instructions: Instructions, counter: TokenCounter, *, room: int
) -> tuple[tuple[StandingInstruction, ...], str]:
    """Return the newest instructions that fit into `room` tokens, and the section that tells them."""
    if not instructions.newest or room <= 0:
        return (), ""
    longest = room // _LONGEST_INSTRUCTION_SHARE
    lines = [_instruction_line(one, instructions, counter, longest) for one in instructions.newest]
    for count in range(len(lines), 0, -1):
        section = INSTRUCTIONS_HEADING + "".join(lines[:count]) + _more(instructions.total - count)
        if counter.count([section])[0] <= room:
            return instructions.newest[:count], section
    return (), ""


def _instruction_line(one: StandingInstruction, instructions: Instructions, counter: TokenCounter, limit: int) -> str:
    text = " ".join(line.strip() for line in lines_of(one.content) if line.strip())
    (tokens,) = counter.count([text])
    shown = truncate(text, limit, counter) if tokens > limit else text
    # The origin of an instruction, if it is neither the user nor the agent; it has to be short.
    marks = [] if one.owner in (None, instructions.user) else [f"of {label(one.owner or '')}, for all"]
    provenance = instructions.provenances.get(one.id)
    if provenance is not None and provenance.trust not in _OWN_WORD:
        marks.append(label(provenance.trust))
    if one.id in instructions.changes:
        marks.append(changed_text(instructions.changes[one.id], clean=label))
    mark = f" ({', '.join(marks)})" if marks else ""
    return f"- {date_of(one.created_at)}: {shown}{mark}\n"


def _more(left: int) -> str:
    if left <= 0:
        return ""
    number = f"{MAX_COUNTED:,} or more" if left >= MAX_COUNTED else f"{left:,}"
    return f"- {number} more: `reverie memory list --kind instruction`\n"
