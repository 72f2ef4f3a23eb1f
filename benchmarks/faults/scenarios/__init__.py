"""All scenarios, in the order of the table."""

from __future__ import annotations

from typing import Final

from benchmarks.faults.scenario import Scenario
from benchmarks.faults.scenarios import brokers, endpoints, stores, workers

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *workers.SCENARIOS,
    *endpoints.SCENARIOS,
    *stores.SCENARIOS,
    *brokers.SCENARIOS,
)
