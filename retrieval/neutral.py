"""Stored text made harmless for a document: nothing in it can end its place, open another, or pass for the frame.

Every line of a longer text is quoted, so that neither a heading nor an open fence reaches past it; marks at the
beginning of a line, fences and the control words of chat templates are taken literally by a backslash before them.
"""

from __future__ import annotations

import re
from typing import Final

# Whatever any reader takes for the end of a line.
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Control characters, what turns the direction of writing, and tags that no one sees but a model reads.
_HIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
_LINE_MARK = re.compile(r"^(\s*)(?=#|~~~|={2,}|-{2,}|\*{3,}|_{3,}|[<>|])")
_FENCE = re.compile("`{3,}")
# Taken apart, not only marked: a tokenizer takes `<|im_end|>` for a control token wherever it finds it.
_CONTROL_WORD = re.compile(r"([<\[])(?=\||!--|/|INST\])")
_WIDE_BLANK = re.compile(r"[^\S\n]{17,}")
_NOT_IN_A_NAME = re.compile(r"[()\[\]{}<>*#`|\\\"]+")
_MOST_BLANKS: Final = " " * 16


def lines_of(text: str) -> list[str]:
    """The lines of a text with something on them, and at most one empty one between two; marks taken literally."""
    lines: list[str] = []
    for raw in _LINE_END.split(text):
        line = _WIDE_BLANK.sub(_MOST_BLANKS, _HIDDEN.sub("", raw)).rstrip()
        if line or (lines and lines[-1]):
            lines.append(_LINE_MARK.sub(r"\1\\", _literal(line)))
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _literal(line: str) -> str:
    fenceless = _FENCE.sub(lambda found: r"\`" * len(found.group()), line)
    return _CONTROL_WORD.sub(r"\1\\", fenceless)


def quoted(text: str, *, indent: str = "") -> str:
    """A text as a quotation, each line with its mark."""
    return "".join(f"{indent}> {line}".rstrip() + "\n" for line in lines_of(text))


def label(text: str, *, longest: int = 80) -> str:
    """A name on one line, without what could pass for the document's own marks."""
    bare = " ".join(_NOT_IN_A_NAME.sub(" ", _HIDDEN.sub("", _LINE_END.sub(" ", text))).split())
    return bare if len(bare) <= longest else bare[: longest - 1] + "…"
