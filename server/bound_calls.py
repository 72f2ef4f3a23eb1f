"""Carry out calls in this process for the caller of a request, as the same calls over HTTP would be: for MCP and pages.

Scopes, bounds of the token, quotas, rates, threads and the audit log are those of the routes below /v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import Request

from reverie.calls import Call, validated
from server.authorisation import noting_refusals
from server.bodies import body_bytes_of
from server.caller import caller_of
from server.endpoints import Endpoint, checked_caller, in_threads, permitted
from server.services import Services

_A = TypeVar("_A")


class BoundToRequest:
    """Sends calls in this process, for whom the token and the headers of a request name.

    With `notes_recalls` false, what its recalls find does not count as recalled.
    """

    def __init__(
        self, services: Services, endpoints: Mapping[Any, Endpoint], request: Request, *, notes_recalls: bool = True
    ) -> None:
        self._services = services
        self._endpoints = endpoints
        self._request = request
        self._notes_recalls = notes_recalls
        # Counted once for each request, however many calls it makes.
        self._bytes = body_bytes_of(request)

    @property
    def user(self) -> str | None:
        """The user that the token or the header X-Reverie-User names. Raises `Rejected` and `Forbidden`."""
        workspace = self._services.runtime.settings.workspace
        return caller_of(self._request, subject="agent", workspace=workspace).user

    async def send(self, call: Call[_A]) -> _A:
        """Return the response to a call. Raises what the same call over HTTP does."""
        services, checked = self._services, validated(call)
        endpoint = self._endpoints[type(call)]
        with noting_refusals(services, self._request, endpoint.kind):
            caller = checked_caller(endpoint, self._request, services)
            if not self._notes_recalls:
                caller = replace(caller, notes_recalls=False)
            taken, self._bytes = self._bytes, 0
            own = permitted(services, caller, checked, body_bytes=taken)
            response: _A = await in_threads(
                endpoint, services, caller, own, lambda: endpoint.answer(services, caller, own)
            )
        return response
