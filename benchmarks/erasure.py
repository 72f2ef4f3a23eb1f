"""Erase a person on a running stack under load while workers are killed, and look for them everywhere.

The person has put a word of their own into every field that a user's words can reach. Another user writes as fast as
the stack accepts it meanwhile. At the end no file of the data folder, and no row of a PostgreSQL database, may hold one
of these words in any form, the receipt must say the same, and nothing of the other user may be lost. Another agent
stores a memory every 50 ms meanwhile (250 ms with --quick), and none of these may wait for longer than a second.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from benchmarks.harness.folders import paths_below
from benchmarks.harness.options import parser, run, value_or_default
from benchmarks.harness.progress import Progress
from benchmarks.harness.result import Goal, Result, percentile, rounded
from benchmarks.harness.stack import Stack
from reverie import MessageDict, Reverie
from reverie.errors import Unavailable
from reverie.trust.calls import Erasure

FIELDS: Final = (
    "content", "answer", "name", "tag", "metadata", "tool", "file", "uri", "memory", "note", "goal", "reminder", "list",
    "key", "value", "session-metadata", "query", "account", "dead", "user", "session", "chat",
)  # fmt: skip
# One word for each field, so that a search for it also finds what is left in a full-text index.
CANARIES: Final = {
    field: f"zq{number:02d}quillfeather{number * 7919 % 9973:04d}marsh" for number, field in enumerate(FIELDS)
}
PERSON: Final = CANARIES["user"]
# A dead letter or a recall is on disk long before.
_WAIT_SECONDS: Final = 120.0


def say(ana: Reverie) -> None:
    """Put a canary into every field that a user's words can reach."""
    session = CANARIES["session"]
    ana.sessions.start(session, user=PERSON, metadata={"about": CANARIES["session-metadata"]})
    messages: list[MessageDict] = [
        {
            "role": "user",
            "content": f"Remember that I prefer {CANARIES['content']} at night. What do you say?",
            "name": CANARIES["name"],
            "tags": [CANARIES["tag"]],
            "metadata": {"deep": [{"er": CANARIES["metadata"]}]},
        },
        {"role": "assistant", "content": f"I say {CANARIES['answer']}", "tool_calls": [{"function": CANARIES["tool"]}]},
    ]
    ana.ingest(session, messages, user=PERSON, wait="searchable", timeout_seconds=60)
    ana.ingest(
        messages={"role": "user", "content": "by chat"}, provider="telegram", chat_id=CANARIES["chat"], user=PERSON,
        wait="searchable", timeout_seconds=60,
    )  # fmt: skip
    ana.ingest(
        session,
        [{"role": "user", "content": CANARIES["dead"], "sequence": 1, "id": "a-dead-letter-of-kates"}],
        user=PERSON,
        strict=True,
    )
    wait_until(lambda: bool(ana.admin.dead_letters.list()), "the message out of sequence is no dead letter")
    uri = f"file:///{CANARIES['uri']}"
    ana.files.add(uri, f"a file about {CANARIES['file']}", session=session, wait="searchable", timeout_seconds=60)
    ana.remember(f"She likes {CANARIES['memory']}", owner_user_id=PERSON)
    ana.remember(f"Prefers {CANARIES['account']}", owner_user_id=PERSON, tier="account", kind="preference")
    ana.notes.add(f"note on {CANARIES['note']}", user=PERSON)
    ana.schedules.add(f"ask her about {CANARIES['goal']}", cron="0 9 * * *", user=PERSON)
    ana.reminders.add(session, PERSON, f"bring the {CANARIES['reminder']}", in_=3600)
    ana.scratchpads.write(session, [CANARIES["list"]])
    ana.scratchpads.write_key(session, CANARIES["key"], {"x": CANARIES["value"]})
    for _ in range(3):
        ana.recall(f"{CANARIES['content']} {CANARIES['query']}", user=PERSON)
        ana.recall(f"{CANARIES['memory']} {CANARIES['query']}", user=PERSON)
    wait_until(lambda: bool(ana.memories.recall_events(user=PERSON)), "no recall is recorded")
    ana.ingest("lif-quiet", {"role": "user", "content": "quince marmalade needs lemon"}, user="lif", wait="searchable")
    ana.working(session)
    ana.memory_files.checkpoint(f"About {CANARIES['note']}")


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait until a condition holds. Raises `RuntimeError` saying what did not happen."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.05)


