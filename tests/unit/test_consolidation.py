"""Consolidation of memories: what is promoted, pruned, merged, capped or left alone, and that it can be undone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.embedders.base import to_blob
from memory.lifecycle.curation import undo_all, undo_entry
from memory.upkeep import consolidation, duplicates
from memory.upkeep.duplicates import find_duplicates
from reverie import contract
from storage.curation import EntryDraft
from storage.memories.records import TIERS
from storage.memories.sweeps import MemoryOutline
from storage.recall.sameness import Statement, says_the_same
from support.kept import AGENT, DEFAULT_POLICY, HOUR, NOW, Kept, at_cosine, direction

pytestmark = pytest.mark.slow

LONG_AGO = 3_000.0  # .998 ** 3000 leaves .0025


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """An empty workspace."""
    one = Kept(tmp_path)
    yield one
    one.close()


def twins(kept: Kept, cosine: float = 0.98, *, texts: tuple[str, str] = ("", ""), **columns: Any) -> tuple[str, str]:
    """Two memories whose vectors have this cosine; `first_` and `second_` columns are of one of them alone."""
    one = direction(500)
    first = {name.removeprefix("first_"): value for name, value in columns.items() if not name.startswith("second_")}
    second = {name.removeprefix("second_"): value for name, value in columns.items() if not name.startswith("first_")}
    contents = texts[0] or "The user likes green tea", texts[1] or "User likes the green tea."
    return kept.add(contents[0], vector=one, **first), kept.add(contents[1], vector=at_cosine(one, cosine), **second)


def undo_everything(kept: Kept) -> None:
    done, failed = undo_all(kept.store, agent=AGENT, now=NOW + HOUR)
    assert done
    assert not failed


# --- one by one ---


def test_what_has_expired_goes_at_its_moment(kept: Kept) -> None:
    """Given ends before, at and after now, then the first two go, whoever pinned them."""
    kept.add(id="before", expires_at=NOW - 1, lifetime="long_term", pinned=True)
    kept.add(id="at", expires_at=NOW, tier="conversation", lifetime="conversation", session="s")
    kept.add(id="after", expires_at=NOW + 1)

    assert kept.consolidate() == {"expired": 2}
    assert kept.standing() == {"after"}
    assert kept.actions() == [("expire", ("before",)), ("expire", ("at",))]
    kept.check()


@pytest.mark.sqlite("a database server checks types itself")
@pytest.mark.parametrize(
    ("table", "column"),
    [("memories", "content"), ("memories", "metadata"), ("chunks", "text"), ("chunks", "lead"), ("chunks_vec", "dim")],
)
def test_a_blob_in_a_column_that_the_log_records_fails_no_batch(kept: Kept, table: str, column: str) -> None:
    """Given a damaged value in a memory or what belongs to it, then it expires with the others, and is logged."""
    kept.add(id="damaged", expires_at=NOW)
    kept.add(id="sound", expires_at=NOW)
    with kept.store.writing() as tx:
        tx.connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        tx.connection.exec_driver_sql(f"UPDATE {table} SET {column} = x'ff00' WHERE rowid = 1")

    assert kept.consolidate() == {"expired": 2}
    assert kept.standing() == set()
    with kept.store.reading() as tx:
        images = tx.connection.exec_driver_sql(
            "SELECT before ->> ? FROM curation_changes WHERE table_name = ? ORDER BY seq", (column, table)
        )
        assert images.scalars().first() == "FF00"


def test_what_is_recalled_often_stays_for_long(kept: Kept) -> None:
    """Given one recalled often lately, one long ago and one seldom, then the first alone becomes long-term."""
    kept.add(id="often", access_count=4)
    kept.add(id="once", access_count=4, hours_ago=2_000)
    kept.add(id="seldom", access_count=3, importance=1.0)

    assert kept.consolidate() == {"promoted": 1}
    assert kept.get("often").lifetime == "long_term"
    assert kept.get("once").lifetime == kept.get("seldom").lifetime == "short_term"
    assert kept.actions() == [("promote", ("often",))]


def test_what_has_faded_goes_with_all_that_was_made_of_it(kept: Kept) -> None:
    """Given faded memories, then those go that nobody protects, with their chunks, vectors and words."""
    kept.add(id="faded", hours_ago=LONG_AGO)
    kept.add(id="long", hours_ago=LONG_AGO, lifetime="long_term")
    kept.add(id="pinned", hours_ago=LONG_AGO, lifetime="long_term", pinned=True)
    kept.add(id="by-hand", hours_ago=LONG_AGO, lifetime="long_term", source="user")
    kept.add(id="note", hours_ago=LONG_AGO, kind="note", note_id="n1")
    kept.add(id="of-the-talk", hours_ago=LONG_AGO, tier="conversation", lifetime="conversation", session="s")
    kept.add(id="fresh")

    assert kept.consolidate() == {"pruned": 2}
    assert kept.standing() == {"pinned", "by-hand", "note", "of-the-talk", "fresh"}
    kept.check()
    assert len(kept.rows()["index"]) == 5


def test_what_was_superseded_goes_with_its_survivor_and_comes_back_with_it(kept: Kept) -> None:
    """Given a faded memory that had taken another's place, when it is pruned and that undone, then both are back."""
    kept.add(id="old", hours_ago=1)
    kept.add(id="new", hours_ago=LONG_AGO)
    with kept.store.writing() as tx:
        memories = tx.for_agent(AGENT).memories
        memories.supersede(memories.get("old").row_id, by=memories.get("new").row_id, now=NOW)
    before = kept.rows()

    assert kept.consolidate() == {"pruned": 1}
    assert kept.actions() == [("prune", ("new", "old"))]
    assert kept.rows()["memories"] == []
    undo_everything(kept)
    assert kept.rows() == before


