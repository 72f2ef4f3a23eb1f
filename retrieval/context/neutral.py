"""Makes stored text harmless in a document: it cannot end its entry, start another, or imitate the frame.

Every line of a longer text is quoted, so that no heading or open fence extends past it. Markdown marks at the start of
a line and fences are escaped with a backslash, and so are control tokens of chat templates (`reverie.inert`).
"""

from __future__ import annotations

import re
from typing import Final

from reverie.inert import LINE_END, folded, inert, inert_line, visible

_LINE_MARK = re.compile(r"^(\s*)(?=#|~~~|={2,}|-{2,}|\*{3,}|_{3,}|[<>|])")
_FENCE = re.compile("`{3,}")
_WIDE_BLANK = re.compile(r"[^\S\n]{17,}")
_NOT_IN_A_NAME: Final = frozenset('()[]{}<>*#`|\\"')
_MAX_BLANKS: Final = " " * 16


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, escaped, with at most one empty line between two others."""
    lines: list[str] = []
    for raw in inert(text).split("\n"):
        line = _WIDE_BLANK.sub(_MAX_BLANKS, raw).rstrip()
        if line or (lines and lines[-1]):
            lines.append(_LINE_MARK.sub(r"\1\\", _without_fences(line)))
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _without_fences(line: str) -> str:
    return _FENCE.sub(lambda found: r"\`" * len(found.group()), line)


def quoted(text: str, *, indent: str = "") -> str:
    """Return a text as a Markdown quotation."""
    return "".join(f"{indent}> {line}".rstrip() + "\n" for line in lines_of(text))


def label(text: str, *, max_characters: int = 80) -> str:
    """Return a name on one line, without characters that have a meaning in the document, nor what looks like them."""
    shown = visible(LINE_END.sub(" ", text))
    kept = (" " if plain in _NOT_IN_A_NAME else own for own, plain in zip(shown, folded(shown), strict=True))
    bare = inert_line("".join(kept))
    return bare if len(bare) <= max_characters else bare[: max_characters - 1] + "…"
