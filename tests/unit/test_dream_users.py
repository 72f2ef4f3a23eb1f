"""What several users see is not made to last by one of them, whatever that one does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from memory.pipeline.chunking import chunk_messages
from reverie.contract import ACCOUNT_STORE
from storage.memories.records import MemoryRecord, NewMemory
from storage.recall.events import NewRecall
from support.dreams import QUESTIONS, Dreamer

TIDE = "The ferry to the island leaves from pier nine"


@pytest.fixture
def dreamer(tmp_path: Path) -> Iterator[Dreamer]:
    """A workspace with a past, of an agent with two users."""
    made = Dreamer(tmp_path)
    made.say("Good morning to you all", session="of-kate", user="kate")
    made.settle()
    yield made
    made.close()


def recalled_by(dreamer: Dreamer, *users: str | None, content: str = TIDE, days: int = 5, times: int = 1) -> None:
    """Record recalls of a text by each user, with each question, on so many days."""
    chunk = dreamer.chunk_of(content)
    for user in users:
        for number, query in enumerate(QUESTIONS * times):
            dreamer.recalled(chunk, query=query, days_ago=1.0 + number % days, user=user)


def promoted(dreamer: Dreamer, **rules: int) -> bool:
    return bool(dreamer.dream(**rules)["promoted"])


def refusals(dreamer: Dreamer) -> list[str]:
    """Return what a dry run says of what it leaves out."""
    return [one["text"] for one in dreamer.dream(dry_run=True)["planned"] if one["action"] == "leave out"]


# --- the rule ---


def test_two_users_on_two_days_make_what_all_see_last(dreamer: Dreamer) -> None:
    """Given a memory of nobody recalled by kate and luis on two days, then a sweep promotes it."""
    memory = dreamer.remember(TIDE)
    recalled_by(dreamer, "kate", "luis", days=2)
    assert promoted(dreamer)
    assert dreamer.memory(memory.id).lifetime == "long_term"


@pytest.mark.parametrize(
    ("users", "days", "why"),
    [
        (("kate",), 5, "1 named user besides its author, needs 2"),
        ((None,), 5, "0 named users besides its author, needs 2"),
        (("kate", None), 5, "1 named user besides its author, needs 2"),
        (("kate", "luis"), 1, "1 day, needs 2"),
    ],
)
def test_fewer_users_or_days_do_not_and_a_dry_run_names_the_rule(
    dreamer: Dreamer, users: tuple[str | None, ...], days: int, why: str
) -> None:
    """Given recalls by one user, by nobody, or on one day, then nothing is promoted, and a dry run says why."""
    dreamer.remember(TIDE)
    recalled_by(dreamer, *users, days=days)
    (text_shown,) = refusals(dreamer)
    assert text_shown.endswith(why)
    counts = dreamer.dream()
    assert counts["promoted"] == 0
    assert counts["left_out_too_few_users"] + counts.get("left_out_too_few_days", 0) == 1 if days > 1 else True
    assert dreamer.ledger() == []


def test_a_thousand_recalls_of_one_user_are_those_of_one_user(dreamer: Dreamer) -> None:
    """Given one user who recalls a thousand times on twenty days, then nothing is promoted."""
    dreamer.remember(TIDE)
    recalled_by(dreamer, "kate", days=20, times=200)
    assert not promoted(dreamer)


def test_other_users_on_one_day_do_not_lend_the_days_of_a_recall_by_nobody(dreamer: Dreamer) -> None:
    """Given two users on one day and recalls for nobody on others, then the rule about days refuses."""
    dreamer.remember(TIDE)
    recalled_by(dreamer, None, days=5)
    recalled_by(dreamer, "kate", "luis", days=1)
    assert not promoted(dreamer)


# --- whose words they are ---


def test_the_author_is_not_one_of_the_two(dreamer: Dreamer) -> None:
    """Given a memory that kate shared, then her own recalls do not count, and those of two others do."""
    dreamer.remember(TIDE, owner_user_id="kate", visibility="shared")
    recalled_by(dreamer, "kate", "luis")
    assert not promoted(dreamer)
    recalled_by(dreamer, "mara")
    assert promoted(dreamer)


def test_a_users_own_memory_is_theirs_to_keep(dreamer: Dreamer) -> None:
    """Given a private memory of kate recalled by her alone on one day, then it is promoted, and stays hers."""
    memory = dreamer.remember(TIDE, owner_user_id="kate")
    recalled_by(dreamer, "kate", days=1)
    assert promoted(dreamer)
    after = dreamer.memory(memory.id)
    assert (after.owner_user_id, after.visibility) == ("kate", "private")


def test_a_message_of_a_session_without_a_user_needs_two_users(dreamer: Dreamer) -> None:
    """Given words in a session of nobody, which all users see, then one user's recalls make no memory of them."""
    dreamer.say(TIDE, session="open")
    dreamer.settle()
    recalled_by(dreamer, "kate")
    assert not promoted(dreamer)
    recalled_by(dreamer, "luis")
    assert promoted(dreamer)


