"""Take backups at random moments while a pipeline writes; restore each and compare it.

One process stores, chunks, embeds (by hash) and indexes messages, and writes down the ids of each batch once it is
acknowledged. Backups are taken with pauses of random length. Each is restored: every message acknowledged before it
began must be there, and `db verify` must find nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

from adapters.embedders import HashEmbedder
from benchmarks.harness.figures import percentile, rounded
from benchmarks.harness.local import LocalInbox, NoWorkingMemory, store_messages
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.texts import Texts, load_texts
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks
from memory.pipeline.indexing import index_chunks
from reverie.clock import now_micros
from storage.stores import Stores
from storage.upkeep.verify import verify

WORKSPACE: Final = "bench"
_BATCH_MESSAGES: Final = 50
_LONGEST_PAUSE_SECONDS: Final = 2.0
_START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Taken:
    """One backup: its id, how long the command took, its sizes, and how many messages were acknowledged before it."""

    id: str
    seconds: float
    bytes: int
    new_bytes: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class _Load:
    """How many backups are taken, how long is written without any before, and how fast (0: as fast as possible)."""

    backups: int
    alone_seconds: float
    per_second: float


def main() -> None:
    """Measure and write the result."""
    options = _options()
    backups = int(value_or_default(options.backups, quick=options.quick, tiny=3, full=50))
    alone = float(value_or_default(None, quick=options.quick, tiny=2, full=20))
    result = Result(benchmark="backups", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    texts = load_texts(options.data, 2_000, seed=options.seed)
    result.settings.update(backups=backups, texts=texts.source, batch_messages=_BATCH_MESSAGES)
    folder = Path(tempfile.mkdtemp(prefix="rvb-backups-"))
    try:
        _measure(result, folder, texts, _Load(backups, alone, options.rate))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result.finish(options.output)


def _options() -> argparse.Namespace:
    options = parser("backups", __doc__)
    options.add_argument("--backups", type=int, help="backups to take (50; 3 with --quick)")
    options.add_argument(
        "--rate",
        type=float,
        default=400.0,
        help="messages per second that are written at most; at full speed (0) the store outgrows fifty restores",
    )
    return options.parse_args()


def _measure(result: Result, folder: Path, texts: Texts, load: _Load) -> None:
    tell = Progress()
    data, dest = folder / "data", folder / "dest"
    stores = Stores(data)
    stores.workspace(WORKSPACE)
    stores.close()
    context = multiprocessing.get_context("spawn")
    stop, started = context.Event(), context.Event()
    writer = context.Process(target=_write, args=(folder, texts, load.per_second, started, stop), daemon=True)
    writer.start()
    try:
        started.wait(_START_SECONDS)
        tell.step(f"writing without backups for {load.alone_seconds:g} s")
        first = len(_acknowledged(folder))
        time.sleep(load.alone_seconds)
        result.add(
            "messages_per_second_without", rounded((len(_acknowledged(folder)) - first) / load.alone_seconds), "1/s"
        )
        tell.step(f"{load.backups} backups under load")
        taken, per_second = _take(data, dest, folder, load.backups, random.Random(result.seed))
        result.add("messages_per_second_during", rounded(per_second), "1/s")
    finally:
        stop.set()
        writer.join(30)
        writer.kill()
    tell.step("restoring and comparing each")
    ids = _acknowledged(folder)
    compared = [_compare(dest, folder / "restored", backup, ids) for backup in taken]
    _conclude(result, taken, compared, dest)


def _write(folder: Path, texts: Texts, per_second: float, started: Event, stop: Event) -> None:
    """Take messages through all stages until told to stop; write the ids of each acknowledged batch to a file."""
    inbox, working, embedder = LocalInbox(), NoWorkingMemory(), HashEmbedder()
    hooks = EmbedHooks(lambda: None, lambda _chunks, _why: None)
    stores = Stores(folder / "data")
    store = stores.workspace(WORKSPACE)
    round_number = 0
    began = time.monotonic()
    with (folder / "acknowledged").open("w", encoding="ascii") as acknowledged:
        while not stop.is_set():
            begin = round_number * _BATCH_MESSAGES % (len(texts.turns) - _BATCH_MESSAGES)
            part = Texts(texts.turns[begin : begin + _BATCH_MESSAGES], texts.source)
            payloads = part.payloads(label=f"-{round_number}")
            store_messages(store, inbox, working, payloads)
            acknowledged.write("".join(f"{payload.id}\n" for payload in payloads))
            acknowledged.flush()
            chunk_messages(store, now=now_micros, on_batch=lambda _rows: None)
            embed_chunks(store, embedder, now=now_micros, hooks=hooks, batch_size=64)
            index_chunks(store, now=now_micros, on_indexed=lambda _indexed: None)
            round_number += 1
            started.set()
            due = began + round_number * _BATCH_MESSAGES / per_second if per_second else 0.0
            stop.wait(max(0.0, due - time.monotonic()))
    stores.close()


def _acknowledged(folder: Path) -> list[str]:
    # The last line may be half written.
    return (folder / "acknowledged").read_text(encoding="ascii").split("\n")[:-1]


def _take(data: Path, dest: Path, folder: Path, backups: int, pauses: random.Random) -> tuple[list[Taken], float]:
    """Take backups at random moments; return them, and the messages stored per second while a backup ran."""
    taken: list[Taken] = []
    stored = 0
    for _ in range(backups):
        time.sleep(pauses.uniform(0, _LONGEST_PAUSE_SECONDS))
        before = len(_acknowledged(folder))
        begun = time.monotonic()
        report = _reverie("--data", str(data), "backup", str(dest), "--json")
        seconds = time.monotonic() - begun
        stored += len(_acknowledged(folder)) - before
        taken.append(Taken(report["id"], seconds, report["bytes"], report["new_bytes"], before))
    return taken, stored / sum(backup.seconds for backup in taken)


def _compare(dest: Path, target: Path, backup: Taken, ids: list[str]) -> tuple[float, int, list[str]]:
    """Restore a backup; return the seconds, how many acknowledged messages are missing, and what is wrong."""
    begun = time.monotonic()
    _reverie("--data", str(target), "restore", str(dest), "--id", backup.id, "--json")
    seconds = time.monotonic() - begun
    stores = Stores(target)
    try:
        store = stores.workspace(WORKSPACE, create=False)
        with store.reading() as tx:
            present = set(tx.connection.exec_driver_sql("SELECT id FROM messages").scalars())
        wrong = verify(store).wrong
    finally:
        stores.close()
        shutil.rmtree(target)
    return seconds, len(set(ids[: backup.acknowledged]) - present), wrong


def _reverie(*arguments: str) -> Any:
    command = [sys.executable, "-P", "-m", "cli", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _conclude(result: Result, taken: list[Taken], compared: list[tuple[float, int, list[str]]], dest: Path) -> None:
    wrong = [line for _, _, lines in compared for line in lines]
    later = taken[1:]
    result.add("backups", len(taken))
    result.add("messages_at_the_end", taken[-1].acknowledged)
    result.add("megabytes_at_the_end", rounded(taken[-1].bytes / 1e6), "MB")
    result.add("backup_p50", rounded(percentile([backup.seconds for backup in taken], 0.5)), "s")
    result.add("backup_longest", rounded(max(backup.seconds for backup in taken)), "s")
    result.add("restore_p50", rounded(percentile([seconds for seconds, _, _ in compared], 0.5)), "s")
    shares = [backup.new_bytes / backup.bytes for backup in later]
    result.add("increment_share", rounded(statistics.mean(shares)) if shares else 0.0)
    result.add("stored_megabytes", rounded(sum(path.stat().st_size for path in dest.rglob("*")) / 1e6), "MB")
    missing = sum(number for _, number, _ in compared)
    result.notes += [f"wrong: {line}" for line in wrong[:10]]
    result.goals += [
        Goal(what="acknowledged messages missing", relation="==", goal=0, figure=missing),
        Goal(what="things that `db verify` finds", relation="==", goal=0, figure=len(wrong)),
    ]


if __name__ == "__main__":
    run(main)
