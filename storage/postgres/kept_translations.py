"""Keeps the translations of statements in a file of the host, for all processes to come.

To translate a statement takes 2 to 12 ms of the processor, and it is first needed within a transaction, which holds
the lock of a store meanwhile. So it is done once for each version of Reverie on a host, and not in each process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

FILE: Final = "translations"
_Line = tuple[str, str, str, frozenset[str], frozenset[str]]
_decode = msgspec.json.Decoder(_Line).decode
# PostgreSQL's SQL, and two sets of parameters.
Translation = tuple[str, frozenset[str], frozenset[str]]


class KeptTranslations:
    """The known translations, by statement. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, Translation] = {}
        self._path: Path | None = None
        self._code = ""

    def open(self, path: Path) -> None:
        """Take what processes before have translated, unless it was by other code, and write what is added."""
        self._path, self._code = path, _code()
        with contextlib.suppress(OSError):
            found: dict[str, Translation] = {}
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # cut off by a kill
                    code, key, sql, arrays, untyped = _decode(line)
                    if code == self._code:
                        found[key] = (sql, arrays, untyped)
            if not found:
                path.unlink()
            self._known |= found

    def find(self, key: str, make: Callable[[], Translation]) -> Translation:
        """Return what is known of a statement, else what `make` returns, which is then kept."""
        if key not in self._known:
            self._known[key] = make()
            if self._path is not None:
                line = msgspec.json.encode((self._code, key, *self._known[key])) + b"\n"
                with contextlib.suppress(OSError):  # the next process translates it again
                    self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                    try:
                        os.write(file, line)
                    finally:
                        os.close(file)
        return self._known[key]


def _code() -> str:
    """Return a hash of what translates: this package and the parser."""
    content = blake3(version("sqlglot").encode())
    for module in sorted(Path(__file__).parent.glob("*.py")):
        content.update(module.read_bytes())
    return content.hexdigest(length=8)
