"""Messages come that are slow to read for a careless reader: blanks of all kinds, and what patterns begin with."""

from __future__ import annotations

from typing import Final

from benchmarks.faults.scenario import Limits, Scenario, Scene

_BYTES: Final = 500_000
_PATTERN_CHARACTERS: Final = 3_900
_PATTERN_MESSAGES: Final = 45
_BLANKS: Final = ("\u3000", "\u2003", "\u0085", "\u2028", "\u2029", "\u3000\n")
_REPEATED: Final = ("please ", "'z ", "well,\t", "漢", "1_", "password for a ", "i want you to never forget ")


def _cause(scene: Scene) -> None:
    size = _BYTES // 10 if scene.quick else _BYTES
    for number, piece in enumerate([*_BLANKS, *_REPEATED]):
        text = f"message {number} begins{piece * (size // len(piece.encode()))}and ends"
        scene.accepted.send([text], session="long")
    for number in range(_PATTERN_MESSAGES):
        piece = _REPEATED[number % len(_REPEATED)]
        text = f"{number}{piece * (_PATTERN_CHARACTERS // len(piece))}"
        scene.accepted.send([text[:_PATTERN_CHARACTERS]], session=f"pattern-{number}")


SCENARIO: Final = Scenario(
    "slow_texts", "messages of half a megabyte of blanks, and 45 that patterns are slow in", _cause, Limits()
)
