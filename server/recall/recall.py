"""POST /v1/recall and POST /v1/sessions/search."""

from __future__ import annotations

from msgspec.structs import asdict

from retrieval.request import RecallRequest
from reverie.recall import calls
from reverie.recall.types import FoundSessions, RecallResponse
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("recall")


@endpoints.serves(calls.Recall)
def _recall(services: Services, caller: Caller, call: calls.Recall) -> RecallResponse:
    return services.recall(caller, _request(caller, call))


@endpoints.serves(calls.SearchSessions)
def _search_sessions(services: Services, caller: Caller, call: calls.SearchSessions) -> FoundSessions:
    request = _request(caller, call)
    return services.runtime.recaller.search_sessions(caller.workspace, request)


def _request(caller: Caller, call: calls.Recall | calls.SearchSessions) -> RecallRequest:
    """Return the request of a call: for the user that the caller is limited to, else the one that the call names."""
    return RecallRequest(**{**asdict(call), "agent": caller.agent, "user": caller.user or call.user})
