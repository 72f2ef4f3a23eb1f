"""A person with a word of their own in every field that a user's words can reach, and the search of files for them."""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.folders import paths_below
from reverie import Reverie

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
    ana.start_session(session, user=PERSON, metadata={"about": CANARIES["session-metadata"]})
    messages: list[dict[str, Any]] = [
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
    wait_until(lambda: bool(ana.dead_letters()), "the message out of sequence is no dead letter")
    uri = f"file:///{CANARIES['uri']}"
    ana.ingest_file(uri, f"a file about {CANARIES['file']}", session=session, wait="searchable", timeout_seconds=60)
    ana.remember(f"She likes {CANARIES['memory']}", owner_user_id=PERSON)
    ana.remember(f"Prefers {CANARIES['account']}", owner_user_id=PERSON, tier="account", kind="preference")
    ana.add_note(f"note on {CANARIES['note']}", user=PERSON)
    ana.add_schedule(f"ask her about {CANARIES['goal']}", cron="0 9 * * *", user=PERSON)
    ana.remind(session, PERSON, f"bring the {CANARIES['reminder']}", in_=3600)
    ana.write_scratchpad(session, [CANARIES["list"]])
    ana.write_scratchpad_key(session, CANARIES["key"], {"x": CANARIES["value"]})
    for _ in range(3):
        ana.recall(f"{CANARIES['content']} {CANARIES['query']}", user=PERSON)
        ana.recall(f"{CANARIES['memory']} {CANARIES['query']}", user=PERSON)
    wait_until(lambda: bool(ana.recall_events(user=PERSON)), "no recall is recorded")
    ana.ingest("lif-quiet", {"role": "user", "content": "quince marmalade needs lemon"}, user="lif", wait="searchable")
    ana.working(session)
    ana.checkpoint(f"About {CANARIES['note']}")


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
    # In a full-text index a word begins with what it shares with the one before it: its end is enough.
    return [plain, plain[6:], json.dumps(word).encode(), word.encode("utf-16-le"), word.encode("utf-16-be"), *shifted]
