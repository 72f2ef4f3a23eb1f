"""What a dream sweep never promotes, however often it was recalled: commands, secrets, what tools put out, questions.

It errs on the side of leaving out: what is left out stays where it is and is found as before.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Final, Literal

from memory.memories.secrets import announces_secret, asks_for_secret, looks_secret
from memory.pipeline.questions import is_only_questions
from storage.memories.records import MemoryRecord
from storage.pipeline.records import MessageRecord

Refusal = Literal["command", "question", "secret", "tool_output", "too_long"]

# What a person reads again in MEMORY.md and a model in its prompt; a longer memory is a document.
MOST_CHARACTERS: Final = 20_000
_TOOLS: Final = frozenset({"tool", "system"})
# Blanks, characters without width, and the marks of quoted code: a command hides behind none of them.
_BEFORE: Final = " \t\r\n\f\v`'\"\u200b\u200c\u200d\u2060\ufeff\xa0"
_COMMAND = re.compile(
    r"""
    [/!](?=\S)                                  # /reset, !rm
    | [$%\u276f\u279c\u03bb]\s+\S               # $ ls, and the signs of other shells
    | \#\s(?:[a-z][\w./-]*)(?:\s+-|\s*$)        # root's, where it is no heading
    | >>>\s | In\s\[\d+\]:                      # Python's
    | (?:\([\w.-]+\)\s)?\[?[\w.-]+@[\w.-]+(?::[~/][^\s$\#%]*|\s[~/\w.-]+)\]?\s?[$\#%]\s   # ana@host:~/src$
    | PS\s[A-Z]:\\[^>\n]*> | [A-Z]:\\[^>\n]*>   # PowerShell and cmd
    | (?:sudo|doas)\s+\S
    """,
    re.VERBOSE,
)
_OUTPUT = re.compile(
    r"""
    ``` | ~~~                                   # nothing but code, or what it printed
    | Traceback\s\(most\srecent\scall\slast\)
    | <(?:tool|function)[_-]?(?:result|response|call|output)
    | \[(?:tool|function)[_\s-]?(?:result|response|call|output)
    | (?:tool|function)[_\s](?:result|response|call|output)\b\s*[:=({\[]
    | (?:stdout|stderr)\s*:
    """,
    re.VERBOSE | re.IGNORECASE,
)


def why_not_memory(memory: MemoryRecord, source: MessageRecord | None) -> Refusal | None:
    """Why a memory is never promoted; None where it may be. `source` is the message that it came from, if any."""
    if memory.source.lower() in _TOOLS or (source is not None and source.role in _TOOLS):
        return "tool_output"
    return why_not_text(f"{memory.value or ''}\n{memory.content}".strip())


def lasts(memory: MemoryRecord, now: int) -> bool:
    """Whether a memory stands and is meant to outlive its conversation: one of that tier ends with it."""
    return memory.active and memory.tier != "conversation" and not (memory.expires_at and memory.expires_at <= now)


def plain_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """These tags without what looks like a secret."""
    return tuple(tag for tag in tags if looks_secret(tag) is None)


def why_not_message(message: MessageRecord, before: str) -> Refusal | None:
    """Why a message never becomes a memory; None where it may. `before` is what was said just before it."""
    if asks_for_secret(before) or announces_secret(before):
        return "secret"
    if message.role in _TOOLS or message.tool_call_id or message.tool_name or message.tool_calls:
        return "tool_output"
    # Found by those who ask the same, and not the answer to anything.
    return "question" if is_only_questions(message.content) else why_not_text(message.content)


def why_not_text(text: str) -> Refusal | None:
    """Why a text is never promoted; None where it may be."""
    begins = unicodedata.normalize("NFKC", text[:400]).lstrip(_BEFORE)
    raw = text.lstrip(" \t\r\n")
    if _COMMAND.match(begins):
        return "command"
    if _OUTPUT.match(raw) or _is_json(raw):
        return "tool_output"
    if looks_secret(text):
        return "secret"
    return "too_long" if len(text) > MOST_CHARACTERS else None


def _is_json(text: str) -> bool:
    if not text.startswith(("{", "[")) or len(text) > MOST_CHARACTERS:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
