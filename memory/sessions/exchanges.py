"""What messages cost in tokens, and which of them belong together: what was asked of a tool and what it answered.

Language models refuse an answer of a tool without its question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from adapters.tokens import TokenCounter
from storage.pipeline.records import MessageRecord

# What a chat format puts round each message: its role, a beginning and an end.
MESSAGE_TOKENS: Final = 4


def costs(messages: Sequence[MessageRecord], counter: TokenCounter) -> list[int]:
    """The tokens of each message: its content, its tool calls as JSON, and what stands round it."""
    calls = [msgspec.json.encode(message.tool_calls).decode() if message.tool_calls else "" for message in messages]
    contents = counter.count([message.content for message in messages])
    return [said + asked + MESSAGE_TOKENS for said, asked in zip(contents, counter.count(calls), strict=True)]


def beginnings(messages: Sequence[MessageRecord]) -> list[bool]:
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
