"""Decides what a dream sweep never promotes, however often it was recalled: commands, secrets, tool output, questions.

It errs on the side of refusing: what is refused is not changed, and can be recalled as before.
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
from storage.recall.stop_words import FILLER_WORDS
from storage.recall.words import words_of

Refusal = Literal["command", "filler", "question", "secret", "tool_output", "too_long"]

# Longer texts are documents, too long for MEMORY.md and for a prompt.
MAX_CHARACTERS: Final = 20_000
# Fillers are short; a longer text need not be read.
_MAX_FILLER: Final = 200
_TOOL_ROLES: Final = frozenset({"tool", "system"})
# White space, zero-width characters and quotation marks that may precede a command.
_COMMAND_PREFIX: Final = " \t\r\n\f\v`'\"\u200b\u200c\u200d\u2060\ufeff\xa0"
_COMMAND = re.compile(
    r"""
    [/!](?=\S)                                  # /reset, !rm
    | [$%\u276f\u279c\u03bb]\s{1,9}\S               # $ ls, and the prompts of other shells
    | \#\s(?:[a-z][\w./-]{0,60})(?:\s{1,9}-|\s{0,9}$)        # a root prompt, not a heading
    | >>>\s | In\s\[\d+\]:                      # Python's
    | # ana@host:~/src$
      (?:\([\w.-]{1,60}\)\s)?\[?[\w.-]{1,60}@[\w.-]{1,60}(?::[~/][^\s$\#%]{0,200}|\s[~/\w.-]{1,200})\]?\s?[$\#%]\s
    | PS\s[A-Z]:\\[^>\n]{0,200}> | [A-Z]:\\[^>\n]{0,200}>   # PowerShell and cmd
    | (?:sudo|doas)\s{1,9}\S
    """,
    re.VERBOSE,
)
_OUTPUT = re.compile(
    r"""
    ``` | ~~~                                   # a block of code or its output
    | Traceback\s\(most\srecent\scall\slast\)
    | <(?:tool|function)[_-]?(?:result|response|call|output)
    | \[(?:tool|function)[_\s-]?(?:result|response|call|output)
    | (?:tool|function)[_\s](?:result|response|call|output)\b\s{0,9}[:=({\[]
    | (?:stdout|stderr)\s{0,9}:
    """,
    re.VERBOSE | re.IGNORECASE,
)


def refuse_memory(memory: MemoryRecord, source: MessageRecord | None) -> Refusal | None:
    """Return why a memory must not be promoted, or None. `source` is the message that it was made from, if any."""
    if memory.source.lower() in _TOOL_ROLES or (source is not None and source.role in _TOOL_ROLES):
        return "tool_output"
    return refuse_text(f"{memory.value or ''}\n{memory.content}".strip())


def is_lasting(memory: MemoryRecord, now: int) -> bool:
    """Return whether a memory is current, unexpired, and outlives its conversation. `now` is in microseconds."""
    return memory.active and memory.tier != "conversation" and not (memory.expires_at and memory.expires_at <= now)


def tags_without_secrets(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags without those that look like a secret."""
    return tuple(tag for tag in tags if looks_secret(tag) is None)


def refuse_message(message: MessageRecord, preceding_text: str) -> Refusal | None:
    """Return why a message must not become a memory, or None. `preceding_text` is the message just before it."""
    if asks_for_secret(preceding_text) or announces_secret(preceding_text):
        return "secret"
    if message.role in _TOOL_ROLES or message.tool_call_id or message.tool_name or message.tool_calls:
        return "tool_output"
    # A question is recalled by similar questions, but answers none of them.
    if is_only_questions(message.content):
        return "question"
    return "filler" if is_filler(message.content) else refuse_text(message.content)


def is_filler(text: str) -> bool:
    """Return whether a text only acknowledges another one, as "Noted." or "OK, thanks" do.

    It is recalled together with the question that it answers, and is worth nothing without it.
    """
    return len(text) <= _MAX_FILLER and FILLER_WORDS.issuperset(words_of(text.replace("\u2019", "'")))


def refuse_text(text: str) -> Refusal | None:
    """Return why a text must not be promoted, or None."""
    beginning = unicodedata.normalize("NFKC", text[:400]).lstrip(_COMMAND_PREFIX)
    raw = text.lstrip(" \t\r\n")
    if _COMMAND.match(beginning):
        return "command"
    if _OUTPUT.match(raw) or _is_json(raw):
        return "tool_output"
    if looks_secret(text):
        return "secret"
    return "too_long" if len(text) > MAX_CHARACTERS else None


def _is_json(text: str) -> bool:
    if not text.startswith(("{", "[")) or len(text) > MAX_CHARACTERS:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
