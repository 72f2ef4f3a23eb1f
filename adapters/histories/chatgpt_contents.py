"""The texts in the contents of ChatGPT's messages, which are of some twenty kinds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from adapters.histories.blocks import MEDIA, THOUGHTS
from adapters.histories.reading import Reading

INSTRUCTIONS: Final = "messages that were not shown: instructions of the program to the model"

# Contents that are no list of parts, and the fields with their texts in the order in which they are shown.
_TEXT_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "code": ("text",),
    "execution_output": ("text",),
    "citable_code_output": ("output_str",),
    "tether_quote": ("title", "url", "text"),
    "tether_browsing_code": ("text",),
    "tether_browsing_display": ("result",),
    "sonic_webpage": ("title", "url", "text"),
    "system_error": ("text",),
}
_KINDS_OF_REASONS: Final[Mapping[str, str]] = {
    "thoughts": THOUGHTS,
    "reasoning_recap": THOUGHTS,
    "user_editable_context": INSTRUCTIONS,
    "model_editable_context": INSTRUCTIONS,
    "system_message": INSTRUCTIONS,
    "system_content": INSTRUCTIONS,
    "developer_content": INSTRUCTIONS,
    "computer_output": MEDIA,
}
# Where the page shows a source, a name or a picture: its kind and what belongs to it, between private characters.
_MARKER: Final = re.compile("( ?)(\ue200([^\ue200\ue201\ue202]*)(?:\ue202([^\ue200\ue201]*))?\ue201)")
# The same where these characters were lost on the way. Only the first kind is like nothing that somebody would write.
_BARE_MARKER: Final = re.compile(
    r"( ?)((?:file)?cite(?:turn\d{1,4}[a-z]{1,16}\d{1,4})+|entity\[[^\[\]\n]{1,500}\]|image_group\{[^{}\n]{1,2000}\})"
)


def reason_against(content: Mapping[str, Any]) -> str | None:
    """Return why a content has no text that could be taken, None if it may have one."""
    kind = str(content.get("content_type"))
    if kind in _KINDS_OF_REASONS:
        return _KINDS_OF_REASONS[kind]
    return None if "parts" in content or kind in _TEXT_FIELDS else f"messages of the kind {kind[:40]!r}"


def text_in(content: Mapping[str, Any], references: Any) -> str:
    """Return the text of a content as it was shown; `references` are those of the message to its sources."""
    fields = _TEXT_FIELDS.get(str(content.get("content_type")))
    if fields is not None:
        texts = [content.get(field) for field in fields]
    else:
        texts = [text for part in _parts(content) for text in _part_texts(part)]
    return _without_markers("\n".join(text for text in texts if isinstance(text, str) and text), references)


def leave_parts(content: Mapping[str, Any], where: str, reading: Reading) -> None:
    """Count the parts of a content that have no text: pictures, recordings, and those of kinds that are not known."""
    for part in _parts(content):
        if isinstance(part, dict) and not any(_part_texts(part)):
            kind = str(part.get("content_type") or part.get("type"))
            known = kind == "audio_transcription" or any(name.endswith("asset_pointer") for name in (kind, *part))
            reading.leave(MEDIA if known else f"contents of the unknown kind {kind[:40]!r}", where)


def _parts(content: Mapping[str, Any]) -> list[Any]:
    parts = content.get("parts", [])
    return parts if isinstance(parts, list) else [parts]


def _part_texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict) and isinstance(part.get("text"), str):
        yield part["text"]
    elif isinstance(part, dict) and part.get("type") == "search_result_group":
        for found in part.get("entries") or []:
            if isinstance(found, dict):
                yield " ".join(str(found[name]) for name in ("title", "snippet", "url") if found.get(name))
    elif isinstance(part, dict) and isinstance(part.get("content"), str):
        yield msgspec.json.encode(part).decode()


def _without_markers(text: str, references: Any) -> str:
    """Return a text with what the page shows in the place of each marker, which is often nothing."""
    shown = {
        reference["matched_text"]: reference["alt"] if isinstance(reference.get("alt"), str) else ""
        for reference in (references if isinstance(references, list) else [])
        if isinstance(reference, dict) and isinstance(reference.get("matched_text"), str)
    }

    def replaced(match: re.Match[str]) -> str:
        space, marker, kind, rest = match.groups()
        found = shown.get(marker) or _name_in(kind, rest or "")
        return space + found if found else ""

    def replaced_bare(match: re.Match[str]) -> str:
        space, marker = match.groups()
        if marker not in shown and not marker.startswith(("cite", "filecite")):
            return match[0]
        return space + shown[marker] if shown.get(marker) else ""

    return _BARE_MARKER.sub(replaced_bare, _MARKER.sub(replaced, text))


def _name_in(kind: str, rest: str) -> str:
    """Return the name in a marker: of an entity `["city", "Lisbon"]`, and of a link what stands before its address."""
    if kind == "url":
        return rest.partition("\ue202")[0]
    if kind != "entity":
        return ""
    try:
        found = msgspec.json.decode(rest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return rest
    return str(found[1]) if isinstance(found, list) and len(found) > 1 else ""
