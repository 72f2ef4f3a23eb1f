"""Measure the memory of each process of a stack in use, disk space per message, and the import time of the client."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.harness.figures import rounded
from benchmarks.harness.options import ROOT, parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.texts import Texts, load_texts
from reverie import Reverie
from storage.stores import Stores
from storage.upkeep.maintenance import optimize

_RECALLS: Final = 20
_MIB: Final = 2**20
_IMPORTS: Final = {
    "import": "import reverie",
    "import_and_construct": "from reverie import Reverie; Reverie(agent='ana')",
    "import_and_construct_with_broker": "from reverie import Reverie; Reverie(agent='ana', broker='redis://x/0')",
}


def main() -> None:
    """Measure and write the result."""
    options = _options()
    count = int(value_or_default(options.messages, quick=options.quick, tiny=100, full=2_000))
    runs = int(value_or_default(options.imports, quick=options.quick, tiny=3, full=10))
    texts = load_texts(options.data, count, seed=options.seed)
    result = Result(benchmark="footprint", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings.update(messages=count, imports=runs, texts=texts.source)
    tell = Progress()
    _measure_imports(result, runs)
    tell.step("imports measured")
    with Stack() as stack:
        _measure_idle_memory(stack, result)
        _work(stack, texts, result)
        result.settings["embedder"] = stack.embedder
        _measure_memory(stack, result)
        broker_bytes = _size(stack.data / "broker")
        stack.stop()
        _measure_disk(stack.data, count, broker_bytes, result)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("footprint", __doc__)
    options.add_argument("--messages", type=int, help="messages ingested before memory is measured (2,000)")
    options.add_argument("--imports", type=int, help="fresh interpreters that import the client (10)")
    return options.parse_args()


def _work(stack: Stack, texts: Texts, result: Result) -> None:
    """Ingest everything and recall some of it, so that each process uses as much memory as in operation."""
    payloads = texts.payloads()
    producer = stack.producer()
    with stack.watch() as watch:
        for start in range(0, len(payloads), 100):
            producer.enqueue(payloads[start : start + 100])
        watch.wait_searchable(len(payloads), 600)
    if not stack.wait_server():
        result.notes.append("the server does not answer: nothing was recalled, and its memory is not in the sum")
        return
    with Reverie(agent="bench", url=stack.url, workspace=WORKSPACE, timeout_seconds=60) as client:
        found = [len(client.recall(turn.text)) for turn in texts.turns[:_RECALLS]]
    result.add("recalls_that_found_something", sum(1 for number in found if number))


def _measure_idle_memory(stack: Stack, result: Result) -> None:
    """Measure a stack that has done next to nothing, with the models of the server and the embed worker loaded."""
    if not stack.wait_server():
        return
    with Reverie(agent="bench", url=stack.url, workspace=WORKSPACE, timeout_seconds=60) as client:
        client.recall("anything")
    rows = _rows(stack)
    pss = rounded(sum(row["pss_mib"] for row in rows)) if all(row["pss_mib"] for row in rows) else None
    result.add("idle_pss", pss, "MiB")
    what = "all processes together before any work, shared pages counted once"
    result.goals.append(Goal(what=what, relation="<", goal=1229, figure=pss, unit="MiB"))


def _rows(stack: Stack) -> list[dict[str, Any]]:
    """Return the memory of each process."""
    supervisor = psutil.Process(stack.supervisor_pid)
    names = {process.pid: process.name for process in stack.processes() if process.pid}
    return [_weighed(process, names, supervisor.pid) for process in (supervisor, *supervisor.children(recursive=True))]


def _measure_memory(stack: Stack, result: Result) -> None:
    rows = _rows(stack)
    result.add("processes", rows)
    for row in rows:
        result.add(f"{row['name']} ({row['pid']})", row["pss_mib"] or row["rss_mib"], "MiB")
    rss = sum(row["rss_mib"] for row in rows)
    pss = sum(row["pss_mib"] for row in rows) if all(row["pss_mib"] for row in rows) else None
    result.add("all_rss", rounded(rss), "MiB")
    result.add("all_pss", None if pss is None else rounded(pss), "MiB")
    what = "all processes together, RSS" if pss is None else "all processes together, shared pages counted once"
    result.goals.append(
        Goal(what=what, relation="<", goal=2048, figure=rounded(rss if pss is None else pss), unit="MiB")
    )


def _weighed(process: psutil.Process, names: dict[int, str], supervisor: int) -> dict[str, Any]:
    memory = process.memory_full_info()
    name = names.get(process.pid) or ("up" if process.pid == supervisor else "")
    if not name:
        name = f"{names.get(process.ppid(), '?')} child"
    pss = getattr(memory, "pss", 0)
    return {
        "name": name,
        "pid": process.pid,
        "rss_mib": rounded(memory.rss / _MIB),
        "pss_mib": rounded(pss / _MIB) if pss else None,
    }


def _measure_disk(data: Path, count: int, broker_bytes: int, result: Result) -> None:
    """Return the size of the workspace after a checkpoint, without free pages."""
    stores = Stores(data)
    optimize(stores.workspace(WORKSPACE), now=0)
    stores.close()
    size = _size(data / "workspaces" / WORKSPACE)
    result.add("disk_a_message", rounded(size / count), "bytes")
    result.add("broker_file", broker_bytes, "bytes")


def _measure_imports(result: Result, runs: int) -> None:
    """Measure the wall time of a fresh interpreter with the client, less one without.

    They alternate, so that load affects both.
    """
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(runs):
        nothing = _interpreter_seconds("pass")
        for name, code in _IMPORTS.items():
            times[name].append(_interpreter_seconds(code) - nothing)
    for name, measured in times.items():
        result.add(f"client_{name}", rounded(statistics.median(measured)), "s")
    goals = {
        "import": ("import of the client", 0.1),
        "import_and_construct": ("import of the client and its first object", 0.3),
    }
    for name, (what, seconds) in goals.items():
        result.goals.append(
            Goal(what=what, relation="<", goal=seconds, figure=result.figures[f"client_{name}"], unit="s")
        )


def _interpreter_seconds(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    return time.perf_counter() - started


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    run(main)
