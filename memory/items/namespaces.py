"""Which namespaces a listing returns: by prefix and suffix with wildcards, shortened to a depth, each once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

# Stands for any one label.
WILDCARD: Final = "*"


def fixed_part(prefix: Sequence[str]) -> list[str]:
    """Return the labels of a prefix before its first wildcard: what a database can look up."""
    return list(takewhile(lambda label: label != WILDCARD, prefix))


def select_namespaces(
    namespaces: Iterable[Sequence[str]], *, prefix: Sequence[str], suffix: Sequence[str], max_depth: int | None
) -> list[list[str]]:
    """Return the namespaces that fit a prefix and a suffix, cut to `max_depth` labels, each once and in order."""
    found = {
        tuple(namespace[:max_depth])
        for namespace in namespaces
        if _begins(namespace, prefix) and _begins(namespace[::-1], suffix[::-1])
    }
    return [list(namespace) for namespace in sorted(found)]


def _begins(labels: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(labels) >= len(pattern) and all(
        wanted in (WILDCARD, label) for label, wanted in zip(labels, pattern, strict=False)
    )
