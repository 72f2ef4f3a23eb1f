"""The vectors of schedules' goals, computed beforehand so that a run can recall without an embedding model."""

from __future__ import annotations

from dataclasses import dataclass

from storage.repository import Repository


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal without a vector of the model in use."""

    agent: str
    schedule: str
    text: str


class GoalVectors(Repository):
    """The goals of all agents' schedules within one transaction, for the worker that has the model."""

    def waiting(self, model: str, *, limit: int) -> list[Goal]:
        """Return goals of schedules that may still fire and have no vector of a model."""
        return self._records(
            Goal,
            "SELECT agent_id AS agent, id AS schedule, goal AS text FROM schedules"
            " WHERE status IN ('active', 'paused', 'disabled') AND recall_limit > 0 AND goal_model IS NOT :model"
            " LIMIT :limit",
            model=model,
            limit=limit,
        )

    def put(self, goal: Goal, vector: bytes, model: str) -> None:
        """Store the vector of a goal (float32, little-endian), unless the goal has changed."""
        self._execute(
            "UPDATE schedules SET goal_vector = :vector, goal_model = :model"
            " WHERE agent_id = :agent AND id = :id AND goal = :goal",
            vector=vector,
            model=model,
            agent=goal.agent,
            id=goal.schedule,
            goal=goal.text,
        )
