"""What extraction found, whichever way: one thing said by a user, with the message it rests on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from blake3 import blake3

from memory.memories.patterns import Statement, find_statements
from memory.memories.patterns.sentences import is_game
from memory.memories.secrets import holds_secret_of, looks_secret
from storage.memories.extraction import SourceMessage
from storage.memories.records import Lifetime, MemoryKind, Tier

_NAME_CHARACTERS: Final = 64
_ID_CHARACTERS: Final = 32
_PUNCTUATION = re.compile(r"[\s.!,;:\"'\u2018\u2019\u201c\u201d]+")

By = Literal["patterns", "language model"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A memory to be. `message` is the one that says it, `evidence` the ids of all that do."""

    message: SourceMessage
    evidence: tuple[str, ...]
    by: By
    content: str
    kind: MemoryKind
    subject: str | None
    confidence: float
    importance: float
    lifetime: Lifetime = "short_term"
    tier: Tier = "workspace"
    category: str | None = None
    key: str | None = None
    value: str | None = None
    tags: tuple[str, ...] = ()
    expires_at: int | None = None

    def memory_id(self, agent: str) -> str:
        """The same for the same words found in the same message: to find it twice is to find it once."""
        return blake3("\0".join((agent, self.message.id, normalised(self.content))).encode()).hexdigest()[
            :_ID_CHARACTERS
        ]


def normalised(content: str) -> str:
    """A content without what makes no other statement of it: case, blanks, punctuation."""
    return _PUNCTUATION.sub(" ", content.casefold()).strip()


def found_by_patterns(
    messages: Sequence[SourceMessage], *, now: int, before: Sequence[SourceMessage] = ()
) -> Iterator[Finding]:
    """What users' messages say plainly, without secrets and without what is over already.

    Of a role-play nothing: it begins where somebody says so, also in the messages `before` these.
    """
    plays = False
    for message in before:
        plays = is_game(message.content, before=plays)
    for message in messages:
        plays = is_game(message.content, before=plays)
        for statement in find_statements(message.content, at=message.created_at) if not plays else ():
            over = statement.expires_at is not None and statement.expires_at <= now
            is_secret = looks_secret(f"{statement.content}\n{statement.quote}") is not None
            if not (over or is_secret or holds_secret_of(statement.content, message.content)):
                yield _of_statement(statement, message)


def with_owner(finding: Finding, owner: str | None) -> Finding:
    """A finding that says whose it is: facts and subjects of two people must not take each other's place.

    Where the message bears a name, it is that name's: in a session of one user more than one may speak.
    """
    name = (finding.message.name or "").strip()[:_NAME_CHARACTERS]
    whose = ":".join(filter(None, (owner, name)))
    if not whose:
        return finding
    return replace(
        finding,
        content=re.sub(r"^User\b", lambda _: name, finding.content) if name else finding.content,
        subject=f"{name}: {finding.subject}" if name and finding.subject else finding.subject,
        category=f"{finding.category}:{whose}" if finding.category is not None else None,
    )


def _of_statement(statement: Statement, message: SourceMessage) -> Finding:
    return Finding(
        message=message,
        evidence=(message.id,),
        by="patterns",
        content=statement.content,
        kind=statement.kind,
        subject=statement.subject,
        confidence=statement.confidence,
        importance=statement.importance,
        lifetime=statement.lifetime,
        tier=statement.tier,
        category=statement.category,
        key=statement.key,
        value=statement.value,
        tags=statement.tags,
        expires_at=statement.expires_at,
    )
