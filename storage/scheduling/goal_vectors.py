"""The vectors of what schedules are to do: made beforehand, so that a run recalls without a model at hand."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal that has no vector of the model in use."""

    agent: str
    schedule: str
    text: str


class GoalVectors:
    """The goals of all agents' schedules within one transaction: for the worker that has the model."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def waiting(self, model: str, *, limit: int) -> list[Goal]:
        """Goals of schedules that may fire, without a vector of a model."""
        rows = self._connection.execute(
            text(
                "SELECT agent_id, id, goal FROM schedules WHERE status IN ('active', 'paused', 'disabled')"
                " AND recall_limit > 0 AND goal_model IS NOT :model LIMIT :limit"
            ),
            {"model": model, "limit": limit},
        )
        return [Goal(*list(row)) for row in rows]

    def put(self, goal: Goal, vector: bytes, model: str) -> None:
        """Keep the vector of a goal (float32, little-endian), unless the goal was changed meanwhile."""
        self._connection.execute(
            text(
                "UPDATE schedules SET goal_vector = :vector, goal_model = :model"
                " WHERE agent_id = :agent AND id = :id AND goal = :goal"
            ),
            {"vector": vector, "model": model, "agent": goal.agent, "id": goal.schedule, "goal": goal.text},
        )
