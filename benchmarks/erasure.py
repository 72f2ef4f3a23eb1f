"""Erase a person on a running stack under load while workers are killed, and look for them everywhere.

The person has put a word of their own into every field that a user's words can reach. Another user writes as fast as
the stack accepts it meanwhile. At the end no file of the data folder, and no row of a PostgreSQL database, may hold one
of these words in any form, the receipt must say the same, and nothing of the other user may be lost.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil

from benchmarks.harness.erased_person import FIELDS, PERSON, places, say, wait_until
from benchmarks.harness.figures import rounded
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, settings_of
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.errors import Unavailable
from reverie.trust.erasure_types import Erasure

_WORKSPACE: Final = "harbour"
_OTHER: Final = "lif"
# So many messages of the other user are accepted before the erasure is requested.
_BEFORE: Final = 50
# For what the stack has accepted to be stored once nobody writes any more.
_STORED_SECONDS: Final = 300.0
_STACK: Final = {
    "REVERIE_EMBEDDING_PROVIDER": "hash",
    "REVERIE_LOG_FORMAT": "json",
    "REVERIE_EXTRACTION_DEBOUNCE_SECONDS": "0",
    "REVERIE_DREAM_MIN_HITS": "1",
    "REVERIE_DREAM_MIN_QUERIES": "1",
    "REVERIE_DREAM_MIN_SCORE": "0",
}


def main() -> None:
    """Measure and write the result. Exit with 1 if something is left or lost."""
    options = _options()
    messages = int(value_or_default(options.messages, quick=options.quick, tiny=300, full=5_000))
    kills = int(value_or_default(options.kills, quick=options.quick, tiny=1, full=4))
    result = Result(benchmark="erasure", seed=options.seed, quick=options.quick, settings=settings_of(vars(options)))
    result.settings.update(messages=messages, kills=kills)
    tell = Progress()
    with Stack(env=_STACK) as stack, _client(stack) as ana:
        tell("storing the words of the person")
        say(ana)
        stored = places(stack.data, stack.rows())
        result.add("fields_on_disk", len({field for fields in stored.values() for field in fields}))
        with _others_write(stack, messages) as written:
            started = time.monotonic()
            erasure, killed = _erase(stack, ana, kills, tell)
            result.add("seconds", rounded(time.monotonic() - started), "s")
            answered = bool(ana.recall("marmalade", mode="keyword", limit=1, user=_OTHER))
        tell.step("searching every file and row")
        left = places(stack.data, stack.rows())
        lost = _lost(ana, written, tell)
    assert erasure.receipt is not None, "an erasure that is done has a receipt"
    result.add("processes_killed", killed)
    result.add("searched", rounded(erasure.receipt.searched.bytes / 2**20), "MiB")
    result.add("files_with_words_of_the_person", len(left))
    result.add("leftovers_in_the_receipt", sum(erasure.receipt.leftovers.values()))
    result.add("messages_of_the_other_lost", lost)
    result.add("recall_answered", int(answered))
    result.notes += [f"{path} holds {', '.join(sorted(fields))}" for path, fields in left.items()]
    _add_goals(result)
    result.finish(options.output)
    sys.exit(0 if all(goal.reached for goal in result.goals) else 1)


def _options() -> argparse.Namespace:
    options = parser("erasure", __doc__, data=False)
    options.add_argument("--messages", type=int, help="messages of the other user at most (5,000; 300 with --quick)")
    options.add_argument(
        "--kills", type=int, help="steps of the erasure in which its worker is killed (4; 1 with --quick)"
    )
    return options.parse_args()


def _add_goals(result: Result) -> None:
    for what, figure, goal in (
        ("fields of the person on disk before", "fields_on_disk", len(FIELDS)),
        ("files with a word of the person after", "files_with_words_of_the_person", 0),
        ("leftovers in the receipt", "leftovers_in_the_receipt", 0),
        ("messages of the other user that are lost", "messages_of_the_other_lost", 0),
        ("recalls meanwhile that were answered", "recall_answered", 1),
    ):
        result.goals.append(Goal(what=what, relation="==", goal=goal, figure=result.figures[figure]))


def _erase(stack: Stack, ana: Reverie, kills: int, tell: Progress) -> tuple[Erasure, int]:
    """Erase the person, killing the worker in so many steps; return the erasure and the number of killed processes."""
    erasure, killed = ana.erase(user=PERSON), 0
    seen = {erasure.step}
    while (erasure := ana.erasure(erasure.id)).state != "done":
        tell(f"step {erasure.step!r}, {killed} processes killed")
        if erasure.step not in seen and len(seen) <= kills:
            seen.add(erasure.step)
            killed += _kill_workers(stack)
        time.sleep(0.02)
    return erasure, killed


def _kill_workers(stack: Stack) -> int:
    """Kill the worker that does the erasure with all its children; return how many processes."""
    killed = 0
    for entry in stack.processes():
        if entry.name == "maintenance" and entry.pid:
            try:
                parent = psutil.Process(entry.pid)
                for process in [*parent.children(recursive=True), parent]:
                    process.kill()
                    killed += 1
            except psutil.NoSuchProcess:
                pass
    return killed


@contextmanager
def _client(stack: Stack) -> Iterator[Reverie]:
    with Reverie("ana", broker=stack.broker_url, url=stack.url, workspace=_WORKSPACE, timeout_seconds=60) as memory:
        yield memory


@contextmanager
def _others_write(stack: Stack, most: int) -> Iterator[list[str]]:
    """Have another user write as fast as possible, at most so many messages; yield the ids that were accepted."""
    stop, written = threading.Event(), list[str]()

    def write() -> None:
        with _client(stack) as memory:
            while not stop.is_set() and len(written) < most:
                number = len(written)
                text = f"plums and lanterns, number {number}, as on every other day"
                try:
                    receipt = memory.ingest(f"lif-{number % 7}", {"role": "user", "content": text}, user=_OTHER)
                except Unavailable:
                    continue
                written.extend(receipt.accepted)

    thread = threading.Thread(target=write, name="writer")
    thread.start()
    try:
        wait_until(lambda: len(written) > _BEFORE, "nothing is written")
        yield written
    finally:
        stop.set()
        thread.join()


def _lost(ana: Reverie, written: list[str], tell: Progress) -> int:
    """Wait until what was accepted is stored; return how many messages of the other user are not."""

    def stored() -> int:
        sessions = ana.sessions(limit=100, user=_OTHER)
        return sum(session.messages for session in sessions if session.id.startswith("lif-"))

    expected = len(written) + 1  # and the one that was there before
    deadline = time.monotonic() + _STORED_SECONDS
    while stored() < expected and time.monotonic() < deadline:
        tell(f"{stored():,} of {expected:,} messages of the other user are stored")
        time.sleep(0.2)
    return expected - stored()


if __name__ == "__main__":
    run(main)
