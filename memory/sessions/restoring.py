"""Restore a session: its newest messages that fit into a token budget, and its summary.

Tool calls and their results stay together: language models refuse a result without its call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from adapters.tokens import TokenCounter, last_lines, truncate
from memory.conversion import convert
from reverie.errors import Rejected
from reverie.recall.types import Restored
from reverie.sessions.types import Message
from storage.pipeline.records import MessageRecord
from storage.sessions.summaries import without_quoted
from storage.stores import Store
from storage.transaction import AgentRepositories

_PAGE: Final = 100
# The summary gets at most a quarter of the budget.
_SUMMARY_SHARE: Final = 4


def restore_session(store: Store, counter: TokenCounter, *, agent: str, session: str, token_budget: int) -> Restored:
    """Return the newest messages of a session, oldest first, and its summary, as many as fit together.

    A message counts its content, its tool calls as JSON, and 4 tokens of overhead. If the newest message alone is too
    long, it and the rest of its exchange are cut at the end of a word. Summary lines that quote a returned message are
    left out, and the oldest lines if the summary is too long. Raises `NotFound`, and `Rejected` for a budget below 1.
    """
    if token_budget < 1:
        raise Rejected(f"token_budget is {token_budget}; it must be a whole number above 0", field="token_budget")
    with store.reading_as(agent) as rows:
        record = rows.sessions.get(session)
        whole_summary = rows.sessions.summary(record.row_id) or ""
        (used,) = counter.count([last_lines(whole_summary, token_budget // _SUMMARY_SHARE, counter)])
        newest, tokens = _newest(rows, record.row_id, counter, token_budget - used)
        uncovered = rows.summaries.coverage(record.row_id).uncovered
    first = _first_that_fits(newest, tokens, token_budget - used)
    messages, tokens = newest[first:], tokens[first:]
    shortened = 0
    if newest and not messages:
        messages, shortened = _shorten(_last_exchange(newest), counter, token_budget - used)
        tokens = count_tokens(messages, counter)
    summary = last_lines(without_quoted(whole_summary, [message.content for message in messages]), used, counter)
    (used,) = counter.count([summary])
    return Restored(
        session=session,
        messages=[convert(message, Message) for message in messages],
        tokens=used + sum(tokens),
        left_out=record.messages - len(messages),
        summary=summary or None,
        shortened=shortened,
        uncovered=uncovered - sum(message.consolidated_at is None for message in messages),
    )


def _newest(
    rows: AgentRepositories, session_row: int, counter: TokenCounter, room: int
) -> tuple[list[MessageRecord], list[int]]:
    """Return the newest messages with their tokens, oldest first: enough to fill the room."""
    limit = _PAGE
    while True:
        found = rows.messages.in_session(session_row, limit=limit, newest=True)
        tokens = count_tokens(found, counter)
        if len(found) < limit or (sum(tokens) > room and found[0].role != "tool"):
            return found, tokens
        limit *= 2


def _first_that_fits(messages: Sequence[MessageRecord], tokens: Sequence[int], room: int) -> int:
    """Return the start of the longest tail that fits and does not separate a tool result from its call."""
    first = len(messages)
    while first and tokens[first - 1] <= room:
        first -= 1
        room -= tokens[first]
    allowed = valid_starts(messages)
    while first < len(messages) and not allowed[first]:
        first += 1
    return first


def _last_exchange(messages: Sequence[MessageRecord]) -> list[MessageRecord]:
    """Return the newest message, with the earlier ones of its exchange."""
    allowed = valid_starts(messages)
    first = next((position for position in range(len(messages) - 1, -1, -1) if allowed[position]), len(messages))
    return list(messages[first:])


def _shorten(messages: list[MessageRecord], counter: TokenCounter, room: int) -> tuple[list[MessageRecord], int]:
    """Cut messages so that they fit together, the longest first; return them and how many were cut.

    Returns none if not even their overhead fits.
    """
    contents = counter.count([message.content for message in messages])
    room -= sum(count_tokens(messages, counter)) - sum(contents)
    (least,) = counter.count(["…"])
    if not messages or room < least * len(messages):
        return [], 0
    limit = _cut_level(contents, room)
    cut_messages = [
        replace(message, content=truncate(message.content, limit, counter)) if size > limit else message
        for message, size in zip(messages, contents, strict=True)
    ]
    return cut_messages, sum(size > limit for size in contents)


def _cut_level(sizes: Sequence[int], room: int) -> int:
    """Return the highest limit for each size with which the sum of the sizes fits into the room."""
    left, level = room, 0
    for position, size in enumerate(sorted(sizes)):
        level = left // (len(sizes) - position)
        if size > level:
            return level
        left -= size
    return level


# --- exchanges ---

# Tokens that a chat format adds to each message: its role, a start and an end.
MESSAGE_OVERHEAD_TOKENS: Final = 4


def count_tokens(messages: Sequence[MessageRecord], counter: TokenCounter) -> list[int]:
    """Return the tokens of each message: its content, its tool calls as JSON, and the overhead of the format."""
    calls = [msgspec.json.encode(message.tool_calls).decode() if message.tool_calls else "" for message in messages]
    contents = counter.count([message.content for message in messages])
    return [
        content + call + MESSAGE_OVERHEAD_TOKENS for content, call in zip(contents, counter.count(calls), strict=True)
    ]


def valid_starts(messages: Sequence[MessageRecord]) -> list[bool]:
    """Return for each message whether a conversation may start there: every tool result from there on has its call."""
    call_positions: dict[str, list[int]] = {}
    for call_id, position in _calls(messages):
        call_positions.setdefault(call_id, []).append(position)
    allowed = [True] * len(messages)
    earliest = len(messages)
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.role == "tool":
            earliest = min(earliest, _call_position(messages, position, call_positions))
        allowed[position] = earliest >= position and message.role != "tool"
    return allowed


def _call_position(messages: Sequence[MessageRecord], position: int, call_positions: Mapping[str, list[int]]) -> int:
    """Return the position of a tool result's call: by its id, else the last turn before it that called a tool.

    An id may be used again: the newest call before the result is its own. A result without any call belongs to no
    exchange: it may be present, but nothing starts with it.
    """
    calls = call_positions.get(messages[position].tool_call_id or "", [])
    earlier = bisect_left(calls, position)
    if earlier:
        return calls[earlier - 1]
    last_turn = next((i for i in range(position - 1, -1, -1) if messages[i].role != "tool"), None)
    return last_turn if last_turn is not None and messages[last_turn].tool_calls else position


def _calls(messages: Sequence[MessageRecord]) -> Iterator[tuple[str, int]]:
    """Yield each call's id with the position of its message, in the formats of OpenAI, Anthropic and MCP."""
    for position, message in enumerate(messages):
        for call in message.tool_calls:
            for key in ("id", "call_id", "tool_call_id"):
                if isinstance(call.get(key), str):
                    yield call[key], position
