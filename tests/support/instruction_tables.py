"""Tables of messages: such as instruct the agent for good, and such as only look like it.

`kept` and `traps` were written before the patterns and are met without an exception. `kept_later` and `traps_later`
were written after them and measured once: 50 of 60 kept, 1 of 60 taken for an instruction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

_FOLDER: Final = Path(__file__).parents[1] / "data" / "instructions"

Table = Literal["kept", "traps", "kept_later", "traps_later"]


def messages(table: Table) -> list[str]:
    """Return the messages of a table; in the file, a line each, with `\\n` for a line end."""
    lines = (_FOLDER / f"{table}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in lines if line]
