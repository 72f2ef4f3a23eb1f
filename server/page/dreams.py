"""/dreams: what dream sweeps promoted, and each change of the memory files as a diff."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from fastapi import Response

from reverie.errors import Conflict
from reverie.upkeep.calls import GetDiff, ListHistory, ListPromotions
from reverie.upkeep.notebook_types import Commit
from server.page.pages import Pages
from server.page.visits import Visit

_COMMITS: Final = 100
_PROMOTIONS: Final = 20
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")

pages = Pages()


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff."""

    kind: Literal["file", "place", "added", "removed", "same"]
    text: str


@pages.get("/dreams")
async def _dreams(visit: Visit) -> Response:
    commits, problem = await _history(visit)
    promotions = (await visit.send(ListPromotions(limit=_PROMOTIONS))).promotions
    return visit.page("dreams.html", commits=commits, promotions=promotions, problem=problem)


@pages.get("/dream")
async def _dream(visit: Visit) -> Response:
    id = visit.query("id")
    commits, _ = await _history(visit)
    at = next((place for place, commit in enumerate(commits) if commit.id == id), None)
    commit = commits[at] if at is not None else None
    parent = commits[at + 1].id if at is not None and at + 1 < len(commits) else None
    lines = diff_lines((await visit.send(GetDiff(a=parent, b=id))).text) if parent else None
    return visit.page("dream.html", id=id, commit=commit, lines=lines)


async def _history(visit: Visit) -> tuple[list[Commit], str]:
    """Return the commits, the newest first, and why there are none if the memory files are not kept in git."""
    try:
        return (await visit.send(ListHistory(limit=_COMMITS))).commits, ""
    except Conflict as error:
        return [], str(error)


def diff_lines(text: str) -> list[DiffLine]:
    """Return the lines of a unified diff, each with what it is; of what names a file, the name alone."""
    lines: list[DiffLine] = []
    old = new = 0  # the lines that the hunk still has: within it, "--- x" is a removed line "-- x"
    for line in text.splitlines():
        hunk = _HUNK.match(line)
        if old <= 0 and new <= 0:
            if hunk:
                old, new = (1 if count is None else int(count) for count in hunk.groups())
                lines.append(DiffLine("place", line))
            elif line.startswith(("--- a/", "+++ b/")):
                file = DiffLine("file", line[len("--- a/") :])
                lines += [file] if lines[-1:] != [file] else []
        elif line.startswith("+"):
            lines.append(DiffLine("added", line[1:]))
            new -= 1
        elif line.startswith("-"):
            lines.append(DiffLine("removed", line[1:]))
            old -= 1
        elif not line.startswith("\\"):  # "No newline at end of file"
            lines.append(DiffLine("same", line[1:]))
            old, new = old - 1, new - 1
    return lines
