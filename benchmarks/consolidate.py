"""Measure how long it takes to consolidate the memories of one agent: score, promote, prune, merge.

The real job runs on a real store. The memories are synthetic, with vectors distributed like those of the embedder. One
in ten repeats another memory, one in ten has faded, and some are recalled often or have expired.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Final

from adapters.embedders.base import Embedder
from benchmarks.harness.big_store import Model
from benchmarks.harness.default_embedder import default_embedder
from benchmarks.harness.figures import rounded
from benchmarks.harness.made_up_talk import MadeUpTalk
from benchmarks.harness.memory_store import AGENT, NOW_MICROS, fill_memories
from benchmarks.harness.options import parser, run
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of, shown
from memory.jobs import run_on_store
from memory.upkeep.consolidation import consolidate
from memory.upkeep.known_to_several import AgentUsers
from memory.upkeep.relevance import CurationPolicy, relevance
from reverie import contract
from storage.memories.decay import RATES
from storage.memories.sweeps import MemorySweeps
from storage.stores import Store, Stores

SIZES: Final = (10_000, 50_000)
_TINY: Final = (200,)
# The goal on two cores.
_GOAL_SECONDS: Final = 10.0
_GOAL_MEMORIES: Final = 10_000
_MEMORIES_A_TOPIC: Final = 200
_FEWEST_TOPICS: Final = 20
_MIB: Final = 2**20


def main() -> None:
    """Measure and write the result."""
    options = _options()
    sizes = options.sizes or (_TINY if options.quick else SIZES)
    result = Result(
        benchmark="consolidate", seed=options.seed, quick=options.quick, settings=settings_of(vars(options))
    )
    result.settings["sizes"] = list(sizes)
    embedder = default_embedder()
    result.settings["embedder"] = embedder.model
    tell = Progress()
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="rvb-memories-") as name:
            stores = Stores(Path(name))
            try:
                _measure(stores, size, embedder, result, tell)
            finally:
                stores.close()
    seconds = result.figures.get(f"{_GOAL_MEMORIES}_seconds")
    note = "" if seconds is not None else f"no run of {_GOAL_MEMORIES:,} memories"
    what = f"{_GOAL_MEMORIES:,} memories scored, deduplicated and pruned"
    result.goals.append(Goal(what=what, relation="<", goal=_GOAL_SECONDS, figure=seconds, unit="s", note=note))
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("consolidate", __doc__)  # --data is accepted but unused: memories are not conversations
    options.add_argument(
        "--sizes", nargs="+", type=int, help="number of memories of the agent, one store for each (10,000 50,000)"
    )
    return options.parse_args()


def _measure(stores: Stores, size: int, embedder: Embedder, result: Result, tell: Progress) -> None:
    store, users = stores.workspace("bench"), AgentUsers(stores)
    topics = max(size // _MEMORIES_A_TOPIC, _FEWEST_TOPICS)
    talk = MadeUpTalk(embedder.embed, topics=topics, seed=result.seed)
    model = Model(embedder.model, embedder.dimension)
    fates = fill_memories(store, talk, size, model, seed=result.seed, tell=tell)
    tell.step(f"{size:,} memories: built")
    # No cap applies to the larger stores: merging, not removing, is the part that grows faster than the store.
    policy = CurationPolicy(rates=RATES["standard"], memories_per_scope=size)
    result.add(f"{size}_of_it_reading", rounded(_seconds_of_reading(store)), "s")
    result.add(f"{size}_of_it_scoring", rounded(_seconds_of_scoring(store, policy)), "s")
    deciding, would = _job(store, policy, users, dry_run=True)
    result.add(f"{size}_of_it_deciding", rounded(deciding), "s")
    seconds, did = _job(store, policy, users, dry_run=False)
    result.add(f"{size}_seconds", rounded(seconds), "s")
    for name in ("expired", "promoted", "pruned", "merged", "capped"):
        result.add(f"{size}_{name}", did[name])
    result.add(f"{size}_said_twice", fates["doubled"])
    again, left = _job(store, policy, users, dry_run=False)
    result.add(f"{size}_seconds_when_nothing_is_to_do", rounded(again), "s")
    on_disk = sum(path.stat().st_size for path in store.database.path.parent.iterdir())
    result.add(f"{size}_disk_after", rounded(on_disk / _MIB), "MiB")
    if would != did:
        result.notes.append(f"{size:,}: the dry run counted {would}, the run did {did}")
    if sum(left.values()) != left["looked_at"]:
        result.notes.append(f"{size:,}: a second run still found something to do: {left}")
    tell.step(f"{size:,} memories: consolidated in {shown(seconds)} s")


def _job(store: Store, policy: CurationPolicy, users: AgentUsers, *, dry_run: bool) -> tuple[float, dict[str, int]]:
    started = time.perf_counter()
    report = run_on_store(
        store,
        contract.CONSOLIDATE_MEMORIES,
        lambda job: consolidate(job, policy, users),
        now=NOW_MICROS,
        dry_run=dry_run,
    )
    names = ("looked_at", "expired", "promoted", "pruned", "merged", "capped")
    return time.perf_counter() - started, {name: report.counts[name] for name in names}


def _seconds_of_reading(store: Store) -> float:
    started = time.perf_counter()
    with store.reading() as tx:
        sweeps = MemorySweeps(tx.connection, AGENT)
        rows = [memory.row_id for memory in sweeps.outlines()]
        sweeps.texts(rows)
        sweeps.single_chunk_vectors(rows)
    return time.perf_counter() - started


def _seconds_of_scoring(store: Store, policy: CurationPolicy) -> float:
    with store.reading() as tx:
        memories = MemorySweeps(tx.connection, AGENT).outlines()
    started = time.perf_counter()
    for memory in memories:
        relevance(memory, now=NOW_MICROS, rates=policy.rates)
    return time.perf_counter() - started


if __name__ == "__main__":
    run(main)
