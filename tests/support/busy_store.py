"""A store in which every job has work to do, on a fixed clock, for tests that kill jobs or undo them.

Two agents talk for some days, store memories, and get the same questions repeatedly; no job has run on it yet.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from adapters.workspace_git import GitFolders
from benchmarks.harness.haystack import DatasetMessage
from benchmarks.story.world import WORKSPACE, ClockedRuntime, World
from memory.secrets import looks_secret
from reverie.clock import from_micros, to_micros
from reverie.contract import ACCOUNT_STORE
from reverie.memories.types import MemoryDraft
from storage.recall.events import NewRecall
from storage.stores import Stores
from storage.transaction import Transaction
from storage.verify import verify
from support.copied_data import copy_data
from support.curating import everything
from worker.settings import Settings

AGENTS: Final = ("ana", "bob")
DAY: Final = 86_400_000_000
HOUR: Final = 3_600_000_000
MINUTE: Final = 60_000_000
BEGAN: Final = to_micros(datetime(2026, 6, 10, 9, tzinfo=UTC))
# Long after the last message: every session is idle, can be closed, and is old enough for retention.
NOW: Final = BEGAN + 30 * DAY
SETTINGS: Final[dict[str, Any]] = {
    "embedding_provider": "hash",
    "message_retention_days": 2,
    "memories_per_scope": 30,
    # So small that each conversation exceeds it.
    "context_token_budget": 150,
    "system_prompt_buffer": 0,
}
_DEMO: Final = Path(__file__).parents[2] / "cli" / "demo" / "conversation.jsonl"
_CITIES: Final = ("Lisbon", "Porto", "Ghent", "Turin", "Malmo", "Bergen", "Graz", "Bilbao")
_FOOD: Final = ("oat milk", "rye bread", "green tea", "black olives", "dark chocolate", "ginger", "lentils", "capers")
_ASKED: Final = ("where does she live", "which city", "her home", "what about the move", "does she like it there")


def clocked(data: Path, **settings: Any) -> ClockedRuntime:
    """Return the resources of a data folder with the clock set to NOW."""
    runtime = ClockedRuntime(Settings(data=data, log_level="error", **{**SETTINGS, **settings}))
    runtime.moment = NOW
    return runtime


def fill(data: Path) -> None:
    """Create the store. The pipeline has finished all its work; no job has run."""
    runtime = clocked(data, broker="redis://127.0.0.1:1/0")
    runtime.moment = BEGAN
    world = World(runtime)
    for place, agent in enumerate(AGENTS):
        for number in range(8):
            world.at(BEGAN + number * DAY + place * HOUR)
            world.say(agent, f"{agent}-{number}", _talk(agent, number, world.now))
        _remember(world, agent)
    _speak_of_the_demo(world)
    with world.store.writing() as tx:
        for agent in AGENTS:
            _age(tx, agent)
            _recall_often(tx, agent)
    world.settle()
    runtime.close()


def copied(template: Path, folder: Path) -> Path:
    """Copy the store to a folder and return that folder."""
    return copy_data(template, folder)


def picture(data: Path) -> dict[str, Any]:
    """Return the content of the stores except the bookkeeping of jobs: rows, curation log and committed files."""
    stores = Stores(data)
    found: dict[str, Any] = {}
    for name in (WORKSPACE, ACCOUNT_STORE):
        store = stores.workspace(name)
        assert verify(store).wrong == []
        found |= {
            f"{name} {table}": rows for table, rows in everything(store, gaps=False).items() if table != "job_runs"
        }
        with store.reading() as tx:
            entries = tx.curation.page(limit=100_000)
            assert tx.connection.exec_driver_sql("SELECT count(*) FROM curation_recording").scalar() == 0
        found[f"{name} log"] = sorted(
            str((entry.job, entry.agent, entry.action, sorted(entry.memories), entry.session, entry.at))
            for entry in entries
        )
    folders = GitFolders(data, looks_secret)
    for agent in AGENTS:
        repository = folders.repository(WORKSPACE, agent)
        found[f"files of {agent}"] = repository.files()
        found[f"commits of {agent}"] = [(one.message, one.at, one.changed) for one in repository.history(100)]
    stores.close()
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between two results of `picture`, at most three rows of each list."""
    found: dict[str, Any] = {}
    for name in sorted({*one, *other}):
        first, second = one.get(name), other.get(name)
        if first == second:
            continue
        if isinstance(first, list) and isinstance(second, list):
            first, second = [x for x in first if x not in second][:3], [x for x in second if x not in first][:3]
        found[name] = (first, second)
    return found


