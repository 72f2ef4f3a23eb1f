"""The text of a summary: one line for each statement, with its date and speaker, oldest first.

    - 2026-05-03 Ann: I moved to Lisbon in May.
    - 2026-05-03 Ann, asked "Do you like it there?": Very much.

The form is the same whether a job or a language model wrote the summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

OMISSION: Final = "…"
_LINE = re.compile(r"- (?P<date>\d{4}-\d\d-\d\d) (?P<speaker>[^:]{1,240}): (?P<text>.+)")
_NOT_IN_A_LABEL = re.compile(r"[:\s]+")
_MAX_LABEL: Final = 60
# Characters of the question quoted after a speaker's name, where the line is a short answer to it.
MAX_QUESTION: Final = 120


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a summary; text in another form has an empty date and speaker."""

    date: str
    speaker: str
    text: str

    def __str__(self) -> str:
        """Return the line as it is written in a summary."""
        return f"- {self.date} {self.speaker}: {self.text}" if self.date else self.text


def parse_summary(summary: str) -> list[Line]:
    """Return the lines of a summary, oldest first."""
    lines = []
    for raw in summary.splitlines():
        match = _LINE.fullmatch(raw)
        if match is not None:
            lines.append(Line(match["date"], match["speaker"], match["text"]))
        elif raw.strip():
            lines.append(Line("", "", raw))
    return lines


def format_summary(lines: Iterable[Line]) -> str:
    """Return lines as the text of a summary."""
    return "\n".join(map(str, lines))


def speaker_label(name: str) -> str:
    """Return a name in the form a line can hold: on one line, without a colon, at most 60 characters."""
    label = _NOT_IN_A_LABEL.sub(" ", name).strip() or "someone"
    return label if len(label) <= _MAX_LABEL else label[: _MAX_LABEL - 1] + OMISSION


def until_day(summary: str, day: str) -> str:
    """Return the lines of a summary about days before `day`, such as 2026-05-03; lines without a date are left out."""
    return format_summary(line for line in parse_summary(summary) if line.date and line.date < day)


def without_quoted(summary: str, texts: Iterable[str]) -> str:
    """Return a summary without the lines that quote one of these texts: they are shown in full elsewhere."""
    shown = [" ".join(text.split()) for text in texts]
    return "\n".join(raw for raw in summary.splitlines() if not _is_quoted(raw, shown))


def _is_quoted(raw: str, texts: Sequence[str]) -> bool:
    line = _LINE.fullmatch(raw)
    return line is not None and any(line["text"].removesuffix(OMISSION) in text for text in texts)
