"""The files of an agent's notebook, rendered whole each time: MEMORY.md, DREAMS.md, facts.md and notes/.

Pure: records in, texts out. Nothing is appended to, so no crash can double a line, and what is forgotten is gone from
the next rendering. What was stored cannot break out of its line, and what looks like a secret is left out and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from adapters.file_names import file_name
from adapters.workspace_git import MAX_FILE_BYTES, Refused
from memory.memories.secrets import looks_secret
from reverie.clock import rfc3339
from storage.memories.records import MemoryRecord
from storage.upkeep.dreams import Promotion

MEMORY_FILE: Final = "MEMORY.md"
DREAMS_FILE: Final = "DREAMS.md"
FACTS_FILE: Final = "facts.md"
MEMORY_FILE_BYTES: Final = 65_536

# A line of a list is read at a glance; the whole text is a `recall` away.
_LINE_CHARACTERS: Final = 400
_LABEL_CHARACTERS: Final = 80
# Whatever any reader takes for the end of a line.
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Control characters, what turns the direction of writing, and tags that no one sees but a model reads.
_HIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
# What opens code, HTML, a link or a picture, or passes for a control word of a chat template.
_MARK = re.compile(r"[`<\[]")
_LEFT_OUT: Final = "_{count} more are left out: this file has at most {limit} bytes._\n"


class Kept(NamedTuple):
    """A promotion and the memory that stands for it now."""

    promotion: Promotion
    memory: MemoryRecord


@dataclass(frozen=True, slots=True)
class Pages:
    """The rendered files by their paths, what was left out as it looks like a secret, and the ledger they tell of."""

    files: dict[str, str]
    refused: tuple[Refused, ...]
    ledger: Sequence[Promotion] = ()


def render(
    agent: str,
    *,
    ledger: Sequence[Promotion],
    kept: Iterable[Kept],
    facts: Iterable[MemoryRecord],
    notes: Iterable[MemoryRecord],
    memory_file_bytes: int = MEMORY_FILE_BYTES,
) -> Pages:
    """All files of an agent; one that would say nothing is not there.

    `ledger` and `kept` come newest sweep first and best first within each; `facts` and `notes` in any order.
    """
    refused: list[Refused] = []
    files = {
        MEMORY_FILE: _memory_file(agent, list(_harmless(MEMORY_FILE, kept, refused)), memory_file_bytes),
        DREAMS_FILE: _dreams_file(agent, ledger, memory_file_bytes),
        FACTS_FILE: _facts_file(agent, [fact for fact in facts if not _is_secret(FACTS_FILE, fact, refused)]),
    }
    for note in notes:
        path = f"notes/{file_name(note.note_id or note.id)}.md"
        if not _is_secret(path, note, refused):
            files[path] = _note_file(note)
    return Pages({path: text for path, text in files.items() if text}, tuple(refused), ledger)


def on_one_line(text: str, longest: int = _LINE_CHARACTERS) -> str:
    """A text as part of a line: no line end, nothing hidden, and no mark that opens something."""
    bare = " ".join(_HIDDEN.sub("", _LINE_END.sub(" ", text[: 8 * longest])).split())
    shown = bare if len(bare) <= longest else bare[: longest - 1] + "…"
    return _MARK.sub(lambda found: "\\" + found.group(), shown)


def quoted(text: str) -> str:
    """A text of several lines as a quotation, each line with its mark: no heading and no fence reaches out of it."""
    lines = [_HIDDEN.sub("", line).rstrip() for line in _LINE_END.split(text.strip())]
    return "".join(f"> {line}".rstrip() + "\n" for line in lines)


def _memory_file(agent: str, kept: Sequence[Kept], limit: int) -> str:
    head = f"# Memory of {on_one_line(agent, _LABEL_CHARACTERS)}\n\nRecalled often, so kept. The newest come first.\n\n"
    return _capped(head, [_memory_line(one) for one in kept], limit) if kept else ""


def _memory_line(one: Kept) -> str:
    tags = ", ".join(on_one_line(tag, _LABEL_CHARACTERS) for tag in one.memory.concept_tags)
    about = f" ({tags})" if tags else ""
    day = rfc3339(one.promotion.promoted_at)[:10]
    return f"- {day} · {one.memory.kind} · {on_one_line(one.memory.content)}{about}\n"


def _dreams_file(agent: str, ledger: Sequence[Promotion], limit: int) -> str:
    """An entry for each sweep that promoted something. Ids and no contents: what is forgotten leaves no word here."""
    head = f"# Dreams of {on_one_line(agent, _LABEL_CHARACTERS)}\n\n"
    entries: list[str] = []
    for at, promotions in groupby(ledger, key=lambda promotion: promotion.promoted_at):
        lines = [
            f"- {on_one_line(one.phase, _LABEL_CHARACTERS)} {on_one_line(one.memory_id, 128)}, score {one.score:.3f}\n"
            for one in promotions
        ]
        entries.append(f"## {rfc3339(at)[:19]}Z: {len(lines)} promoted\n\n{''.join(lines)}\n")
    return _capped(head, entries, limit) if entries else ""


def _facts_file(agent: str, facts: Sequence[MemoryRecord]) -> str:
    head = f"# Facts of {on_one_line(agent, _LABEL_CHARACTERS)}\n"
    lines: list[str] = []
    ordered = sorted(facts, key=lambda fact: (fact.category or "", fact.key or "", fact.id))
    for category, found in groupby(ordered, key=lambda fact: fact.category or ""):
        lines.append(f"\n## {on_one_line(category, 128)}\n\n")
        lines += [
            f"- {on_one_line(fact.key or '', 128)}: {on_one_line(fact.value or fact.content)}\n" for fact in found
        ]
    return _capped(head, lines, MAX_FILE_BYTES) if lines else ""


def _note_file(note: MemoryRecord) -> str:
    tags = ", ".join(on_one_line(tag, _LABEL_CHARACTERS) for tag in note.tags)
    about = f" ({tags})" if tags else ""
    head = f"# {on_one_line(note.note_id or note.id, 128)}\n\n{rfc3339(note.created_at)[:10]}{about}\n\n"
    return head + quoted(note.content)


def _capped(head: str, parts: Sequence[str], limit: int) -> str:
    """As many parts as fit, and how many do not."""
    whole = head + "".join(parts)
    if len(whole.encode()) <= limit:
        return whole
    said = _LEFT_OUT.format(count=f"{len(parts):,}", limit=f"{limit:,}")
    room = limit - len(head.encode()) - len(said.encode())
    fitting: list[str] = []
    for part in parts:
        room -= len(part.encode())
        if room < 0:
            break
        fitting.append(part)
    left = len(parts) - len(fitting)
    return head + "".join(fitting) + _LEFT_OUT.format(count=f"{left:,}", limit=f"{limit:,}")


def _harmless(path: str, kept: Iterable[Kept], refused: list[Refused]) -> Iterable[Kept]:
    return (one for one in kept if not _is_secret(path, one.memory, refused))


def _is_secret(path: str, memory: MemoryRecord, refused: list[Refused]) -> bool:
    """Whether a memory looks like a secret; where it does, that is reported."""
    said = f"{memory.key}: {memory.value}\n{memory.content}" if memory.category is not None else memory.content
    kind = looks_secret(said)
    if kind is not None:
        what = on_one_line(memory.note_id or memory.id, 128)
        refused.append(Refused(path, f"{what} is left out: it looks like it holds a secret ({kind})"))
    return kind is not None