# --- merging ---


def test_two_that_say_the_same_become_one(kept: Kept) -> None:
    """Given near duplicates, then the older stays with what both had, and the other is kept as superseded."""
    older, younger = twins(
        kept,
        first_importance=0.4, second_importance=0.6, first_access_count=2, second_access_count=1,
        first_hours_ago=50, second_hours_ago=5, first_tags=("drinks", "b"), second_tags=("tea", "b"),
        second_lifetime="long_term", first_expires_at=NOW + HOUR,
    )  # fmt: skip

    assert kept.consolidate() == {"merged": 1}
    one, other = kept.get(older), kept.get(younger)
    assert (one.importance, one.access_count, one.accessed_at) == (0.6, 3, NOW - 5 * HOUR)
    assert (one.tags, one.lifetime, one.expires_at) == (("drinks", "b", "tea"), "long_term", None)
    assert (one.content, one.active) == ("The user likes green tea", True)
    assert (other.superseded_by, other.superseded_at, other.content) == (older, NOW, "User likes the green tea.")
    assert kept.actions() == [("merge", (older, younger))]
    assert len(kept.rows()["chunks"]) == len(kept.rows()["index"]) == 1
    kept.check()


def test_what_two_were_recalled_together_counts(kept: Kept) -> None:
    """Given two recalled twice each, when they become one, then that one is promoted at once."""
    older, _ = twins(kept, access_count=2)

    assert kept.consolidate() == {"merged": 1, "promoted": 1}
    assert kept.get(older).lifetime == "long_term"
    assert [action for action, _ in kept.actions()] == ["merge", "promote"]


def test_tags_unite_up_to_sixteen(kept: Kept) -> None:
    """Given ten tags each, then the older's come first and sixteen are kept, on its chunk too."""
    ours, theirs = tuple(f"a{n}" for n in range(10)), tuple(f"b{n}" for n in range(10))
    older, _ = twins(kept, first_tags=ours, second_tags=theirs)
    kept.consolidate()

    assert kept.get(older).tags == (*ours, *theirs[:6])
    of_chunk = {value for row in kept.rows()["chunk_tags"] for value in row if isinstance(value, str)}
    assert of_chunk == {*ours, *theirs[:6]}


@pytest.mark.parametrize(("cosine", "merged"), [(0.9501, 1), (0.9499, 0)])
def test_the_cosine_decides(kept: Kept, cosine: float, merged: int) -> None:
    """Given a cosine just above or below the threshold, then they are merged or not."""
    twins(kept, cosine)
    assert kept.consolidate().get("merged", 0) == merged


