"""GET /v1/recall-events: the recorded results of an agent's recalls."""

from __future__ import annotations

from memory.recall.events import recent_recalls
from reverie.recall import calls
from reverie.recall.types import RecallEventList
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("recall")


@endpoints.serves(calls.ListRecallEvents)
def _list_recall_events(services: Services, caller: Caller, call: calls.ListRecallEvents) -> RecallEventList:
    store, account = services.seen_store(caller, call), services.account_store(caller, call)
    events = recent_recalls(
        store or account,
        agent=caller.agent,
        limit=call.limit,
        offset=call.offset,
        explain=call.explain,
        memory=call.memory,
        account=account if store is not None else None,
    )
    return RecallEventList(recall_events=events)