def places(data: Path, rows: Iterable[tuple[str, str]] = ()) -> dict[str, set[str]]:
    """Return the files below a folder with the fields whose canaries they hold, in any form.

    `rows` are those of a database, each with its table: they are searched, too. It shares nothing with the search of
    the product.
    """
    forms = {field: _forms(word) for field, word in CANARIES.items()}
    found: dict[str, set[str]] = {}
    for table, row in rows:
        held = {field for field, shapes in forms.items() if any(shape in row.encode() for shape in shapes)}
        if held:
            found.setdefault(table, set()).update(held)
    for path in paths_below(data):
        try:
            raw = path.read_bytes() if path.is_file() else b""
        except OSError:
            continue
        if "objects" in path.parts and raw[:1] == b"\x78":
            raw += zlib.decompress(raw)
        held = {field for field, shapes in forms.items() if any(shape in raw for shape in shapes)}
        if held:
            found[str(path.relative_to(data))] = held
    return found


def _forms(word: str) -> list[bytes]:
    plain = word.encode()
    shifted = [base64.b64encode(b"\0" * skip + plain)[4:-4] for skip in range(3)]
    # A full-text index does not repeat what a word has in common with the one before it: look for its end alone, too.
    return [plain, plain[6:], json.dumps(word).encode(), word.encode("utf-16-le"), word.encode("utf-16-be"), *shifted]


_WORKSPACE: Final = "harbour"
_OTHER: Final = "lif"
# The number of messages of the other user that are accepted before the erasure is requested.
_BEFORE: Final = 50
_MAX_WAIT_SECONDS: Final = 1.0
# Messages in one request.
_BATCH: Final = 500
# The time to store what the stack has accepted, once nobody writes any more.
_STORED_SECONDS: Final = 300.0
_STACK: Final = {
    "REVERIE_EMBEDDING_PROVIDER": "hash",
    "REVERIE_LOG_FORMAT": "json",
    "REVERIE_EXTRACTION_DEBOUNCE_SECONDS": "0",
}


def main() -> None:
    """Measure and write the result. Exit with 1 if something is left or lost."""
    options = _options()
    messages = int(value_or_default(options.messages, quick=options.quick, tiny=300, full=5_000))
    kills = int(value_or_default(options.kills, quick=options.quick, tiny=1, full=4))
    every = value_or_default(None, quick=options.quick, tiny=0.25, full=0.05)
    result = Result.of("erasure", options)
    result.settings.update(messages=messages, kills=kills, of_the_person=options.of_the_person)
    tell = Progress()
    with Stack(env=_STACK) as stack, _client(stack) as ana:
        tell("storing the words of the person")
        say(ana)
        _say_much(ana, options.of_the_person, tell)
        stored = places(stack.data, stack.rows())
        result.add("fields_on_disk", len({field for fields in stored.values() for field in fields}))
        with _others_write(stack, messages) as written, _others_remember(stack, every) as waits:
            started = time.monotonic()
            erasure, killed = _erase(stack, ana, kills, tell)
            result.add("seconds", rounded(time.monotonic() - started), "s")
            answered = bool(ana.recall("marmalade", mode="keyword", limit=1, user=_OTHER))
        logs = (stack.data / "logs").glob("*.log*")
        held = [line for log in logs for line in log.read_text().splitlines() if '"long_transaction"' in line]
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
    result.add("writes_of_another_agent", len(waits))
    result.add("write_p99", rounded(percentile(waits, 0.99)), "s")
    result.add("write_longest", rounded(max(waits)), "s")
    result.add("long_transactions", len(held))
    result.notes += held
    result.notes += [f"{path} holds {', '.join(sorted(fields))}" for path, fields in left.items()]
    _add_goals(result)
    result.finish(options.output)
    sys.exit(result.exit_code())


