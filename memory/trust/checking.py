"""Checks tokens for a server: from memory while the account's database has not been written, else by one look-up.

A revocation by another process takes effect within `FRESH_SECONDS`, one by this process at once. When tokens were last
used is collected, and written by the ledger, never by a call.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from memory.trust.principals import Principal
from memory.trust.token_texts import hash_of
from memory.trust.tokens import principal_of
from reverie.contract import ACCOUNT_STORE
from storage.stores import FileStamp, Stores
from storage.trust.tokens import TokenRecord

# A revoked token is refused within a second. Within this time a token is checked without touching a file.
FRESH_SECONDS: Final = 0.5
# Tokens that are kept in memory, about 1 KB each.
_KEPT: Final = 4_096


@dataclass(slots=True)
class _Checked:
    """A token that was looked up, and the state of the file before."""

    record: TokenRecord
    principal: Principal
    stamp: FileStamp | None
    checked_at: float


class TokenChecker:
    """The tokens that a process has checked. Safe to use from several threads."""

    def __init__(
        self, stores: Stores, *, now: Callable[[], int], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._stores = stores
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._checked: OrderedDict[bytes, _Checked] = OrderedDict()
        self._used_at: dict[str, int] = {}

    def known(self, token: str) -> Principal | None:
        """Return the holder of a token that was checked a moment ago, without touching a file; else None."""
        found = self._checked.get(hash_of(token))
        if found is None or self._monotonic() - found.checked_at > FRESH_SECONDS:
            return None
        return self._holder(found)

    def check(self, token: str) -> Principal | None:
        """Return the holder of a valid token, else None. The token must be well-formed. Raises `StoreUnavailable`."""
        key, stamp = hash_of(token), self._stores.stamp(ACCOUNT_STORE)
        with self._lock:
            found = self._checked.get(key)
            if found is not None and stamp is not None and stamp == found.stamp and stamp.is_settled(self._now()):
                found.checked_at = self._monotonic()
                return self._holder(found)
        record = self._stores.tokens().by_hash(key)
        with self._lock:
            self._checked.pop(key, None)
            if record is None:
                return None
            found = _Checked(record, principal_of(record), stamp, self._monotonic())
            self._checked[key] = found
            while len(self._checked) > _KEPT:
                self._checked.popitem(last=False)
        return self._holder(found)

    def forget(self) -> None:
        """Look every token up again: this process has changed some."""
        with self._lock:
            self._checked.clear()

    def take_uses(self) -> dict[str, int]:
        """Return when tokens were used, by id, since this was last asked."""
        with self._lock:
            used, self._used_at = self._used_at, {}
        return used

    def _holder(self, found: _Checked) -> Principal | None:
        now = self._now()
        if not found.record.is_valid(now):
            return None
        self._used_at[found.record.id] = now
        return found.principal
