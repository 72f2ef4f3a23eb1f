"""What extraction found, with either method: one thing that a user said, with the messages that say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from blake3 import blake3

from memory.conversion import convert
from memory.memories.patterns import Statement, find_instructions, find_revocations, find_statements
from memory.memories.patterns.sentences import is_game
from memory.memories.secrets import looks_secret, repeats_secret_of
from storage.memories.extraction import SourceMessage
from storage.memories.records import Lifetime, MemoryKind, Tier, is_standing

_NAME_CHARACTERS: Final = 64
_ID_CHARACTERS: Final = 32
_PUNCTUATION = re.compile(r"[\s.!,;:\"'\u2018\u2019\u201c\u201d]+")

Method = Literal["patterns", "language model"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A memory to be stored. `message` is the newest message that says it, `evidence` the ids of all that do."""

    message: SourceMessage
    evidence: tuple[str, ...]
    method: Method
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
    takes_back: str | None = None

    def memory_id(self, agent: str) -> str:
        """Return an id derived from agent, message and content, so that finding it twice stores it once."""
        seed = "\0".join((agent, self.message.id, normalised(self.content)))
        return blake3(seed.encode()).hexdigest()[:_ID_CHARACTERS]


def normalised(content: str) -> str:
    """Return a content without what does not change its meaning: case, blanks and punctuation."""
    return _PUNCTUATION.sub(" ", content.casefold()).strip()


def found_by_patterns(
    messages: Sequence[SourceMessage],
    *,
    now: int,
    before: Sequence[SourceMessage] = (),
    instructions_only: Callable[[SourceMessage], bool] = lambda _: False,
) -> Iterator[Finding]:
    """Yield what users say plainly in these messages, without secrets and without what has expired already.

    Of messages with `instructions_only` only what they want the agent to do from now on, or no longer. Nothing is taken
    from a role-play, which may have begun in one of the messages `before`.
    """
    in_game = False
    for message in before:
        in_game = is_game(message.content, before=in_game)
    for message in messages:
        in_game = is_game(message.content, before=in_game)
        for statement in _statements(message, instructions_only) if not in_game else ():
            expired = statement.expires_at is not None and statement.expires_at <= now
            is_secret = looks_secret(f"{statement.content}\n{statement.quote}") is not None
            if not (expired or is_secret or repeats_secret_of(statement.content, message.content)):
                yield convert(statement, Finding, message=message, evidence=(message.id,), method="patterns")


def _statements(message: SourceMessage, instructions_only: Callable[[SourceMessage], bool]) -> list[Statement]:
    if instructions_only(message):
        found = find_instructions(message.content)
    else:
        found = find_statements(message.content, at=message.created_at)
    return [*found, *find_revocations(message.content)]


def with_owner(finding: Finding, owner: str | None) -> Finding:
    """Return a finding whose subject and category name its owner, so that those of two people stay apart.

    If the message has a name, the finding is about that person: several people may speak in a session of one user.
    """
    name = (finding.message.name or "").strip()[:_NAME_CHARACTERS]
    person = ":".join(filter(None, (owner, name)))
    if not person:
        return finding
    return replace(
        finding,
        content=_of_person(finding, name) if name else finding.content,
        subject=f"{name}: {finding.subject}" if name and finding.subject else finding.subject,
        category=f"{finding.category}:{person}" if finding.category is not None else None,
    )


def _of_person(finding: Finding, name: str) -> str:
    """Return a content that says whose it is; an instruction is in its giver's own words."""
    content = re.sub(r"^User\b", lambda _: name, finding.content)
    return (
        f"{name}: {content}"
        if is_standing(finding.kind, finding.importance) and content == finding.content
        else content
    )
