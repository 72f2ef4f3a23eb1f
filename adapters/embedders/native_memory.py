"""The memory that the libraries of a model take outside of Python: how it is limited and given back."""

from __future__ import annotations

import ctypes
import sys
from types import MappingProxyType
from typing import Any, Final

# Torch's libraries take memory outside of Python that grows with every new shape of a batch: 300 MB after the load were
# 660 MB after 4,000 texts of mixed lengths, and 1.9 GB after hours of long ones. `limit_memory` bounds it if the C
# library is glibc.
#
# oneDNN keeps a compiled kernel for each shape, 1,024 by default; few are used again soon. It reads this limit from the
# environment when it is loaded: a process that runs a model sets it before, unless it has been set.
#
# Threads of OpenMP that wait for each other spin by default. If another process uses a core, they keep the thread that
# they wait for from running. With one of two cores busy, a short text took 33 ms (p90: 76 to 156), and 64 took 0.69 s;
# with waiting threads asleep 15 ms (p90: 19) and 0.50 s. With both cores idle it costs up to 1 ms a call.
MODEL_ENVIRONMENT: Final = MappingProxyType(
    {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32", "LRU_CACHE_CAPACITY": "32", "OMP_WAIT_POLICY": "PASSIVE"}
)
_M_ARENA_MAX: Final = -8  # malloc.h
# M_MMAP_THRESHOLD is not set: with 256 KiB every array of a recall was mapped anew, which doubled its time, and
# embedding took 30 % longer. After a batch, `malloc_trim` returns the free memory to the system.
_ARENAS: Final = 2


def limit_memory() -> None:
    """Limit the free memory that the C library keeps; call it before torch is imported."""
    library = _glibc()
    if library is not None:
        library.mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_memory() -> None:
    """Give freed memory back to the system; some milliseconds."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _glibc() -> Any | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None