@pytest.mark.parametrize(
    "apart",
    [
        {"second_agent": "bob"},
        {"first_tier": "account"},
        {"tier": "channel", "first_channel": "one", "second_channel": "two"},
        {"second_owner_user_id": "u1"},
        {"first_subject": "tea", "second_subject": "coffee"},
        {"tier": "conversation", "lifetime": "conversation", "first_session": "s1", "second_session": "s2"},
        {"second_kind": "note", "second_note_id": "n1"},
        {"second_kind": "fact", "second_category": "likes", "second_key": "tea", "second_value": "yes"},
        {"second_source": "user"},
    ],
)
def test_what_holds_elsewhere_is_not_the_same(kept: Kept, apart: dict[str, Any]) -> None:
    """Given another agent, tier, channel, owner, subject or talk, or a thing with a key of its own, then both stay."""
    twins(kept, **apart)
    before = kept.rows()

    if "second_source" not in apart:
        assert kept.consolidate() == {}
        assert kept.rows() == before
    else:  # what a person wrote takes the place, although it is younger
        assert kept.consolidate() == {"merged": 1}
        assert kept.standing() == {"m2"}


def test_what_two_people_wrote_stays_twice(kept: Kept) -> None:
    """Given the same words by a person twice, and pinned once more, then no job takes any of them away."""
    twins(kept, source="user", texts=("I like tea", "I like tea"))
    kept.add("I like tea", pinned=True)
    assert kept.consolidate() == {}


@pytest.mark.parametrize(
    "texts",
    [
        ("Anna's code is 17", "Ben's code is 18"),
        ("The release 2.3.1 failed", "The release 2.3.2 failed"),
        ("The tests must pass before a merge", "The tests must never pass before a merge"),
        ("The user prefers tea over coffee", "The user prefers coffee over tea"),
        ("The key is on the left shelf", "The key is on the right shelf"),
        ("The user has a cat named \u201cMomo\u201d", "The user has a cat named \u201cMimi\u201d"),
    ],
)
def test_two_that_differ_in_what_matters_stay_however_near(kept: Kept, texts: tuple[str, str]) -> None:
    """Given the very same vector, when texts differ in numbers, names, negation, sides or order, then both stay."""
    twins(kept, 1.0, texts=texts)
    assert kept.consolidate() == {}


def test_the_same_words_are_the_same_without_any_vector(kept: Kept) -> None:
    """Given memories that nothing has embedded yet, then those with the same words become one."""
    for text in ("I like tea", "I like  tea.", "I like coffee"):
        kept.add(text, embedded=False)

    assert kept.consolidate() == {"merged": 1}
    assert kept.standing() == {"m1", "m3"}


def test_long_texts_are_not_judged_by_their_beginning(kept: Kept) -> None:
    """Given two texts of several chunks with the same vectors, then they stay apart unless they are the same words."""
    begin = "The minutes of the meeting about the garden and its gate begin like this. " * 20
    for end in ("Nobody objected to the hedge.", "Everybody objected to the pond.", "Nobody objected to the hedge."):
        kept.add(begin + end, vector=direction(1))

    assert kept.consolidate() == {"merged": 1}
    assert kept.standing() == {"m1", "m2"}


def test_of_many_that_are_alike_the_oldest_stays(kept: Kept) -> None:
    """Given fifty near each other, then one stays that was recalled as often as all, and each merge is an entry."""
    for number in range(50):
        kept.add("The user likes green tea", vector=at_cosine(direction(1), 0.99, number=number), access_count=1)

    assert kept.consolidate() == {"merged": 49, "promoted": 1}
    assert kept.standing() == {"m1"}
    assert kept.get("m1").access_count == 50
    undo_everything(kept)
    assert kept.get("m1").access_count == 1


def test_a_chain_is_not_one_thing(kept: Kept) -> None:
    """Given a first near the second and that near a third which is not near the first, then two stay."""
    one = direction(1)
    second = at_cosine(one, 0.96)
    third = at_cosine(one, 0.96**2 - 0.05)
    assert float(one @ third) < 0.95
    for vector in (one, second, third):
        kept.add("The user likes green tea" + " today" * (vector is third), vector=vector)

    assert kept.consolidate() == {"merged": 1}
    assert kept.standing() == {"m1", "m3"}


# --- caps ---


