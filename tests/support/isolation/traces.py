"""Looks for canaries where no actor is asked: in log lines, files and webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.isolation.actors import Cast, Found
from support.isolation.driver import Tally

# Content of users. Ids that callers choose may stand in logs.
_CONTENT: Final = ("text", "account", "shared", "group")
_READ_BYTES: Final = 8 * 1024 * 1024
_OVERLAP_BYTES: Final = 64


def look_in_files(data: Path, cast: Cast, tally: Tally) -> int:
    """Look through every file of a data folder. Return how many were read."""
    files = [path for path in sorted(data.rglob("*")) if path.is_file() and not path.is_symlink()]
    for path in files:
        place = str(path.relative_to(data))
        for text in _pieces(path):
            found = [canary for canary in cast.canaries_in(text) if not _belongs(place, canary, tally)]
            tally.add(place, "whoever reads the file", text, found)
    return len(files)


def _belongs(place: str, found: Found, tally: Tally) -> bool:
    """Return whether a canary may be in a file, by the path of the file within the data folder."""
    parts = place.split("/")
    if parts[0] == "logs":
        return found.kind not in _CONTENT
    if parts[0] == "workspaces":
        other_agents = [part for part in parts[2:] if part.startswith("agent-")]
        if found.kind == "name" and (parts[1], found.owner) in tally.named:
            return True  # whoever forgets an id has it kept out, also one that was never there
        return found.owner.workspace == parts[1] and (not other_agents or found.owner.agent in other_agents)
    # The databases of the account and the broker's file hold content of all workspaces.
    return True


def _pieces(path: Path) -> Iterator[str]:
    """Yield a file in pieces that overlap, as text in which every byte is one character."""
    with path.open("rb") as file:
        before = b""
        while piece := file.read(_READ_BYTES):
            yield (before + piece).decode("latin-1")
            before = piece[-_OVERLAP_BYTES:]
