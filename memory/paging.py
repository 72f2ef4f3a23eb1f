"""Pages of rows that are in more than one store, such as the memories of a workspace and those of the account."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from itertools import accumulate, islice
from operator import itemgetter
from typing import Any, TypeVar

from storage.stores import Store

_Row = TypeVar("_Row")


def newest_page(
    stores: Sequence[Store],
    read: Callable[[Store, int, int], Iterable[_Row]],
    key: Callable[[_Row], Any],
    *,
    limit: int,
    offset: int,
) -> list[_Row]:
    """Return `limit` rows of these stores from the row number `offset` on, the newest first.

    `read` returns rows of one store, the newest first; it gets the store, a limit and an offset. Rows of several stores
    are merged by `key`, a time or a tuple that begins with one. The rows of each store keep their order, even if a slow
    job wrote an earlier time, so the position of a row does not depend on older ones, and pages fit together.
    """
    if len(stores) == 1:
        return [*read(stores[0], limit, offset)]
    dated = []
    for store in stores:
        rows = [*read(store, offset + limit, 0)]
        dated.append(zip(accumulate(map(key, rows), min), rows, strict=True))
    merged = merge(*dated, key=itemgetter(0), reverse=True)
    return [row for _, row in islice(merged, offset, offset + limit)]
