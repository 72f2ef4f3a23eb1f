"""All scenarios, in the order of the table; one module for each fault."""

from __future__ import annotations

from typing import Final

from benchmarks.faults.scenario import Scenario
from benchmarks.faults.scenarios import (
    bad_endpoint,
    damaged_store,
    deleted_workspace,
    emptied_broker,
    full_broker,
    full_disk,
    full_inbox,
    killed_child,
    large_session,
    locked_store,
    many_workspaces,
    read_while_stored,
    slow_texts,
    stopped_broker,
    stopped_worker,
    wrong_clock,
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    killed_child.SCENARIO,
    slow_texts.SCENARIO,
    stopped_worker.SCENARIO,
    full_disk.SCENARIO,
    wrong_clock.SCENARIO,
    bad_endpoint.REFUSING,
    bad_endpoint.ENDLESS,
    many_workspaces.SCENARIO,
    locked_store.SCENARIO,
    damaged_store.SCENARIO,
    deleted_workspace.SCENARIO,
    large_session.SCENARIO,
    stopped_broker.SCENARIO,
    full_broker.SCENARIO,
    emptied_broker.SCENARIO,
    full_inbox.SCENARIO,
    read_while_stored.SCENARIO,
)
