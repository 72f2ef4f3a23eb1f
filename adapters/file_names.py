"""Names of files and folders made of any text: safe on every file system, and never the same for two texts."""

from __future__ import annotations

import re
from typing import Final

import blake3

# Kept as they are. Capitals are not: some file systems take `Ana` and `ana` for one.
_PLAIN = re.compile(rb"[a-z0-9_-]")
# File systems allow 255 bytes; room is left for an ending.
_LONGEST: Final = 120
_KEPT_OF_A_LONG_ONE: Final = 48


def file_name(text: str) -> str:
    """A name made of a-z, 0-9, `-`, `_` and `%xx` for all else; a long one ends in `~` and a hash of the whole."""
    encoded = text.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"%{byte:02x}" for byte in encoded)
    if len(name) <= _LONGEST:
        return name
    # `~` is never left as it is, so that no shorter text gives such a name.
    return f"{name[:_KEPT_OF_A_LONG_ONE]}~{blake3.blake3(encoded).hexdigest()}"