def test_the_least_relevant_beyond_a_scope_go(kept: Kept) -> None:
    """Given seven of a tier where five may be, then the two least relevant go that nobody protects."""
    for number in range(6):
        kept.add(hours_ago=10 * number)
    kept.add(id="pinned", hours_ago=500, lifetime="long_term", pinned=True)
    kept.add(id="elsewhere", hours_ago=500, tier="account")

    assert kept.consolidate(replace(DEFAULT_POLICY, memories_per_scope=5)) == {"capped": 2}
    assert kept.standing() == {"m1", "m2", "m3", "m4", "pinned", "elsewhere"}
    assert kept.actions() == [("cap", ("m6",)), ("cap", ("m5",))]


def test_an_agent_has_at_most_max_entries_in_all(kept: Kept) -> None:
    """Given a cap on all, then the least relevant of any tier go, of each agent for itself."""
    kept.add(id="channel", hours_ago=10, tier="channel", channel="c")
    kept.add(id="workspace", hours_ago=10)
    kept.add(id="account", hours_ago=10, tier="account")
    kept.add(id="another", agent="bob")

    assert kept.consolidate(replace(DEFAULT_POLICY, max_entries=1)) == {"capped": 2}
    assert kept.standing() == {"account"}
    assert kept.standing(agent="bob") == {"another"}


# --- log, undo, dry run ---


def mixed(kept: Kept) -> None:
    """Something for every step."""
    kept.add(expires_at=NOW - 1, tags=("gone",))
    kept.add(access_count=9)
    kept.add(hours_ago=LONG_AGO, tags=("old",))
    twins(kept, first_tags=("a",), second_tags=("b",), access_count=2)
    for number in range(8):
        kept.add(hours_ago=100 + number)
    with kept.store.writing() as tx:
        tx.connection.exec_driver_sql(
            "INSERT INTO recall_events (agent_id, recall, chunk_id, query, score, at)"
            " SELECT agent_id, 'r', id, 'q', .5, 1 FROM chunks"
        )


POLICY = replace(DEFAULT_POLICY, memories_per_scope=8)


def test_undoing_everything_gives_every_row_back(kept: Kept) -> None:
    """Given a run that did something of each kind, when all is undone, then every row is as it was, byte for byte."""
    mixed(kept)
    before = kept.rows()

    assert kept.consolidate(POLICY) == {"expired": 1, "promoted": 2, "pruned": 1, "merged": 1, "capped": 2}
    assert {action for action, _ in kept.actions()} == {"expire", "promote", "prune", "merge", "cap"}
    kept.check()
    undo_everything(kept)
    assert kept.rows() == before
    kept.check()


def test_what_was_undone_is_not_done_again(kept: Kept) -> None:
    """Given a run that was undone, when it runs again, then it leaves all of that alone."""
    mixed(kept)
    before = kept.rows()
    kept.consolidate(POLICY)
    undo_everything(kept)

    done = kept.consolidate(POLICY)
    assert set(done) <= {"capped"}  # in the place of those spared, the next ones
    if not done:
        assert kept.rows() == before
    assert kept.consolidate(replace(POLICY, memories_per_scope=100)) == {}


def test_a_pair_that_was_parted_may_each_find_another(kept: Kept) -> None:
    """Given two merged and parted again, when a third says the same, then it joins the first, and the two stay."""
    older, younger = twins(kept)
    kept.consolidate()
    with kept.store.reading() as tx:
        (entry,) = tx.curation.page()
    undo_entry(kept.store, agent=AGENT, entry=entry.id, now=NOW)
    kept.add("The user likes green tea", vector=direction(500))

    assert kept.consolidate() == {"merged": 1}
    assert kept.standing() == {older, younger}


def test_a_dry_run_counts_what_a_run_does_and_changes_nothing(kept: Kept) -> None:
    """Given something of each kind, then a dry run tells what the run then does, and leaves every row and no entry."""
    mixed(kept)
    before = kept.rows()

    report = kept.consolidation_report(POLICY, dry_run=True)
    counts = {name: count for name, count in report.counts.items() if count and name != "looked_at"}
    assert kept.rows() == before
    assert kept.actions() == []
    assert kept.consolidate(POLICY) == counts
    done = [(action, memory) for action, memories in kept.actions() for memory in memories]
    assert {(change["action"], change["about"]) for change in report.planned} <= set(done)
    assert len(report.planned) == sum(counts.values())


