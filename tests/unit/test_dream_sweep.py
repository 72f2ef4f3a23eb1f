"""Dream sweeps: what is promoted, what never is, and that nothing happens twice, whatever dies when."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from adapters.workspace_git import GitFolders, GitRepository
from memory.jobs import RunOptions
from memory.secrets import looks_secret
from memory.upkeep import dream_sweep as sweeping
from memory.upkeep.dream_sweep import dream_sweep, memory_id_of
from memory.upkeep.dreaming import DreamRules
from memory.upkeep.notebook import Notebooks
from reverie.clock import DAY_MICROS, new_id, now_micros
from reverie.contract import DREAM_SWEEP
from reverie.errors import StoreUnavailable
from storage.curation import CurationLog
from storage.memories.memories import Memories
from storage.memories.records import NewMemory
from storage.recall.claims import Claim, claims_of
from storage.recall.events import NewRecall
from storage.stores import Stores
from storage.upkeep.dreams import Dreams
from support.dreams import QUESTIONS, Dreamer
from support.extracting import Extracting, tell
from support.forks import FORKS, import_beforehand
from support.pipeline import WORKSPACE
from support.work import count_calls, counted_sql

pytestmark = pytest.mark.slow

LISBON = "I moved to Lisbon in May and work on sqlite-vec"


@pytest.fixture
def dreamer(tmp_path: Path) -> Iterator[Dreamer]:
    """A workspace with a past, and real repositories."""
    made = Dreamer(tmp_path)
    yield made
    made.close()


def promoted(dreamer: Dreamer, *, agent: str = "ana") -> list[str]:
    return [promotion.memory_id for promotion in dreamer.ledger(agent=agent)]


# --- what is promoted ---


def test_a_memory_that_is_recalled_often_is_kept_for_long(dreamer: Dreamer) -> None:
    """Given a short-term memory recalled by five questions on five days, then a sweep promotes it in every respect."""
    memory = dreamer.remember(LISBON, kind="fact")
    dreamer.make_hot(LISBON)

    counts = dreamer.dream()

    after = dreamer.memory(memory.id)
    (row,) = dreamer.ledger()
    assert counts["promoted"] == 1
    assert after.lifetime == "long_term"
    assert after.concept_tags == ("sqlite-vec", "lisbon", "moved", "work")
    assert (row.memory_id, row.promoted_at, row.phase) == (memory.id, dreamer.today, "kept")
    # ln 6 / ln 7, .8, 2 ** (-1 / 90), 1, 1
    assert row.score == pytest.approx(0.24 * 0.920782 + 0.30 * 0.8 + 0.15 * 0.992328 + 0.15 + 0.16, abs=1e-5)
    (entry,) = dreamer.curations()
    assert (entry.job, entry.action, entry.memories) == (DREAM_SWEEP, "promote", (memory.id,))
    assert "recalled 5 times by 5 queries" in entry.why


@pytest.mark.parametrize(
    ("said", "later"),
    [
        ("My dentist is Dr. Kaur.", "My new dentist is Dr. Hollis."),
        ("My sister Clara lives in Oslo.", "My sister Clara moved to Bergen."),
        ("I drive a Skoda.", "I sold my Skoda."),
        ("My phone number is 0117 496 0123.", "No, I meant 0117 496 0132."),
        ("My mother's birthday is on 3 November.", "Sorry, I mean 5 November."),
    ],
)
def test_a_message_that_was_corrected_or_replaced_since_becomes_no_memory(
    dreamer: Dreamer, said: str, later: str
) -> None:
    """Given a message recalled often, when its user said something else since, then none is made of it."""
    tell(dreamer, said, later, user="kate")
    Extracting(dreamer).sweep()
    dreamer.settle()
    dreamer.make_hot(said)
    dreamer.dream()
    assert not any(one.source == "dream" for one in dreamer.all_memories())


def test_what_was_said_twice_and_then_replaced_becomes_no_memory(dreamer: Dreamer) -> None:
    """Given a dentist said twice, so that one message has no memory, when there is a new one, then it gets none.

    The dentist of another user changes nothing.
    """
    said = "My dentist is Dr. Kaur."
    for user, session in (("kate", "first"), ("kate", "second"), ("luis", "third")):
        tell(dreamer, said if session == "first" else f"{said} She is good.", user=user, session=session)
    with dreamer.store.writing() as tx:
        new = NewMemory(
            id="new", content="User's dentist's name is Dr. Hollis.", kind="fact", created_at=dreamer.now(),
            owner_user_id="kate",
        )  # fmt: skip
        tx.for_agent("ana").memories.add(new, now=dreamer.now())
    dreamer.settle()
    with dreamer.store.reading() as tx:
        chunks = tx.connection.execute(text("SELECT id FROM chunks WHERE memory_row IS NULL")).scalars().all()
    for number, query in enumerate(QUESTIONS):
        dreamer.recalled(*chunks, query=query, days_ago=1.0 + number)

    assert dreamer.dream()["left_out_outdated"] == 2
    assert [one.owner_user_id for one in dreamer.all_memories() if one.source == "dream"] == ["luis"]


def test_what_memories_claim_is_read_once_for_all_messages_and_not_while_others_wait_to_write(
    dreamer: Dreamer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given messages that may be outdated, then a sweep reads each newer memory once, before it begins to write."""
    said = [f"My {thing} is in room {number}." for number, thing in enumerate(("desk", "printer", "kettle"))]
    tell(dreamer, *said, user="kate")
    told = [f"The fern of shelf {number} is green." for number in range(20)]
    with dreamer.store.writing() as tx:
        for content in told:
            new = NewMemory(id=content, content=content, created_at=dreamer.now(), owner_user_id="kate")
            tx.for_agent("ana").memories.add(new, now=dreamer.now())
    dreamer.settle()
    for content in said:
        dreamer.make_hot(content)
    read: list[str] = []

    def noted(text: str) -> tuple[Claim, ...]:
        read.append(text)
        return claims_of(text)

    monkeypatch.setattr("memory.upkeep.dream_sweep.claims_of", noted)

    assert dreamer.dream()["made_of_messages"] == len(said)
    assert sorted(text for text in read if text in told) == sorted(told)


