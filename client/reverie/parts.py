"""Group items into parts of bounded size, as a request or a transaction takes them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def in_parts(sized: Iterable[tuple[_T, int]], *, size: int, most: int = sys.maxsize) -> Iterator[list[_T]]:
    """Yield items, given with their sizes, in parts of at most `most` items and this size.

    An item is never split: one that is larger is alone in its part.
    """
    part: list[_T] = []
    room = size
    for item, needed in sized:
        if part and (len(part) == most or needed > room):
            yield part
            part, room = [], size
        part.append(item)
        room -= needed
    if part:
        yield part
