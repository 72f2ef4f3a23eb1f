"""Tables of messages: such as instruct the agent for good, such as wait for a confirmation, and such as do neither.

`kept` and `traps` were written before the patterns and are met without an exception. `kept_later` and `traps_later`
were written after them and measured once: 50 of 60 kept, 1 of 60 taken for an instruction. `own_words` and
`others_words` have one instruction as its user says it, and within what people paste, quote and forward.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

_FOLDER: Final = Path(__file__).parents[1] / "data" / "instructions"
_ESCAPE: Final = re.compile(r"\\n|\\u([0-9a-f]{4})")

Table = Literal["kept", "waits", "traps", "kept_later", "traps_later", "own_words", "others_words"]


def messages(table: Table) -> list[str]:
    """Return the messages of a table: in the file a line each, with `\\n` for a line end, `\\u200b` for a character."""
    lines = (_FOLDER / f"{table}.txt").read_text(encoding="utf-8").split("\n")
    return [_ESCAPE.sub(lambda found: chr(int(found[1] or "a", 16)), line) for line in lines if line]
