"""Installations with something of every kind, and their exports as files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory.recall import record_recalls
from reverie import Reverie
from support.agents import until
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

Make = Callable[..., Runtime]
ALL = {"trusted": True}


@contextmanager
def installation(make_runtime: Make, data: Path) -> Iterator[tuple[Runtime, Reverie]]:
    """Run an installation of its own, and yield its runtime and ana's client."""
    runtime = make_runtime(data=data, broker_prefix=f"t-{data.name}:")
    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        yield runtime, client


@contextmanager
def filled_and_empty(make_runtime: Make, folder: Path) -> Iterator[tuple[Reverie, Reverie, Path]]:
    """Yield ana's clients of a filled installation and of an empty one, and the whole export of the first."""
    with (
        installation(make_runtime, folder / "one") as (runtime, ana),
        installation(make_runtime, folder / "two") as (_, other),
    ):
        fill(runtime, ana)
        ana.admin.export_file(folder / "all.jsonl")
        yield ana, other, folder / "all.jsonl"


def fill(runtime: Runtime, ana: Reverie) -> None:
    """Store something of every kind, of kate, of lif, of both and of nobody."""
    ana.ingest(
        "kates",
        [
            {"role": "user", "content": "My heron lamp stands in Cacilhas", "name": "Kate", "tags": ["lamp"]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"name": "look", "arguments": {"where": "Cacilhas"}}],
                "metadata": {"a": [1, 2.5, None]},
            },
        ],
        user="kate",
        provider="telegram",
        chat_id="7",
        channel="home",
    )
    ana.ingest("lifs", {"role": "user", "content": "Lif grows plums"}, user="lif", visibility="shared")
    for user in ("kate", "lif"):
        ana.ingest("group", {"role": "user", "content": f"{user} is in the choir"}, user=user)
    ana.ingest("nobodys", {"role": "user", "content": "The office closes at six"})
    drain(runtime)
    ana.files.add("doc://lamp", "The lamp burns on odd Thursdays", user="kate")
    drain(runtime)
    ana.remember("Kate prefers the heron lamp", owner_user_id="kate", session="kates", tags=["lamp"], importance=0.9)
    ana.remember("Kate likes short answers", owner_user_id="kate", tier="account", kind="preference")
    ana.remember("Everybody knows the choir", owner_user_id="lif", visibility="shared")
    for city in ("Porto", "Lisbon", "Faro"):
        ana.facts.set("home", "city", city, user="kate")
    ana.notes.add("Kate's note on lamps", user="kate")
    ana.scratchpads.write("kates", ["buy oil"], user="kate")
    ana.scratchpads.write_key("kates", "wick", "thin", user="kate")
    ana.items.put(["lamps"], "heron", {"text": "thin wick", "n": [1, 2.5, None]}, user="kate", ttl_seconds=10**9)
    ana.items.put(["memories", "lif"], "plum", {"text": "plums\n"}, index=["text"])
    ana.items.put(["memories", "all"], "choir", {"text": "choir"}, index=[])
    ana.channels.create("garden", description="plums")
    ana.schedules.add("ask about the lamp", cron="0 9 * * *", user="kate", session="kates")
    ana.reminders.add("kates", "kate", "trim the wick", due_at="2030-01-01T09:00:00Z")
    drain(runtime)
    drain(runtime, "@account")
    assert ana.recall("where does the lamp stand", user="kate")
    assert ana.context("kates", "where does the lamp stand", user="kate")
    assert ana.context(query="which lamp is for heron", user="kate")
    until(lambda: _recorded(runtime, ana), "the recalls are not recorded")


def _recorded(runtime: Runtime, ana: Reverie) -> bool:
    runtime.recall_buffer.flush()
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")
    return bool(ana.memories.recall_events(user="kate") and len(ana.contexts.list(user="kate")) > 1)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of an export as JSON."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def records_of(path: Path) -> list[str]:
    """Return the records of an export in an order of their own."""
    return sorted(path.read_text().splitlines()[1:-1])


def signed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the records of an export and write its checksums anew, as somebody could who wants to."""
    lines = lines_of(path)
    parts: dict[str, Any] = {}
    written = [json.dumps(lines[0]).replace('{"part": "header"', '{"part":"header"') + "\n"]
    for line in lines[1:-1]:
        change(line)
        text = json.dumps(line) + "\n"
        records, digest = parts.setdefault(line["part"], (0, hashlib.sha256()))
        digest.update(text.encode())
        parts[line["part"]] = (records + 1, digest)
        written.append(text)
    sums = {part: {"records": records, "sha256": digest.hexdigest()} for part, (records, digest) in parts.items()}
    whole = hashlib.sha256("".join(written).encode()).hexdigest()
    end = {"part": "end", "parts": sums, "records": len(lines) - 2, "sha256": whole}
    path.write_text("".join(written) + json.dumps(end, separators=(",", ":")) + "\n")
