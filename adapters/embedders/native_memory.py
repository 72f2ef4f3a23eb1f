"""Keeps the memory that torch's libraries take outside of Python bounded, in the process that runs a model.

Without this it grows with every new shape of a batch: 300 MB after the load were 660 MB after 4,000 texts of mixed
lengths, and 1.9 GB after hours of long ones. Where the C library is not glibc, nothing is done.
"""

from __future__ import annotations

import ctypes
import sys
from types import MappingProxyType
from typing import Any, Final

# oneDNN keeps a compiled kernel for each shape, 1,024 by default; few are used again soon. It reads this from the
# environment when it is loaded: a process that runs a model sets it before, where it has not been set.
ENVIRONMENT: Final = MappingProxyType({"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32", "LRU_CACHE_CAPACITY": "32"})
_M_ARENA_MAX: Final = -8  # malloc.h
# Not M_MMAP_THRESHOLD: with 256 KiB every array of a recall was mapped anew, which doubled its time, and embedding took
# 30 % longer. What is left after a batch is given back as a whole.
_ARENAS: Final = 2


def limit() -> None:
    """Limit what the C library keeps; call it before torch is imported."""
    library = _glibc()
    if library is not None:
        library.mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Give freed memory back to the system; some milliseconds."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _glibc() -> Any | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None
