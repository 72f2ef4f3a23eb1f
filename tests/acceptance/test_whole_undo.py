"""Everything that jobs did to a store, taken back by one command for each agent, byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.story.world import WORKSPACE, ClockedRuntime, World
from reverie import contract
from storage.verify import verify
from support.busy_store import AGENTS, NOW, clocked, copied, fill
from support.curating import everything
from support.forks import run_module
from worker.app import app, use_runtime

QUESTIONS = ("Where does she live?", "dark chocolate", "the baker in Turin", "Am I allergic to anything?", "the river")
CURATING = (
    contract.EXTRACT_MEMORIES,
    contract.SUMMARIZE_SESSIONS,
    contract.CLOSE_IDLE_SESSIONS,
    contract.CONSOLIDATE_CONVERSATIONS,
    contract.CONSOLIDATE_MEMORIES,
    contract.DREAM_SWEEP,
    contract.PRUNE_DECAYED,
)
DAY = 86_400_000_000
# What each of these jobs does to this store; the test is worth little without any of them.
DONE = {
    "extract", "promote", "merge", "expire", "prune", "cap", "clear", "close", "summarise",
}  # fmt: skip


def test_after_all_jobs_one_command_restores_every_row_and_every_answer(tmp_path: Path, valkey_url: str) -> None:
    """Given a store that every job changed on three days, when all is undone, then it is as before them."""
    fill(tmp_path / "made")
    data = copied(tmp_path / "made", tmp_path / "data")
    runtime = clocked(data, broker=valkey_url)
    world = World(runtime)
    before, answers = rows_of(world), answers_of(world)
    app.loader.import_default_modules()
    with use_runtime(runtime):
        for day in range(3):
            runtime.moment = NOW + day * DAY
            for job in CURATING:
                world.run(job)
    assert {action for store in world.stores for action in actions_of(store)} >= DONE
    assert rows_of(world) != before
    close(runtime)

    for agent in AGENTS:
        undone = command(data, valkey_url, agent, "undo", "--all", "--yes", "--json")
        assert undone["failed"] == {}
        assert len(undone["undone"]) >= 20
        assert all(entry["undone_at"] for entry in command(data, valkey_url, agent, "list", "--limit=1000", "--json"))

    runtime = clocked(data, broker=valkey_url)
    world = World(runtime)
    world.settle()
    after = rows_of(world)
    # The audit log is append-only, and says who undid it.
    assert len(after.pop("@account audit_log")) > len(before.pop("@account audit_log"))
    assert {table for table in before if before[table] != after.get(table)} == set()
    assert after == before
    assert [verify(store).wrong for store in world.stores] == [[], []]
    assert answers_of(world) == answers
    close(runtime)


def rows_of(world: World) -> dict[str, Any]:
    """Every row of both stores, but for what jobs note of their own work."""
    return {f"{store.name} {table}": rows for store in world.stores for table, rows in everything(store).items()}


def answers_of(world: World) -> list[tuple[str, str, float]]:
    """What recall finds, with its scores."""
    world.runtime.moment = NOW
    found = [world.recall(agent, query, limit=10, noted=False) for agent in AGENTS for query in QUESTIONS]
    return [
        (result.id, result.text, hit.score) for one in found for result, hit in zip(one.response, one.hits, strict=True)
    ]


def actions_of(store: Any) -> list[str]:
    with store.reading() as tx:
        return [entry.action for entry in tx.curation.page(limit=100_000)]


def close(runtime: ClockedRuntime) -> None:
    runtime.close()


def command(data: Path, broker: str, agent: str, *arguments: str) -> Any:
    """What `reverie curation` prints, run as a person does."""
    environment = {
        **os.environ, "REVERIE_EMBEDDING_PROVIDER": "hash", "REVERIE_BROKER": broker, "REVERIE_CONFIG": os.devnull,
    }  # fmt: skip
    words = ("cli", "--data", str(data), "--workspace", WORKSPACE, "--agent", agent, "curation", *arguments)
    done = run_module(*words, environment=environment, output=data.with_name("output"))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
