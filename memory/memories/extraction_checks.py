"""Check a language model's answer against what users said: only memories that pass become findings.

The answer is untrusted. A text hidden in a conversation can make a model claim anything, but not that a user said it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast

from memory.memories.extraction_prompt import (
    MAX_MEMORIES,
    ExtractedMemory,
    Extraction,
    is_evidence,
    message_label,
    shown_text,
)
from memory.memories.extraction_window import ExtractionRules, Window
from memory.memories.findings import Finding
from memory.memories.patterns.instruction_sentences import spoken_text
from memory.memories.patterns.instruction_subjects import subject_of
from memory.memories.patterns.instructions import says_everywhere
from memory.memories.patterns.sentences import without_foreign
from memory.memories.secrets import looks_secret, repeats_secret_of
from reverie.clock import to_micros
from reverie.contract import MAX_TAG_CHARACTERS
from storage.memories.extraction import SourceMessage
from storage.memories.records import MemoryKind, Tier, is_standing
from storage.recall.stop_words import STOP_WORDS
from storage.recall.words import hash_of, words_of

MAX_CONTENT_CHARACTERS: Final = 500
MAX_LABEL_CHARACTERS: Final = 120
MAX_TAGS: Final = 5
# The share of a content's meaningful words that must occur in the conversation. The rest is the rewording from the
# first person to the third.
GROUNDED_SHARE: Final = 0.5
_KINDS: Final = frozenset({"fact", "preference", "procedure", "event", "task", "instruction"})
_ACCOUNT_KINDS: Final = frozenset({"preference", "procedure", "instruction"})
_DEFAULT_IMPORTANCE: Final = 0.5
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
# Names within the sentence and anything with a digit: these must not be invented.
_EXACT = re.compile(r"(?<!^)(?<![.!?:] )\b[A-Z][\w'-]+|\b[^\W\d]*\d\w*")
_COMMAND = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.]{0,40}\b(?:instructions?|prompts?|rules|everything)\b"
    r"|\bsystem prompt\b|\byou (?:are|must) now\b|\bjailbreak\b",
    re.IGNORECASE,
)
_USER: Final = frozenset({"user", "users"})


def checked_findings(
    answer: Extraction, window: Window, rules: ExtractionRules, *, now: int
) -> tuple[list[Finding], Counter[str]]:
    """Return the memories of an answer that pass the checks, oldest evidence first; count the others by reason."""
    evidence_by_label = {
        message_label(message): message for message in window.new if is_evidence(message, rules.min_characters)
    }
    other_words = _words(
        " ".join(message.content for message in [*window.before, *window.new] if message.role != "user")
    )
    found: list[Finding] = []
    dropped: Counter[str] = Counter()
    for extracted in answer.memories[:MAX_MEMORIES]:
        labels = dict.fromkeys(extracted.evidence)
        evidence = _of_one_user([evidence_by_label[label] for label in labels if label in evidence_by_label])
        reason = _rejection(extracted, evidence, other_words, rules.threshold)
        finding = _finding(extracted, evidence, now) if reason is None else None
        if finding is None:
            dropped[reason or "expired"] += 1
        else:
            found.append(finding)
    if len(answer.memories) > MAX_MEMORIES:
        dropped["too_many"] = len(answer.memories) - MAX_MEMORIES
    return sorted(found, key=lambda finding: finding.message.sequence), dropped


def _of_one_user(evidence: Sequence[SourceMessage]) -> list[SourceMessage]:
    """Return the messages of the user who said the newest one: nobody's memory has the words of somebody else."""
    if not evidence:
        return []
    speaker = max(evidence, key=lambda one: one.sequence).user
    return [one for one in evidence if one.user == speaker]


