"""What extraction reads of a session at once, and how it notes how far sessions were read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from memory.memories.given_secrets import without_given_secrets
from reverie import contract
from storage.memories.extraction import (
    ExtractionProgress,
    KnownMemories,
    KnownMemory,
    SourceMessage,
    WaitingSession,
)
from storage.transaction import Transaction

# A model is shown no more at once.
MODEL_MESSAGES: Final = 40
MODEL_CHARACTERS: Final = 24_000
# Patterns read on for so long before what they found is committed: some 10 ms.
PATTERN_MESSAGES: Final = 400
PATTERN_CHARACTERS: Final = 240_000
CONTEXT_MESSAGES: Final = 6
KNOWN_MEMORIES: Final = 40
# Sessions in which nothing was found: so many are noted in one commit.
_NOTED_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class Window:
    """What is read at once of a session: new messages, and what is shown with them; no answer that gives a secret."""

    new: tuple[SourceMessage, ...]
    before: tuple[SourceMessage, ...]
    known: tuple[KnownMemory, ...]


@dataclass(slots=True)
class Positions:
    """How far sessions were read in which nothing was found: many of them in one commit.

    A commit of their own would keep every other writer waiting for nothing. Lost in a crash, they are read once more.
    """

    writing: Callable[[], AbstractContextManager[Transaction]]
    counts: Counter[str]
    now: int
    _read: list[tuple[WaitingSession, int]] = field(default_factory=list)

    def note(self, session: WaitingSession, to: int) -> None:
        """Note that a session was read up to a sequence; `session` is as it was found, its old position included."""
        self._read.append((session, to))
        if len(self._read) >= _NOTED_AT_ONCE:
            self.save()

    def save(self) -> None:
        """Commit what was noted; a session that another copy has read on in stays where that one left it."""
        if not self._read:
            return
        with self.writing() as tx:
            progress = progress_of(tx)
            for session, to in self._read:
                if not progress.advance(session, to=to, now=self.now):
                    self.counts["read_elsewhere"] += 1
        self._read.clear()


def progress_of(tx: Transaction) -> ExtractionProgress:
    """How far sessions were read."""
    return ExtractionProgress(tx.connection, contract.EXTRACT_MEMORIES)


def next_window(tx: Transaction, session: WaitingSession, *, for_model: bool) -> Window:
    """What comes next of a session; no new messages at its end. Only a model needs what is known already."""
    progress = progress_of(tx)
    most_messages = MODEL_MESSAGES if for_model else PATTERN_MESSAGES
    most_characters = MODEL_CHARACTERS if for_model else PATTERN_CHARACTERS
    new: list[SourceMessage] = []
    size = 0
    for message in progress.new_messages(session, limit=most_messages):
        size += len(message.content)
        if new and size > most_characters:
            break
        new.append(message)
    before = progress.messages_before(session, limit=CONTEXT_MESSAGES)
    agent = KnownMemories(tx.connection, session.agent)
    known = agent.newest(owner=session.user, limit=KNOWN_MEMORIES) if for_model else ()
    read = tuple(without_given_secrets([*before, *new], ""))
    return Window(new=read[len(before) :], before=read[: len(before)], known=tuple(known))
