"""Extraction as a job: when a session is read, what becomes of what is found, and what two runs or a crash leave."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import text

from adapters.language_models import LanguageModelRefused, LanguageModelUnavailable
from memory.doubts import later_changes
from memory.idle_stores import IdleStores
from memory.jobs import JobRun
from memory.lifecycle.curation import undo_entry
from memory.memories.agent_memories import forget_in_account
from memory.memories.extraction import SessionReader
from memory.memories.extraction_windows import Window
from memory.memories.patterns.corrections import corrected, with_own_corrections
from memory.pipeline.dead_letters import replay
from reverie import contract
from reverie.clock import now_micros
from reverie.errors import StoreUnavailable
from storage.memories.extraction import ExtractionProgress
from storage.memories.records import MemoryFilter, NewMemory, is_standing
from storage.stores import Store
from storage.transaction import Transaction
from support.extracting import Extracting, answer, memory, tell
from support.pipeline import WORKSPACE, Pipeline
from support.scripted import ScriptedLanguageModel

NAME = "Hello there! My name is Ana Torres."
LIVES = "I live in Lisbon, close to the river."


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace with everything that moves messages through it."""
    made = Pipeline(tmp_path)
    yield made
    made.close()


def remember(pipeline: Pipeline, **fields: Any) -> None:
    with pipeline.store.writing() as tx:
        tx.for_agent("ana").memories.add(NewMemory(**{"created_at": 1, **fields}), now=pipeline.now())


def rows(pipeline: Pipeline, *tables: str) -> list[Any]:
    with pipeline.store.reading() as tx:
        return [sorted(tx.connection.execute(text(f"SELECT * FROM {table}")).all(), key=repr) for table in tables]


# --- groups ---


def test_what_a_member_says_in_a_group_replaces_what_that_member_said_alone(pipeline: Pipeline) -> None:
    """Given a home, a diet and a car told alone, when a named member of a group says that they changed, then they have.

    What another member says of the same things changes nothing of it.
    """
    extracting = Extracting(pipeline)
    for user in ("mara", "luis"):
        tell(pipeline, "I live in Bristol.", "I'm a vegetarian.", "I drive a Fiat.", session=user, user=user)
    extracting.sweep()
    tell(pipeline, {"content": "Hi!", "name": "Luis"}, session="group", user="luis")
    moved = ("I moved to Leeds.", "I'm not a vegetarian any more.", "I sold my Fiat.")
    tell(pipeline, *({"content": one, "name": "Mara"} for one in moved), session="group", user="mara")
    extracting.sweep()

    with pipeline.store.reading() as tx:
        known = tx.for_agent("ana")
        current = [*known.memories.iterate(MemoryFilter())]
        doubtful = later_changes(known, current)
    told = {user: {one.content for one in current if one.owner_user_id == user} for user in ("mara", "luis")}
    assert told["mara"] == {
        "User moved to Leeds.", "User is not a vegetarian any more.", "User drives a Fiat.", "User sold their Fiat.",
    }  # fmt: skip
    assert told["luis"] == {"User lives in Bristol.", "User is a vegetarian.", "User drives a Fiat."}
    assert [(one.content, one.owner_user_id) for one in current if one.id in doubtful] == [
        ("User drives a Fiat.", "mara")
    ]


# --- when ---


def test_a_session_is_read_once_it_has_been_silent(pipeline: Pipeline) -> None:
    """Given a message just stored, then nothing; half a minute later its memory, which notifies the pipeline."""
    extracting = Extracting(pipeline)
    tell(pipeline, NAME, silent_seconds=0)
    assert not extracting.sweep()["added"]
    pipeline.advance(31)
    assert extracting.sweep()["added"] == 1
    assert extracting.contents() == ["User's name is Ana Torres."]
    assert extracting.notified == ["ws"]


def test_a_session_that_never_falls_silent_is_read_after_ten_times_that(pipeline: Pipeline) -> None:
    """Given a message every 20 seconds, then it is deferred, and not for ever."""
    extracting = Extracting(pipeline)
    tell(pipeline, NAME, silent_seconds=20)
    for turn in range(13):
        tell(pipeline, f"and then came number {turn}", silent_seconds=20)
        assert not extracting.sweep()["added"]
    tell(pipeline, "and then came another", silent_seconds=25)
    assert extracting.sweep()["added"] == 1


def test_the_end_of_a_session_does_not_wait(pipeline: Pipeline) -> None:
    """Given a message just stored, when its session is closed, then it is read at once, and not again by the sweep."""
    extracting = Extracting(pipeline)
    tell(pipeline, NAME, silent_seconds=0)
    assert extracting.close()["added"] == 1
    pipeline.advance(60)
    assert not extracting.sweep()
    assert not extracting.close()
    assert not extracting.close("nobody's")


def test_only_users_messages_of_some_length_are_read(pipeline: Pipeline) -> None:
    """Given what the assistant, a tool and a system prompt say, and a short one, then no memory and no model asked."""
    model = ScriptedLanguageModel([answer()])
    extracting = Extracting(pipeline, model)
    others = [{"role": role, "content": NAME} for role in ("assistant", "system", "tool")]
    tell(pipeline, *others, "I'm Ana.")
    counts = extracting.sweep()
    assert (counts["messages"], counts["added"], model.prompts) == (4, 0, [])


@pytest.mark.parametrize("model", [None, ScriptedLanguageModel([answer()])])
def test_a_short_message_teaches_what_it_says(pipeline: Pipeline, model: ScriptedLanguageModel | None) -> None:
    """Given a few plain words, then patterns read them, with a model as without, and no model is asked about them."""
    extracting = Extracting(pipeline, model)
    tell(pipeline, "I'm vegan.")
    assert extracting.sweep()["added"] == 1
    assert extracting.contents() == ["User is vegan."]
    assert model is None or model.prompts == []


def test_a_long_session_is_read_window_by_window(pipeline: Pipeline) -> None:
    """Given a hundred messages, then all are read, each once, with those before as context."""
    model = ScriptedLanguageModel([answer()])
    extracting = Extracting(pipeline, model)
    tell(pipeline, *[f"this is sentence number {number}" for number in range(100)])
    assert extracting.sweep()["messages"] == 100
    assert [prompt.count('"new":true') for _, prompt in model.prompts] == [40, 40, 20]
    assert [prompt.count('"new":false') for _, prompt in model.prompts] == [0, 6, 6]


