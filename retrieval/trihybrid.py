"""Three ways in which a turn of a conversation earns its place: it is recent, it is important, it is to the point.

The last turns are always included; important ones and then relevant ones fill the room that is left. No message is
chosen twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from storage.pipeline.records import MessageRecord

IMPORTANT: Final = 0.8
MOST_IMPORTANT: Final = 5
# Cosine to the query. all-MiniLM-L6-v2 gives paraphrases about 0.7 and turns on one subject about 0.4.
RELEVANT: Final = 0.65
MOST_RELEVANT: Final = 5


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages chosen: recent ones oldest first, important ones newest first, relevant ones best first."""

    recent: tuple[MessageRecord, ...]
    important: tuple[MessageRecord, ...] = ()
    relevant: tuple[MessageRecord, ...] = ()

    @property
    def ids(self) -> set[str]:
        """The ids of all of them."""
        return {message.id for message in (*self.recent, *self.important, *self.relevant)}


def choose(
    recent: Sequence[MessageRecord],
    important: Sequence[MessageRecord],
    relevant: Sequence[MessageRecord],
    *,
    most: int,
) -> Conversation:
    """The union of the three lists, at most `most` messages but never fewer than the recent ones (R4, R10).

    Each list comes in its own order: recent oldest first, important newest first, relevant best first.
    """
    seen = {message.id for message in recent}
    room = max(0, most - len(recent))
    flagged = _new(important, seen, min(room, MOST_IMPORTANT))
    fitting = _new(relevant, seen, min(room - len(flagged), MOST_RELEVANT))
    return Conversation(tuple(recent), flagged, fitting)


def in_order(messages: Sequence[MessageRecord]) -> list[MessageRecord]:
    """Messages in the order in which they were said."""
    return sorted(messages, key=lambda message: (message.created_at, message.id))


def _new(messages: Sequence[MessageRecord], seen: set[str], limit: int) -> tuple[MessageRecord, ...]:
    """Return the first messages that are not in `seen`, and add them to it."""
    chosen: dict[str, MessageRecord] = {}
    for message in messages:
        if len(chosen) >= limit:
            break
        if message.id not in seen:
            chosen[message.id] = message
    seen.update(chosen)
    return tuple(chosen.values())
