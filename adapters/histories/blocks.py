"""The text in the content blocks of messages, as the APIs of language models have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from adapters.histories.reading import Reading

THOUGHTS: Final = "thoughts of the model"
MEDIA: Final = "images, recordings and files that were attached: only their names are in the history"

_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_CALLS_AND_RESULTS: Final = frozenset(
    {"tool_use", "tool_result", "server_tool_use", "mcp_tool_use", "mcp_tool_result", "web_search_tool_result"}
)
# Why blocks of these kinds are left out; those of other kinds are not known.
_REASONS: Final[Mapping[str, str]] = {
    "thinking": THOUGHTS,
    "redacted_thinking": THOUGHTS,
    "image": MEDIA,
    "input_image": MEDIA,
    "input_audio": MEDIA,
    "input_file": MEDIA,
    "document": MEDIA,
}


def text_of(content: Any) -> str:
    """Return the text of a message's content: of a text itself, of a block, or of a list of blocks.

    Images, thinking and calls of tools have none.
    """
    return "\n".join(filter(None, map(_block_text, _blocks(content))))


def leave_blocks(content: Any, where: str, reading: Reading) -> None:
    """Count the blocks of a message's content that have neither a text nor a call or result of a tool."""
    for block in _blocks(content):
        kind = _kind(block) if isinstance(block, dict) else "text"
        if kind not in _TEXTS and kind not in _CALLS_AND_RESULTS:
            reading.leave(_REASONS.get(kind) or f"contents of the unknown kind {kind[:40]!r}", where)


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def _kind(block: dict[str, Any]) -> str:
    return str(block.get("type", "text"))


def _block_text(block: Any) -> str:
    if isinstance(block, dict):
        block = block.get("text") if _kind(block) in _TEXTS else None
    return block if isinstance(block, str) else ""
