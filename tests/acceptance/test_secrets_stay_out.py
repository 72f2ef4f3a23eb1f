"""Secrets that are said stay in the record of what was said: no job, no file, no commit and no log line has them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from dulwich.objects import Blob, Tag, Tree
from dulwich.objects import Commit as GitCommit
from dulwich.repo import Repo

from benchmarks.harness.folders import paths_below
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.contract import ACCOUNT_STORE
from storage.stores import Stores
from support.index_content import everything_stored
from support.planted import Planted, noise, planted
from support.stacks import ForkedStack

WORKSPACE = "harbour"
AGENT = "ana"
# Jobs that take whatever they are allowed to take, and logs that say whatever they ever say.
EAGER = {
    "REVERIE_EMBEDDING_PROVIDER": "hash",
    "REVERIE_LOG_LEVEL": "debug",
    "REVERIE_LOG_FORMAT": "json",
    "REVERIE_EXTRACTION_DEBOUNCE_SECONDS": "0",
    "REVERIE_EXTRACTION_CONFIDENCE_THRESHOLD": "0",
    "REVERIE_CONTEXT_TOKEN_BUDGET": "200",
    "REVERIE_SYSTEM_PROMPT_BUFFER": "0",
    "REVERIE_SESSION_IDLE_HOURS": "0.0001",
}
JOBS = (
    "extract-memories", "summarize-sessions", "consolidate-memories", "dream-sweep", "close-idle-sessions",
    "consolidate-conversations", "prune-decayed", "dream-sweep", "apply-retention", "verify-store", "optimize-store",
)  # fmt: skip
# `reverie run JOB --json` for each of them, with dreams that promote whatever was recalled.
RUN_JOBS = """
import sys
import tasks.upkeep
from cli import main
from memory.upkeep.dreaming import DreamRules
tasks.upkeep.DREAM_RULES = DreamRules(min_hits=1, min_queries=1, min_score=0.0, most_promotions=500)
for job in sys.argv[1:]:
    sys.argv = ["reverie", "run", job, "--json"]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""
# The record itself: what was said, its chunks and words, and what was asked.
RECORD = ("messages", "chunks", "recall_events", "chunks_fts", "text_index", "forward_index")
PLAIN = "Remember that I keep a small boat called Petrel in the harbour of Setubal."
KEPT_BY_HAND = "The agent keeps this: password = " + "Foresail" + "-3306"
KEPT_KEY = "sk-" + "proj-" + noise(48, 99)


def test_no_job_file_commit_or_log_has_a_secret_that_was_said() -> None:
    """Given secrets in every kind of message, recalled again and again, when every job ran, then none has any."""
    secrets = planted()
    with ForkedStack(env=EAGER) as stack:
        with Reverie(AGENT, broker=stack.broker_url, url=stack.url, workspace=WORKSPACE) as memory:
            contents = _say(memory, secrets)
            _recall_often(memory, contents)
            memory.sessions.close("talk-0")
            kept = _keep_by_hand(memory)
            _wait_for_recalls(stack, len(contents))
            printed = _run_jobs(stack)
            checkpoint = memory.memory_files.checkpoint("Everything so far")
        refused = {one.path: one.why for one in checkpoint.refused}
        logs = _logs(stack.data)

        assert _holding(_said_to_be_kept(stack.data), [PLAIN.removeprefix("Remember that ")]), "jobs took what they may"
        assert _holding(_summaries(stack.data), ["redacted"]), "there is a summary, with its secrets redacted"
        looked_at = {
            "rows": _rows(stack.data, besides=kept),
            "git": _git_texts(stack.data),
            "logs": [*logs, printed],
        }
        assert all(looked_at.values())
        found = {place: _holding(texts, [one.secret for one in secrets]) for place, texts in looked_at.items()}
        assert found == {place: [] for place in looked_at}

        # What the agent keeps by hand is kept, but in no file of a history.
        by_hand = ["Foresail" + "-3306", KEPT_KEY]
        assert _holding(_git_texts(stack.data), by_hand) == []
        assert _holding([*logs, printed], by_hand) == []
        assert sorted(refused) == ["facts.md", "notes/wifi.md"]
        assert all("secret" in why for why in refused.values())


