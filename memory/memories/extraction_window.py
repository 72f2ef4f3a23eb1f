"""What extraction reads of a session at once, and how it records the position up to which sessions were read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from memory.memories.secret_answers import redact_secret_answers
from reverie import contract
from storage.memories.extraction import ExtractionProgress, KnownMemories, KnownMemory, SourceMessage, WaitingSession
from storage.transaction import Transaction

# A model gets at most this much at once.
MODEL_MESSAGES: Final = 40
MODEL_CHARACTERS: Final = 24_000
# Patterns read this much, some milliseconds of work, before they look at the time.
PATTERN_MESSAGES: Final = 100
PATTERN_CHARACTERS: Final = 24_000
CONTEXT_MESSAGES: Final = 6
KNOWN_MEMORIES: Final = 40
# Positions of sessions without findings that are saved in one commit, and after how long at the latest.
_POSITIONS_PER_COMMIT: Final = 200
_SAVE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ExtractionRules:
    """What is extracted, and when. Patterns are used without a model, and with `fallback` also when it fails.

    User messages of fewer than `min_characters` say nothing; findings below `threshold` are dropped.
    """

    min_characters: int = 20
    debounce_seconds: float = 30.0
    threshold: float = 0.7
    fallback: bool = True


@dataclass(frozen=True, slots=True)
class Window:
    """New messages of a session and what a model is shown with them; answers that give a secret are redacted.

    `owner` is the user whose the new messages are, None if they are of several.
    """

    new: tuple[SourceMessage, ...]
    before: tuple[SourceMessage, ...]
    known: tuple[KnownMemory, ...]
    owner: str | None = None


@dataclass(slots=True)
class Positions:
    """Positions of sessions in which nothing was found, saved many at a time.

    A commit for each would only make other writers wait. After a crash these sessions are read again.
    """

    writing: Callable[[], AbstractContextManager[Transaction]]
    counts: Counter[str]
    now: int
    # Called in a dry run with each finding that a real run would save: agent, session, content.
    on_found: Callable[[str, str, str], None] = lambda *_: None
    _unsaved: list[tuple[WaitingSession, int]] = field(default_factory=list)
    _saved_at: float = field(default_factory=time.monotonic)

    @property
    def is_late(self) -> bool:
        """Whether it is some time since a position was saved: a long session saves its own meanwhile."""
        return time.monotonic() - self._saved_at > _SAVE_SECONDS

    def note(self, session: WaitingSession, position: int) -> None:
        """Note that a session was read up to a sequence; `session` is as it was found, with its old position."""
        self._unsaved.append((session, position))
        if len(self._unsaved) >= _POSITIONS_PER_COMMIT or self.is_late:
            self.save()

    def save(self, *, ended: Sequence[WaitingSession] = ()) -> None:
        """Commit the noted positions; where another reader has moved one in the meantime, that one stays.

        With them, note that the sessions that `ended` are not being read any more.
        """
        self._saved_at = time.monotonic()
        if not self._unsaved and not ended:
            return
        with self.writing() as tx:
            progress = progress_of(tx)
            for session, position in self._unsaved:
                if not progress.advance(session, to=position, now=self.now):
                    self.counts["read_elsewhere"] += 1
            progress.end(ended)
        self._unsaved.clear()


def progress_of(tx: Transaction) -> ExtractionProgress:
    """Return the positions of the extraction job in a transaction."""
    return ExtractionProgress(tx.connection, contract.EXTRACT_MEMORIES)


def next_window(tx: Transaction, session: WaitingSession, *, for_model: bool) -> Window:
    """Return the next window of a session, at its end one without new messages. Only a model needs what is known."""
    progress = progress_of(tx)
    max_messages = MODEL_MESSAGES if for_model else PATTERN_MESSAGES
    max_characters = MODEL_CHARACTERS if for_model else PATTERN_CHARACTERS
    new: list[SourceMessage] = []
    size = 0
    for message in progress.new_messages(session, limit=max_messages):
        size += len(message.content)
        if new and size > max_characters:
            break
        new.append(message)
    before = progress.messages_before(session, limit=CONTEXT_MESSAGES)
    known = KnownMemories(tx.connection, session.agent)
    read = tuple(redact_secret_answers([*before, *new], ""))
    users = {session.speaker(message) for message in new}
    owner = next(iter(users)) if len(users) == 1 else None  # what is known of one user is not shown with others' words
    return Window(
        new=read[len(before) :],
        before=read[: len(before)],
        known=tuple(known.newest(owner=owner, limit=KNOWN_MEMORIES)) if for_model else (),
        owner=owner,
    )
