"""Each room keeps to its budget of lines, and no module is longer than one can read at once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
BUDGET: Final[dict[str, int]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["line-budget"]
LONGEST_MODULE: Final = 700


def lines_of(room: str) -> dict[str, int]:
    """Return the number of lines of each module of a room, by its path."""
    return {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in (ROOT / room).rglob("*.py")}


@pytest.mark.parametrize("room", BUDGET)
def test_a_room_keeps_to_its_budget(room: str) -> None:
    """Given the lines of Python in a room, then they are at most those that pyproject.toml allows it."""
    assert sum(lines_of(room).values()) <= BUDGET[room]


@pytest.mark.parametrize("room", BUDGET)
def test_a_module_can_be_read_at_once(room: str) -> None:
    """Given each module of a room, then it has at most 700 lines."""
    assert {name: lines for name, lines in lines_of(room).items() if lines > LONGEST_MODULE} == {}
