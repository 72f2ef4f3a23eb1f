"""Recalls context for the goal of a schedule, without loading a model: the goal's vector was made beforehand."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from memory.scheduling.executing import GoalContext
from retrieval.context.document import label, lines_of, shown_text
from retrieval.query import RecallRequest
from reverie.clock import rfc3339, to_micros
from reverie.errors import NotFound, ReverieError
from reverie.recall.types import RecallResult
from storage.scheduling.records import ScheduleRecord
from storage.stores import Store
from worker.runtime import Runtime

# The longest text of one result: a chunk, and a few words about its origin.
_MAX_CHARACTERS: Final = 1_000
# The relevance that the best memory or other result must reach for any to be put into a context. Measured: see
# docs/recall-measurements.md.
CONTEXT_MIN_SCORE: Final = 0.05


def recall_for_goal(runtime: Runtime, workspace: str, schedule: ScheduleRecord) -> GoalContext:
    """Recall texts for a schedule's goal, at most its `recall_limit` results. Errors leave the context empty.

    Results that do not fit the goal are left out, as in a context: without a model, any result causes a notification.
    """
    store = runtime.recaller.find_store(workspace) if schedule.recall_limit else None
    if store is None:
        return GoalContext()
    try:
        return _recall(runtime, store, schedule)
    except ReverieError as error:
        return GoalContext(degraded=f"nothing was recalled: {error}")


def _recall(runtime: Runtime, store: Store, schedule: ScheduleRecord) -> GoalContext:
    vector, degraded = _goal_vector(runtime, store, schedule)
    request = RecallRequest(
        query=schedule.goal,
        agent=schedule.agent,
        user=schedule.user,  # None: the texts that the users of its session may see
        session=schedule.session,
        scope="account" if schedule.session is not None else None,
        mode="hybrid" if vector is not None else "keyword",
        limit=schedule.recall_limit,
        min_score=CONTEXT_MIN_SCORE,
        query_embedding=vector,
    )
    try:
        outcome = runtime.recaller.recall(store.name, request)
    except NotFound:  # the session was forgotten or has not begun: recall without a session
        outcome = runtime.recaller.recall(store.name, replace(request, session=None, scope=None))
    chunks = [(hit.store, hit.chunk_id) for hit in outcome.hits]
    withdrawn = outcome.withdrawn(chunks)
    found = zip(outcome.response.results, chunks, strict=True)
    results = tuple(result for result, chunk in found if chunk not in withdrawn)
    sent = [chunk for chunk in chunks if chunk not in withdrawn]
    return GoalContext(
        tuple(map(_line, results)),
        results,
        degraded or outcome.response.degraded,
        is_withdrawn=lambda: bool(outcome.withdrawn(sent)),
    )


def _goal_vector(runtime: Runtime, store: Store, schedule: ScheduleRecord) -> tuple[list[float] | None, str]:
    """Return the goal's vector if it is of the model that the store searches, else None and the reason.

    A missing vector is requested, for the next run.
    """
    with store.reading() as tx:
        generation = tx.index.active("vector")
    if generation is None:
        return None, ""
    if schedule.goal_vector is not None and schedule.goal_model == generation.model:
        vector = np.frombuffer(schedule.goal_vector, dtype="<f4")
        if vector.size == generation.dim:
            return vector.tolist(), ""
    runtime.schedules.notify_goals(store.name)
    return None, "keyword only: the goal has no vector yet"


def _line(result: RecallResult) -> str:
    text = " ".join(" ".join(lines_of(shown_text(result))).split())[:_MAX_CHARACTERS]
    speaker = label(result.name or result.role or result.kind)
    return f"{rfc3339(to_micros(result.created_at))[:10]}, {speaker}: {text}"
