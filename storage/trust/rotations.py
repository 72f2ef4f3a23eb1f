"""How often the webhook secrets of agents were rotated, by a keyed hash of the agent's name: no name, and no secret."""

from __future__ import annotations

from dataclasses import dataclass

from storage.repository import Repository


@dataclass(frozen=True, slots=True)
class RotationRecord:
    """How often a secret was rotated, and when last (microseconds)."""

    count: int
    rotated_at: int


class WebhookRotations(Repository):
    """The agents of one workspace whose secret was ever rotated, by the hash of their name."""

    def of(self, agent_hash: str) -> RotationRecord | None:
        """Return the rotations of an agent, or None. Raises `DamagedRow`."""
        sql = "SELECT count, rotated_at FROM webhook_rotations WHERE agent_hash = :agent_hash"
        return self._record(RotationRecord, sql, agent_hash=agent_hash)

    def add(self, agent_hash: str, *, now: int) -> None:
        """Count one more rotation of an agent's secret."""
        self._execute(
            "INSERT INTO webhook_rotations (agent_hash, count, rotated_at) VALUES (:agent_hash, 1, :now)"
            " ON CONFLICT (agent_hash) DO UPDATE SET count = webhook_rotations.count + 1, rotated_at = :now",
            agent_hash=agent_hash,
            now=now,
        )
