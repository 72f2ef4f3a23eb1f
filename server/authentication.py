"""Find out who makes a request, by its token."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from anyio import CapacityLimiter, to_thread

from memory.trust.checking import TokenChecker
from memory.trust.principals import Principal
from memory.trust.token_texts import is_well_formed
from reverie.problems import TooManyFailures, Unauthorised
from server.failures import Failures
from server.ledger import Ledger
from storage.trust.audit import AuditEntry

# Look-ups of unknown tokens have threads of their own: however many come, other calls do not wait for them.
_LOOKUP_THREADS: Final = 2
# Whoever calls a server that was started with --open and sends no token.
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
            return Unauthorised("the token is not valid: it is unknown, revoked or expired", field="token")
        return TooManyFailures(
            f"too many wrong tokens from this address: try again in {retry_after_seconds} s, or send a valid one",
            field="token",
            retry_after_seconds=retry_after_seconds,
        )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
