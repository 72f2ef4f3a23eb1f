"""The right of one process to work on erasures, which it renews while it does."""

from __future__ import annotations

import time
from typing import Final

from reverie.clock import now_micros
from reverie.contract import CONTINUE_ERASURES
from reverie.errors import Transient
from storage.stores import Store

JOB: Final = CONTINUE_ERASURES
# Renewed every few seconds; after a kill, the next run of the job can begin when it has ended.
LEASE_SECONDS: Final = 30.0


class LeaseLost(Transient):
    """Another process continues the erasures."""


class ErasureLease:
    """The right to work on erasures, renewed every few seconds."""

    def __init__(self, account: Store, token: int) -> None:
        self._account = account
        self._token = token
        self._renewed = time.monotonic()

    def renew(self) -> None:
        """Renew the lease if it is time to. Raises `LeaseLost`."""
        if time.monotonic() - self._renewed < LEASE_SECONDS / 8:
            return
        with self._account.writing() as tx:
            if not tx.leases.renew(JOB, self._token, now=now_micros(), seconds=LEASE_SECONDS):
                raise LeaseLost("another process continues the erasures")
        self._renewed = time.monotonic()
