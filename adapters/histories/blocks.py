"""The text in the content blocks of messages, as the APIs of language models have them."""

from __future__ import annotations

from typing import Any, Final

_TEXTS: Final = ("text", "input_text", "output_text")


def text_of(content: Any) -> str:
    """Return the text of a message's content: of a text itself, of a block, or of a list of blocks.

    Images, thinking and calls of tools have none.
    """
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(filter(None, map(_block_text, blocks)))


def _block_text(block: Any) -> str:
    if isinstance(block, dict):
        block = block.get("text") if block.get("type", "text") in _TEXTS else None
    return block if isinstance(block, str) else ""
