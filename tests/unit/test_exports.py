"""Everything about a person or an agent, out into one file and in again elsewhere, with ids and times."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory.recall.events import record_recalls
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
    ana.ingest_file("doc://lamp", "The lamp burns on odd Thursdays", user="kate")
    drain(runtime)
    ana.remember("Kate prefers the heron lamp", owner_user_id="kate", session="kates", tags=["lamp"], importance=0.9)
    ana.remember("Kate likes short answers", owner_user_id="kate", tier="account", kind="preference")
    ana.remember("Everybody knows the choir", owner_user_id="lif", visibility="shared")
    for city in ("Porto", "Lisbon", "Faro"):
        ana.set_fact("home", "city", city, user="kate")
    ana.add_note("Kate's note on lamps", user="kate")
    ana.write_scratchpad("kates", ["buy oil"], user="kate")
    ana.write_scratchpad_key("kates", "wick", "thin", user="kate")
    ana.create_channel("garden", description="plums")
    ana.add_schedule("ask about the lamp", cron="0 9 * * *", user="kate", session="kates")
    ana.remind("kates", "kate", "trim the wick", due_at="2030-01-01T09:00:00Z")
    drain(runtime)
    drain(runtime, "@account")
    assert ana.recall("where does the lamp stand", user="kate")
    until(lambda: _recorded(runtime, ana), "the recalls are not recorded")


def _recorded(runtime: Runtime, ana: Reverie) -> bool:
    runtime.recall_buffer.flush()
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")
    return bool(ana.recall_events(user="kate"))


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of an export as JSON."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def records_of(path: Path) -> list[str]:
    """Return the records of an export in an order of their own."""
    return sorted(path.read_text().splitlines()[1:-1])


def found(ana: Reverie, query: str, user: str | None = None) -> list[tuple[str, str]]:
    """Return what a recall finds, by kind and id."""
    return [(result.kind, result.id) for result in ana.recall(query, user=user, mode="keyword")]


def test_an_installation_comes_back_elsewhere_as_it_was(make_runtime: Make, tmp_path: Path) -> None:
    """Given rows of every kind, when they are exported, imported into an empty installation twice, and exported again,
    then both exports have the same records, the second import adds nothing, and recall finds the same."""
    queries = [("heron lamp", "kate"), ("short answers", "kate"), ("office closes", None), ("choir", "lif")]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with installation(make_runtime, tmp_path / "one") as (runtime, ana):
        fill(runtime, ana)
        end = ana.export_file(first)
        before = [found(ana, *query) for query in queries]
        assert all(before)
    assert set(end.parts) == {line["part"] for line in lines_of(first)[1:-1]}
    assert len(end.parts) >= 10, "the test must have something of most kinds"
    assert first.stat().st_mode & 0o777 == 0o600
    with installation(make_runtime, tmp_path / "two") as (runtime, ana):
        planned = ana.import_file(first, **ALL, dry_run=True)
        assert runtime.stores.names() == []
        done = ana.import_file(first, **ALL)
        assert planned.added == done.added == {part: found.records for part, found in end.parts.items()}
        drain(runtime)
        drain(runtime, "@account")
        again = ana.import_file(first, **ALL)
        assert (again.added, again.present) == ({}, done.added)
        ana.export_file(second)
        assert [found(ana, *query) for query in queries] == before
    assert records_of(second) == records_of(first)
    assert {line["part"]: line for line in lines_of(second)}["end"]["parts"].keys() == end.parts.keys()