def test_only_the_recalls_of_the_lookback_count(dreamer: Dreamer) -> None:
    """Given recalls before the lookback, and some dated after the sweep, then neither makes anything lasting."""
    dreamer.remember(LISBON)
    chunk = dreamer.chunk_of(LISBON)
    for number, query in enumerate(QUESTIONS):
        dreamer.recalled(chunk, query=query, days_ago=30.1 + number)
        dreamer.recalled(chunk, query=query, days_ago=-0.1 - number)
    assert dreamer.dream(lookback_days=30.0)["promoted"] == 0
    assert dreamer.dream(lookback_days=36.0)["promoted"] == 1


def test_a_message_that_is_recalled_often_becomes_a_memory(dreamer: Dreamer) -> None:
    """Given a user's turn recalled often, then it becomes a long-term memory that knows where it came from."""
    dreamer.say({"content": LISBON, "id": "m1", "name": "Ana", "tags": ["home"], "importance": 0.6}, user="u1")
    dreamer.settle()
    dreamer.make_hot(LISBON)

    counts = dreamer.dream()
    dreamer.settle()

    (made,) = dreamer.all_memories()
    assert counts["made_of_messages"] == 1
    assert made.id == memory_id_of("ana", "s", "m1") == promoted(dreamer)[0]
    assert (made.source, made.source_message, made.session) == ("dream", "m1", "s")
    assert (made.tier, made.lifetime, made.kind) == ("workspace", "long_term", "event")
    assert made.content == f"Ana: {LISBON}"
    assert (made.importance, made.tags, made.owner_user_id) == (0.6, ("home",), "u1")
    assert made.access_count == 5
    assert made.accessed_at == dreamer.today - DAY_MICROS
    assert dreamer.count("chunks", "memory_row IS NOT NULL") == 1


