"""Which conversation was that? Sessions ranked by the best of their chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from adapters.embedders.base import Embedder
from retrieval.recall import RecallRequest, query_vector, ranked_chunks
from reverie.clock import from_micros
from reverie.types import FoundSession, FoundSessions
from storage.stores import Store

# How much deeper than a recall this looks: a long session may hold many of the best chunks.
_DEEPER: Final = 3


def search_sessions(store: Store, embedder: Embedder | None, request: RecallRequest) -> FoundSessions:
    """The agent's sessions that fit a query, best first, each with the message that fits best.

    Takes the same request as `recall`; `limit` counts sessions. Raises `Rejected` for a request at fault.
    """
    request.check()
    vector, degraded = query_vector(store, embedder, request)
    deep = replace(request, limit=request.limit * _DEEPER)
    with store.reading() as tx:
        rows = tx.for_agent(request.agent)
        ranked = ranked_chunks(tx, deep, vector)
        owners = rows.found.sessions([item.chunk_id for item in ranked])
        best: dict[str, int] = {}
        for item in ranked:
            owner = owners.get(item.chunk_id)
            if owner is not None and len(best) < request.limit:
                best.setdefault(owner, item.chunk_id)
        texts = rows.found.texts(list(best.values()))
        records = {session: rows.sessions.get(session) for session in best}
    found = [
        FoundSession(
            session=session,
            ref_code=records[session].ref_code,
            updated_at=from_micros(records[session].updated_at),
            messages=records[session].messages,
            excerpt=texts[chunk_id].chunk_text,
        )
        for session, chunk_id in best.items()
    ]
    return FoundSessions(results=found, degraded=degraded)
