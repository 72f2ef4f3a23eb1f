"""File names for arbitrary text: safe on every file system, and different for different texts."""

from __future__ import annotations

import re
from typing import Final

import blake3

# Not escaped. Capitals are: some file systems treat `Ana` and `ana` as the same name.
_PLAIN = re.compile(rb"[a-z0-9_-]")
# File systems allow 255 bytes; the rest is for an extension.
_MAX_CHARACTERS: Final = 120
_PREFIX_CHARACTERS: Final = 48


def file_name(text: str) -> str:
    """Return a name of a-z, 0-9, `-`, `_` and `%xx` for other bytes; a long one ends in `~` and a hash of the text."""
    encoded = text.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"%{byte:02x}" for byte in encoded)
    if len(name) <= _MAX_CHARACTERS:
        return name
    # `~` itself is always escaped, so no shorter text can give such a name.
    return f"{name[:_PREFIX_CHARACTERS]}~{blake3.blake3(encoded).hexdigest()}"