def test_a_long_session_is_left_between_two_windows_when_the_time_is_up(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a model and no time left, then one window is read and kept, and the next run goes on behind it."""
    extracting = Extracting(pipeline, ScriptedLanguageModel([answer()]))
    tell(pipeline, *[f"this is sentence number {number}" for number in range(100)])
    with monkeypatch.context() as patched:
        patched.setattr(JobRun, "time_is_up", property(lambda run: run.counts["model_calls"] > 0))
        assert extracting.sweep()["messages"] == 40
    assert extracting.sweep()["messages"] == 60


def test_sessions_that_hold_nothing_are_noted_in_one_commit(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given thirty sessions with nothing to extract, then other writers do not wait for thirty commits.

    One says that they are being read, and one has all their positions.
    """
    extracting = Extracting(pipeline)
    for number in range(30):
        pipeline.say("What shall we cook today, and when?", session=f"s{number}")
    tell(pipeline, "And tomorrow, what do we do then?", session="last")
    commits: list[int] = []
    writing = JobRun.writing

    def counted(run: JobRun) -> AbstractContextManager[Transaction]:
        commits.append(1)
        return writing(run)

    monkeypatch.setattr(JobRun, "writing", counted)
    monkeypatch.setattr("memory.memories.extraction._SAVE_SECONDS", 3_600.0)  # however slow the machine is
    assert extracting.sweep()["messages"] == 31
    assert len(commits) == 2
    assert extracting.sweep()["messages"] == 0


def test_a_session_that_kills_its_worker_is_set_aside_and_the_others_are_read(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a session on which each reader dies, then others are read, and it is a dead letter that can be replayed."""
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES, session="deadly")
    tell(pipeline, NAME, session="other")
    read = SessionReader.read
    readings: list[str] = []

    def dies(self: SessionReader, time_is_up: Callable[[], bool]) -> None:
        readings.append(self.session.id)
        if self.session.id == "deadly":
            raise KeyboardInterrupt
        read(self, time_is_up)

    monkeypatch.setattr(SessionReader, "read", dies)
    for _ in range(3):
        with contextlib.suppress(KeyboardInterrupt):
            extracting.sweep()
        pipeline.advance(600)
    assert readings == ["deadly", "deadly", "other", "deadly"]
    counts = extracting.sweep()
    assert (counts["set_aside"], readings.count("deadly")) == (1, 3)
    (letter,) = pipeline.dead_letters()
    assert (letter.stage, letter.session, letter.error_type) == ("extract", "deadly", "WorkerCrashed")
    assert extracting.contents() == ["User's name is Ana Torres."]

    monkeypatch.undo()
    replay(pipeline.store, pipeline.inbox, letter.id)
    assert pipeline.dead_letters() == [letter], "it stays until its session was read"
    assert extracting.sweep()["added"] == 1
    assert pipeline.dead_letters() == []


def test_a_session_whose_reader_died_is_read_where_a_run_never_reaches_all(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a session on which a reader died once, and always more sessions than a run reaches, then it is read."""
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES, session="suspect")
    read = SessionReader.read
    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(SessionReader, "read", Mock(side_effect=KeyboardInterrupt))
        extracting.sweep()
    readings: list[str] = []

    def is_last(self: SessionReader, time_is_up: Callable[[], bool]) -> None:
        readings.append(self.session.id)
        read(self, time_is_up)
        monkeypatch.setattr(JobRun, "time_is_up", property(lambda _: True))

    monkeypatch.setattr(SessionReader, "read", is_last)
    for number in range(4):
        monkeypatch.setattr(JobRun, "time_is_up", property(lambda _: False))
        tell(pipeline, NAME, session=f"new {number}", silent_seconds=200)
        extracting.sweep()
    assert readings == ["new 0", "new 1", "suspect", "new 2"]


def test_a_session_whose_store_was_locked_is_not_suspected_of_killing_its_worker(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a reader that three times could not write, when it can, then the session is read and nothing set aside."""
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES)
    with monkeypatch.context() as patched:

        def locked(*_: object) -> None:
            raise StoreUnavailable("the database is locked")

        patched.setattr(SessionReader, "read", locked)
        for _ in range(3):
            with contextlib.suppress(StoreUnavailable):
                extracting.sweep()
            pipeline.advance(600)
    assert extracting.sweep()["added"] == 1
    assert pipeline.dead_letters() == []


def test_a_long_session_saves_its_position_while_it_is_read(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a session of several windows in which nothing is found, when it takes long, then each position is saved."""
    extracting = Extracting(pipeline)
    tell(pipeline, *["It rained all day long at the harbour."] * 250)
    monkeypatch.setattr("memory.memories.extraction._SAVE_SECONDS", -1.0)
    saved: list[int] = []
    advance = ExtractionProgress.advance
    monkeypatch.setattr(
        ExtractionProgress,
        "advance",
        lambda self, session, *, to, now: saved.append(to) or advance(self, session, to=to, now=now),
    )
    extracting.sweep()
    assert saved == [100, 200, 250]


def test_a_run_shows_by_the_clock_that_it_gets_on(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a run that began long ago and goes on, when it saves a position, then with the present time."""
    extracting = Extracting(pipeline)
    tell(pipeline, *["It rained all day long at the harbour."] * 250)
    monkeypatch.setattr("memory.memories.extraction._SAVE_SECONDS", -1.0)
    moved: list[int] = []
    read = SessionReader._window

    def note(self: SessionReader, read_to: int) -> Window:
        moved.append(pipeline.stores.counts(WORKSPACE).backlogs["extract"].moved_at)
        return read(self, read_to)

    monkeypatch.setattr(SessionReader, "_window", note)
    clock = itertools.count(pipeline.now() + 1_000)
    monkeypatch.setattr("memory.memories.extraction.now_micros", lambda: next(clock))
    extracting.sweep()
    assert moved[0] < moved[1] < moved[2]


def test_progress_noted_while_the_clock_was_ahead_does_not_hide_that_nothing_moves(pipeline: Pipeline) -> None:
    """Given progress that was noted at a time that is still to come, then it does not count as the last one."""
    extracting = Extracting(pipeline)
    tell(pipeline, NAME)
    extracting.sweep()
    tell(pipeline, LIVES)
    noted = pipeline.stores.counts(WORKSPACE).backlogs["extract"].moved_at
    with pipeline.store.writing() as tx:
        insert = "INSERT INTO job_progress (job, item, position, at) VALUES (:job, 'ahead', 1, :at)"
        tx.connection.execute(text(insert), {"job": contract.EXTRACT_MEMORIES, "at": now_micros() + 3_600_000_000})
    assert pipeline.stores.counts(WORKSPACE).backlogs["extract"].moved_at == noted > 0


def test_messages_that_were_removed_before_they_were_read_are_not_waited_for(pipeline: Pipeline) -> None:
    """Given a session whose last messages retention has removed, then it is read to its end once."""
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES, NAME, NAME + " Again.")
    with pipeline.store.writing() as tx:
        tx.connection.execute(text("DELETE FROM messages WHERE sequence > 1"))
    assert extracting.sweep()["messages"] == 1
    assert not extracting.sweep_all(IdleStores())
    with pipeline.store.reading() as tx:
        assert tx.connection.execute(text("SELECT position FROM job_progress WHERE item <> 'mark'")).scalar() == 3


def test_a_quiet_workspace_is_not_opened_again(pipeline: Pipeline) -> None:
    """Given nothing new since, then a sweep looks at the files' times alone, until something is written."""
    extracting, idle_stores = Extracting(pipeline), IdleStores()
    tell(pipeline, NAME)
    assert extracting.sweep_all(idle_stores)["added"] == 1
    pipeline.advance(60)
    extracting.sweep_all(idle_stores)
    opened: list[str] = []
    real = pipeline.stores.workspace
    pipeline.stores.workspace = lambda name, **more: opened.append(name) or real(name, **more)  # type: ignore[method-assign]
    extracting.sweep_all(idle_stores)
    assert opened == []
    tell(pipeline, LIVES)
    opened.clear()
    assert extracting.sweep_all(idle_stores)["added"] == 1
    assert opened


def test_the_mark_moves_past_sessions_long_done_and_never_past_one_that_waits(pipeline: Pipeline) -> None:
    """Given one session read and one put off, hours later, then the mark stays before the second."""
    model = ScriptedLanguageModel([LanguageModelUnavailable("gone")])
    tell(pipeline, NAME, session="a")
    Extracting(pipeline).sweep()
    pipeline.advance(5 * 3_600)
    before = pipeline.now()
    tell(pipeline, LIVES, session="b")
    failing = Extracting(pipeline, model, fallback=False)
    pipeline.advance(5 * 3_600)
    assert failing.sweep()["postponed"] == 1
    with pipeline.store.reading() as tx:
        mark = tx.leases.progress(contract.EXTRACT_MEMORIES, "mark")
    assert 0 < mark < before
    pipeline.advance(7_200)
    assert Extracting(pipeline).sweep()["added"] == 1


# --- what changed ---


def doubts(pipeline: Pipeline, extracting: Extracting) -> dict[str, str]:
    """What makes memories doubtful, by their texts."""
    memories = extracting.memories()
    with pipeline.store.reading() as tx:
        changes = later_changes(tx.for_agent("ana"), memories)
    return {one.content: changes[one.id].text for one in memories if one.id in changes}


@pytest.mark.parametrize(
    ("said", "memory", "later"),
    [
        ("I've joined a choir.", "User has joined a choir.", "I gave up the choir."),
        ("I own a 1962 Norton motorcycle.", "User owns a 1962 Norton motorcycle.", "I sold the Norton."),
        ("I'm applying for an internship at Globex.", None, "got rejected from Globex"),
        ("I teach pottery at the evening school.", None, "no longer teaching pottery, sadly"),
        ("My daughter plays the oboe in a band.", None, "My daughter gave up the oboe for the trumpet."),
        ("I use a Kinesis keyboard and neovim.", None, "I switched from neovim to Zed."),
        ("My landlord is Mr Silva.", "User's landlord's name is Mr Silva.", "We moved to a flat in Porto yesterday."),
    ],
)
def test_what_is_remembered_becomes_doubtful_by_what_ends_it(
    pipeline: Pipeline, said: str, memory: str | None, later: str
) -> None:
    """Given a memory, when a sentence ends it in free words, then that is remembered, and the memory has it."""
    extracting = Extracting(pipeline)
    tell(pipeline, {"content": said, "created_at": "2026-05-01T09:00:00Z"})
    extracting.sweep()
    (known,) = extracting.contents()
    assert memory in (known, None)
    tell(pipeline, {"content": later, "created_at": "2026-06-01T09:00:00Z"})
    extracting.sweep()
    assert list(doubts(pipeline, extracting)) == [known]
    assert len(extracting.contents()) == 2


def test_what_ends_nothing_that_is_remembered_is_not(pipeline: Pipeline) -> None:
    """Given a thing of which nothing is known, or of somebody else, then no end of it is remembered."""
    extracting = Extracting(pipeline)
    tell(pipeline, "I've joined a choir.", user="bea")
    ended = ("I gave up the choir.", "I sold the Norton.", "I stopped typing too soon.", "I lost my patience.")
    tell(pipeline, *ended, "I sold the idea to my boss.", session="other", user="cat")
    extracting.sweep()
    assert extracting.contents() == ["User has joined a choir."]
    assert doubts(pipeline, extracting) == {}


@pytest.mark.parametrize(
    "correction",
    [
        "No wait, it is cherry.",
        "sorry, I meant cherry",
        "no i meant cherry",
        "jk, I have none",
        "sorry not walnut, cherry",
        "scratch that",
    ],
)
def test_nothing_is_learned_from_what_the_next_message_takes_back(pipeline: Pipeline, correction: str) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, "My favourite wood is walnut.", correction)
    extracting.sweep()
    assert "User's favourite wood is walnut." not in extracting.contents()


@pytest.mark.parametrize(
    ("said", "correction", "memory"),
    [
        ("im allergic to peanuts lol", "sorry i meant tree nuts, not peanuts", "User is allergic to tree nuts."),
        ("I'm allergic to peanuts.", "Oops, not peanuts, cashews", "User is allergic to cashews."),
        ("My dog's name is Rex.", "No wait, it's Max, not Rex", "User's dog's name is Max."),
        ("My dog's name is Rex.", "no, I meant Max", "User's dog's name is Max."),
        ("My number is 0117 496 0122.", "No, I meant 0117 496 0123.", "User's number is 0117 496 0123."),
    ],
)
def test_what_the_next_message_corrects_is_learned_with_the_new_value(
    pipeline: Pipeline, said: str, correction: str, memory: str
) -> None:
    """Given a correction that says what it replaces, then the new value alone is learned, from both messages."""
    extracting = Extracting(pipeline)
    ids = tell(pipeline, said, correction)
    extracting.sweep()
    (learned,) = extracting.memories()
    assert (learned.content, learned.source_message) == (memory, ids[1])
    assert set(learned.metadata["evidence"]) == set(ids)


@pytest.mark.parametrize(
    ("said", "correction", "expected"),
    [
        (
            "The dentist is on Thursday, 12 May.",
            "Sorry, Friday the 13th, not Thursday.",
            "The dentist is on Friday, 13 May.",
        ),
        ("I see the dentist on 22 May at 9.", "wait no, the 23rd", "I see the dentist on 23 May at 9."),
        ("Choir is at 10am on Tuesday.", "no, 11am", "Choir is at 11am on Tuesday."),
        ("I make about 6,000 a month.", "Sorry, 5,000.", "I make about 5,000 a month."),
        ("I got a 1.3 in botany", "wait no a 1.7", "I got a 1.7 in botany"),
        ("I have two kids.", "actually three", "I have three kids."),
        ("I live in Oslo.", "sorry, Dave", None),
        ("I have 2 dogs and 3 cats.", "sorry, 4", None),
        ("Choir is on Tuesday, 12 May.", "sorry, Wednesday", None),
        ("Choir is on 3 May, and the trip on 4 June.", "sorry, July", None),
        ("My favourite wood is walnut.", "Wait, it's late", None),
        ("My favourite wood is walnut.", "no, I like oak", None),
    ],
)
def test_a_corrected_time_replaces_the_time_of_the_same_form(said: str, correction: str, expected: str | None) -> None:
    assert corrected(said, correction) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("My birthday is May 3. Wait no, May 4.", "My birthday is May 4."),
        ("I live in Oslo, no wait, Bergen. I work at Acme.", "I live in Bergen. I work at Acme."),
        ("I live in Oslo, I mean Bergen.", "I live in Bergen."),
        ("My flight is at 6:40, make that 7:10.", "My flight is at 7:10."),
        ("I'm 34... no wait, 35.", "I'm 35."),
        ("I'm vegan. Scratch that.", "."),
        ("My birthday is May 3rd, no sorry, May 4th", "My birthday is May 4th"),
        ("Our database is MySQL, hmm no, MariaDB", "Our database is MariaDB"),
        ("My dog is called Rex - oops, Max", "My dog is called Max"),
        ("I'm allergic to bees, no wait, wasps.", "."),
        ("I like it, I mean who doesn't.", "I like it, I mean who doesn't."),
        ("I ran 5 km. Actually, 2 of them were uphill.", "I ran 5 km. Actually, 2 of them were uphill."),
        ("I work at Acme. No, it's not far.", "I work at Acme. No, it's not far."),
        ("Sorry, I meant the 14th, not the 12th.", "Sorry, I meant the 14th, not the 12th."),
    ],
)
def test_a_message_that_corrects_itself_is_read_with_the_new_value(message: str, expected: str) -> None:
    """Given a value and its correction in one message, then the correction holds; what has no other value goes."""
    assert with_own_corrections(message) == expected