def test_what_is_made_of_a_group_belongs_to_who_said_it(dreamer: Dreamer) -> None:
    """Given words of luis in a group that kate began, recalled often, then the memory is not one of kate."""
    dreamer.say("Let us plan the trip", session="group", user="kate")
    dreamer.say(TIDE, session="group", user="luis")
    dreamer.settle()
    recalled_by(dreamer, "kate", "luis")
    assert promoted(dreamer)
    (made,) = dreamer.all_memories()
    assert (made.owner_user_id, made.source_message is not None) == ("luis", True)


def test_what_nobody_in_particular_said_in_a_group_stays_the_groups(dreamer: Dreamer) -> None:
    """Given words in a group whose message names no user, then two users must recall them, and the group sees them."""
    dreamer.say("Let us plan the trip", session="group", user="kate")
    dreamer.say("I am in", session="group", user="luis")
    dreamer.say(TIDE, session="group")
    dreamer.settle()
    recalled_by(dreamer, "kate")
    assert not promoted(dreamer)
    recalled_by(dreamer, "luis")
    assert promoted(dreamer)
    (made,) = dreamer.all_memories()
    assert (made.owner_user_id, made.session) == (None, "group")
    with dreamer.store.reading() as tx:
        assert [entry.sensitive for entry in tx.for_agent("ana").curation.page()] == ["seen by all users"]


# --- agents without users ---


def test_an_agent_without_users_dreams_as_before(dreamer: Dreamer) -> None:
    """Given an agent that never names a user, then recalls on one day are enough."""
    dreamer.remember(TIDE, agent="bob")
    chunk = dreamer.chunk_of(TIDE, agent="bob")
    for query in QUESTIONS:
        dreamer.recalled(chunk, query=query, agent="bob")
    assert promoted(dreamer)


def test_the_first_recall_that_names_a_user_brings_the_rule(tmp_path: Path) -> None:
    """Given an agent without sessions of users, when one recall names a user, then the rule holds."""
    dreamer = Dreamer(tmp_path)
    dreamer.remember(TIDE)
    recalled_by(dreamer, None)
    dreamer.recalled(dreamer.chunk_of(TIDE), user="kate")
    assert not promoted(dreamer)
    assert promoted(dreamer, shared_min_users=1, shared_min_days=1)
    dreamer.close()


def test_in_the_account_the_users_of_every_workspace_count(dreamer: Dreamer) -> None:
    """Given a memory of the account without an owner, and users in a workspace only, then the rule holds for it."""
    account = dreamer.stores.workspace(ACCOUNT_STORE)
    memory = NewMemory(id="a1", content=TIDE, created_at=dreamer.began, tier="account", kind="preference")
    with account.writing() as tx:
        tx.for_agent("ana").memories.add(memory, now=dreamer.began)
    chunk_messages(account, now=dreamer.now, on_batch=lambda rows: None)
    with account.writing() as tx:
        (chunk,) = tx.connection.execute(text("SELECT id FROM chunks WHERE memory_row IS NOT NULL")).scalars()
        recalls = [
            NewRecall("ana", f"r{n}", query, dreamer.today - n, ((chunk, 0.8),)) for n, query in enumerate(QUESTIONS)
        ]
        tx.recalls.record(recalls)
    assert not promoted(dreamer)


def test_the_owner_of_what_a_job_made_is_never_wider(dreamer: Dreamer) -> None:
    """Given a message of kate that she recalls, and an assistant's words that quote her, then both stay hers."""
    dreamer.say(TIDE, session="of-kate", user="kate")
    dreamer.say({"role": "assistant", "content": f"You said that {TIDE} at noon"}, session="of-kate")
    dreamer.settle()
    recalled_by(dreamer, "kate", content="at noon")
    recalled_by(dreamer, "kate")
    assert dreamer.dream()["promoted"] == 2
    made: list[MemoryRecord] = dreamer.all_memories()
    assert {memory.owner_user_id for memory in made} == {"kate"}