def test_of_a_long_message_the_part_that_was_found_is_kept(dreamer: Dreamer) -> None:
    """Given a message of several chunks, then the memory says what the one that was found most often says."""
    long = " ".join(f"Paragraph {n} tells of something else entirely, at some length and to no end." for n in range(40))
    dreamer.say(f"{long} The key to the shed hangs behind the blue door.")
    dreamer.settle()
    dreamer.make_hot("behind the blue door")

    dreamer.dream()

    (made,) = dreamer.all_memories()
    assert "behind the blue door" in made.content
    assert len(made.content) <= 640


def test_recalls_of_a_message_count_for_the_one_memory_that_was_made_of_it(dreamer: Dreamer) -> None:
    """Given a memory extracted from a message, when the message is recalled often, then that memory is promoted."""
    dreamer.say({"content": LISBON, "id": "m1"})
    dreamer.settle()
    memory = dreamer.remember("Lives in Lisbon", source="extraction", source_message="m1", session="s")
    dreamer.make_hot(LISBON)

    dreamer.dream()

    assert promoted(dreamer) == [memory.id]
    assert len(dreamer.all_memories()) == 1


def test_a_message_of_which_several_memories_were_made_is_left_alone(dreamer: Dreamer) -> None:
    """Given two memories from one message, then its recalls say of neither that it is worth keeping."""
    dreamer.say({"content": LISBON, "id": "m1"})
    dreamer.settle()
    for content in ("Lives in Lisbon", "Works on sqlite-vec"):
        dreamer.remember(content, source="extraction", source_message="m1", session="s")
    dreamer.make_hot(LISBON)

    assert dreamer.dream()["candidates"] == 0


def test_one_recall_that_finds_a_message_and_its_memory_is_one_hit(dreamer: Dreamer) -> None:
    """Given two recalls that each found both, then there are two hits, and the gate of three is not met."""
    dreamer.say({"content": LISBON, "id": "m1"})
    dreamer.settle()
    dreamer.remember("Lives in the capital", source="extraction", source_message="m1", session="s")
    chunks = dreamer.chunk_of(LISBON), dreamer.chunk_of("Lives in the capital")
    for number in range(2):
        dreamer.recalled(*chunks, query=f"question {number}", days_ago=number + 1)

    assert dreamer.dream()["candidates"] == 0

    dreamer.recalled(*chunks, query="another", days_ago=3)
    assert dreamer.dream()["promoted"] == 1


def test_what_misses_a_gate_is_not_promoted(dreamer: Dreamer) -> None:
    """Given too few hits, one query in many spellings, too low a score, or recalls too long ago, then none is."""
    for content, queries, score, days in (
        ("rarely recalled", ("a", "b"), 1.0, 1.0),
        ("always the same question", ("Where?", "where", "WHERE!", " where "), 1.0, 1.0),
        ("poor match", ("a", "b", "b"), 0.0, 29.0),
        ("long ago", QUESTIONS, 1.0, 31.0),
    ):
        dreamer.remember(content)
        chunk = dreamer.chunk_of(content)
        for query in queries:
            dreamer.recalled(chunk, query=query, score=score, days_ago=days)

    counts = dreamer.dream(min_score=0.4)

    assert counts["candidates"] == 0
    assert dreamer.ledger() == []


def test_at_most_so_many_are_promoted_the_best_first_and_the_rest_another_time(dreamer: Dreamer) -> None:
    """Given five candidates and room for two, then three sweeps promote two, two and one, best first."""
    ids = []
    for number in range(5):
        ids.append(dreamer.remember(f"memory number{number}").id)
        dreamer.make_hot(f"number{number}", score=0.5 + number / 10)

    assert [a_sweep_an_hour_later(dreamer, most_promotions=2) for _ in range(4)] == [2, 2, 1, 0]

    by_score = sorted(dreamer.ledger(), key=lambda row: -row.score)
    assert [row.memory_id for row in by_score] == ids[::-1]