def test_the_value_before_a_correction_in_one_message_is_not_learned(pipeline: Pipeline) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, "My birthday is May 3. Wait no, May 4.")
    extracting.sweep()
    assert extracting.contents() == ["User's birthday is May 4."]


@pytest.mark.parametrize(
    ("said", "correction", "memory"),
    [
        ("I'm allergic to peanuts.", "sorry, I meant tree nuts, not peanuts", "User is allergic to tree nuts."),
        ("I'm allergic to bees.", "no wait, wasps", None),
        ("I'm allergic to bees.", "just kidding!", None),
        ("I'm allergic to bees.", "We deploy on Fridays. Just kidding, never.", "User is allergic to bees."),
        ("I'm allergic to bees.", "sorry, I have to go now", "User is allergic to bees."),
    ],
)
def test_a_correction_in_the_next_reading_replaces_what_was_learned(
    pipeline: Pipeline, said: str, correction: str, memory: str | None
) -> None:
    """Given a message that was read already, when its sender corrects it, then the memory holds until then only."""
    extracting = Extracting(pipeline)
    tell(pipeline, said)
    extracting.sweep()
    assert len(extracting.contents()) == 1
    tell(pipeline, correction)
    extracting.sweep()
    extracting.sweep()
    told = [one for one in extracting.contents() if "took back" not in one]
    assert told == ([memory] if memory is not None else [])


