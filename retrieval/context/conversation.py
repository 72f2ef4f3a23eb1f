"""Chooses turns of a conversation for a context: the recent, the important and the relevant ones.

The recent turns are always included; important ones and then relevant ones fill the room that is left. No message is
chosen twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from storage.pipeline.records import MessageRecord

MIN_IMPORTANCE: Final = 0.8
MAX_IMPORTANT: Final = 5
# Cosine to the query. all-MiniLM-L6-v2 gives paraphrases about 0.7 and turns on one subject about 0.4.
MIN_COSINE: Final = 0.65
MAX_RELEVANT: Final = 5


@dataclass(frozen=True, slots=True)
class Conversation:
    """The chosen messages: recent ones oldest first, important ones newest first, relevant ones best first."""

    recent: tuple[MessageRecord, ...]
    important: tuple[MessageRecord, ...] = ()
    relevant: tuple[MessageRecord, ...] = ()

    @property
    def messages(self) -> tuple[MessageRecord, ...]:
        """All of them."""
        return (*self.recent, *self.important, *self.relevant)

    @property
    def ids(self) -> set[str]:
        """The ids of all of them."""
        return {message.id for message in self.messages}


def choose_turns(
    recent: Sequence[MessageRecord],
    important: Sequence[MessageRecord],
    relevant: Sequence[MessageRecord],
    *,
    max_messages: int,
) -> Conversation:
    """Return the union of the three lists: at most `max_messages`, but never fewer than the recent ones.

    Pass recent ones oldest first, important ones newest first, relevant ones best first.
    """
    seen = {message.id for message in recent}
    room = max(0, max_messages - len(recent))
    chosen_important = _take_new(important, seen, min(room, MAX_IMPORTANT))
    chosen_relevant = _take_new(relevant, seen, min(room - len(chosen_important), MAX_RELEVANT))
    return Conversation(tuple(recent), chosen_important, chosen_relevant)


def chronological(messages: Sequence[MessageRecord]) -> list[MessageRecord]:
    """Return messages in the order of their times."""
    return sorted(messages, key=lambda message: (message.created_at, message.id))


def _take_new(messages: Sequence[MessageRecord], seen: set[str], limit: int) -> tuple[MessageRecord, ...]:
    """Return the first messages that are not in `seen`, and add them to it."""
    chosen: dict[str, MessageRecord] = {}
    for message in messages:
        if len(chosen) >= limit:
            break
        if message.id not in seen:
            chosen[message.id] = message
    seen.update(chosen)
    return tuple(chosen.values())
