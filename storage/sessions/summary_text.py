"""The text of a summary: a line for each thing said, with its date and speaker, the oldest first.

    - 2026-05-03 Ann: I moved to Lisbon in May.
    - 2026-05-03 Ann, asked "Do you like it there?": Very much.

Who wrote it (a job, a language model) makes no difference to its form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

OMISSION: Final = "…"
_LINE = re.compile(r"- (?P<date>\d{4}-\d\d-\d\d) (?P<speaker>[^:]{1,240}): (?P<text>.+)")
_NOT_IN_A_LABEL = re.compile(r"[:\s]+")
_LONGEST_LABEL: Final = 60
# What may stand behind a name: the question that a short answer answers.
LONGEST_QUESTION: Final = 120


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a summary; a text of another form has neither date nor speaker."""

    date: str
    speaker: str
    text: str

    def __str__(self) -> str:
        """The line as it stands in the summary."""
        return f"- {self.date} {self.speaker}: {self.text}" if self.date else self.text


def parsed(summary: str) -> list[Line]:
    """The lines of a summary, the oldest first."""
    found = []
    for raw in summary.splitlines():
        line = _LINE.fullmatch(raw)
        if line is not None:
            found.append(Line(line["date"], line["speaker"], line["text"]))
        elif raw.strip():
            found.append(Line("", "", raw))
    return found


def written(lines: Iterable[Line]) -> str:
    """Lines as the text of a summary."""
    return "\n".join(map(str, lines))


def speaker_label(name: str) -> str:
    """A name as a line can hold it: on one line, without a colon, at most 60 characters."""
    label = _NOT_IN_A_LABEL.sub(" ", name).strip() or "someone"
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + OMISSION


def without_shown(summary: str, texts: Iterable[str]) -> str:
    """A summary without the lines that quote one of these texts: what is shown as it was said needs no summary."""
    shown = [" ".join(text.split()) for text in texts]
    return "\n".join(raw for raw in summary.splitlines() if not _is_quoted(raw, shown))


def _is_quoted(raw: str, texts: Sequence[str]) -> bool:
    line = _LINE.fullmatch(raw)
    return line is not None and any(line["text"].removesuffix(OMISSION) in text for text in texts)
