"""What is recalled for the goal of a schedule, without a model at hand: by the vector that was made beforehand."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from memory.scheduling.goal_answers import GoalContext
from retrieval.neutral import label, lines_of
from retrieval.prompt import shown_text
from retrieval.request import RecallRequest
from reverie.clock import rfc3339, to_micros
from reverie.errors import NotFound, ReverieError
from reverie.types import RecallResult
from storage.scheduling.records import ScheduleRecord
from storage.stores import Store
from worker.recalling import find_in, store_to_read
from worker.runtime import Runtime

# Of one text so much goes along: a chunk, and a word of where it is from.
_LONGEST_CHARACTERS: Final = 1_000


def recalled_for(here: Runtime, workspace: str, schedule: ScheduleRecord) -> GoalContext:
    """The texts that fit a goal best, at most as many as the schedule wants. Never fails: then there is less."""
    if not schedule.recall_limit:
        return GoalContext()
    store = store_to_read(here, workspace)
    if store is None:
        return GoalContext()
    try:
        return _recalled(here, store, schedule)
    except ReverieError as error:
        return GoalContext(degraded=f"nothing was recalled: {error}")


def _recalled(here: Runtime, store: Store, schedule: ScheduleRecord) -> GoalContext:
    vector, why = _vector_of(here, store, schedule)
    request = RecallRequest(
        query=schedule.goal,
        agent=schedule.agent,
        session=schedule.session,
        scope="account" if schedule.session is not None else None,
        mode="hybrid" if vector is not None else "keyword",
        limit=schedule.recall_limit,
        query_embedding=vector,
    )
    try:
        found = find_in(here, store.name, request, embedding=False)
    except NotFound:  # its session was forgotten, or has not begun: what is known elsewhere goes along
        found = find_in(here, store.name, replace(request, session=None, scope=None), embedding=False)
    if found is None:
        return GoalContext()
    results = tuple(found.response.results)
    return GoalContext(tuple(map(_line, results)), results, why or found.response.degraded)


def _vector_of(here: Runtime, store: Store, schedule: ScheduleRecord) -> tuple[list[float] | None, str]:
    """The goal's vector, where it is of the model that the store searches by; else why there is none.

    One that is missing is asked for, for the next run.
    """
    with store.reading() as tx:
        generation = tx.index.active("vector")
    if generation is None:
        return None, ""
    if schedule.goal_vector is not None and schedule.goal_model == generation.model:
        vector = np.frombuffer(schedule.goal_vector, dtype="<f4")
        if vector.size == generation.dim:
            return vector.tolist(), ""
    here.schedules.notify_goals(store.name)
    return None, "keyword only: the goal has no vector yet"


def _line(result: RecallResult) -> str:
    text = " ".join(" ".join(lines_of(shown_text(result))).split())[:_LONGEST_CHARACTERS]
    who = label(result.name or result.role or result.kind)
    return f"{rfc3339(to_micros(result.created_at))[:10]}, {who}: {text}"
