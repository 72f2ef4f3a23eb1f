"""The calls that prepare an agent for its next answer: the context of a session, and the session itself again."""

from __future__ import annotations

from reverie.checks import check_label, check_query, check_session
from reverie.errors import Rejected
from reverie.http import HttpTransport, session_path
from reverie.types import Context, Restored

# SQLite counts in 64 bits, JSON in 53: nobody's window comes near.
_HIGHEST = 2**53


class ContextCalls:
    """`context` and `restore`, for a client that has a transport."""

    _http: HttpTransport

    def context(
        self,
        session: str,
        query: str | None = None,
        *,
        channel: str | None = None,
        token_budget: int | None = None,
        max_messages: int | None = None,
        refine: bool = False,
    ) -> Context:
        """What an agent should know for its next answer in a session; `str()` of it is for the system prompt.

        Without a query the newest turn of a user's is it. `channel` widens through another topic than the session's
        own. The text has at most `token_budget` tokens less the setting `system_prompt_buffer`. With `refine` the
        server's language model has the last word on what is remembered. Raises `Rejected`, `NotFound` for an unknown
        session, and `Unavailable`.
        """
        body = {
            "session": check_session(session),
            "query": None if query is None else check_query(query),
            "channel": check_label("channel", channel),
            "token_budget": whole("token_budget", token_budget),
            "max_messages": whole("max_messages", max_messages),
            "refine": refine,
        }
        return self._http.call("POST", "/v1/context", Context, body=body)

    def restore(self, session: str, token_budget: int | None = None) -> Restored:
        """The newest messages of a session that fit into so many tokens, oldest first, and the rolling summary.

        Without a budget it is the settings' one, less the room for the system prompt. Raises `Rejected`, `NotFound`
        and `Unavailable`.
        """
        path = session_path(check_session(session), "/restore")
        return self._http.call("POST", path, Restored, body={"token_budget": whole("token_budget", token_budget)})


def whole(field: str, value: object) -> int | None:
    """A count as it is, or `Rejected`: JSON would make nothing of what is no number, and 1 of true."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _HIGHEST:
        raise Rejected(f"{field} is {str(value)[:80]}; it must be a whole number above 0", field=field)
    return value
