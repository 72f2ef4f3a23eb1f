"""Find out who makes a request, by its token; how often that fails, and how much the token may send in a minute.

The ledger writes refusals to the audit log, and the times when tokens were last used, so that no call waits for them.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from anyio import CapacityLimiter, to_thread

from memory.trust.token_texts import is_well_formed
from memory.trust.tokens import Principal, TokenChecker
from reverie.calls import Resource
from reverie.errors import Limited, ReverieError, TooManyFailures, Unauthorised
from storage.stores import Stores
from storage.trust.audit import AuditEntry

log = structlog.get_logger(__name__)

# A person who mistypes, or a client that starts a few times with an old token, stays below this number.
FAILURES_ALLOWED: Final = 10
WINDOW_SECONDS: Final = 60.0
# Addresses that are remembered, about 200 bytes each; the least recent is forgotten first.
_ADDRESSES: Final = 4_096
# The prefix that one subscriber gets: the subscriber can use any address in it, so whole networks are counted.
_IPV6_PREFIX: Final = 64


class Failures:
    """The wrong tokens of the last minute, by address. For one thread: the event loop's."""

    def __init__(self) -> None:
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self.total = 0
        self.limited = 0

    def note(self, origin: str) -> int:
        """Count a wrong token of an address; return 0, or after too many the seconds until it may try again."""
        self.total += 1
        now, key = time.monotonic(), network_of(origin)
        started, count = self._windows.pop(key, (now, 0))
        if now - started >= WINDOW_SECONDS:
            started, count = now, 0
        self._windows[key] = (started, count + 1)
        if len(self._windows) > _ADDRESSES:
            self._windows.popitem(last=False)
        if count < FAILURES_ALLOWED:
            return 0
        self.limited += 1
        return max(1, math.ceil(started + WINDOW_SECONDS - now))

    def __len__(self) -> int:
        """Return how many addresses are remembered."""
        return len(self._windows)


def network_of(origin: str) -> str:
    """Return the key under which failures are counted: an IPv4 address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(origin)
    except ValueError:
        return origin
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
    return origin


_FLUSH_SECONDS: Final = 5.0
# The time of the last use is written at most this often.
_USES_SECONDS: Final = 60.0
_MAX_KINDS: Final = 100


class Ledger:
    """Collects refusals and uses of tokens. Safe to use from several threads; its own thread starts when needed.

    Equal refusals within a few seconds become one entry with their number. If there are very many different ones, the
    rest becomes one entry, so that nobody can fill the log. Entries of the last seconds before a SIGKILL are lost.
    """

    def __init__(self, stores: Stores, checker: TokenChecker) -> None:
        self._stores = stores
        self._checker = checker
        self._lock = threading.Lock()
        self._refusals: dict[AuditEntry, AuditEntry] = {}
        self._uses: dict[str, int] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def refused(self, entry: AuditEntry) -> None:
        """Note a refused call. Takes microseconds."""
        with self._lock:
            self._add(entry)
        self.start()

    def _add(self, entry: AuditEntry) -> None:
        """Count an entry with its equals. Called with the lock held."""
        key = replace(entry, at=0, trace="", count=1)
        if key not in self._refusals and len(self._refusals) >= _MAX_KINDS:
            key = AuditEntry(at=0, actor="", action=entry.action, target="others", outcome=entry.outcome)
            entry = replace(key, at=entry.at, count=entry.count)
        known = self._refusals.get(key)
        self._refusals[key] = entry if known is None else replace(known, count=known.count + entry.count)

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None and not self._closing.is_set():
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="ledger", daemon=True)
                    with suppress(RuntimeError):  # the system has no more threads now: the next call tries again
                        thread.start()
                        self._thread = thread

    def flush(self, *, uses: bool = True) -> None:
        """Write what was collected, with the uses of tokens if asked. Entries that cannot be written now are kept."""
        with self._lock:
            refusals, self._refusals = self._refusals, {}
        try:
            if refusals:
                self._stores.audit().record(*refusals.values())
                refusals = {}
            if uses:
                self._uses.update(self._checker.take_uses())
            if uses and self._uses:
                self._stores.tokens().note_uses(self._uses)
                self._uses = {}
        except ReverieError as error:
            log.warning("ledger_not_written", error=str(error))
            with self._lock:
                newer, self._refusals = self._refusals, refusals
                for entry in newer.values():
                    self._add(entry)

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


# Tokens whose rates are remembered, about 300 bytes each; the least recently used is forgotten first.
_TOKENS: Final = 10_000
_MINUTE_SECONDS: Final = 60.0


class Rates:
    """The remaining rates of each token. Limits are amounts in a minute; 0 is none. For one thread.

    The counters are in the memory of this process, which is the only server of a data folder. The operator and the
    holder of the local token are not limited. Messages that a client puts into the broker itself do not pass here.

    A rate is a bucket that holds the amount of a minute and fills steadily, so a burst may use up a minute at once. A
    call for more than that is admitted when the bucket is full.
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
        left = {resource: self._available(buckets, resource, now) for resource in wanted}
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

    def _available(self, buckets: Mapping[Resource, tuple[float, float]], resource: Resource, now: float) -> float:
        limit = self._limits[resource]
        at, left = buckets.get(resource, (now, float(limit)))
        return min(float(limit), left + (now - at) * limit / _MINUTE_SECONDS)


