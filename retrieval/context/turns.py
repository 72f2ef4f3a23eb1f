"""Chooses the turns of its session for a context: recent ones, important ones and those near the query, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from storage.pipeline.records import MessageRecord

MIN_IMPORTANCE: Final = 0.8
MAX_IMPORTANT: Final = 5
MAX_RELEVANT: Final = 5


@dataclass(frozen=True, slots=True)
class Conversation:
    """The chosen messages: recent ones oldest first, important ones newest first, relevant ones best first."""

    recent: tuple[MessageRecord, ...] = ()
    important: tuple[MessageRecord, ...] = ()
    relevant: tuple[MessageRecord, ...] = ()

    @property
    def messages(self) -> tuple[MessageRecord, ...]:
        """All chosen messages: the recent ones, then the important ones, then the relevant ones."""
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

    Important turns and then relevant ones fill the room that the recent ones leave, and no message is chosen twice.
    Pass recent ones oldest first, important ones newest first, relevant ones best first.
    """
    seen = {message.id for message in recent}
    room = max(0, max_messages - len(recent))
    chosen_important = _take_new(important, seen, min(room, MAX_IMPORTANT))
    chosen_relevant = _take_new(relevant, seen, min(room - len(chosen_important), MAX_RELEVANT))
    return Conversation(tuple(recent), chosen_important, chosen_relevant)


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