def test_a_sweep_that_is_run_again_takes_no_more_than_one(dreamer: Dreamer) -> None:
    """Given a sweep that promoted as many as it may, when it runs again at the same moment, then nothing more is."""
    for number in range(5):
        dreamer.remember(f"memory number{number}")
        dreamer.make_hot(f"number{number}")

    assert [dreamer.dream(most_promotions=2)["promoted"] for _ in range(2)] == [2, 0]


def a_sweep_an_hour_later(dreamer: Dreamer, **rules: int) -> int:
    dreamer.today += 3_600_000_000
    return int(dreamer.dream(**rules)["promoted"])


def test_a_dry_run_counts_and_changes_nothing(dreamer: Dreamer) -> None:
    """Given a candidate, when the sweep only says what it would do, then the store and the files are as before."""
    dreamer.remember(LISBON)
    dreamer.make_hot(LISBON)
    before = rows_of(dreamer)

    counts = dreamer.dream(dry_run=True)

    assert counts["promoted"] == 1
    (planned,) = counts["planned"]
    assert (planned["agent"], planned["action"]) == ("ana", "promote")
    assert planned["text"].startswith("score ")
    assert rows_of(dreamer) == before
    assert dreamer.curations() == []
    assert dreamer.commits() == []


def test_each_agent_dreams_of_its_own(dreamer: Dreamer) -> None:
    """Given one agent's recalls, then another's memories, ledger and files know nothing of them."""
    dreamer.remember(LISBON)
    other = dreamer.remember("Kate collects stamps", agent="kate")
    dreamer.make_hot(LISBON)

    dreamer.dream()

    assert len(dreamer.ledger()) == 1
    assert dreamer.ledger(agent="kate") == []
    assert dreamer.memory(other.id, agent="kate").lifetime == "short_term"
    assert dreamer.files(agent="kate") == {}


# --- what never is ---


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"content": "/remind me to water the plants"}, "left_out_command"),
        ({"content": "How are your plants? And who waters them?", "role": "assistant"}, "left_out_question"),
        ({"content": "the api password: Zk8-fh2-QwLm9x"}, "left_out_secret"),
        ({"content": "plants are watered twice a week", "role": "tool", "tool_call_id": "c"}, "left_out_tool_output"),
        ({"content": "you are a gardener and water plants", "role": "system"}, "left_out_tool_output"),
    ],
)
def test_some_messages_never_become_memories(dreamer: Dreamer, message: dict[str, Any], why: str) -> None:
    """Given a message of that sort that everything recalls, then it is left out and counted."""
    dreamer.say({"id": "m1", **message})
    dreamer.settle()
    dreamer.make_hot(str(message["content"])[:12])

    counts = dreamer.dream()

    assert counts.get(why) == 1
    assert dreamer.all_memories() == []
    assert dreamer.ledger() == []


def test_secrets_and_what_came_from_tools_are_not_promoted_as_memories_either(dreamer: Dreamer) -> None:
    """Given such memories, by their text, their source or their source message, then none is promoted."""
    dreamer.say({"content": "watered twice", "id": "m1", "role": "tool", "tool_call_id": "c"})
    dreamer.settle()
    for number, (content, more) in enumerate(
        [
            ("entry0 the api password: Zk8-fh2-QwLm9x", {}),
            ("entry1 from a tool", {"source": "tool"}),
            ("entry2 from a tool's message", {"source_message": "m1", "session": "s"}),
            ("entry3 for this conversation", {"tier": "conversation", "session": "s"}),
            ("entry4 is over", {"expires_at": dreamer.today - 1}),
        ]
    ):
        dreamer.remember(content, **more)
        dreamer.make_hot(f"entry{number} ")

    counts = dreamer.dream()

    assert counts["promoted"] == 0
    assert (counts["left_out_secret"], counts["left_out_tool_output"], counts["left_out_passing"]) == (1, 2, 2)


