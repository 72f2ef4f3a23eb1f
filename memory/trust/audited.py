"""Keyed hashes, which the audit log has in place of names and ids that callers chose.

Its entries are never changed, so an erasure cannot take a name out of them. Whoever knows the name finds its entries by
their hash; the name cannot be read from the hash.
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
    """Return what the log has in place of a name: what kind of thing it is of, and the hash. Empty without a name."""
    if not name:
        return ""
    hashed = target_hash(hash_key(data), kind, workspace=None, agent=None, target=name)
    return f"{kind} {hashed[:_SHOWN]}"


def audited_names(data: Path, name: str) -> list[str]:
    """Return all forms of a name in the log: the name itself, if it was not a caller's, or one of its hashes."""
    return [name, *(audited_name(data, kind, name) for kind in ("id", "user", "session"))]


def audited_trace(data: Path, trace: str) -> str:
    """Return a trace id, or its hash if it may be a text of a caller."""
    return trace if _OWN_TRACE.fullmatch(trace) else audited_name(data, "trace", trace)
