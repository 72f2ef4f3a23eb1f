"""Limits what the holder of a token may send in a minute: messages, bytes, memories, schedules.

The counters are in the memory of this process, which is the only server of a data folder. The operator is not limited,
and so neither is whoever uses the local token. Messages that a client puts into the broker itself do not pass here.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from memory.trust.principals import Principal
from reverie.calls import Resource
from reverie.problems import Limited

# Tokens whose rates are remembered, about 300 bytes each; the least recently used is forgotten first.
_TOKENS: Final = 10_000
_MINUTE_SECONDS: Final = 60.0


class Rates:
    """What each token has left of its rates. Limits are amounts in a minute; 0 is none. For one thread.

    A rate is a bucket that holds the amount of a minute and fills steadily, so a burst may use up a minute at once. A
    call that is larger than that is admitted when the bucket is full.
    """

    def __init__(self, limits: Mapping[Resource, int], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limits = {resource: limit for resource, limit in limits.items() if limit > 0}
        self._monotonic = monotonic
        # For each token and resource: the time, and what was left in the bucket at that time.
        self._buckets: OrderedDict[str, dict[Resource, tuple[float, float]]] = OrderedDict()

    def take(self, principal: Principal, amounts: Mapping[Resource, int]) -> None:
        """Take amounts from the rates of a token: all of them, or none. Raises `Limited`."""
        wanted = {resource: amount for resource, amount in amounts.items() if amount and resource in self._limits}
        if not wanted or not principal.token:
            return
        buckets = self._buckets.pop(principal.token, {})
        self._buckets[principal.token] = buckets
        if len(self._buckets) > _TOKENS:
            self._buckets.popitem(last=False)
        now = self._monotonic()
        left = {resource: self._left(buckets, resource, now) for resource in wanted}
        for resource, amount in wanted.items():
            limit = self._limits[resource]
            lacking = min(amount, limit) - left[resource]
            if lacking > 0:
                seconds = max(1, math.ceil(lacking * _MINUTE_SECONDS / limit))
                raise Limited(
                    f"the token has used up its {limit:,} {resource} a minute: try again in {seconds} s",
                    field=resource,
                    retry_after_seconds=seconds,
                )
        buckets.update({resource: (now, left[resource] - amount) for resource, amount in wanted.items()})

    def _left(self, buckets: Mapping[Resource, tuple[float, float]], resource: Resource, now: float) -> float:
        limit = self._limits[resource]
        at, left = buckets.get(resource, (now, float(limit)))
        return min(float(limit), left + (now - at) * limit / _MINUTE_SECONDS)