def _rejection(
    extracted: ExtractedMemory, evidence: Sequence[SourceMessage], other_words: set[int], threshold: float
) -> str | None:
    """Return why a memory is dropped; None if it is kept."""
    content = _clean(extracted.content)
    if not evidence:
        return "no_evidence"
    if not 0 < len(content) <= MAX_CONTENT_CHARACTERS or extracted.kind not in _KINDS:
        return "malformed"
    if not (threshold <= extracted.confidence <= 1.0):  # false for NaN, too
        return "not_confident"
    fields = [content, *filter(None, (extracted.category, extracted.key, extracted.value, extracted.subject))]
    whole = "\n".join([*fields, *extracted.tags])
    if looks_secret(whole) is not None or any(repeats_secret_of(whole, message.content) for message in evidence):
        return "secret"
    if _COMMAND.search(content):
        return "command"
    is_followed = is_standing(extracted.kind, extracted.importance)
    own_words = spoken_text if is_followed else without_foreign
    evidence_text = "\n".join(own_words(shown_text(message)) for message in evidence)
    # What an agent will follow must be in the user's own words, not in those of the agent or of a quotation.
    context_words = set[int]() if is_followed else other_words
    return None if _is_grounded(content, extracted.value, evidence_text, context_words) else "not_grounded"


def _is_grounded(content: str, value: str | None, evidence_text: str, other_words: set[int]) -> bool:
    """Return whether the user said the value, names and numbers, and the conversation contains enough of the rest."""
    user_words = {hash_of(word) for word in words_of(evidence_text)}
    exact = [word for token in _EXACT.findall(content) for word in words_of(token) if word not in _USER]
    if any(hash_of(word) not in user_words for word in exact) or not _words(value or "") <= user_words:
        return False
    words = _words(content)
    if not words & user_words:
        return False
    return len(words & (user_words | other_words)) >= GROUNDED_SHARE * len(words)


def _words(text: str) -> set[int]:
    """Return the hashes of a text's meaningful words."""
    return {hash_of(word) for word in words_of(text) if word not in STOP_WORDS and word not in _USER}


def _finding(extracted: ExtractedMemory, evidence: Sequence[SourceMessage], now: int) -> Finding | None:
    message = max(evidence, key=lambda one: one.sequence)
    kind = cast("MemoryKind", extracted.kind)
    expires_at = _time(extracted.expires_at)
    if expires_at is not None and expires_at <= max(now, message.created_at):
        return None
    fact = _fact(extracted) if kind == "fact" else {}
    is_account = (
        extracted.tier == "account" and kind in _ACCOUNT_KINDS and any(says_everywhere(one.content) for one in evidence)
    )
    tier: Tier = "account" if is_account else "workspace"
    content = _clean(extracted.content)
    importance = extracted.importance if 0.0 <= extracted.importance <= 1.0 else _DEFAULT_IMPORTANCE
    standing = is_standing(kind, importance)
    return Finding(
        message=message,
        evidence=tuple(one.id for one in evidence),
        method="language model",
        content=content,
        kind=kind,
        subject=subject_of(content) if standing else _label(extracted.subject) or fact.get("key"),
        confidence=extracted.confidence,
        importance=importance,
        lifetime="long_term" if standing or kind in ("fact", "procedure") else "short_term",
        tier=tier,
        category=fact.get("category"),
        key=fact.get("key"),
        value=fact.get("value"),
        tags=_tags(extracted.tags),
        expires_at=expires_at,
    )


def _fact(extracted: ExtractedMemory) -> Mapping[str, str]:
    """Return category, key and value if all three are given, else nothing."""
    fields = {
        "category": _label(extracted.category),
        "key": _label(extracted.key),
        "value": _clean(extracted.value or "")[:MAX_CONTENT_CHARACTERS],
    }
    return {name: value for name, value in fields.items() if value} if all(fields.values()) else {}


def _label(text: str | None) -> str | None:
    return _clean(text or "").lower()[:MAX_LABEL_CHARACTERS].strip(" .,:;") or None


def _clean(text: str) -> str:
    """Return a text on one line, without invisible characters."""
    return " ".join(_HIDDEN.sub(" ", text.encode("utf-8", "ignore").decode()).split())


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    clean = (_clean(tag).lower()[:MAX_TAG_CHARACTERS].strip() for tag in tags)
    return tuple(dict.fromkeys(tag for tag in clean if tag))[:MAX_TAGS]


def _time(text: str | None) -> int | None:
    """Return a time in microseconds; None if there is none or it cannot be parsed."""
    try:
        moment = datetime.fromisoformat((text or "").strip())
        return to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None