def _options() -> argparse.Namespace:
    options = parser("erasure", __doc__, data=False)
    options.add_argument("--messages", type=int, help="the most messages of the other user (5,000; 300 with --quick)")
    options.add_argument(
        "--kills", type=int, help="steps of the erasure in which its worker is killed (4; 1 with --quick)"
    )
    options.add_argument(
        "--of-the-person", type=int, default=0, metavar="N", help="further messages of the person to store (0)"
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
    longest = result.figures["write_longest"]
    result.goals.append(Goal(what="longest write", relation="<=", goal=_MAX_WAIT_SECONDS, figure=longest, unit="s"))


def _erase(stack: Stack, ana: Reverie, kills: int, tell: Progress) -> tuple[Erasure, int]:
    """Erase the person, killing the worker in `kills` steps; return the erasure and the number of killed processes."""
    erasure, killed = ana.admin.erasures.create(user=PERSON), 0
    seen = {erasure.step}
    while (erasure := ana.admin.erasures.get(erasure.id)).state != "done":
        tell(f"step {erasure.step!r}, {killed} processes killed")
        if erasure.step not in seen and len(seen) <= kills:
            seen.add(erasure.step)
            killed += _kill_workers(stack)
        time.sleep(0.02 if len(seen) <= kills else 0.2)  # a step is short, and what follows a kill takes a lease
    return erasure, killed


def _kill_workers(stack: Stack) -> int:
    """Kill all workers that could carry out the erasure, with their children; return how many processes."""
    killed = 0
    for entry in stack.processes():
        if entry.name.startswith("schedules") and entry.pid:
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
    """Have another user write as fast as possible, at most `most` messages; yield the ids that were accepted."""
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


@contextmanager
def _others_remember(stack: Stack, every_seconds: float) -> Iterator[list[float]]:
    """Have another agent of the workspace store memories again and again; yield the seconds that each took."""
    stop, waits = threading.Event(), list[float]()

    def write() -> None:
        with Reverie("bob", broker=stack.broker_url, url=stack.url, workspace=_WORKSPACE, timeout_seconds=60) as bob:
            while not stop.wait(every_seconds):
                started = time.monotonic()
                bob.remember(f"lantern {len(waits)} is lit")
                waits.append(time.monotonic() - started)

    thread = threading.Thread(target=write, name="remembering")
    thread.start()
    try:
        wait_until(lambda: bool(waits), "no memory is stored")
        yield waits
    finally:
        stop.set()
        thread.join()


def _say_much(ana: Reverie, messages: int, tell: Progress) -> None:
    """Store further messages of the person, in ten sessions, and wait until they are searchable."""
    for first in range(0, messages, _BATCH):
        tell(f"{first:,} of {messages:,} messages of the person are accepted")
        texts = [
            f"{PERSON} walked {number} miles and saw {number * 7} boats" for number in range(first, first + _BATCH)
        ]
        ana.ingest(f"walks {first // _BATCH % 10}", [{"role": "user", "content": text} for text in texts], user=PERSON)
    while messages and (waiting := _waiting(ana)):
        tell(f"{waiting:,} messages and chunks of the person wait")
        time.sleep(1)


def _waiting(ana: Reverie) -> int:
    status = ana.status()
    return sum(inbox.size for inbox in status.inboxes) + sum(stage.waiting for stage in status.stages.values())


def _lost(ana: Reverie, written: list[str], tell: Progress) -> int:
    """Wait until what was accepted is stored; return how many messages of the other user are not."""

    def stored() -> int:
        sessions = ana.sessions.list(limit=100, user=_OTHER)
        return sum(session.messages for session in sessions if session.id.startswith("lif-"))

    expected = len(written) + 1  # and the one that was there before
    deadline = time.monotonic() + _STORED_SECONDS
    while stored() < expected and time.monotonic() < deadline:
        tell(f"{stored():,} of {expected:,} messages of the other user are stored")
        time.sleep(0.2)
    return expected - stored()


if __name__ == "__main__":
    run(main)