def test_a_habit_that_ended_makes_its_memory_doubtful(pipeline: Pipeline) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, "I meditate every morning.")
    tell(pipeline, "I don't meditate any more.", session="later")
    extracting.sweep()
    assert doubts(pipeline, extracting) == {"User meditates every morning.": "User does not meditate any more."}


def test_a_new_car_of_somebody_else_does_not_change_the_speakers(pipeline: Pipeline) -> None:
    """Given the speaker's car, when a sister gets a new one, then nothing is doubtful; with one of theirs, it is."""
    extracting = Extracting(pipeline)
    tell(pipeline, "My car is a 2015 Volvo V60.", "My sister has a new car.")
    extracting.sweep()
    assert doubts(pipeline, extracting) == {}
    tell(pipeline, "I have a new car.")
    extracting.sweep()
    assert set(doubts(pipeline, extracting)) == {"User's car is a 2015 Volvo V60."}


def test_a_tool_that_is_used_no_more_makes_the_decision_for_it_doubtful(pipeline: Pipeline) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, "We chose Celery over RQ.", "We use trunk-based development.")
    tell(pipeline, "We don't use Celery any more, we moved to Temporal.", session="later")
    extracting.sweep()
    assert set(doubts(pipeline, extracting)) == {'User said: "We chose Celery over RQ."'}


def test_another_tool_is_not_another_home(pipeline: Pipeline) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, "I live in Ghent.", "We chose Celery over RQ.")
    tell(pipeline, "We don't use Celery any more, we moved to Temporal.", session="later")
    extracting.sweep()
    assert "User lives in Ghent." in extracting.contents()


def test_a_new_job_of_somebody_ends_the_earlier_one(pipeline: Pipeline) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, "My sister Ana works at Siemens.", "I work at Acme.")
    tell(pipeline, "My sister Ana has a new job at Bosch.", session="later")
    extracting.sweep()
    assert "User's sister Ana works at Siemens." not in extracting.contents()
    assert {"User works at Acme.", "User's sister Ana has a new job at Bosch."} <= set(extracting.contents())


