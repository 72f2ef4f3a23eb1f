"""Two agents with the same names for everything: what one does, and jobs do for it, is no part of the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import text

from adapters.tokens import EstimatedTokens
from memory.jobs import JobRun, run_on_store
from memory.lifecycle.curation import undo_all
from memory.memories.extraction import Extractor, extract_due
from memory.memories.extraction_windows import ExtractionRules
from memory.sessions.condensers import Condenser
from memory.sessions.lifecycle import SessionEndHooks, close_idle_sessions
from memory.sessions.scratchpads import write_items, write_key
from memory.sessions.sessions import create_channel
from memory.sessions.summaries import RollingRules, SummaryRules
from memory.sessions.summary_jobs import consolidate_conversations, summarize_sessions
from memory.upkeep.consolidation import consolidate, prune_decayed
from reverie import contract
from support.dreams import Dreamer
from support.kept import DEFAULT_POLICY
from support.knowing import Knowing
from support.pipeline import WORKSPACE

pytestmark = pytest.mark.slow

POLICY: Final = replace(DEFAULT_POLICY, memories_per_scope=9, max_entries=9)
NUMBERS: Final = SummaryRules(300, RollingRules(), None, 200)
PLACES: Final = ("Lisbon", "Porto", "Braga", "Faro")


def _name(memory: str) -> str:
    """SQL for the id of a memory, and for what does not differ from store to store in place of an id that does.

    Notes and facts go by their names. What was extracted goes by its content: its id is made from a session's code.
    """
    of_fact = " || '/' || ".join(f"{memory}.{column}" for column in ("category", "key", "value"))
    extracted = f"CASE {memory}.source WHEN 'extraction' THEN {memory}.content END"
    return f"coalesce({memory}.note_id, {of_fact}, {extracted}, {memory}.id)"


# Everything that an agent has, but for numbers of rows and times of the machine's clock.
_ROWS: Final = {
    "sessions": "SELECT id, status, channel_id, last_sequence, summary_text, summary_epoch FROM sessions"
    " WHERE agent_id = :agent",
    "messages": "SELECT id, content, consolidated_at IS NULL FROM messages WHERE agent_id = :agent",
    "memories": f"SELECT {_name('m')}, m.tier, m.lifetime, m.kind, m.source, m.content, m.importance, m.access_count,"
    " m.tags, m.concept_tags, m.note_id, m.category, m.key, m.value, m.subject, m.channel_id, o.agent_id,"
    f" {_name('o')}, s.agent_id, s.id FROM memories AS m LEFT JOIN memories AS o ON o.row_id = m.superseded_by"
    " LEFT JOIN sessions AS s ON s.row_id = m.session_row WHERE m.agent_id = :agent",
    "chunks": f"SELECT c.text, k.agent_id, {_name('k')}, embedded_at IS NULL FROM chunks AS c"
    " LEFT JOIN memories AS k ON k.row_id = c.memory_row WHERE c.agent_id = :agent",
    "tags": "SELECT t.tag, c.text FROM chunk_tags AS t JOIN chunks AS c ON c.id = t.chunk_id WHERE c.agent_id = :agent",
    "channels": "SELECT id, description, is_default FROM channels WHERE agent_id = :agent",
    "scratchpads": "SELECT key, value FROM scratchpads WHERE agent_id = :agent",
    "lists": "SELECT items FROM scratchpad_lists WHERE agent_id = :agent",
    "promotions": "SELECT memory_id, phase, round(score, 4) FROM memory_promotions WHERE agent_id = :agent",
    "curations": f"SELECT l.job, l.action, l.session_id, l.undone_at IS NULL, i.agent_id,"
    f" coalesce({_name('m')}, CASE length(i.memory_id) WHEN 32 THEN 'extracted' ELSE i.memory_id END),"
    " (SELECT count(*) FROM curation_changes WHERE entry_id = l.id)"
    " FROM curation_log AS l LEFT JOIN curation_items AS i ON i.entry_id = l.id"
    " LEFT JOIN memories AS m ON m.agent_id = i.agent_id AND m.id = i.memory_id WHERE l.agent_id = :agent",
    "recalls": "SELECT e.query, c.text FROM recall_events AS e JOIN chunks AS c ON c.id = e.chunk_id"
    " WHERE e.agent_id = :agent",
}


class Life:
    """A workspace in which agents live through the same kind of month."""

    def __init__(self, data: Path) -> None:
        self.world = Dreamer(data)

    def begin(self, agent: str, seed: int) -> None:
        """Say and keep things under names that every agent uses; what they say of them is the agent's own."""
        choice, world = random.Random(seed), self.world
        knowing = Knowing(world.stores, agent=agent, workspace=WORKSPACE)
        at = world.began
        turns = [
            f"I live in {choice.choice(PLACES)} at number {choice.randrange(99)}, in a blue house" for _ in range(30)
        ]
        # No later turn replaces this one, so that a dream sweep may promote it.
        turns[0] = f"The garden near {choice.choice(PLACES)} has {choice.randrange(99)} old olive trees and a well"
        turns[-1] = f"My name is {choice.choice(('Kim', 'Lou', 'Sam'))} and I live in {choice.choice(PLACES)}."
        messages = [{"id": f"m{n}", "content": turn, "sequence": n + 1} for n, turn in enumerate(turns)]
        for session in ("s", "t"):
            world.say(*[{**one, "id": f"{session}-{one['id']}"} for one in messages], agent=agent, session=session)
        world.settle()
        create_channel(world.store, agent=agent, channel="home", description=choice.choice(PLACES), now=at)
        write_items(world.store, agent=agent, session="s", items=[choice.choice(PLACES)], now=at)
        write_key(world.store, agent=agent, session="s", key="k", value=choice.random(), now=at)
        knowing.note(f"a note on {choice.choice(PLACES)}", note_id="n1", user="u1", at=at)
        for value in choice.sample(PLACES, 2):
            knowing.set_fact("profile", "city", value, at=at)
        for number in range(12):
            content = f"she likes the {choice.choice(('sea', 'hills'))} near {choice.choice(PLACES)}"
            more: dict[str, Any] = {"tier": "conversation", "session": "s"} if number % 4 == 0 else {"tags": ["likes"]}
            knowing.remember(content, id=f"k{number}", at=at, **more)
        knowing.remember("likes short answers", id="p", tier="account", kind="preference", at=at)
        world.settle()
        world.make_hot(turns[0], agent=agent)

    def jobs(self) -> None:
        """Every job that curates, forty days later."""
        world, condenser = self.world, Condenser(EstimatedTokens())
        extractor = Extractor(ExtractionRules(), None, world.stores.account_store, lambda _: None)
        works: dict[str, Callable[[JobRun], None]] = {
            "extract": lambda run: extract_due(run, extractor),
            "summarize": lambda run: summarize_sessions(run, condenser, NUMBERS),
            "consolidate": lambda run: consolidate(run, POLICY, world.stores),
            "conversations": lambda run: consolidate_conversations(run, condenser, NUMBERS, after_hours=24),
        }
        for job, work in works.items():
            run_on_store(world.store, job, work, now=world.today)
        world.settle()
        world.dream(shared_min_users=0, shared_min_days=0)  # nobody in particular recalls here
        run_on_store(world.store, "prune", lambda run: prune_decayed(run, POLICY), now=world.today)
        close_idle_sessions(
            world.stores, SessionEndHooks(lambda *_: None, lambda *_: None), now=world.today, idle_hours=12
        )

    def of(self, agent: str) -> dict[str, list[str]]:
        """All rows of an agent in the workspace and in the account."""
        found: dict[str, list[str]] = {}
        for store in (self.world.store, self.world.stores.account_store()):
            with store.reading() as tx:
                for name, query in _ROWS.items():
                    rows = tx.connection.execute(text(query), {"agent": agent})
                    found[f"{store.name} {name}"] = sorted(repr(tuple(row)) for row in rows)
        return found


