"""Writes what calls must not wait for: refusals to the audit log, and when tokens were last used.

Equal refusals within a few seconds become one entry with their number, and of very many different ones the rest becomes
one entry, so that nobody can fill the log. What was collected in the last seconds before a SIGKILL is lost.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

import structlog

from memory.trust.checking import TokenChecker
from reverie.errors import ReverieError
from storage.stores import Stores
from storage.trust.audit import AuditEntry

_FLUSH_SECONDS: Final = 5.0
# The time of the last use is written at most this often.
_USES_SECONDS: Final = 60.0
_MAX_KINDS: Final = 100

log = structlog.get_logger(__name__)


class Ledger:
    """Collects refusals and uses of tokens. Safe to use from several threads; its own thread starts when needed."""

    def __init__(self, stores: Stores, checker: TokenChecker) -> None:
        self._stores = stores
        self._checker = checker
        self._lock = threading.Lock()
        self._refusals: dict[AuditEntry, AuditEntry] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def refused(self, entry: AuditEntry) -> None:
        """Note a refused call. Takes microseconds."""
        key = replace(entry, at=0, trace="")
        with self._lock:
            if key not in self._refusals and len(self._refusals) >= _MAX_KINDS:
                key = AuditEntry(at=0, actor="", action=entry.action, target="others", outcome=entry.outcome)
                entry = replace(key, at=entry.at)
            known = self._refusals.get(key)
            self._refusals[key] = entry if known is None else replace(known, count=known.count + 1)
        self.start()

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None and not self._closing.is_set():
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
                    self._thread.start()

    def flush(self, *, uses: bool = True) -> None:
        """Write what was collected, with the uses of tokens if asked. What cannot be written now is kept."""
        with self._lock:
            refusals, self._refusals = self._refusals, {}
        try:
            if refusals:
                self._stores.audit().record(*refusals.values())
                refusals = {}
            used = self._checker.take_uses() if uses else {}
            if used:
                self._stores.tokens().note_uses(used)
        except ReverieError as error:
            log.warning("ledger_not_written", error=str(error))
            with self._lock:
                self._refusals = {**refusals, **self._refusals}

    def close(self) -> None:
        """Write what was collected, and end the thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def _run(self) -> None:
        turns = 0
        while not self._closing.wait(_FLUSH_SECONDS):
            turns += 1
            self.flush(uses=turns % int(_USES_SECONDS / _FLUSH_SECONDS) == 0)