@pytest.mark.parametrize(
    ("said", "later", "replaced"),
    [
        ("I'm allergic to peanuts.", "I'm not allergic to peanuts any more.", True),
        ("I'm allergic to peanuts.", "I outgrew my peanut allergy.", True),
        ("I have a walnut allergy.", "My walnut allergy is gone.", True),
        ("I'm allergic to pollen.", "I outgrew my peanut allergy.", False),
        ("I'm coeliac.", "Turns out I'm not coeliac after all.", True),
    ],
)
def test_what_is_over_is_replaced(pipeline: Pipeline, said: str, later: str, replaced: bool) -> None:
    """Given an allergy or a condition, when it is said to be over, then the memory of it no longer holds."""
    extracting = Extracting(pipeline)
    tell(pipeline, said)
    extracting.sweep()
    (known,) = extracting.contents()
    tell(pipeline, later, session="later")
    extracting.sweep()
    assert (known not in extracting.contents()) is replaced
    assert len(extracting.contents()) == 2 - replaced


@pytest.mark.parametrize(
    ("said", "later", "memory"),
    [
        ("My husband's called Olof.", "Olof had an eye operation in May.", "User's husband Olof had an eye operation"),
        ("we've got a dog called biscuit", "sadly biscuit died on monday", "User's dog Biscuit died on monday"),
        ("my sister anna is getting a cat", "anna's fiance is called Marcus", "User's sister Anna's fiance is called"),
    ],
)
def test_a_name_is_known_in_later_sessions_of_its_user_alone(
    pipeline: Pipeline, said: str, later: str, memory: str
) -> None:
    """Given a name told in one session, then another session of that user is about that person, of others it is not."""
    extracting = Extracting(pipeline)
    tell(pipeline, said, user="kate")
    extracting.sweep()
    tell(pipeline, later, session="hers", user="kate")
    tell(pipeline, later, session="of another", user="rui")
    extracting.sweep()
    assert [one.owner_user_id for one in extracting.memories() if one.content.startswith(memory)] == ["kate"]


@pytest.mark.parametrize("answer", ["No, it's fine.", "sorry, I have to go", "Actually, I like oak as well."])
def test_any_other_message_takes_nothing_back(pipeline: Pipeline, answer: str) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, "My favourite wood is walnut.", answer)
    extracting.sweep()
    assert "User's favourite wood is walnut." in extracting.contents()


@pytest.mark.parametrize(
    "taken_back",
    [
        "Never mind what I said about emojis, they are fine.",
        "i dont need emojis anymore, be brief",
        "forget about the emojis rule, they help",
    ],
)
def test_an_instruction_ends_although_more_is_said(pipeline: Pipeline, taken_back: str) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, "Always use emojis.")
    extracting.sweep()
    assert extracting.contents() == ["Always use emojis."]
    tell(pipeline, taken_back)
    extracting.sweep()
    assert "Always use emojis." not in extracting.contents()


# --- what becomes of it ---


def test_a_memory_says_where_it_came_from(pipeline: Pipeline) -> None:
    """Given a finding, then its memory has session, message, owner, subject, time, fact and tags."""
    extracting = Extracting(pipeline)
    (message_id,) = tell(pipeline, LIVES, user="u-1")
    extracting.sweep()
    (found,) = extracting.memories()
    assert (found.session, found.source_message, found.owner_user_id) == ("s", message_id, "u-1")
    assert (found.source, found.kind, found.tier, found.lifetime) == ("extraction", "fact", "workspace", "long_term")
    assert (found.category, found.key, found.value) == ("profile:u-1", "lives in", "Lisbon")
    assert "lisbon" in found.concept_tags
    (message,) = pipeline.messages()
    assert found.created_at == message.created_at
    assert found.accessed_at >= found.created_at


def test_run_twice_it_is_found_once(pipeline: Pipeline) -> None:
    """Given a run, when it runs again, even with its progress lost, then nothing changes."""
    extracting = Extracting(pipeline)
    tell(pipeline, NAME, LIVES)
    extracting.sweep()
    first = rows(pipeline, "memories", "curation_log", "curation_changes")
    assert not extracting.sweep()["added"]
    with pipeline.store.writing() as tx:
        tx.connection.execute(text("DELETE FROM job_progress"))
    assert extracting.sweep()["known"] == 2
    assert rows(pipeline, "memories", "curation_log", "curation_changes") == first


def test_a_newer_statement_takes_the_place_of_an_older_one(pipeline: Pipeline) -> None:
    """Given another home, in another session of the same user, then the first is kept as superseded."""
    extracting = Extracting(pipeline)
    tell(pipeline, "I live in Lisbon at the moment", user="u", session="a")
    tell(pipeline, "I live in Porto these days", user="u", session="b")
    assert extracting.sweep()["superseded"] == 1
    assert extracting.contents() == ["User lives in Porto."]
    (old,) = extracting.memories(active=False)
    (new,) = extracting.memories()
    assert old.superseded_by == new.id


@pytest.mark.parametrize(
    ("said", "ended", "left"),
    [
        ("I'm vegetarian, by the way.", "I'm not vegetarian any more.", "User is not vegetarian any more."),
        ("My dog's name is Rex.", "Rex died, so I have no dog any more.", "User has no dog any more."),
        ("I own a Vespa from 1965.", "I no longer own a Vespa in Faro.", "User no longer owns a Vespa in Faro."),
    ],
)
def test_what_is_said_to_have_ended_is_remembered_as_ended(
    pipeline: Pipeline, said: str, ended: str, left: str
) -> None:
    """Given something, and later that it is no more, then the later memory supersedes the earlier."""
    extracting = Extracting(pipeline)
    tell(pipeline, said, user="u", session="a")
    assert extracting.sweep()["added"] == 1
    tell(pipeline, ended, user="u", session="b")
    assert extracting.sweep()["superseded"] == 1
    assert extracting.contents() == [left]


def test_users_and_agents_keep_their_own(pipeline: Pipeline) -> None:
    """Given two users of one agent, and another agent, then nobody's home takes another's place."""
    extracting = Extracting(pipeline)
    tell(pipeline, "I live in Lisbon at the moment", user="u", session="a")
    tell(pipeline, "I live in Porto these days", user="v", session="b")
    tell(pipeline, "I live in Braga these days", user="u", session="c", agent="bo")
    assert extracting.sweep()["superseded"] == 0
    assert [(found.owner_user_id, found.value) for found in extracting.memories()] == [("u", "Lisbon"), ("v", "Porto")]
    assert [found.value for found in extracting.memories(agent="bo")] == ["Braga"]


def test_speakers_of_one_session_are_told_apart_by_name(pipeline: Pipeline) -> None:
    """Given two named speakers and no user, then each memory says whose it is."""
    extracting = Extracting(pipeline)
    tell(
        pipeline,
        {"content": "I live in Lisbon at the moment", "name": "Ana"},
        {"content": "And I live in Porto, you know", "name": "Rui"},
    )
    extracting.sweep()
    assert extracting.contents() == ["Ana lives in Lisbon.", "Rui lives in Porto."]


