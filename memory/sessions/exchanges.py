"""Count the tokens of messages, and keep tool calls together with their results.

Language models refuse a tool result without the call it belongs to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from adapters.tokens import TokenCounter
from storage.pipeline.records import MessageRecord

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