@pytest.mark.parametrize("seed", range(2))
def test_an_agent_is_the_same_whoever_lives_beside_it(tmp_path: Path, seed: int) -> None:
    """Given two agents with the same ids, when jobs curate both, then each is row for row as if it were alone."""
    beside = Life(tmp_path / "beside")
    for number, agent in enumerate(("ana", "bob")):
        beside.begin(agent, 10 * seed + number)
    beside.jobs()
    for number, agent in enumerate(("ana", "bob")):
        alone = Life(tmp_path / agent)
        alone.begin(agent, 10 * seed + number)
        alone.jobs()
        rows = alone.of(agent)
        assert beside.of(agent) == rows
        for table in ("curations", "promotions", "memories", "scratchpads", "lists", "channels"):
            assert rows[f"{WORKSPACE} {table}"], table
        for job in ("consolidate", "conversations", "prune", "summarize", contract.DREAM_SWEEP):
            assert any(row.startswith(f"('{job}'") for row in rows[f"{WORKSPACE} curations"]), job
        assert any("'extraction'" in row for row in rows[f"{WORKSPACE} memories"])
        alone.world.close()
    beside.world.close()


@pytest.mark.parametrize("seed", range(2))
def test_what_one_agent_undoes_and_forgets_is_no_loss_of_the_other(tmp_path: Path, seed: int) -> None:
    """Given both curated, when one undoes everything and forgets its sessions, then not a row of the other changes."""
    life = Life(tmp_path)
    for number, agent in enumerate(("ana", "bob")):
        life.begin(agent, 10 * seed + number)
    life.jobs()
    before = life.of("ana")
    undone, _ = undo_all(life.world.store, agent="bob", now=life.world.today)
    assert undone
    assert life.of("ana") == before
    for session in ("s", "t", "memory:u1"):
        assert life.world.forget(session, agent="bob")
    assert life.of("ana") == before
    left = life.of("bob")
    for table in ("sessions", "messages", "scratchpads", "lists"):
        assert left[f"{WORKSPACE} {table}"] == [], table
    life.world.close()