def test_files_are_never_promoted(dreamer: Dreamer) -> None:
    """Given a document that everything finds, then it stays a document."""
    dreamer.hand_in("file:///garden.md", "Roses are pruned in March.")
    dreamer.settle()
    dreamer.make_hot("Roses are pruned")

    assert dreamer.dream()["candidates"] == 0


def test_what_is_left_out_takes_nobodys_place(dreamer: Dreamer) -> None:
    """Given many secrets that score best and room for one, then the good memory below them is promoted."""
    for number in range(4):
        dreamer.remember(f"secret{number} the api password: Zk8-fh2-QwLm{number}x")
        dreamer.make_hot(f"secret{number} ", score=1.0)
    good = dreamer.remember(LISBON)
    dreamer.make_hot(LISBON, score=0.5)

    dreamer.dream(most_promotions=1)

    assert promoted(dreamer) == [good.id]


# --- never twice ---


def test_a_second_sweep_changes_nothing_at_all(dreamer: Dreamer) -> None:
    """Given a sweep, when it runs again at the same moment, then every row and every commit is as it was."""
    dreamer.remember(LISBON)
    dreamer.say({"content": "The shed key hangs behind the door", "id": "m1"})
    dreamer.settle()
    dreamer.make_hot(LISBON)
    dreamer.make_hot("The shed key")
    dreamer.dream()
    dreamer.settle()
    before, commits = rows_of(dreamer), dreamer.commits()

    counts = dreamer.dream()

    assert counts["promoted"] == 0
    assert rows_of(dreamer) == before
    assert dreamer.commits() == commits == ["Dream sweep: 2 promoted"]


def test_what_was_undone_is_not_promoted_again(dreamer: Dreamer) -> None:
    """Given two promotions that a person undid, then they are undone wholly, the files too, and stay so."""
    memory = dreamer.remember(LISBON)
    dreamer.say({"content": "The shed key hangs behind the door", "id": "m1"})
    dreamer.settle()
    dreamer.make_hot(LISBON)
    dreamer.make_hot("The shed key")
    before = rows_of(dreamer)
    dreamer.dream()
    dreamer.settle()

    for entry in dreamer.curations():
        dreamer.undo(entry)

    assert rows_of(dreamer) == before
    assert dreamer.dream()["promoted"] == 0
    assert dreamer.ledger() == []
    assert dreamer.memory(memory.id).lifetime == "short_term"
    assert "MEMORY.md" not in dreamer.files()


def test_a_memory_that_is_forgotten_is_not_made_again_of_its_message(dreamer: Dreamer) -> None:
    """Given a memory that a dream made, when it is forgotten and its message still recalled, then it stays so."""
    dreamer.say({"content": LISBON, "id": "m1"})
    dreamer.settle()
    dreamer.make_hot(LISBON)
    dreamer.dream()
    with dreamer.store.writing() as tx:
        rows = tx.for_agent("ana")
        rows.memories.delete([rows.memories.get(memory_id_of("ana", "s", "m1")).row_id])

    counts = dreamer.dream()

    assert counts["promoted"] == 0
    assert dreamer.all_memories() == []
    assert LISBON not in "".join(dreamer.files().values())