def test_running_twice_is_running_once(kept: Kept) -> None:
    """Given a run, when it runs again at the same moment, then it finds nothing to do."""
    mixed(kept)
    kept.consolidate(POLICY)
    after, log = kept.rows(), kept.actions()

    assert kept.consolidate(POLICY) == {}
    assert (kept.rows(), kept.actions()) == (after, log)


def test_what_changed_since_it_was_decided_is_left_alone(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given memories recalled, pinned or rewritten while a run decides, then the run takes its hands off them."""
    mixed(kept)
    plan_of = consolidation.carry_out

    def meanwhile(*arguments: Any) -> None:
        with kept.store.writing() as tx:
            memories = tx.for_agent(AGENT).memories
            rows = {memory.id: memory.row_id for memory in memories.iterate()}
            memories.change(rows["m1"], now=NOW, expires_at=None)
            memories.change(rows["m2"], now=NOW, importance=0.0)
            memories.change(rows["m3"], now=NOW, accessed_at=NOW)
            memories.rewrite(rows["m5"], "The user likes black coffee", now=NOW)
            for number in range(6, 14):
                memories.change(rows[f"m{number}"], now=NOW, accessed_at=NOW)
        plan_of(*arguments)

    monkeypatch.setattr("memory.upkeep.consolidation.carry_out", meanwhile)
    assert kept.consolidate(POLICY) == {}


@pytest.mark.parametrize("column", ["tier", "channel", "subject"])
def test_what_went_elsewhere_since_it_was_compared_is_not_merged(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """Given one of two alike that is moved, or told to be about something else, while a run decides, then both stay."""
    first, second = twins(kept, tier="channel", channel="one", subject="tea")
    carry_out = consolidation.carry_out
    elsewhere = {"tier": "workspace", "channel": "two", "subject": "coffee"}

    def meanwhile(*arguments: Any) -> None:
        row = kept.get(second).row_id
        with kept.store.writing() as tx:
            tx.for_agent(AGENT).memories.change(row, now=NOW, **{column: elsewhere[column]})
        carry_out(*arguments)

    monkeypatch.setattr("memory.upkeep.consolidation.carry_out", meanwhile)
    assert kept.consolidate() == {}
    assert kept.standing() == {first, second}


def test_a_run_whose_time_is_up_says_what_it_left(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given time for one batch, or for none, then what was left is told, and the next run does it."""
    mixed(kept)
    left = iter([False, False, False])  # for the agent, for comparing vectors, for the first batch
    monkeypatch.setattr("memory.jobs.JobRun.time_is_up", property(lambda _run: next(left, True)))
    assert kept.consolidate(POLICY) == {"expired": 1, "left": 6}
    assert kept.consolidate(POLICY) == {"agents_left": 1}
    monkeypatch.undo()
    assert kept.consolidate(POLICY)["merged"] == 1


ADDED = st.fixed_dictionaries(
    {
        "content": st.sampled_from(["I like tea", "I like tea.", "I do not like tea", "Tea at 5", "Tea at 6", "Milk"]),
        "tier": st.sampled_from(TIERS[1:]),
        "lifetime": st.sampled_from(["short_term", "long_term"]),
        "source": st.sampled_from(["agent", "user", "extraction"]),
        "importance": st.sampled_from([0.0, 0.02, 0.5, 1.0]),
        "access_count": st.integers(0, 6),
        "hours_ago": st.sampled_from([0.0, 30.0, 700.0, 5_000.0]),
        "expires_at": st.sampled_from([None, None, NOW - 1, NOW + HOUR]),
        "pinned": st.booleans(),
        "near": st.integers(0, 3),
    }
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(added=st.lists(ADDED, max_size=14), cap=st.integers(1, 8), entries=st.none() | st.integers(1, 12))
def test_whatever_there_is_a_run_keeps_its_promises(
    tmp_path_factory: pytest.TempPathFactory, added: list[dict[str, Any]], cap: int, entries: int | None
) -> None:
    """Given any memories, then a dry run tells the truth, a second run does nothing, and an undo gives all back."""
    kept = Kept(tmp_path_factory.mktemp("kept"))
    try:
        for one in added:
            columns = dict(one)
            kept.add(vector=at_cosine(direction(columns.pop("near")), 0.99, number=len(added)), **columns)
        before = kept.rows()
        policy = replace(DEFAULT_POLICY, memories_per_scope=cap, max_entries=entries)

        counts = kept.consolidate(policy, dry_run=True)
        assert kept.consolidate(policy) == counts
        kept.check()
        with kept.store.reading() as tx:
            for memory in tx.for_agent(AGENT).memories.iterate():
                assert memory.expires_at is None or memory.expires_at > NOW
        protected = {f"m{n}" for n, one in enumerate(added, 1) if one["lifetime"] == "long_term"
                     and (one["pinned"] or one["source"] == "user") and one["expires_at"] != NOW - 1}  # fmt: skip
        assert protected <= kept.standing()
        assert kept.consolidate(policy) == {}
        done, failed = undo_all(kept.store, agent=AGENT, now=NOW)
        assert not failed
        assert len(done) == sum(counts.values())
        assert kept.rows() == before
    finally:
        kept.close()


def test_all_of_it_is_told_as_the_job_of_the_contract(kept: Kept) -> None:
    """Given a run, then its entries carry the job's name and why."""
    mixed(kept)
    kept.consolidate(POLICY)
    with kept.store.reading() as tx:
        entries = tx.curation.page()
    assert {entry.job for entry in entries} == {contract.CONSOLIDATE_MEMORIES}
    assert all(entry.why and entry.at == NOW for entry in entries)
    (pruned,) = (entry for entry in entries if entry.action == "prune")
    assert pruned.why == "its relevance of 0.0012 is below 0.01"


def test_entries_written_together_hold_each_their_own_and_empty_ones_are_gone(kept: Kept) -> None:
    """Given three entries written together of which one changes nothing, then two are left, each with its change."""
    kept.add(id="a")
    kept.add(id="b")
    with kept.store.writing() as tx:
        memories = tx.for_agent(AGENT).memories
        drafts = [EntryDraft(f"for {name}", (name,)) for name in ("a", "nothing", "b")]
        log = tx.curation.entries(drafts, job="a job", agent=AGENT, action="test", at=NOW)
        for _, draft in zip(log, drafts, strict=True):
            if found := memories.find(draft.memories[0]):
                memories.change(found.row_id, now=NOW, importance=0.9)
    with kept.store.reading() as tx:
        entries = tx.curation.page()
        changed = [[change.after["id"] for change in tx.curation.changes(e.id) if change.after] for e in entries]
    assert [(entry.why, entry.memories) for entry in entries] == [("for b", ("b",)), ("for a", ("a",))]
    assert changed == [["b"], ["a"]]
    kept.check()


def test_very_many_alike_that_differ_in_a_name_are_told_apart_without_comparing_each_with_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given 4,000 contacts whose vectors are all the same, then none is merged, and few pairs of texts are compared."""
    letters = "abcdefghijklmnopqrst"
    names = ["".join(letters[number // 20**place % 20] for place in range(4)).capitalize() for number in range(4_000)]
    scope = [outline(number, name) for number, name in enumerate(names)]
    vector = to_blob(direction(1))
    compared = 0

    def counted(first: Statement, second: Statement) -> bool:
        nonlocal compared
        compared += 1
        return says_the_same(first, second)

    monkeypatch.setattr(duplicates, "says_the_same", counted)
    merges = find_duplicates(
        scope,
        {memory.row_id: f"The contact {memory.id} belongs to the user" for memory in scope},
        {memory.row_id: vector for memory in scope},
        similarity=0.95,
    )
    assert merges == []
    pairs = len(scope) * (len(scope) - 1) // 2
    assert compared < pairs * 0.03


def outline(row: int, name: str) -> MemoryOutline:
    return MemoryOutline(
        row_id=row, id=name, tier="workspace", lifetime="short_term", kind="fact", source="agent", importance=0.5,
        access_count=0,
        created_at=row, accessed_at=NOW, expires_at=None, owner_user_id=None, channel=None, session_row=None,
        is_note=False, is_fact=False, subject=None, pinned=False,
    )  # fmt: skip
