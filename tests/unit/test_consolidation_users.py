"""Consolidation shows nothing to more people than before, and no user alone makes last what others see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from storage.recall.events import NewRecall
from support.kept import AGENT, HOUR, NOW, Kept, at_cosine, direction

TIDE = "The ferry to the island leaves from pier nine"
DAY = 24 * HOUR


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """A store of an agent with the users kate and luis, each with a session of their own, and a group of both."""
    made = Kept(tmp_path)
    with made.store.writing() as tx:
        sessions = tx.for_agent(AGENT).sessions
        sessions.ensure("of-kate", now=NOW, user="kate")
        sessions.ensure("of-luis", now=NOW, user="luis")
        sessions.ensure("open", now=NOW)
    yield made
    made.close()


def recalled(kept: Kept, memory_id: str, *users: str | None, days: int = 3) -> None:
    """Record a recall of a memory by each of the users on each of so many days."""
    with kept.store.writing() as tx:
        row = tx.for_agent(AGENT).memories.get(memory_id).row_id
        (chunk,) = tx.connection.execute(text("SELECT id FROM chunks WHERE memory_row = :row"), {"row": row}).scalars()
        tx.recalls.record(
            [
                NewRecall(AGENT, f"{memory_id} {user} {day}", "pier", NOW + day * DAY, ((chunk, 0.8),), user)
                for user in users
                for day in range(days)
            ]
        )


# --- merging ---


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"owner_user_id": "kate"}, {"owner_user_id": "luis"}),
        ({"owner_user_id": "kate"}, {}),
        ({"owner_user_id": "kate"}, {"owner_user_id": "kate", "visibility": "shared"}),
        ({"owner_user_id": "kate", "visibility": "requested"}, {"owner_user_id": "kate", "visibility": "shared"}),
        ({"tenant": "acme"}, {"tenant": "globex"}),
        ({"tenant": "acme", "owner_user_id": "kate"}, {"owner_user_id": "kate"}),
        ({"session": "of-kate"}, {"session": "of-luis"}),
        ({"session": "of-kate"}, {"session": "open"}),
        ({"session": "of-kate"}, {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("reverse", [False, True])
def test_memories_with_different_readers_are_not_merged(
    kept: Kept, one: dict[str, Any], other: dict[str, Any], reverse: bool
) -> None:
    """Given two memories of the same words that different people see, then both stay, each with its own tags."""
    first, second = (other, one) if reverse else (one, other)
    first_id = kept.add(TIDE, tags=("one",), **first)
    second_id = kept.add(TIDE, tags=("two",), **second)
    assert "merged" not in kept.consolidate()
    assert (kept.get(first_id).tags, kept.get(second_id).tags) == (("one",), ("two",))


@pytest.mark.parametrize(
    "columns", [{"owner_user_id": "kate"}, {"session": "of-kate"}, {"tenant": "acme"}, {}], ids=str
)
def test_near_memories_with_the_same_readers_are(kept: Kept, columns: dict[str, Any]) -> None:
    """Given two memories that the same people see, then one of them stays, with the same readers."""
    survivor = kept.add(TIDE, vector=direction(1), **columns)
    kept.add("The ferry to the island, it leaves from pier nine", vector=at_cosine(direction(1), 0.99), **columns)
    assert kept.consolidate()["merged"] == 1
    after = kept.get(survivor)
    assert (after.owner_user_id, after.visibility) == (columns.get("owner_user_id"), "private")


# --- promotion ---


@pytest.mark.parametrize(
    ("columns", "users", "days", "promoted"),
    [
        ({}, ("kate",), 20, False),
        ({}, (None,), 20, False),
        ({}, ("kate", "luis"), 1, False),
        ({}, ("kate", "luis"), 2, True),
        ({"session": "open"}, ("kate",), 5, False),
        ({"owner_user_id": "kate", "visibility": "shared"}, ("kate", "luis"), 5, False),
        ({"owner_user_id": "kate", "visibility": "shared"}, ("mara", "luis"), 5, True),
        ({"owner_user_id": "kate"}, ("kate",), 1, True),
        ({"session": "of-kate"}, ("kate",), 1, True),
    ],
)
def test_what_several_users_see_is_promoted_by_recalls_of_several(
    kept: Kept, columns: dict[str, Any], users: tuple[str | None, ...], days: int, promoted: bool
) -> None:
    """Given a memory recalled ten times, then who recalled it, and when, decide whether it becomes long-term."""
    memory = kept.add(TIDE, access_count=10, importance=1.0, **columns)
    recalled(kept, memory, *users, days=days)
    counts = kept.consolidate(now=NOW + days * DAY)
    assert (counts.get("promoted", 0), counts.get("left_out_little_known", 0)) == (promoted, not promoted)
    assert (kept.get(memory).lifetime == "long_term") == promoted


def test_a_dry_run_names_the_rule(kept: Kept) -> None:
    """Given what is held back, then a dry run names it with the settings of the rule."""
    memory = kept.add(TIDE, access_count=10, importance=1.0)
    (planned,) = kept.consolidation_report(dry_run=True).planned
    assert (planned["action"], planned["about"]) == ("leave out", memory)
    assert "needs recalls by 2 users" in planned["text"]


def test_an_agent_without_users_promotes_as_before(tmp_path: Path) -> None:
    """Given an agent that never named a user, then the access count is enough."""
    kept = Kept(tmp_path)
    kept.add(TIDE, access_count=10, importance=1.0)
    assert kept.consolidate()["promoted"] == 1
    kept.close()