def test_a_memory_that_was_rewritten_meanwhile_is_looked_at_again(
    dreamer: Dreamer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a memory that becomes a secret between the choice and the promotion, then it is not promoted."""
    memory = dreamer.remember(LISBON)
    dreamer.make_hot(LISBON)
    choose = sweeping._choose

    def then_rewrite(*args: Any) -> Any:
        chosen = choose(*args)
        with dreamer.store.writing() as tx:
            tx.for_agent("ana").memories.rewrite(memory.row_id, "the api password: Zk8-fh2-QwLm9x", now=dreamer.today)
        return chosen

    monkeypatch.setattr(sweeping, "_choose", then_rewrite)

    assert dreamer.dream()["promoted"] == 0
    assert dreamer.ledger() == []


def test_two_sweeps_at_once_promote_once(dreamer: Dreamer) -> None:
    """Given ten candidates and two sweeps in two threads, then each is promoted once, with one entry in the log."""
    for number in range(10):
        dreamer.remember(f"memory number{number}")
        dreamer.make_hot(f"number{number}")
    results: list[dict[str, Any]] = []
    gate = threading.Barrier(2)

    def sweep() -> None:
        gate.wait(60)
        results.append(dream_sweep(dreamer.stores, dreamer.notebooks, rules=DreamRules(), now=dreamer.today))

    threads = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sum(result.get("promoted", 0) for result in results) == 10
    assert len(dreamer.ledger()) == 10
    assert dreamer.count("curation_log") == 10
    assert len(dreamer.commits()) == 1


def test_a_copy_that_lost_its_lease_promotes_nothing(dreamer: Dreamer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a sweep that was so slow that another took over, then it writes nothing more."""
    dreamer.remember(LISBON)
    dreamer.make_hot(LISBON)
    choose = sweeping._choose

    def lose_the_lease(*args: Any) -> Any:
        chosen = choose(*args)
        with dreamer.store.writing() as tx:
            assert tx.leases.acquire(DREAM_SWEEP, now=now_micros(), seconds=120.0) is not None
        return chosen

    monkeypatch.setattr(sweeping, "_choose", lose_the_lease)

    assert dreamer.dream()["held_elsewhere"] == 1
    assert dreamer.ledger() == []


# --- killed ---


class Killed(BaseException):
    """What a SIGKILL does to a sweep: nothing after it runs."""


_STEPS: tuple[tuple[Any, str], ...] = (
    (Dreams, "events"),
    (Dreams, "sources"),
    (sweeping, "_choose"),
    (sweeping, "_promote"),
    (CurationLog, "entry"),
    (Memories, "add"),
    (Memories, "change"),
    (Dreams, "promote"),
    (sweeping, "_refresh_files"),
    (sweeping, "refresh"),
    (GitRepository, "commit"),
)


End = tuple[Any, dict[str, str], list[str]]


@contextmanager
def about_to_dream(folder: Path) -> Iterator[Dreamer]:
    """A workspace on a fixed clock with a memory and a message that a sweep promotes."""
    dreamer = Dreamer(folder)
    dreamer.began, dreamer.today = 1_900_000_000_000_000, 1_900_000_000_000_000 + 40 * DAY_MICROS
    dreamer.remember(LISBON, id="k1", kind="fact", category="home", key="city", value="Lisbon")
    dreamer.say({"content": "The shed key hangs behind the door", "id": "m1"})
    dreamer.settle()
    dreamer.make_hot(LISBON)
    dreamer.make_hot("The shed key")
    yield dreamer
    dreamer.close()


def end_of(dreamer: Dreamer) -> End:
    """Sweep; return the rows, files and commits after it."""
    dreamer.dream()
    return curated_of(dreamer), dreamer.files(), dreamer.commits()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> End:
    """What a sweep leaves that nothing kills."""
    with about_to_dream(tmp_path_factory.mktemp("undisturbed")) as dreamer:
        return end_of(dreamer)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "name"), _STEPS, ids=[name for _, name in _STEPS])
def test_a_sweep_killed_at_any_step_and_run_again_ends_as_if_it_had_not_been(
    undisturbed: End, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    """Given a sweep that dies before or after a step, when it runs again, then rows and files are as without it."""
    with about_to_dream(tmp_path) as dreamer:
        with monkeypatch.context() as patch:
            original = getattr(owner, name)

            def die(*args: Any, **kwargs: Any) -> Any:
                if after:
                    original(*args, **kwargs)
                raise Killed

            patch.setattr(owner, name, die)
            with pytest.raises(Killed):
                dreamer.dream()
        assert end_of(dreamer) == undisturbed

    assert undisturbed[2] == ["Dream sweep: 2 promoted"]
    assert set(undisturbed[1]) == {"MEMORY.md", "DREAMS.md", "facts.md"}


def _die_in(step: int, data: str, today: int) -> None:
    """Sweep, and die by SIGKILL: within the transaction, after its commit, or before the files are committed."""
    owner, name = ((Dreams, "promote"), (sweeping, "_refresh_files"), (GitRepository, "commit"))[step]

    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, die)
    dream_sweep(Stores(Path(data)), Notebooks(GitFolders(Path(data), looks_secret)), rules=DreamRules(), now=today)