def test_a_memory_of_somebody_else_names_the_speaker_to_whom_it_relates(pipeline: Pipeline) -> None:
    extracting = Extracting(pipeline)
    tell(pipeline, {"content": "Marta owes me 50 euros.", "name": "Jon"})
    extracting.sweep()
    assert extracting.contents() == ["Marta owes Jon 50 euros."]


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("I'm vegetarian.", "is vegetarian."),
        ("I'm vegetarian but I eat fish.", "is vegetarian but they eat fish."),
        ("I'm allergic to peanuts.", "is allergic to peanuts."),
        ("I can't have dairy.", "can't have dairy."),
        ("I keep kosher.", "keeps kosher."),
        ("I'm coeliac.", "is coeliac."),
    ],
)
def test_what_a_user_does_not_eat_is_in_every_context_and_what_a_named_speaker_does_not_eat_is_found(
    pipeline: Pipeline, said: str, content: str
) -> None:
    """Given a diet, then it stands for the user who told it; of people talking to each other, it is only remembered."""
    extracting = Extracting(pipeline)
    tell(pipeline, said, user="kate", session="hers")
    tell(pipeline, {"content": said, "name": "Rui"}, session="talk")
    extracting.sweep()
    told = {one.content: is_standing(one.kind, one.importance) for one in extracting.memories()}
    assert told == {f"User {content}": True, f"Rui {content}": False}


def test_what_is_older_than_what_is_known_becomes_history(pipeline: Pipeline) -> None:
    """Given a memory that is newer than the message, then the message's statement is kept as what held before."""
    remember(pipeline, id="k", content="User lives in Faro.", subject="lives in", created_at=pipeline.now() + 10**9)
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES)
    assert extracting.sweep()["older_than_known"] == 1
    assert extracting.contents() == ["User lives in Faro."]
    [earlier] = extracting.memories(active=False)
    assert (earlier.content, earlier.superseded_by) == ("User lives in Lisbon.", "k")


@pytest.mark.parametrize("how", [{"source": "user"}, {"source": "dream", "pinned": True}])
def test_what_a_person_wrote_or_pinned_stays(pipeline: Pipeline, how: dict[str, Any]) -> None:
    """Given a person's own memory of the subject, then it stands, whatever was said since."""
    remember(pipeline, id="k", content="User lives in Faro.", subject="lives in", **how)
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES)
    extracting.sweep()
    assert extracting.contents() == ["User lives in Faro.", "User lives in Lisbon."]


def test_a_persons_fact_is_not_written_over(pipeline: Pipeline) -> None:
    """Given a person's fact of that category and key, then the other value is left out."""
    remember(
        pipeline, id="k", content="profile: lives in is Faro", source="user", kind="fact",
        category="profile", key="lives in", value="Faro",
    )  # fmt: skip
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES)
    assert extracting.sweep()["contradicts_user_written"] == 1
    assert len(extracting.memories()) == 1


def test_what_was_remembered_during_the_work_is_not_repeated(pipeline: Pipeline) -> None:
    """Given an observation that the agent stored, then extraction adds neither its text nor its fact again."""
    extracting = Extracting(pipeline)
    tell(pipeline, NAME, LIVES, silent_seconds=0)
    remember(pipeline, id="k", content="user's name is ana torres", session="s")
    remember(
        pipeline, id="f", content="lives in: lisbon", kind="fact", category="profile", key="lives in", value="lisbon"
    )
    assert extracting.close()["known"] == 2
    assert len(extracting.memories()) == 2


def test_undone_it_is_gone_for_good(pipeline: Pipeline) -> None:
    """Given a memory that took an older one's place, when a person undoes it, then all is as before, and stays so."""
    extracting = Extracting(pipeline)
    tell(pipeline, "I live in Lisbon at the moment", session="a", user="u")
    extracting.sweep()
    pipeline.settle()
    drain_memories(pipeline)
    tables = ("memories", "chunks", "chunks_vec", "chunk_tags", "forward_index")
    before = rows(pipeline, *tables)
    tell(pipeline, "I live in Porto these days", session="a", user="u")
    assert extracting.sweep()["superseded"] == 1
    after_chunks = [row for row in rows(pipeline, "chunks")[0] if "Lisbon." in str(row)]
    assert after_chunks == []
    with pipeline.store.reading() as tx:
        (entry, _) = tx.for_agent("ana").curation.page()
    undo_entry(pipeline.store, agent="ana", entry=entry.id, now=pipeline.now())
    assert rows(pipeline, *tables) == before
    with pipeline.store.writing() as tx:
        tx.connection.execute(text("DELETE FROM job_progress"))
    counts = extracting.sweep()
    assert (counts["undone_before"], counts["added"]) == (1, 0)
    assert rows(pipeline, *tables) == before


def drain_memories(pipeline: Pipeline) -> None:
    """Run the stages once more: memories were added since."""
    for stage in (pipeline.chunk, pipeline.embed, pipeline.index):
        pipeline.drain(lambda stage=stage: stage().more)


def test_what_is_to_hold_everywhere_goes_to_the_account(pipeline: Pipeline) -> None:
    """Given a wish for all projects, then it lies in the account's store, with where it came from, once."""
    extracting = Extracting(pipeline)
    tell(pipeline, "From now on answer me in Portuguese in all my projects", "From now on answer briefly, with care")
    assert extracting.sweep()["added"] == 2
    assert extracting.contents() == ["Answer briefly, with care."]
    (found,) = extracting.memories(account=True)
    assert (found.tier, found.kind, found.metadata["workspace"]) == ("account", "instruction", "ws")
    assert sorted(extracting.notified) == ["@account", "ws"]
    with pipeline.store.writing() as tx:
        tx.connection.execute(text("DELETE FROM job_progress"))
    assert not extracting.sweep()["added"]


def test_what_holds_everywhere_is_not_repeated_in_a_workspace(pipeline: Pipeline) -> None:
    """Given a preference in the account's memories, then saying it again adds nothing here, and a model is shown it."""
    with pipeline.stores.account_store().writing() as tx:
        known = NewMemory(id="k", content="User prefers tea over coffee.", tier="account", created_at=1)
        tx.for_agent("ana").memories.add(known, now=1)
    tell(pipeline, "I prefer tea over coffee", session="a")
    assert Extracting(pipeline).sweep()["added"] == 0
    model = ScriptedLanguageModel([answer()])
    tell(pipeline, "I prefer tea over coffee", session="b")
    Extracting(pipeline, model).sweep()
    assert "User prefers tea over coffee." in model.prompts[0][1]


