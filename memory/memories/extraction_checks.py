"""What a language model says it found, checked against what users really said: only what holds becomes a finding.

Its answer is a stranger's text. A text that is hidden in a conversation can make a model say anything; it cannot make
a user have said it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast

from memory.memories.extraction_prompt import (
    MOST_MEMORIES,
    ExtractedMemory,
    Extraction,
    is_evidence,
    label_of,
    shown_text,
)
from memory.memories.findings import Finding
from memory.memories.patterns.requests import says_everywhere
from memory.memories.patterns.sentences import without_foreign
from memory.memories.secrets import holds_secret_of, looks_secret
from memory.memories.stop_words import STOP_WORDS
from reverie.clock import to_micros
from reverie.contract import MAX_TAG_CHARACTERS
from storage.memories.extraction import SourceMessage
from storage.memories.records import MemoryKind, Tier
from storage.recall.words import hash_of, words_of

CONTENT_CHARACTERS: Final = 500
LABEL_CHARACTERS: Final = 120
MOST_TAGS: Final = 5
# Of the words of a content that mean something, the share that the conversation must hold: the rest is how one says
# in the third person what was said in the first.
GROUNDED_SHARE: Final = 0.5
_KINDS: Final = frozenset({"fact", "preference", "procedure", "event", "task"})
_ACCOUNT_KINDS: Final = frozenset({"preference", "procedure"})
_DEFAULT_IMPORTANCE: Final = 0.5
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
# A name within the sentence, or anything with a digit: what must not be invented.
_EXACT = re.compile(r"(?<!^)(?<![.!?:] )\b[A-Z][\w'-]+|\b\w*\d\w*")
_COMMAND = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.]{0,40}\b(?:instructions?|prompts?|rules|everything)\b"
    r"|\bsystem prompt\b|\byou (?:are|must) now\b|\bjailbreak\b",
    re.IGNORECASE,
)
_USER: Final = frozenset({"user", "users"})


def checked(
    answer: Extraction,
    new: Sequence[SourceMessage],
    *,
    before: Sequence[SourceMessage],
    fewest_characters: int,
    threshold: float,
    now: int,
    dropped: Counter[str],
) -> Iterator[Finding]:
    """The memories of an answer that hold, the oldest evidence first; `dropped` counts the others by their reason."""
    shown = {label_of(message): message for message in new if is_evidence(message, fewest_characters)}
    asked = _words(" ".join(message.content for message in [*before, *new] if message.role != "user"))
    found: list[Finding] = []
    for extracted in answer.memories[:MOST_MEMORIES]:
        evidence = [shown[label] for label in dict.fromkeys(extracted.evidence) if label in shown]
        reason = _refused(extracted, evidence, asked, threshold)
        finding = _finding(extracted, evidence, now) if reason is None else None
        if finding is None:
            dropped[reason or "over_already"] += 1
        else:
            found.append(finding)
    dropped["too_many"] += max(0, len(answer.memories) - MOST_MEMORIES)
    yield from sorted(found, key=lambda finding: finding.message.sequence)


def _refused(
    extracted: ExtractedMemory, evidence: Sequence[SourceMessage], asked: set[int], threshold: float
) -> str | None:
    """Why a memory is not kept; None where it holds."""
    content = _clean(extracted.content)
    if not evidence:
        return "no_evidence"
    if not 0 < len(content) <= CONTENT_CHARACTERS or extracted.kind not in _KINDS:
        return "malformed"
    if not (threshold <= extracted.confidence <= 1.0):  # NaN compares with nothing
        return "not_confident"
    fields = [content, *filter(None, (extracted.category, extracted.key, extracted.value, extracted.subject))]
    told = "\n".join([*fields, *extracted.tags])
    if looks_secret(told) is not None or any(holds_secret_of(told, message.content) for message in evidence):
        return "secret"
    if _COMMAND.search(content):
        return "command"
    said = "\n".join(without_foreign(shown_text(message)) for message in evidence)
    return None if _is_grounded(content, extracted.value, said, asked) else "not_grounded"


def _is_grounded(content: str, value: str | None, said: str, asked: set[int]) -> bool:
    """Whether the user's words hold the value, the names and the numbers, and the conversation most of the rest."""
    own = {hash_of(word) for word in words_of(said)}
    exact = [word for token in _EXACT.findall(content) for word in words_of(token) if word not in _USER]
    if any(hash_of(word) not in own for word in exact) or not _words(value or "") <= own:
        return False
    meant = _words(content)
    return bool(meant) and len(meant & own) > 0 and len(meant & (own | asked)) >= GROUNDED_SHARE * len(meant)


def _words(text: str) -> set[int]:
    """The words of a text that mean something."""
    return {hash_of(word) for word in words_of(text) if word not in STOP_WORDS and word not in _USER}


def _finding(extracted: ExtractedMemory, evidence: Sequence[SourceMessage], now: int) -> Finding | None:
    message = max(evidence, key=lambda one: one.sequence)
    kind = cast("MemoryKind", extracted.kind)
    expires_at = _time(extracted.expires_at)
    if expires_at is not None and expires_at <= max(now, message.created_at):
        return None
    fact = _fact(extracted) if kind == "fact" else {}
    everywhere = extracted.tier == "account" and kind in _ACCOUNT_KINDS and any(
        says_everywhere(one.content) for one in evidence
    )  # fmt: skip
    tier: Tier = "account" if everywhere else "workspace"
    return Finding(
        message=message,
        evidence=tuple(one.id for one in evidence),
        method="language model",
        content=_clean(extracted.content),
        kind=kind,
        subject=_label(extracted.subject) or fact.get("key"),
        confidence=extracted.confidence,
        importance=extracted.importance if 0.0 <= extracted.importance <= 1.0 else _DEFAULT_IMPORTANCE,
        lifetime="long_term" if kind in ("fact", "procedure") else "short_term",
        tier=tier,
        category=fact.get("category"),
        key=fact.get("key"),
        value=fact.get("value"),
        tags=_tags(extracted.tags),
        expires_at=expires_at,
    )


def _fact(extracted: ExtractedMemory) -> Mapping[str, str]:
    """Category, key and value where all three are there."""
    fields = {
        "category": _label(extracted.category),
        "key": _label(extracted.key),
        "value": _clean(extracted.value or "")[:CONTENT_CHARACTERS],
    }
    return {name: value for name, value in fields.items() if value} if all(fields.values()) else {}


def _label(text: str | None) -> str | None:
    return _clean(text or "").lower()[:LABEL_CHARACTERS].strip(" .,:;") or None


def _clean(text: str) -> str:
    """A text on one line, without what cannot be seen."""
    return " ".join(_HIDDEN.sub(" ", text.encode("utf-8", "ignore").decode()).split())


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    clean = (_clean(tag).lower()[:MAX_TAG_CHARACTERS].strip() for tag in tags)
    return tuple(dict.fromkeys(tag for tag in clean if tag))[:MOST_TAGS]


def _time(text: str | None) -> int | None:
    """A moment in microseconds; None for none, and for what is no time."""
    try:
        moment = datetime.fromisoformat((text or "").strip())
        return to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None
