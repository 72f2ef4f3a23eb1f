"""Reverie: memory that works while the agent rests. This is the light client.

    from reverie import Reverie
    memory = Reverie(agent="ana")
    memory.ingest("chat-42", [{"role": "user", "content": "I moved to Lisbon in May."}])
    memory.recall("where does she live?")

Importing it costs next to nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverie.aio import AsyncReverie
    from reverie.client import Reverie
    from reverie.errors import (
        Conflict,
        NotFound,
        Permanent,
        Rejected,
        Rejection,
        ReverieError,
        Transient,
        Unavailable,
        WaitTimeout,
    )
    from reverie.status import PipelineStatus
    from reverie.types import (
        Context,
        DeadLetter,
        Explanation,
        Leg,
        Message,
        RecallResult,
        Receipt,
        Recollection,
        Restored,
        Session,
        SessionExport,
    )

__version__ = "0.1.0"

__all__ = [
    "AsyncReverie",
    "Conflict",
    "Context",
    "DeadLetter",
    "Explanation",
    "Leg",
    "Message",
    "NotFound",
    "Permanent",
    "PipelineStatus",
    "RecallResult",
    "Receipt",
    "Recollection",
    "Rejected",
    "Rejection",
    "Restored",
    "Reverie",
    "ReverieError",
    "Session",
    "SessionExport",
    "Transient",
    "Unavailable",
    "WaitTimeout",
    "__version__",
]

_MODULES = {
    "Reverie": "client",
    "AsyncReverie": "aio",
    "PipelineStatus": "status",
    **dict.fromkeys(
        (
            "Conflict",
            "NotFound",
            "Permanent",
            "Rejected",
            "Rejection",
            "ReverieError",
            "Transient",
            "Unavailable",
            "WaitTimeout",
        ),
        "errors",
    ),
    **dict.fromkeys(
        ("DeadLetter", "Explanation", "Leg", "RecallResult", "Message", "Receipt", "Recollection", "Session"), "types"
    ),
    **dict.fromkeys(("Context", "Restored", "SessionExport"), "types"),
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that holds it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'reverie' has no attribute {name!r}")
    value = getattr(import_module(f"reverie.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