def test_a_dry_run_counts_and_changes_nothing(pipeline: Pipeline) -> None:
    """Given a session that is due, then a dry run says what there is, and leaves every row."""
    extracting = Extracting(pipeline)
    tell(pipeline, NAME, LIVES)
    before = rows(pipeline, "memories", "job_progress", "curation_log")
    report = extracting.sweep_report(dry_run=True)
    assert report.counts["found"] == 2
    assert [(change["action"], change["about"]) for change in report.planned] == [("extract", "session s")] * 2
    assert rows(pipeline, "memories", "job_progress", "curation_log") == before


def test_forgetting_the_session_forgets_what_came_of_it_and_how_far_it_was_read(pipeline: Pipeline) -> None:
    """Given a session read and forgotten, when one of its id begins anew, then it is read from its first message."""
    extracting = Extracting(pipeline)
    tell(pipeline, NAME, LIVES)
    extracting.sweep()
    pipeline.forget()
    assert extracting.contents(active=None) == []
    assert rows(pipeline, "curation_log", "curation_changes") == [[], []]
    tell(pipeline, NAME)
    assert extracting.sweep()["added"] == 1


def test_what_a_forgotten_session_left_in_the_account_can_be_forgotten_too(pipeline: Pipeline) -> None:
    """Given wishes for all projects from two sessions, then those of one go, with their entries, and no others."""
    extracting = Extracting(pipeline)
    tell(pipeline, "From now on answer me in Portuguese in all my projects", session="a")
    tell(pipeline, "From now on answer with care in all my projects", session="b")
    extracting.sweep()
    account = pipeline.stores.account_store()
    gone = [forget_in_account(account, agent="ana", workspace=name, session="a") for name in ("other", "ws", "ws")]
    assert gone == [0, 1, 0]
    assert extracting.contents(account=True) == ["Answer with care in all my projects."]
    with account.reading() as tx:
        assert len(tx.for_agent("ana").curation.page()) == 1


def test_a_session_forgotten_while_the_model_was_asked_leaves_nothing(pipeline: Pipeline) -> None:
    """Given a session that is forgotten during the question, then its answer is thrown away."""

    class Forgetful(ScriptedLanguageModel):
        def complete(self, *args: Any, **more: Any) -> Any:
            found = super().complete(*args, **more)
            pipeline.forget()
            tell(pipeline, "Something else altogether was said here")
            return found

    extracting = Extracting(pipeline, Forgetful([answer(memory("User's name is Ana Torres."))]))
    tell(pipeline, NAME)
    assert extracting.close()["read_elsewhere"] == 1
    assert extracting.contents() == []


def test_a_session_forgotten_just_before_the_account_is_written_leaves_nothing_there(pipeline: Pipeline) -> None:
    """Given a session that is forgotten while what holds everywhere is about to be kept, then it is not kept."""
    extracting = Extracting(pipeline)
    opened: list[str] = []

    def account() -> Store:
        opened.append("account")
        if len(opened) == 2:  # the first time it is read for what is known
            assert pipeline.forget("s")
        return pipeline.stores.account_store()

    extracting.extractor = replace(extracting.extractor, account=account)
    tell(pipeline, "From now on, always answer with care in all my projects.")
    assert extracting.sweep()["read_elsewhere"] == 1
    assert opened == ["account"] * 2
    assert extracting.contents(account=True) == []


def test_of_two_copies_one_commits(pipeline: Pipeline) -> None:
    """Given a second copy that reads the session while the first waits for its model, then its findings stand alone."""
    second = Extracting(pipeline, ScriptedLanguageModel([answer(memory("User's name is Ana Torres."))]))

    class Overtaken(ScriptedLanguageModel):
        def complete(self, *args: Any, **more: Any) -> Any:
            assert second.close()["added"] == 1
            return super().complete(*args, **more)

    first = Extracting(pipeline, Overtaken([answer(memory("User is called Ana Torres."))]))
    tell(pipeline, NAME)
    assert first.close()["read_elsewhere"] == 1
    assert second.contents() == ["User's name is Ana Torres."]


def test_two_processes_at_once_find_everything_once(pipeline: Pipeline, tmp_path: Path) -> None:
    """Given two processes that sweep and close the same sessions, then each statement is one memory."""
    for number in range(8):
        tell(pipeline, f"I prefer tea {number} over coffee", "I live in Lisbon at the moment", session=f"s{number}")
    other = Pipeline(tmp_path)
    other.skew_micros = pipeline.skew_micros
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(Extracting(one).sweep) for one in (pipeline, other)]
        runs += [pool.submit(Extracting(one).close, f"s{n}") for n in range(8) for one in (pipeline, other)]
        for run in runs:
            run.result()
    other.close()
    Extracting(pipeline).sweep()
    found = Extracting(pipeline).contents(active=None)
    teas = sorted(content for content in found if "tea" in content)
    assert teas == [f"User prefers tea {number} over coffee." for number in range(8)]
    assert found.count("User lives in Lisbon.") == 1


# --- killed between steps ---


class Killed(BaseException):
    """What a SIGKILL is to everything but the database."""


