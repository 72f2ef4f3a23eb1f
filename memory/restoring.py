"""Session restore (R14): the newest messages of a session that fit into a number of tokens, and its summary.

What was asked of a tool and what it answered stay together: language models refuse an answer without its question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from adapters.tokens import TokenCounter, cut
from memory.working import as_message
from reverie.errors import Rejected
from reverie.types import Restored
from storage.records import MessageRecord
from storage.stores import AgentRows, Store

# What a chat format puts round each message: its role, a beginning and an end.
MESSAGE_TOKENS: Final = 4
_PAGE: Final = 100
# A summary says what the messages do not: at most this part of the budget.
_SUMMARY_SHARE: Final = 4


def restore_session(store: Store, counter: TokenCounter, *, agent: str, session: str, token_budget: int) -> Restored:
    """The newest messages of a session that fit, oldest first, and its summary; both count.

    A message counts its content, its tool calls as JSON, and 4 tokens for what stands round it. Where not even the
    newest fits, it is cut at the end of a word, and with it what belongs to it. Raises `NotFound`, and `Rejected`
    for a budget below 1.
    """
    if token_budget < 1:
        raise Rejected(f"token_budget is {token_budget}; it must be a whole number above 0", field="token_budget")
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        record = rows.sessions.get(session)
        summary = cut(rows.sessions.summary(record.row_id) or "", token_budget // _SUMMARY_SHARE, counter)
        (used,) = counter.count([summary])
        newest, costs = _newest(rows, record.row_id, counter, token_budget - used)
    first = _first_that_fits(newest, costs, token_budget - used)
    kept = newest[first:]
    shortened = 0
    if newest and not kept:
        kept, shortened = _shortened(_last_exchange(newest), counter, token_budget - used)
        costs = _costs(kept, counter)
        first = 0
    return Restored(
        session=session,
        messages=[as_message(message) for message in kept],
        tokens=used + sum(costs[first:]),
        left_out=record.messages - len(kept),
        summary=summary or None,
        shortened=shortened,
    )


def _newest(
    rows: AgentRows, session_row: int, counter: TokenCounter, room: int
) -> tuple[list[MessageRecord], list[int]]:
    """The newest messages with their tokens, oldest first: enough of them to fill the room, and no more pages."""
    found: list[MessageRecord] = []
    costs: list[int] = []
    while True:
        page = rows.messages.of_session(session_row, limit=_PAGE, newest=True, offset=len(found))
        found, costs = [*page, *found], [*_costs(page, counter), *costs]
        if len(page) < _PAGE or (sum(costs) > room and found[0].role != "tool"):
            return found, costs


def _costs(messages: Sequence[MessageRecord], counter: TokenCounter) -> list[int]:
    calls = [msgspec.json.encode(message.tool_calls).decode() if message.tool_calls else "" for message in messages]
    contents = counter.count([message.content for message in messages])
    return [said + asked + MESSAGE_TOKENS for said, asked in zip(contents, counter.count(calls), strict=True)]


def _first_that_fits(messages: Sequence[MessageRecord], costs: Sequence[int], room: int) -> int:
    """Where the longest tail begins that fits and does not tear a tool's answer from its question."""
    first = len(messages)
    while first and costs[first - 1] <= room:
        first -= 1
        room -= costs[first]
    allowed = _beginnings(messages)
    while first < len(messages) and not allowed[first]:
        first += 1
    return first


def _beginnings(messages: Sequence[MessageRecord]) -> list[bool]:
    """At which messages a tail may begin: none whose answers to tools, from there on, were asked for before it."""
    asked = dict(_calls(messages))
    allowed = [True] * len(messages)
    earliest = len(messages)
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "tool":
            earliest = min(earliest, _asked_at(messages, place, asked))
        allowed[place] = earliest >= place and message.role != "tool"
    return allowed


def _asked_at(messages: Sequence[MessageRecord], place: int, asked: dict[str, int]) -> int:
    """Where an answer of a tool was asked for: by its id, else by the last turn before it that called any tool.

    An answer that nobody asked for belongs to no place: it may be there, but nothing begins with it.
    """
    call = asked.get(messages[place].tool_call_id or "")
    if call is not None and call < place:
        return call
    before = (i for i in range(place - 1, -1, -1) if messages[i].role != "tool")
    last = next(before, None)
    return last if last is not None and messages[last].tool_calls else place


def _calls(messages: Sequence[MessageRecord]) -> Iterator[tuple[str, int]]:
    """Each call's id with the place of the message that made it, in the forms of OpenAI, Anthropic and MCP."""
    for place, message in enumerate(messages):
        for call in message.tool_calls:
            for key in ("id", "call_id", "tool_call_id"):
                if isinstance(call.get(key), str):
                    yield call[key], place


def _last_exchange(messages: Sequence[MessageRecord]) -> list[MessageRecord]:
    """The newest message, with what it cannot do without."""
    allowed = _beginnings(messages)
    first = next((place for place in range(len(messages) - 1, -1, -1) if allowed[place]), len(messages))
    return list(messages[first:])


def _shortened(messages: list[MessageRecord], counter: TokenCounter, room: int) -> tuple[list[MessageRecord], int]:
    """Messages cut so that together they fit, the longest most; none where not even their frames do."""
    contents = counter.count([message.content for message in messages])
    room -= sum(_costs(messages, counter)) - sum(contents)
    (least,) = counter.count(["…"])
    if not messages or room < least * len(messages):
        return [], 0
    most = _level(contents, room)
    cut_down = [
        replace(message, content=cut(message.content, most, counter)) if size > most else message
        for message, size in zip(messages, contents, strict=True)
    ]
    return cut_down, sum(size > most for size in contents)


def _level(sizes: Sequence[int], room: int) -> int:
    """The highest level to which sizes can be cut so that their sum fits into the room."""
    left, level = room, 0
    for place, size in enumerate(sorted(sizes)):
        level = left // (len(sizes) - place)
        if size > level:
            return level
        left -= size
    return level
