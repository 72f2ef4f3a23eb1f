"""Rows in the order of their threads, so that a turn can be scored with the text around it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from retrieval.index.agent_index import IndexSnapshot
from retrieval.index.codes import Floats, Rows
from retrieval.index.windows import REACH, window_bounds


class Neighbourhood:
    """Some rows in thread order, grouped into runs without a gap, each within one thread.

    `rows` are row numbers of the snapshot; every method takes and returns one value per row, in this order.
    """

    def __init__(self, snapshot: IndexSnapshot, places: Rows | None = None) -> None:
        """Take the rows at these ascending places of `snapshot.order`; all rows if None."""
        self.rows = (snapshot.order if places is None else snapshot.order[places]).astype(np.int64)
        count = len(self.rows)
        threads = snapshot.threads[self.rows]
        breaks = threads[1:] != threads[:-1]
        if snapshot.audience_names:  # what one may see who may not see the text around it is scored without that
            audiences = snapshot.audiences[self.rows]
            breaks |= audiences[1:] != audiences[:-1]
        if places is not None:
            breaks |= np.diff(places) != 1
        starts = np.flatnonzero(np.concatenate([[True], breaks])) if count else np.empty(0, np.int64)
        self._run = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, count)))
        low, high = window_bounds(self._run, snapshot.lengths[self.rows])
        self._low, self._high = low, high

    @classmethod
    def around(cls, snapshot: IndexSnapshot, seeds: Rows) -> Neighbourhood:
        """Return the rows within `REACH` places of the seeds."""
        places = snapshot.places[seeds].astype(np.int64)
        near = (places[places >= 0, None] + np.arange(-REACH, REACH + 1)).ravel()
        selected = np.zeros(len(snapshot.order), np.bool_)
        selected[near[(near >= 0) & (near < len(snapshot.order))]] = True
        return cls(snapshot, np.flatnonzero(selected))

    def window_sums(self, values: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return for each row the sum over the rows of its window, itself included."""
        total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        sums: NDArray[np.float64] = total[self._high] - total[self._low]
        return sums

    def smoothed(self, values: Floats, counts: NDArray[np.bool_], weights: Mapping[int, float]) -> Floats:
        """Return for each row the weighted mean of itself (weight 1) and the rows at the distances of `weights`.

        Only rows marked in `counts` are included; the mean of none is 0.
        """
        sums = np.where(counts, values, 0.0)
        total = counts.astype(np.float64)
        own, share = sums.copy(), total.copy()
        for distance, weight in weights.items():
            if distance >= len(self.rows):
                continue
            same = self._run[distance:] == self._run[:-distance]
            sums[distance:] += weight * own[:-distance] * same
            sums[:-distance] += weight * own[distance:] * same
            total[distance:] += weight * share[:-distance] * same
            total[:-distance] += weight * share[distance:] * same
        means: Floats = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0).astype(np.float32)
        return means
