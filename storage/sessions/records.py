"""Sessions as records: frozen and typed, times as integer microseconds in UTC."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from storage.rows import if_damaged

_TITLE_CHARACTERS: Final = 90
# Markdown: marks at the beginning of a line, links, pictures, emphasis and code.
_MARKS: Final = re.compile(
    r"^[ \t]{0,9}(?:(?:#{1,6}|>|[-*+]|\d{1,3}[.)])[ \t]+|(?:```|~~~)\w{0,20}[ \t]*$)", re.MULTILINE
)
_FENCE: Final = re.compile(r"^[ \t]{0,9}(?:```|~~~)", re.MULTILINE)
_LINK: Final = re.compile(r"!?\[([^\[\]\n]{1,200})\]\([^()\s]{1,400}\)")
_EMPHASISED: Final = re.compile(
    r"(?<![\w*_`~])(\*\*\*|\*\*|\*|_(?!_)|``?|~~)(?=\S)([^*`\n]{1,200}?)(?<=\S)\1(?![\w*_`~])"
)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One conversation of an agent. `messages` is how many it has; a group has several users, each of whom sees it.

    A damaged field is left out unless it decides to whom the session belongs; `reverie db verify` names it.
    """

    row_id: int
    id: str
    agent: str
    ref_code: str = field(metadata=if_damaged(""))
    user: str | None
    provider: str | None = field(metadata=if_damaged(None))
    chat_id: str | None = field(metadata=if_damaged(None))
    channel: str | None = field(metadata=if_damaged(None))
    status: str
    started_at: int = field(metadata=if_damaged(0))
    ended_at: int | None = field(metadata=if_damaged(None))
    updated_at: int = field(metadata=if_damaged(0))
    last_sequence: int
    metadata: dict[str, Any] = field(default_factory=dict, metadata=if_damaged({}))
    messages: int = 0
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class SessionContent:
    """Fields of a session that come from its messages: its first words, and the times given for the messages."""

    session_row: int
    first_words: str | None = field(metadata=if_damaged(None))
    first_said_at: int | None = field(metadata=if_damaged(None))
    last_said_at: int | None = field(metadata=if_damaged(None))

    def title(self, metadata: Mapping[str, Any]) -> str | None:
        """Return the title in the metadata of the session, else its first words without Markdown, on one line.

        A block of code is no part of it, unless the first message begins with one.
        """
        given = metadata.get("title")
        title = given if isinstance(given, str) and given.strip() else _without_marks(self.first_words or "")
        words = " ".join(title.split())
        if len(words) <= _TITLE_CHARACTERS:
            return words or None
        return f"{words[:_TITLE_CHARACTERS].rsplit(' ', 1)[0]} …"


def _without_marks(text: str) -> str:
    before_code = _FENCE.split(text, maxsplit=1)[0]
    plain = _LINK.sub(r"\1", _MARKS.sub("", before_code if before_code.strip() else text))
    return _EMPHASISED.sub(r"\2", plain)


@dataclass(frozen=True, slots=True)
class SessionSpeaker:
    """Somebody who speaks in a session."""

    session_row: int
    name: str | None = field(metadata=if_damaged(None))


class SessionName(NamedTuple):
    """A session by its agent and id."""

    agent: str
    session: str