def _say(memory: Reverie, secrets: list[Planted]) -> list[str]:
    """Have it all said, in several sessions with plain talk between; returns what was said."""
    messages = [{"role": "user", "content": PLAIN}]
    for number, one in enumerate(secrets):
        messages += [one.asked] if one.asked else []
        messages += [one.message, {"role": "user", "content": f"And the weather on day {number} was fair, I think."}]
    for first in range(0, len(messages), 12):
        receipt = memory.ingest(
            f"talk-{first // 12}", messages[first : first + 12], wait="searchable", timeout_seconds=60
        )
        assert receipt.state == "searchable"
    return [PLAIN, *(one.message["content"] for one in secrets)]


def _recall_often(memory: Reverie, contents: Iterable[str]) -> None:
    for text in contents:
        found = memory.recall(text, limit=5)
        assert any(result.text == text for result in found)
        memory.recall(f"what about {text[:60]}", limit=5)


def _keep_by_hand(memory: Reverie) -> list[str]:
    """Secrets that the agent itself wants kept: a memory, a fact and a note; their ids."""
    remembered = memory.remember(KEPT_BY_HAND)
    assert memory.memories.get(remembered.id).content == KEPT_BY_HAND
    fact = memory.facts.set("keys", "models", KEPT_KEY)
    note = memory.notes.add(f"wifi password: {KEPT_KEY}", user="kate", note_id="wifi")
    return [remembered.id, fact.id, note.note_id]


def _wait_for_recalls(stack: Stack, fewest: int) -> None:
    stores = Stores(stack.data)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with stores.workspace(WORKSPACE).reading() as tx:
            count = tx.connection.exec_driver_sql("SELECT count(DISTINCT recall) FROM recall_events").scalar_one()
        if count >= fewest:
            break
        time.sleep(0.1)
    stores.close()
    assert count >= fewest


def _run_jobs(stack: Stack) -> str:
    """Run the jobs as an operator does, all by one process, which imports everything once; what it printed."""
    environment = {**os.environ, **EAGER, "REVERIE_CONFIG": os.devnull, "REVERIE_DATA": str(stack.data)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN_JOBS, *JOBS],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers, rest = [], done.stdout
    while rest.strip():
        answer, end = json.JSONDecoder().raw_decode(rest.lstrip())
        answers.append(answer)
        rest = rest.lstrip()[end:]
    assert len(answers) == len(JOBS), done.stdout
    assert not any(answer.get("errors") for answer in answers), done.stdout
    return done.stdout + done.stderr


def _holding(texts: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Which of these stand anywhere in the texts, whole or without their first characters; blanks do not count.

    A number of six digits must stand alone: a time in microseconds has any of them now and then.
    """
    everything = "".join("\n".join(texts).split())
    return [one for one in wanted if _pattern("".join(one.split())[-24:]).search(everything)]


def _pattern(secret: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\d.]){secret}(?!\d)" if secret.isdigit() else re.escape(secret))


def _rows(data: Path, *, besides: list[str]) -> list[str]:
    """Every row of every table but the record itself and what was kept by hand."""
    return [
        row
        for table, row in _all_rows(data)
        if not table.startswith(RECORD) and not any(f"'{kept}'" in row for kept in besides)
    ]


def _said_to_be_kept(data: Path) -> list[str]:
    return [row for table, row in _all_rows(data) if table == "memories"]


def _summaries(data: Path) -> list[str]:
    return [row for table, row in _all_rows(data) if table == "sessions"]


def _all_rows(data: Path) -> Iterator[tuple[str, str]]:
    stores = Stores(data)
    for name in (WORKSPACE, ACCOUNT_STORE):
        with stores.workspace(name).reading() as tx:
            yield from everything_stored(tx)
    stores.close()


def _git_texts(data: Path) -> list[str]:
    """Every object of every repository, also what no branch names any more, and the files beside them."""
    texts: list[str] = []
    folders = [path.parent for path in paths_below(data) if path.name == ".git"]
    assert folders
    for folder in folders:
        with Repo(str(folder)) as repo:
            found = [repo.object_store[name] for name in repo.object_store]
        assert all(isinstance(one, (Blob, Tree, GitCommit, Tag)) for one in found)
        texts += [one.as_raw_string().decode(errors="replace") for one in found]
        texts += [path.read_text() for path in folder.rglob("*.md")]
    return texts


def _logs(data: Path) -> list[str]:
    files = [*(data / "logs").iterdir(), data / "up.out"]
    return [path.read_text(errors="replace") for path in files if path.is_file()]
