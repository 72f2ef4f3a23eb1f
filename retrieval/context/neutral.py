"""Makes stored text harmless in a document: it cannot end its entry, start another, or imitate the frame.

Every line of a longer text is quoted, so that no heading or open fence extends past it. Markdown marks at the start of
a line, fences and control words of chat templates are escaped with a backslash.
"""

from __future__ import annotations

import re
from typing import Final

# Everything that some reader treats as a line end.
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Control characters, direction overrides, and invisible tag characters that a model reads.
_HIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
_LINE_MARK = re.compile(r"^(\s*)(?=#|~~~|={2,}|-{2,}|\*{3,}|_{3,}|[<>|])")
_FENCE = re.compile("`{3,}")
# Split by the backslash: a tokenizer reads `<|im_end|>` as a control token anywhere.
_CONTROL_WORD = re.compile(r"([<\[])(?=\||!--|/|INST\])")
_WIDE_BLANK = re.compile(r"[^\S\n]{17,}")
_NOT_IN_A_NAME = re.compile(r"[()\[\]{}<>*#`|\\\"]+")
_MAX_BLANKS: Final = " " * 16


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, escaped, with at most one empty line between two others."""
    lines: list[str] = []
    for raw in _LINE_END.split(text):
        line = _WIDE_BLANK.sub(_MAX_BLANKS, _HIDDEN.sub("", raw)).rstrip()
        if line or (lines and lines[-1]):
            lines.append(_LINE_MARK.sub(r"\1\\", _literal(line)))
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _literal(line: str) -> str:
    fenceless = _FENCE.sub(lambda found: r"\`" * len(found.group()), line)
    return _CONTROL_WORD.sub(r"\1\\", fenceless)


def quoted(text: str, *, indent: str = "") -> str:
    """Return a text as a Markdown quotation."""
    return "".join(f"{indent}> {line}".rstrip() + "\n" for line in lines_of(text))


def label(text: str, *, max_characters: int = 80) -> str:
    """Return a name on one line, without characters that have a meaning in the document."""
    bare = " ".join(_NOT_IN_A_NAME.sub(" ", _HIDDEN.sub("", _LINE_END.sub(" ", text))).split())
    return bare if len(bare) <= max_characters else bare[: max_characters - 1] + "…"