@pytest.mark.parametrize("step", range(3), ids=["in the transaction", "after its commit", "before the files"])
def test_a_process_that_sweeps_may_be_killed_and_the_next_one_does_what_is_left(dreamer: Dreamer, step: int) -> None:
    """Given a process killed in a sweep, when another sweeps, then all is there, once."""
    memory = dreamer.remember(LISBON)
    dreamer.make_hot(LISBON)
    import_beforehand()
    process = FORKS.Process(
        target=_die_in, args=(step, str(dreamer.stores.database_path(WORKSPACE).parents[2]), dreamer.today)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(dreamer.ledger()) == (0 if step == 0 else 1)

    dreamer.dream()

    assert promoted(dreamer) == [memory.id]
    assert dreamer.count("curation_log") == 1
    assert dreamer.commits() == ["Dream sweep: 1 promoted"]
    assert "sqlite-vec" in dreamer.files()["MEMORY.md"]


def test_a_repository_that_cannot_be_used_is_an_error_and_the_next_sweep_makes_it_good(
    dreamer: Dreamer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a disk that fails for one agent's files, then another's are committed, it is told, and made good later."""
    for agent in ("ana", "kate"):
        dreamer.remember(LISBON, agent=agent)
        dreamer.make_hot(LISBON, agent=agent)
    commit = GitRepository.commit

    def full(self: GitRepository, *args: Any) -> Any:
        if self.folder.name == "ana":
            raise StoreUnavailable("the disk is full")
        return commit(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(GitRepository, "commit", full)
        counts = dreamer.dream()

    assert counts["errors"] == 1
    assert dreamer.commits(agent="kate") == ["Dream sweep: 1 promoted"]
    assert len(dreamer.ledger()) == 1
    assert dreamer.dream()["commits"] == 1
    assert dreamer.commits() == ["Dream sweep: 1 promoted"]


# --- limits ---


def fill(dreamer: Dreamer, *, memories: int, recalls: int) -> None:
    """Memories of which each recall finds five, each of them by several queries on several days."""
    with dreamer.store.writing() as tx:
        for number in range(memories):
            tx.connection.execute(
                text(
                    "INSERT INTO memories (id, agent_id, tier, lifetime, kind, source, content, importance, created_at,"
                    " updated_at, accessed_at, stored_at, chunked_at) VALUES (:id, 'ana', 'workspace', 'short_term',"
                    " 'event', 'agent', :content, 0.5, 1, 1, 1, 1, 1)"
                ),
                {"id": f"k{number}", "content": f"memory {number} of the garden"},
            )
        tx.connection.execute(
            text(
                "INSERT INTO chunks (agent_id, memory_row, text, content_hash, sequence_start, sequence_end,"
                " created_at, stored_at)"
                " SELECT 'ana', row_id, content, unhex(printf('%08x', row_id)), 0, 0, 1, 1 FROM memories"
            )
        )
        chunks = [int(row) for row in tx.connection.execute(text("SELECT id FROM chunks ORDER BY id")).scalars()]
        made = [
            NewRecall(
                "ana", new_id(), f"question {n % 37}", dreamer.today - (n % 25) * DAY_MICROS - n,
                tuple((chunk, 0.5) for chunk in chunks[(n * 5) % memories : (n * 5) % memories + 5]),
            )
            for n in range(recalls)
        ]  # fmt: skip
        assert tx.recalls.record(made) == 5 * recalls


@pytest.mark.sqlite("counts the steps of its statements")
def test_the_work_of_a_sweep_grows_with_the_events_and_no_faster(tmp_path: Path) -> None:
    """Given 5,000 events of 250 memories and 10,000 of 500, then the second sweep does twice the work, or less: it
    reads the events in pages, each of which costs what it contains."""
    calls, statements, steps = [], [], []
    for memories in (250, 500):
        dreamer = Dreamer(tmp_path / str(memories))
        fill(dreamer, memories=memories, recalls=4 * memories)
        counts: dict[str, Any] = {}
        with counted_sql(dreamer.store.database.engine) as work:
            calls.append(count_calls(lambda dreamer=dreamer, counts=counts: counts.update(dreamer.dream())))
        statements.append(work.statements)
        steps.append(work.hundreds_of_steps)
        dreamer.close()
        assert counts["candidates"] == memories
        assert counts["promoted"] == 20
    for few, many in (calls, statements, steps):
        assert many < 2.2 * few
    # The candidates are read in batches, and 20 of them promoted: far from a statement for each.
    assert max(statements) < 500


def test_whom_the_time_does_not_reach_comes_another_time(dreamer: Dreamer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given time for one agent a sweep, then who is left is counted, and sooner or later each has had its turn."""
    for agent in ("ana", "bob"):
        dreamer.remember(LISBON, agent=agent)
        dreamer.make_hot(LISBON, agent=agent)

    for _ in range(64):
        dreamer.today += 1_000_000
        with monkeypatch.context() as patched:
            patched.setattr("memory.jobs.JobRun.time_is_up", up_after_one_look())
            assert dreamer.dream()["agents_not_reached"] == 1
        if all(dreamer.ledger(agent=agent) for agent in ("ana", "bob")):
            break

    assert [len(dreamer.ledger(agent=agent)) for agent in ("ana", "bob")] == [1, 1]
    assert dreamer.dream()["commits"] == 2


def test_without_time_for_any_store_nothing_is_promoted(dreamer: Dreamer) -> None:
    """Given no time, then nothing is promoted, and what was not reached is counted."""
    dreamer.remember(LISBON)
    dreamer.make_hot(LISBON)

    counts = dream_sweep(
        dreamer.stores, dreamer.notebooks, rules=DreamRules(), now=dreamer.today, options=RunOptions(budget_seconds=0.0)
    )

    assert counts["not_reached"] >= 1
    assert dreamer.ledger() == []


def test_without_workspace_git_sweeps_promote_and_write_no_files(tmp_path: Path) -> None:
    """Given git switched off, then a sweep promotes all the same, and there is no folder of repositories."""
    dreamer = Dreamer(tmp_path)
    dreamer.remember(LISBON)
    dreamer.make_hot(LISBON)

    counts = dream_sweep(dreamer.stores, Notebooks(None), rules=DreamRules(), now=dreamer.today)

    assert counts["promoted"] == 1
    assert not (tmp_path / "workspaces" / WORKSPACE / "git").exists()
    dreamer.close()


def up_after_one_look() -> property:
    """The time of a run that is up once it was looked at."""
    looks = iter([False])
    return property(lambda _run: next(looks, True))


_TABLES = ("memories", "memory_promotions", "chunks", "chunk_tags", "recall_events")


def rows_of(dreamer: Dreamer) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the tables that a sweep may change."""
    with dreamer.store.reading() as tx:
        return {
            table: sorted((tuple(row) for row in tx.connection.execute(text(f"SELECT * FROM {table}"))), key=repr)
            for table in _TABLES
        }


def curated_of(dreamer: Dreamer) -> list[tuple[Any, ...]]:
    """What sweeps write, without what the machine's own clock and counters write."""
    with dreamer.store.reading() as tx:
        memories = tx.connection.execute(
            text("SELECT id, lifetime, concept_tags, content, access_count, accessed_at FROM memories")
        )
        ledger = tx.connection.execute(text("SELECT memory_id, promoted_at, phase, score FROM memory_promotions"))
        entries = tx.connection.execute(text("SELECT job, action, why, at FROM curation_log"))
        return sorted((tuple(row) for rows in (memories, ledger, entries) for row in rows), key=repr)
