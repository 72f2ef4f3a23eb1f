"""A person who asks to be erased: on a running stack, under full load, with workers killed, nothing is left on disk."""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.errors import Unavailable
from support.agents import until

WORKSPACE = "harbour"
FIELDS = (
    "content", "answer", "name", "tag", "metadata", "tool", "file", "uri", "memory", "note", "goal", "reminder", "list",
    "key", "value", "session-metadata", "query", "account", "dead", "user", "session", "chat",
)  # fmt: skip
# As fast as possible, but not so many that the search of their files takes minutes.
MOST_WRITTEN = 5_000
# One word for each field, so that a search for it also finds what is left in a full-text index.
CANARIES = {field: f"zq{number:02d}quillfeather{number * 7919 % 9973:04d}marsh" for number, field in enumerate(FIELDS)}
KATE = CANARIES["user"]
ENVIRONMENT = {
    "REVERIE_EMBEDDING_PROVIDER": "hash",
    "REVERIE_LOG_FORMAT": "json",
    "REVERIE_EXTRACTION_DEBOUNCE_SECONDS": "0",
    "REVERIE_DREAM_MIN_HITS": "1",
    "REVERIE_DREAM_MIN_QUERIES": "1",
    "REVERIE_DREAM_MIN_SCORE": "0",
}


def test_nothing_of_a_user_is_left_on_disk_while_others_write_and_workers_die() -> None:
    """Given words of one user in every field, when that user is erased under load and kill -9, then no file has any."""
    with Stack(env=ENVIRONMENT) as stack, client(stack) as ana:
        say(ana)
        stored = places(stack.data)
        assert {field for fields in stored.values() for field in fields} == set(FIELDS), "every field is on disk"
        with others_write(stack) as written:
            kills = 0
            erasure = ana.erase(user=KATE)
            seen = {erasure.step}
            while (erasure := ana.erasure(erasure.id)).state != "done":
                if erasure.step not in seen and kills < 4:
                    seen.add(erasure.step)
                    kills += kill_workers(stack)
            assert ana.recall("marmalade", mode="keyword", limit=1, user="lif"), "recall works meanwhile"
        receipt = erasure.receipt
        assert receipt is not None
        assert kills > 0
        assert places(stack.data) == {}
        assert receipt.leftovers == {}, receipt
        assert receipt.removed[WORKSPACE]["sessions"] >= 1
        wait_until_stored(ana, written)
        for user in (None, KATE, "lif"):
            assert KATE not in json.dumps([str(session) for session in ana.sessions(limit=1000, user=user)])
        assert ana.sessions(user=KATE) == []


@contextmanager
def client(stack: Stack) -> Iterator[Reverie]:
    with Reverie("ana", broker=stack.broker_url, url=stack.url, workspace=WORKSPACE, timeout_seconds=60) as memory:
        yield memory


def say(ana: Reverie) -> None:
    """Put a canary into every field that a user's words can reach."""
    session = CANARIES["session"]
    ana.start_session(session, user=KATE, metadata={"about": CANARIES["session-metadata"]})
    messages = [
        {
            "role": "user",
            "content": f"Remember that I prefer {CANARIES['content']} at night. What do you say?",
            "name": CANARIES["name"],
            "tags": [CANARIES["tag"]],
            "metadata": {"deep": [{"er": CANARIES["metadata"]}]},
        },
        {"role": "assistant", "content": f"I say {CANARIES['answer']}", "tool_calls": [{"function": CANARIES["tool"]}]},
    ]
    ana.ingest(session, messages, user=KATE, wait="searchable", timeout_seconds=60)
    ana.ingest(
        messages={"role": "user", "content": "by chat"}, provider="telegram", chat_id=CANARIES["chat"], user=KATE,
        wait="searchable", timeout_seconds=60,
    )  # fmt: skip
    ana.ingest(
        session,
        [{"role": "user", "content": CANARIES["dead"], "sequence": 1, "id": "a-dead-letter-of-kates"}],
        user=KATE,
        strict=True,
    )
    until(lambda: ana.dead_letters(), "the message out of sequence is no dead letter")
    uri = f"file:///{CANARIES['uri']}"
    ana.ingest_file(uri, f"a file about {CANARIES['file']}", session=session, wait="searchable", timeout_seconds=60)
    ana.remember(f"She likes {CANARIES['memory']}", owner_user_id=KATE)
    ana.remember(f"Prefers {CANARIES['account']}", owner_user_id=KATE, tier="account", kind="preference")
    ana.add_note(f"note on {CANARIES['note']}", user=KATE)
    ana.add_schedule(f"ask her about {CANARIES['goal']}", cron="0 9 * * *", user=KATE)
    ana.remind(session, KATE, f"bring the {CANARIES['reminder']}", in_=3600)
    ana.write_scratchpad(session, [CANARIES["list"]])
    ana.write_scratchpad_key(session, CANARIES["key"], {"x": CANARIES["value"]})
    for _ in range(3):
        ana.recall(f"{CANARIES['content']} {CANARIES['query']}", user=KATE)
        ana.recall(f"{CANARIES['memory']} {CANARIES['query']}", user=KATE)
    until(lambda: ana.recall_events(user=KATE), "no recall is recorded")
    ana.ingest("lif-quiet", {"role": "user", "content": "quince marmalade needs lemon"}, user="lif", wait="searchable")
    ana.working(session)
    ana.checkpoint(f"About {CANARIES['note']}")


@contextmanager
def others_write(stack: Stack) -> Iterator[list[str]]:
    """Have another user write as fast as possible; yield the ids that were accepted."""
    stop, written = threading.Event(), list[str]()

    def write() -> None:
        with client(stack) as memory:
            while not stop.is_set() and len(written) < MOST_WRITTEN:
                number = len(written)
                text = f"plums and lanterns, number {number}, as on every other day"
                try:
                    receipt = memory.ingest(f"lif-{number % 7}", {"role": "user", "content": text}, user="lif")
                except Unavailable:
                    continue
                written.extend(receipt.accepted)

    thread = threading.Thread(target=write, name="writer")
    thread.start()
    try:
        until(lambda: len(written) > 50, "nothing is written")
        yield written
    finally:
        stop.set()
        thread.join()


def kill_workers(stack: Stack) -> int:
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


def wait_until_stored(ana: Reverie, written: list[str]) -> None:
    def stored() -> int:
        return sum(session.messages for session in ana.sessions(limit=100, user="lif") if session.id.startswith("lif-"))

    until(lambda: stored() == len(written) + 1, "messages of another user are lost")


def places(data: Path) -> dict[str, set[str]]:
    """Return the files below a folder with the fields whose canaries they hold, in any form.

    Written for this test alone: it shares nothing with the search of the product.
    """
    forms = {field: _forms(word) for field, word in CANARIES.items()}
    found: dict[str, set[str]] = {}
    for path in data.rglob("*"):
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
    # In a full-text index a word begins with what it shares with the one before it: its end is enough.
    return [plain, plain[6:], json.dumps(word).encode(), word.encode("utf-16-le"), word.encode("utf-16-be"), *shifted]