# Look-ups of unknown tokens have threads of their own: however many come, other calls do not wait for them.
_LOOKUP_THREADS: Final = 2
# The caller without a token on a server that was started with --open.
ANYONE: Final = Principal("anyone")


@dataclass(frozen=True, slots=True)
class Access:
    """How a server is protected, besides by stored tokens.

    `tokens` are those of the operator, by the name in the audit log. An `open` server lets requests without a token do
    everything. With `local_names_only`, requests without a token must name the server by a loopback name.
    """

    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    open: bool = False
    local_names_only: bool = False


class Authentication:
    """The tokens that a server accepts: stored ones, and `fixed` ones by the name of their holder, the operator.

    An `open` server accepts requests without a token, too, and lets them do everything.
    """

    def __init__(
        self,
        checker: TokenChecker,
        ledger: Ledger,
        *,
        fixed: Mapping[str, str],
        now: Callable[[], int],
        open: bool = False,
    ) -> None:
        self.failures = Failures()
        self.is_open = open
        self._checker = checker
        self._ledger = ledger
        self._fixed = [(_digest(token.encode()), Principal(name)) for name, token in fixed.items()]
        self._now = now
        self._limiter: CapacityLimiter | None = None

    async def principal(self, authorization: bytes | None, *, origin: str) -> Principal:
        """Return who sent the header Authorization. Raises `Unauthorised` and `TooManyFailures`."""
        if authorization is None:
            if self.is_open:
                return ANYONE
            self.failures.total += 1
            raise Unauthorised(
                "send a token, Authorization: Bearer ...: set REVERIE_TOKEN for the client and the command line"
                " (`reverie tokens create` makes one, `reverie tokens show-local` prints that of the local user)",
                field="token",
            )
        scheme, _, token = authorization.partition(b" ")
        token = token.strip() if scheme.lower() == b"bearer" else b""
        found = self._operator(token) or await self._holder(token)
        if found is None:
            raise self._refusal(origin)
        self._ledger.start()
        return found

    def _operator(self, token: bytes) -> Principal | None:
        """Return the holder of a fixed token. Hashes are compared, so the time says nothing about the token."""
        digest = _digest(token)
        found = [principal for known, principal in self._fixed if hmac.compare_digest(known, digest)]
        return found[0] if found else None

    async def _holder(self, token: bytes) -> Principal | None:
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            return None
        if not is_well_formed(text):
            return None
        known = self._checker.known(text)
        if known is not None:
            return known
        if self._limiter is None:
            self._limiter = CapacityLimiter(_LOOKUP_THREADS)
        return await to_thread.run_sync(self._checker.check, text, limiter=self._limiter)

    def _refusal(self, origin: str) -> Unauthorised | TooManyFailures:
        retry_after_seconds = self.failures.note(origin)
        outcome = "limited" if retry_after_seconds else "refused"
        self._ledger.refused(
            AuditEntry(at=self._now(), actor="", action="authentication", outcome=outcome, origin=origin)
        )
        if not retry_after_seconds:
            return Unauthorised(
                "the token is not valid: it is unknown, revoked or expired: set REVERIE_TOKEN to one of"
                " `reverie tokens create`, or to that of `reverie tokens show-local`",
                field="token",
            )
        return TooManyFailures(
            f"too many wrong tokens from this address: try again in {retry_after_seconds} s, or send a valid one",
            field="token",
            retry_after_seconds=retry_after_seconds,
        )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