@pytest.mark.parametrize("step", range(1, 14))
def test_killed_between_any_two_steps_the_end_is_the_same(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Given a run that dies at its n-th transaction, before or after the commit, then the next ends as one alone."""
    messages = [NAME, "I live in Lisbon at the moment", "From now on answer me in Portuguese in all my projects"]
    tell(pipeline, *messages)
    tell(pipeline, "I live in Porto these days")
    extracting = Extracting(pipeline)
    dying = Extracting(pipeline)
    left = [step]
    real = type(pipeline.store).writing

    def writing(store: Any, **more: Any) -> Any:
        @contextlib.contextmanager
        def block() -> Iterator[Transaction]:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            with real(store, **more) as tx:
                yield tx
                left[0] -= 1
                if left[0] == 0:
                    raise Killed  # rolled back
            left[0] -= 1
            if left[0] == 0:
                raise Killed  # committed

        return block()

    with monkeypatch.context() as patched:
        patched.setattr(type(pipeline.store), "writing", writing)
        with contextlib.suppress(Killed):
            dying.sweep()
    with pipeline.store.writing() as tx:
        tx.connection.execute(text("DELETE FROM job_leases"))
    extracting.sweep()
    assert sorted(extracting.contents(active=None)) == [
        "User lives in Lisbon.",
        "User lives in Porto.",
        "User's name is Ana Torres.",
    ]
    assert extracting.contents() == ["User's name is Ana Torres.", "User lives in Porto."]
    assert len(extracting.contents(account=True)) == 1
    with pipeline.store.reading() as tx:
        assert tx.leases.progress(contract.EXTRACT_MEMORIES, "nobody") == 0
        assert len(tx.for_agent("ana").curation.page()) == 3


# --- a model that fails ---


@pytest.mark.parametrize("error", [LanguageModelUnavailable("gone"), LanguageModelRefused("no"), "not json {"])
def test_a_model_that_fails_changes_nothing_and_is_asked_again_later(
    pipeline: Pipeline, error: str | Exception
) -> None:
    """Given no stand-in, then no row changes but the pause, which doubles, and the next answer is taken."""
    model = ScriptedLanguageModel([error])
    extracting = Extracting(pipeline, model, fallback=False)
    tell(pipeline, NAME)
    before = rows(pipeline, "memories", "messages", "sessions", "curation_log")
    assert extracting.sweep()["postponed"] == 1
    assert rows(pipeline, "memories", "messages", "sessions", "curation_log") == before
    pipeline.advance(59)
    assert not extracting.sweep()
    pipeline.advance(2)
    assert extracting.sweep()["postponed"] == 1
    pipeline.advance(61)
    assert not extracting.sweep()
    pipeline.advance(60)
    well = Extracting(pipeline, ScriptedLanguageModel([answer(memory("User's name is Ana Torres."))]), fallback=False)
    assert well.sweep()["added"] == 1
    assert [item for item in rows(pipeline, "job_progress")[0] if "retry" in str(item)] == []


def test_patterns_stand_in_for_a_model_that_fails(pipeline: Pipeline) -> None:
    """Given a stand-in, then what is said plainly is found all the same."""
    extracting = Extracting(pipeline, ScriptedLanguageModel([LanguageModelUnavailable("gone")]))
    tell(pipeline, NAME)
    counts = extracting.sweep()
    assert (counts["model_unavailable"], counts["added"]) == (1, 1)


@pytest.mark.parametrize(
    ("beginning", "end"),
    [
        ("Let's roleplay: you are a barkeeper and I am a traveller.", "Let's stop the game here, please."),
        ("Let's play a game: I'm a traveller called Thorin.", "ok game over, it is late"),
        ("You are now a grumpy innkeeper. Stay in character.", "thanks, end of the game"),
    ],
)
def test_a_role_play_says_nothing_of_who_plays(pipeline: Pipeline, beginning: str, end: str) -> None:
    """Given a conversation that becomes a game, then nothing of it is kept until it ends, also in the next window."""
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES, beginning, "My name is Thorin the Brave.")
    extracting.sweep()
    tell(pipeline, "I am allergic to orcs, my friend.")
    extracting.sweep()
    tell(pipeline, end, "In my evenings I rest; I prefer chess.")
    extracting.sweep()
    assert extracting.contents() == ["User lives in Lisbon.", "User prefers chess."]


def test_what_the_message_gives_away_as_a_password_is_in_no_memory(pipeline: Pipeline) -> None:
    """Given a name that another clause says to be a password, then no memory holds it."""
    extracting = Extracting(pipeline)
    tell(pipeline, "My dog's name is Rex9911 which is my password too. I live in Faro.")
    extracting.sweep()
    assert extracting.contents() == ["User lives in Faro."]


def test_two_who_speak_in_a_session_of_one_user_do_not_take_each_others_place(pipeline: Pipeline) -> None:
    """Given two names in the session of a known user, then each has their own job."""
    extracting = Extracting(pipeline)
    tell(pipeline, {"content": "I work as a florist in town.", "name": "Ana"}, user="u-1")
    tell(pipeline, {"content": "And I work as a pilot, you know.", "name": "Rui"}, user="u-1")
    extracting.sweep()
    assert extracting.contents() == ["Ana works as a florist in town.", "Rui works as a pilot."]


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("The wedding is on May 3", "moved to June 7", 'Ben said: "The wedding was moved to June 7 (7 June 2026)."'),
        (
            "The wedding is on May 3",
            "the wedding moved to June 7",
            'Ben said: "the wedding moved to June 7 (7 June 2026)."',
        ),
        ("The standup is at 9.", "ok, it's now at 9:30", 'Ben said: "The standup was moved to 9:30."'),
    ],
)
def test_a_group_keeps_one_date_of_an_event(pipeline: Pipeline, first: str, second: str, left: str) -> None:
    """Given the time of an event by one person, when another says that it was moved, then only the new time holds."""
    extracting = Extracting(pipeline)
    said = [("Ana", first), ("Cy", "great, I'll tell the others"), ("Ben", second)]
    tell(pipeline, *({"content": content, "name": name} for name, content in said), user="u")
    extracting.sweep()
    assert [re.sub(r"20\d\d", "2026", one) for one in extracting.contents()] == [left]


@pytest.mark.parametrize("said", ["moved to 12 Elm Street", "it's now at 30 degrees", "moved to Friday Harbor"])
def test_what_moved_to_no_time_is_no_event(pipeline: Pipeline, said: str) -> None:
    """Given an event, when something else than a time follows "moved to", then nothing is said of the event."""
    extracting = Extracting(pipeline)
    tell(pipeline, "The wedding is on May 3", said)
    extracting.sweep()
    assert not any("moved" in one for one in extracting.contents() if "wedding" in one)


def test_moved_alone_says_nothing_if_it_may_mean_several(pipeline: Pipeline) -> None:
    """Given two events, when something was moved, then nothing is learned of which the words do not say what it is."""
    extracting = Extracting(pipeline)
    tell(pipeline, "The wedding is on May 3", "The concert is on June 1", "moved to June 7")
    extracting.sweep()
    assert len(extracting.contents()) == 2


def test_what_is_said_again_is_confirmed(pipeline: Pipeline) -> None:
    """Given a memory, when the same is said again, then its confirmation moves, no new one is made, and undo works."""
    extracting = Extracting(pipeline)
    tell(pipeline, LIVES)
    extracting.sweep()
    (first,) = extracting.memories()
    assert first.confirmed_at is None
    tell(pipeline, LIVES, session="later")
    again = pipeline.now()
    assert extracting.sweep()["known"] == 1
    (kept,) = extracting.memories()
    assert kept.confirmed_at is not None
    assert first.created_at < kept.confirmed_at <= again
    assert (kept.id, kept.updated_at) == (first.id, first.updated_at)
    undo_entry(pipeline.store, agent="ana", entry=1, now=pipeline.now())
    assert extracting.memories() == []
