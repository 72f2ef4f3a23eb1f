"""The calls about the summary of a session."""

from __future__ import annotations

from typing import Final

from reverie.checks import check_session
from reverie.http import HttpTransport, session_path
from reverie.recall.contexts import whole
from reverie.types import Compacted, SessionSummary

# A language model may be asked several times before the answer.
_COMPACT_SECONDS: Final = 180.0


class SummaryCalls:
    """`summary` and `compact`, for a client that has a transport."""

    _http: HttpTransport

    def summary(self, session: str) -> SessionSummary:
        """The rolling summary of a session, and what it covers; its text is empty before the first one.

        Raises `NotFound` and `Unavailable`.
        """
        return self._http.call("GET", session_path(check_session(session), "/summary"), SessionSummary)

    def compact(self, session: str, token_budget: int | None = None) -> Compacted:
        """Condense the oldest turns of a session now, until summary and turns have at most so many tokens.

        Without a budget, until a rolling summary would stop. The newest turn stays, and no message is removed.
        `restore` with the same budget then leaves nothing untold. Raises `Rejected`, `NotFound` and `Unavailable`.
        """
        body = {"token_budget": whole("token_budget", token_budget)}
        path = session_path(check_session(session), "/compact")
        return self._http.call("POST", path, Compacted, body=body, timeout_seconds=_COMPACT_SECONDS)