def _talk(agent: str, number: int, at: int) -> list[DatasetMessage]:
    city, food = _CITIES[number], _FOOD[number]
    lines = (
        ("user", f"I moved to {city} last week and the flat is still full of boxes."),
        ("assistant", f"How do you like {city} so far?"),
        ("user", f"The river is lovely in the evening, and the market of {city} has everything."),
        ("user", f"Remember that I always buy {food} on day {number} of the week."),
        ("user", f"I prefer {food} for breakfast, whatever the others say."),
        ("assistant", f"Noted: {food}. Shall I look for a shop in {city}?"),
        ("user", f"From now on, answer me in short sentences when we talk about {food}."),
        ("user", f"My dentist is Doctor {city}son, two streets from the station."),
    )
    return [
        DatasetMessage(
            f"{agent}-{number}-{place}", f"{agent}-{number}", role, text, created_at=from_micros(at + place * MINUTE)
        )
        for place, (role, text) in enumerate(lines)
    ]


def _speak_of_the_demo(world: World) -> None:
    turns = [json.loads(line) for line in _DEMO.read_text(encoding="utf-8").splitlines()]
    for session in dict.fromkeys(turn["session"] for turn in turns):
        messages = [
            DatasetMessage(
                turn["id"],
                session,
                turn["role"],
                turn["content"],
                created_at=datetime.fromisoformat(turn["created_at"]),
            )
            for turn in turns
            if turn["session"] == session
        ]
        world.say("ana", session, messages)


def _moment(written: str) -> datetime:
    return datetime.fromisoformat(written)


def _remember(world: World, agent: str) -> None:
    for number in range(8):
        city, food = _CITIES[number], _FOOD[number]
        talk = f"{agent}-{number}"
        likes = f"{agent} likes {food}"
        for draft in (
            MemoryDraft(content=f"{agent} knows a baker in {city} who sells {food}", id=f"baker-{number}"),
            MemoryDraft(content=f"{agent} keeps {food} in the cellar", id=f"cellar-{number}", tags=["cellar"]),
            MemoryDraft(content=f"{agent} keeps {food} in the cellar", id=f"again-{number}", tags=["twice"]),
            MemoryDraft(content=f"Look up trains to {city}", id=f"note-{number}", tier="conversation", session=talk),
            MemoryDraft(content=likes, id=f"{agent}-likes-{number}", tier="account", kind="preference"),
            MemoryDraft(content=likes, id=f"{agent}-likes-{number}-too", tier="account", kind="preference"),
        ):
            world.remember(agent, draft)


def _age(tx: Transaction, agent: str) -> None:
    """Make some memories fade, some often recalled, and some expire."""
    memories = tx.for_agent(agent).memories
    for number in range(8):
        at = BEGAN + number * HOUR
        memories.change(memories.get(f"baker-{number}").row_id, now=at, access_count=number, accessed_at=NOW - HOUR)
        ends = BEGAN + 20 * DAY if number % 2 else None
        memories.change(
            memories.get(f"cellar-{number}").row_id, now=at, expires_at=ends, accessed_at=NOW - 500 * number * HOUR
        )


def _recall_often(tx: Transaction, agent: str) -> None:
    """Record that every third chunk of the agent was found by five questions on five days."""
    chunks = tx.connection.exec_driver_sql(
        "SELECT id FROM chunks WHERE agent_id = ? ORDER BY text, id", (agent,)
    ).scalars()
    hot = [int(chunk) for chunk in chunks][::3]
    tx.recalls.record(
        [
            NewRecall(agent, f"{agent}-{number}", query, NOW - number * DAY,
                      tuple((chunk, 0.9 - place / 1_000) for place, chunk in enumerate(hot)))
            for number, query in enumerate(_ASKED, 1)
        ]
    )  # fmt: skip
