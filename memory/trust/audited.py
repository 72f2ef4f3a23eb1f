"""Keyed hashes, which the audit log has in place of names and ids that callers chose.

Its entries are never changed, so an erasure cannot take a name out of them. Whoever knows a name finds its entries by
the hash; nobody can read the name from the hash.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from memory.tombstones import hash_key, target_hash

# Characters of a hash in the log: enough to tell one name from all others.
_SHOWN: Final = 16
# Trace ids of Reverie and of W3C's `traceparent`. Any other text was chosen by a caller.
_OWN_TRACE: Final = re.compile(r"[0-9a-f-]{32,64}")


def audited_name(data: Path, kind: str, name: str) -> str:
    """Return the kind and hash that the log has in place of a name; empty without a name."""
    if not name:
        return ""
    hashed = target_hash(hash_key(data), kind, workspace=None, agent=None, target=name)
    return f"{kind} {hashed[:_SHOWN]}"


def audited_names(data: Path, name: str) -> list[str]:
    """Return all forms that a name may have in the log: itself if no caller chose it, or a hash for each kind."""
    return [name, *(audited_name(data, kind, name) for kind in ("id", "user", "session"))]


def audited_trace(data: Path, trace: str) -> str:
    """Return a trace id, or its hash if a caller may have chosen it."""
    return trace if _OWN_TRACE.fullmatch(trace) else audited_name(data, "trace", trace)
