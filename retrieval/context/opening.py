"""The opening of a session, before anything has been asked: the strongest memories, and earlier sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from adapters.tokens import TokenCounter
from reverie.counts import counted
from reverie.memories.types import Memory, Tier
from storage.memories.records import decay

_LINE_CHARACTERS: Final = 400
_PROMPT_CHARACTERS: Final = 160
# Earlier sessions get at most this part (1/n) of the room, since memories have been extracted from them.
_SESSIONS_SHARE: Final = 3
_SECONDS_PER_HOUR: Final = 3_600


@dataclass(frozen=True, slots=True)
class EarlierSession:
    """A session before this one, with the first and the last prompt of its user."""

    started_at: datetime
    messages: int
    first: str
    last: str


def strongest(memories: Iterable[Memory], *, now: datetime, rates: Mapping[Tier, float]) -> list[Memory]:
    """Return memories by their decayed importance, highest first; `rates` is the share that is left after an hour.

    Pinned memories come first; of equal ones, the newest comes first.
    """

    def strength(memory: Memory) -> tuple[bool, float, datetime]:
        hours = (now - memory.accessed_at).total_seconds() / _SECONDS_PER_HOUR
        left = decay(
            memory.tier, importance=memory.importance, access_count=memory.access_count, hours=hours, rates=rates
        )
        return memory.pinned, left, memory.created_at

    return sorted(memories, key=strength, reverse=True)


def write_opening(
    memories: Sequence[Memory], sessions: Sequence[EarlierSession], counter: TokenCounter, *, room: int
) -> str:
    """Return two sections of at most `room` tokens, each with as many lines as fit; empty without any."""
    earlier = _section("## Earlier sessions", map(_session_line, sessions), counter, room // _SESSIONS_SHARE)
    (used,) = counter.count([earlier])
    known = _section("## What is known", map(_memory_line, memories), counter, room - used)
    return "\n\n".join(part for part in (known, earlier) if part)


def _section(heading: str, lines: Iterator[str], counter: TokenCounter, room: int) -> str:
    chosen = list(lines)
    costs = counter.count([heading, *chosen])
    left = room - costs[0]
    shown = []
    for line, cost in zip(chosen, costs[1:], strict=True):
        if cost <= left:
            shown.append(line)
            left -= cost
    return "\n".join([heading, "", *shown]) if shown else ""


def _memory_line(memory: Memory) -> str:
    at = memory.valid_from or memory.created_at
    return f"- {_day(at)}, {memory.kind}: {_one_line(memory.content, _LINE_CHARACTERS)}"


def _session_line(session: EarlierSession) -> str:
    first, last = (_one_line(text, _PROMPT_CHARACTERS) for text in (session.first, session.last))
    line = f"- {_day(session.started_at)}, {counted(session.messages, 'message')}: {first}"
    return line if last == first or not last else f"{line} … {last}"


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%b %Y}"


def _one_line(text: str, characters: int) -> str:
    """Return a text as data on one line: without line breaks it cannot begin a heading or a list of its own."""
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[: characters - 1].rstrip()}…"
