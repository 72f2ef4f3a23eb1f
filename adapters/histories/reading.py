"""What all formats share: where the records go, what was left out and why, and how far reading has come.

A history is somebody else's file: whatever is wrong with a part of it is counted with its place and reading goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from reverie.trust.export_types import ExportedRecord

# Places named for each reason.
_EXAMPLES: Final = 3


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for which something was left out, how often, and up to three places where."""

    reason: str
    number: int
    examples: list[str]


@dataclass(slots=True)
class Reading:
    """Reading one history into an agent of a workspace.

    `cut` counts texts that were shortened, `notes` says what a person should know. `progress` gets the bytes read of
    the current file.
    """

    workspace: str
    agent: str
    progress: Callable[[int], None] = lambda _bytes: None
    cut: int = 0
    notes: list[str] = field(default_factory=list)
    _numbers: Counter[str] = field(default_factory=Counter)
    _examples: dict[str, list[str]] = field(default_factory=dict)

    def leave(self, reason: str, where: str = "", number: int = 1) -> None:
        """Count something that is left out, with its reason and the place where it is."""
        self._numbers[reason] += number
        examples = self._examples.setdefault(reason, [])
        if where and len(examples) < _EXAMPLES:
            examples.append(where)

    def note(self, text: str) -> None:
        """Keep a remark for the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    def left_out(self) -> list[LeftOut]:
        """Return what was left out by reason, the most frequent first."""
        return [
            LeftOut(reason=reason, number=number, examples=self._examples[reason])
            for reason, number in self._numbers.most_common()
        ]


class History(Protocol):
    """A format: which files it has below a path, and how one is read."""

    def find(self, path: Path, reading: Reading) -> list[Path]:
        """Return the files of a history in the order in which they are read."""

    def read(self, file: Path, reading: Reading) -> Iterator[ExportedRecord]:
        """Yield the records of a file as they are read; each has an id that is the same every time.

        Raises `OSError` if the file cannot be read, and `Rejected` if nothing in it can be taken.
        """


def one_file(path: Path, *names: str) -> list[Path]:
    """Return a file itself, or those of these names that lie in a folder."""
    if not path.is_dir():
        return [path]
    return [found for name in names for found in sorted(path.glob(name)) if found.is_file()]
