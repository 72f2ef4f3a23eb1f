"""What is told with the mark of a later change: a landlord told before a move, a desk before a new job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memory.doubts import later_changes
from memory.lifecycle.curation import review
from memory.memories.memories import confirm_memory, forget
from memory.memories.patterns.statements import find_statements
from memory.upkeep.notebook import Notebooks, _render
from reverie.clock import DAY_MICROS, to_micros
from reverie.memories.types import changed_text
from storage.memories.records import NewMemory
from storage.recall.chunk_sources import Replacement
from storage.recall.dependence import changes_of, newest_change
from support.extracting import Extracting, tell
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import BagOfWords

MAY, JUNE, JULY = (to_micros(datetime.fromisoformat(f"2023-0{month}-03T09:30:00Z")) for month in (5, 6, 7))
YEAR = 366 * 86_400_000_000
MOVE = ("User lives in Lisbon.", "User moved to Porto.")
JOB = ("User works at Acme.", "User started a new job at Globex last week.")


def is_doubtful(text: str, older: str, newer: str) -> bool:
    """Whether a text depends on what changed when one statement replaced another."""
    return newest_change(text, MAY, changes_of([Replacement(older, "change", newer, JUNE)])) is not None


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("My landlord is Mr Silva.", MOVE),
        ("User's rent is 800 euros.", MOVE),
        ("My gym is in Lisbon.", MOVE),
        ("I go to the gym in Lisbon every day.", MOVE),
        ("I swim at a pool in Lisbon.", MOVE),
        ("I walk my dog behind my flat.", MOVE),
        ("My landlord is Mr Silva.", ("My address is 5 Elm Street.", "My new address is 12 Oak Road.")),
        ("My boss is Karen.", JOB),
        ("User's desk is on floor 4.", JOB),
        ("I take the bus to work.", JOB),
        ("I eat with my team on Fridays.", JOB),
        ("My manager's name is Anna.", ("User works at Acme.", "User no longer works at Acme.")),
        ("Kate's landlord is Mr Silva.", ("Kate lives in Lisbon.", "Kate moved to Faro.")),
        ("Kate Lee's landlord is Mr Silva.", ("Kate Lee lives in Lisbon.", "Kate Lee moved to Faro.")),
    ],
)
def test_what_depends_on_a_home_or_a_job_is_doubtful_once_that_has_changed(text: str, change: tuple[str, str]) -> None:
    assert is_doubtful(text, *change)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("My boss is Karen.", MOVE),
        ("My landlord is Mr Silva.", JOB),
        ("My landlord is Mr Silva.", ("User likes tea.", "User likes coffee.")),
        ("My landlord is Mr Silva.", ("My landlord is Mr Novak.", "My landlord is Mr Silva.")),
        ("My landlord is Mr Silva.", ("Kate lives in Lisbon.", "Kate moved to Faro.")),
        ("My landlord is Mr Silva.", ("My parents live in Lisbon.", "My parents live in Faro.")),
        ("My landlord is Mr Silva.", ("User lives in Lisbon.", "User lives in Lisbon, Portugal.")),
        ("My landlord is Mr Silva.", ("User lives in Lisbon.", "If I moved to Porto I would row.")),
        ("My landlord is Mr Silva.", ("User lives in Lisbon.", "Should I say I moved to Porto?")),
        ("My landlord is Mr Silva.", ("User lives in Lisbon.", 'She said "I moved to Porto".')),
        ("My sister's landlord is Mr Silva.", MOVE),
        ("Kate's landlord is Mr Silva.", MOVE),
        ("Who is my landlord?", MOVE),
        ('My landlord is called "Lisbon".', MOVE),
        ("I was born in Lisbon.", MOVE),
        ("My studio is in Lisbonville.", MOVE),
        ("I love Lisbon.", MOVE),
        ("I am from Lisbon.", MOVE),
        ("I have an aunt in Lisbon.", MOVE),
        ("My parents live in Lisbon.", MOVE),
        ("I visited a friend in Lisbon.", MOVE),
        ("I went to the gym in Lisbon.", MOVE),
        ("I'm going to ask my boss for a raise.", JOB),
        ("I'm planning a party with my team.", JOB),
        ("I worked at Acme for ten years.", JOB),
        ("", MOVE),
    ],
)
def test_nothing_else_is_doubtful(text: str, change: tuple[str, str]) -> None:
    """Given another change, person, time, taste, question or quotation, then nothing depends on it."""
    assert not is_doubtful(text, *change)


def is_touched(older: str, newer: str) -> bool:
    """Whether something said before a text is made doubtful by what that text says."""
    return newest_change(older, MAY, changes_of([Replacement("", "change", newer, JUNE)])) is not None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I've joined a choir, we rehearse on Thursdays.", "I gave up the choir."),
        ("I work part-time at a bakery.", "I quit my job at the bakery."),
        ("I'm ill, I have the flu.", "I recovered from the flu, I'm back at work."),
        ("My blood pressure is too high.", "My blood pressure is fine again, the doctor said."),
        ("My knee hurts since the match.", "My knee is much better."),
        ("User's grandmother Rosa is in hospital.", "My grandmother Rosa is out of hospital, she is at home again."),
        ("The deadline of the Northwind project is 2 October.", "The Northwind project is finished."),
        ("I own a 1962 Norton motorcycle.", "I sold the Norton to a fellow from Leeds."),
        ("I drive an old Octavia.", "got rid of the car today, finally"),
        ("I smoke a pack a day.", "I stopped smoking in May."),
        ("I got a part-time job at Globex.", "quit the job at globex, too much work"),
        ("We have a cat called Biscuit.", "Biscuit died this morning."),
        ("I'm taking the kids to Lanzarote in May.", "Lanzarote's cancelled, Finn broke his arm."),
        ("I'm taking the kids to Lanzarote in May.", "The trip to Lanzarote on 5 May is cancelled."),
        ("The Rotary asked me to give a talk on joints.", "The Rotary talk has been moved to the 26th."),
        ("I'm going on a cruise in June.", "the cruise was shortened, we're back sooner"),
        ("My rent is 900 euros.", "rent went up to 950"),
        ("I take sertraline, 50mg.", "my sertraline was increased to 100mg"),
        ("My daughter plays the oboe.", "My daughter gave up the oboe for the trumpet."),
        ("I'm the treasurer of our society.", "I've handed over the treasurer job to Moira."),
        ("My car insurance is with Aviva.", "switched the insurance from Aviva to Axa"),
        ("I'm doing an evening course in bookkeeping.", "I dropped the bookkeeping course."),
        ("We are expecting a baby.", "we lost the baby"),
        ("My flatmate Kari snores.", "Kari moved out, finally"),
        ("I take metformin 500 mg twice a day.", "Dr. Patel upped the metformin to 1000 mg"),
        ("I'm doing keto.", "so i stopped keto today"),
        ("My doctor's name is Dr. Patel.", "Patel retired"),
        ("I work nights at Globex.", "I'm leaving Globex in August"),
        ("My bf lives in Tromso.", "Jonas and I have split up"),
        ("I play in a folk band.", "I left the band"),
        ("I start at Globex on 11 January.", "my start date moved to the 18th"),
        ("I have exam on 2 November", "exam is on 9 november not 2 november"),
        ("I'm flying to Lisbon in May.", "sorry, not Lisbon, Porto"),
        ("I'm running the marathon in May.", "I'm not running the marathon after all."),
        ("i dont eat eggs", "i started eating eggs"),
        ("I drink oat milk.", "I stopped drinking oat milk."),
        ("I've been vegetarian since college.", "I'm no longer strictly vegetarian."),
        ("I do yoga instead.", "no more yoga though"),
        ("I prefer window seats when I fly.", "i prefer aisle seats now btw"),
        ("I'm vegetarian.", "I started eating meat again."),
        ("I don't drink alcohol.", "I drink again, just on weekends."),
        ("I'm single.", "I have a girlfriend now."),
        ("I'm pregnant.", "The baby was born on Tuesday."),
        ("I work at Globex.", "I got laid off yesterday."),
        ("I live with my parents.", "I moved out last month."),
        ("The cleaner comes on Wednesdays.", "User's cleaner comes on Fridays now."),
        ("We deploy on Thursdays.", "We deploy on Tuesdays now."),
        ("Standup is at 9:30.", "Standup is at 10 from now on."),
        ("I'm engaged to Sam.", "Sam and I got married!"),
        ("I'm married to Sam.", "Sam and I are getting divorced."),
        ("My flat is in Elm Street.", "I moved into a new flat on Oak Street."),
        ("I earn 3,000 a month.", "I got a raise, 3,400 a month now."),
        ("I work at Acme.", "I got a job at Globex!"),
        ("My car is a Golf.", "I traded the Golf for a Skoda."),
        ("The default branch is master.", "We renamed master to main."),
        ("I take sertraline.", "I came off sertraline."),
        ("I'm training for the Otter marathon.", "I had to drop out of the Otter marathon."),
        ("I take metformin twice a day.", "I take metformin once a day now."),
        ("I work from home on Fridays.", "I work from home on Mondays now, not Fridays."),
        ("My train leaves at 8:12 on Monday.", "My train leaves at 9:04 now."),
        ("I don't have a car.", "I bought a car."),
        ("I'm single.", "I'm seeing someone."),
        ("I'm single.", "I got married."),
        ("My wife is pregnant.", "Our daughter was born last night!"),
        ("I'm 34.", "I turned 35 yesterday."),
        ("User's girlfriend's name is Ana.", "Ana and I broke up."),
        ("I've got a girlfriend in Pune.", "We broke up."),
        ("Lif leads the Otter project.", "Leadership of the Otter project has been transferred to Omar."),
        ("Olga works on ticket queue Delta.", "Olga switched to ticket queue Omega."),
        ("User's laptop is a Thinkpad.", "I bought a new laptop, a Macbook."),
        ("User's landlord is Mr Silva.", "I moved to a studio in Porto last week."),
        ('User said: "I use a small keyboard and neovim."', "I switched from neovim to Zed."),
    ],
)
def test_what_is_said_to_have_ended_in_free_words_is_doubtful(older: str, newer: str) -> None:
    assert is_touched(older, newer)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I've joined a choir.", "Should I give up the choir?"),
        ("I've joined a choir.", "I might give up the choir."),
        ("I've joined a choir.", 'She said "I gave up the choir".'),
        ("I've joined a choir.", "If I gave up the choir I would miss it."),
        ("User's grandmother's name is Rosa.", "My grandmother Rosa is out of hospital."),
        ("My grandmother lives in Ghent.", "My grandmother is back from the hospital."),
        ("I work at a hospital.", "My knee is fine again."),
        ("Which choir did I join?", "I gave up the choir."),
        ("I met Lif in the choir.", "I gave up the choir."),
        ("I own a Norton.", "I sold my old books."),
        ("I cook with chickpeas.", "I stopped smoking."),
        ("I work on the roof.", "I left work at six."),
        ("I like the park near the school.", "I left the park at six."),
        ("My brother's wife is Ann.", "We broke up."),
        ("My sister is pregnant.", "The baby was born on Tuesday."),
        ("My brother is single.", "I have a girlfriend now."),
        ("I'm pregnant.", "My son is 4."),
        ("I work at Globex.", "My sister got laid off."),
        ("I take the bus every day.", "I take metformin once a day now."),
        ("The gardener comes on Fridays.", "The cleaner comes on Fridays now."),
        ("I have a car.", "I bought a car."),
        ("My bike is a Norton.", "I came off my bike."),
        ("I'm engaged to Sam.", "Tim got married."),
        ("I use Vim.", "I've used it for a month now."),
        ("I work at Globex.", "I got fired up about the game."),
        ("I live with my parents.", "I moved out of the way."),
        ("I don't drink coffee.", "I drink tea again."),
        ("I'm married to Ben.", "My parents are divorced."),
        ("I read a book a week.", "I bought a new book."),
        ("I eat eggs.", "I started eating eggs."),
        ("I use Postgres at home.", "Show me the Postgres schema right now."),
        ("I can't stand delays.", "No more delays, please."),
        ("My landlord is Mr Silva.", "I moved to the sofa."),
        ("I changed the oil.", "It changed my mind."),
        ("I work nights at the bakery.", "the bakery is closed on Sundays"),
        ("My car is a Golf.", "I bought a new car cover."),
        ("I have an expired passport.", "I got rid of some expired stuff."),
        ("I work on a novel.", "I replaced it and it's working now."),
        ("I recently wrote on the Otter project.", "The Otter project was cancelled."),
        ("I have tickets for the opera.", "I'm off to the opera."),
        ("I play in a football match on Friday.", "We lost the match."),
        ("I work nights at the bakery.", "I stopped at the bakery."),
        ("I write invoices.", "My name gets shortened on invoices sometimes."),
    ],
)
def test_what_did_not_end_is_not(older: str, newer: str) -> None:
    """Given a question, a doubt, a quotation, something else, or what was done once, then nothing is doubtful."""
    assert not is_touched(older, newer)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path / "data", embedder=BagOfWords())
    yield made
    made.close()


@pytest.fixture
def ana(pipe: Pipeline) -> Knowing:
    """What ana knows: a landlord told in May, a move in June."""
    ana = Knowing(pipe.stores, workspace=WORKSPACE)
    ana.remember("User lives in Lisbon.", id="lisbon", subject="home", at=MAY)
    ana.remember("User's landlord is Mr Silva.", id="landlord", at=MAY)
    ana.remember("User's sister is Rita.", id="sister", at=MAY)
    ana.remember("User moved to Porto.", id="porto", subject="home", at=JUNE)
    pipe.settle()
    return ana


def marks(pipe: Pipeline, **how: Any) -> dict[str, str]:
    """The marks of the results of a recall, by their ids."""
    found = pipe.recall("landlord sister", limit=10, **how).results
    return {one.id: changed_text(one.changed_since) for one in found if one.changed_since is not None}


def test_what_was_said_before_a_change_is_recalled_with_it(pipe: Pipeline, ana: Knowing) -> None:
    """Given a landlord told before a move that the query does not find, then the result names the move."""
    assert marks(pipe) == {"landlord": 'may have changed on 3 Jun 2023: "User moved to Porto"'}


def test_a_move_counts_where_the_home_before_it_was_never_told(pipe: Pipeline) -> None:
    """Given a landlord and then a move that the query does not find, then the result names the move."""
    ana = Knowing(pipe.stores, workspace=WORKSPACE)
    ana.remember("User's landlord is Mr Silva.", id="landlord", at=MAY)
    (moved,) = find_statements("I moved to Porto.", at=JUNE)
    ana.remember(moved.content, subject=moved.subject, at=JUNE)
    pipe.settle()
    (found,) = pipe.recall("landlord", limit=1).results
    assert found.changed_since is not None
    assert changed_text(found.changed_since) == 'may have changed on 3 Jun 2023: "User moved to Porto"'


def test_what_is_said_again_or_looked_back_to_has_no_mark(pipe: Pipeline, ana: Knowing) -> None:
    before = pipe.recall("landlord", as_of=datetime.fromisoformat("2023-05-20T00:00:00Z")).results
    assert [(one.id, one.changed_since) for one in before][:1] == [("landlord", None)]
    confirm_memory(ana.memories, "landlord", now=JULY)
    assert marks(pipe) == {}


def test_a_mark_goes_with_the_change(pipe: Pipeline, ana: Knowing) -> None:
    """Given that the memory of the move is forgotten, then nothing is left of it, in marks either."""
    forget(ana.memories, "porto")
    pipe.settle()
    assert marks(pipe) == {}


def test_messages_of_one_speaker_say_it_before_anything_is_extracted(pipe: Pipeline) -> None:
    """Given messages only, when the move is found too, then what the same speaker said before it has the mark."""
    for number, content in enumerate(("I live in Lisbon.", "My landlord is Mr Silva.", "I moved to Porto.")):
        for name in ("Ben", "Eva")[: 1 + (content != "I moved to Porto.")]:
            pipe.say({"content": content, "name": name, "created_at": f"2023-05-0{number + 1}T09:00:00Z"}, session="s")
    pipe.settle()
    found = pipe.recall("landlord, live, moved to Porto", limit=10).results
    assert [(one.name, one.text) for one in found if one.changed_since is not None] == [
        ("Ben", "My landlord is Mr Silva.")
    ]


def test_a_message_names_what_replaced_the_memory_made_of_it(pipe: Pipeline) -> None:
    """Given two weights in words that have nothing else in common, then the message with the older names the newer."""
    extracting = Extracting(pipe)
    for said in ("I'm down to 82 kg.", "I'm at 80 kg now."):
        tell(pipe, said, session=said)
        extracting.sweep()
    pipe.settle()
    found = {one.text: one.changed_since for one in pipe.recall("kg", limit=10).results}
    older, newer = found["I'm down to 82 kg."], found["I'm at 80 kg now."]
    assert older is not None
    assert (older.text, newer) == ("User is at 80 kg.", None)


def test_a_merge_of_memories_that_say_the_same_marks_no_message(pipe: Pipeline) -> None:
    extracting = Extracting(pipe)
    tell(pipe, "I'm down to 82 kg.")
    extracting.sweep()
    (weight,) = extracting.memories()
    Knowing(pipe.stores, workspace=WORKSPACE).remember("User weighs 82 kg.", id="merged")
    with pipe.store.writing() as tx:
        memories = tx.for_agent("ana").memories
        memories.supersede(weight.row_id, by=memories.get("merged").row_id, now=pipe.now() + DAY_MICROS)
    pipe.settle()
    assert [one.changed_since for one in pipe.recall("kg", limit=10).results if one.kind == "message"] == [None]


def test_one_users_change_makes_nothing_of_another_doubtful(pipe: Pipeline) -> None:
    ana = Knowing(pipe.stores, workspace=WORKSPACE)
    for user in ("kate", "luis"):
        ana.remember("User lives in Lisbon.", subject=f"home {user}", owner_user_id=user, at=MAY)
        ana.remember("User's landlord is Mr Silva.", id=f"landlord-{user}", owner_user_id=user, at=MAY)
    ana.remember("User moved to Porto.", subject="home kate", owner_user_id="kate", at=JUNE)
    pipe.settle()
    assert [*marks(pipe, user="kate")] == ["landlord-kate"]
    assert marks(pipe, user="luis") == {}


@pytest.mark.parametrize("name", ["Mara", None])
def test_what_a_member_says_in_a_group_marks_what_that_member_said_alone(pipe: Pipeline, name: str | None) -> None:
    """Given messages only, then a member's words in a group mark earlier ones of the same user, and of nobody else."""
    for user in ("mara", "luis"):
        for number, content in enumerate(("I live in Lisbon.", "My landlord is Mr Silva.", "I drive a Fiat.")):
            said = {"content": content, "created_at": f"2023-05-0{number + 1}T09:00:00Z"}
            pipe.say(said, session=user, user=user)
    pipe.say({"content": "Hi!", "created_at": "2023-06-01T09:00:00Z"}, session="group", user="luis")
    for content in ("I moved to Porto.", "I sold my Fiat."):
        said = {"content": content, "created_at": "2023-06-02T09:00:00Z", **({"name": name} if name else {})}
        pipe.say(said, session="group", user="mara")
    pipe.settle()
    query = "live in Lisbon, moved to Porto, landlord Silva, drive or sold Fiat"
    marked = {
        user: {
            one.text: one.replaced_by is not None
            for one in pipe.recall(query, limit=10, user=user).results
            if one.replaced_by is not None or one.changed_since is not None
        }
        for user in ("mara", "luis")
    }
    assert marked == {
        "mara": {"I live in Lisbon.": True, "My landlord is Mr Silva.": False, "I drive a Fiat.": False},
        "luis": {},
    }


def test_an_instruction_is_not_doubted_because_a_thing_in_it_ended(pipe: Pipeline) -> None:
    ana = Knowing(pipe.stores, workspace=WORKSPACE)
    ana.remember("Always answer in German when I ask about taxes.", kind="instruction", at=MAY)
    ana.remember('User said: "The tax appointment is cancelled."', subject="changed: tax", at=JUNE)
    pipe.settle()
    with pipe.store.reading() as tx:
        known = tx.for_agent("ana")
        assert later_changes(known, [*known.memories.iterate()]) == {}


def test_the_review_lists_what_depends_on_a_change_until_it_is_confirmed(pipe: Pipeline, ana: Knowing) -> None:
    """Given a landlord told before a move, then the review lists it before what is only old, with the move."""

    def due() -> list[tuple[str, str]]:
        found = review(ana.memories, now=JULY, limit=10).due
        return [(one.memory.id, one.why) for one in found]

    assert due() == [("landlord", 'may have changed on 3 Jun 2023: "User moved to Porto"')]
    old = review(ana.memories, now=JULY + 2 * YEAR, limit=10).due
    assert [one.memory.id for one in old] == ["landlord", "sister", "porto"]
    confirm_memory(ana.memories, "landlord", now=JULY)
    assert due() == []


def test_the_notebook_says_it_too(pipe: Pipeline, ana: Knowing) -> None:
    """Given facts and notes of before a move, or of long ago, then the files say so; what waits is in none of them."""
    ana.set_fact("home", "landlord", "Mr Silva", at=MAY)
    ana.note("My rent is 800 euros.", note_id="rent", at=MAY)
    with pipe.store.writing() as tx:
        waits = {"visibility": "requested", "source": "extraction", "kind": "fact"}
        fact = {"category": "c", "key": "k", "value": "v", "content": "Password is tulip"}
        tx.for_agent("ana").memories.add(NewMemory(id="w", created_at=MAY, **waits, **fact), now=MAY)
    files = _render(pipe.store, "ana", Notebooks(None), JULY).files
    assert 'may have changed on 3 Jun 2023: "User moved to Porto"' in files["notes/rent.md"]
    assert "may have" not in files["facts.md"]
    assert "tulip" not in files["facts.md"]
    assert (
        "not said again since May 2023"
        in _render(pipe.store, "ana", Notebooks(None), JULY + 2 * YEAR).files["facts.md"]
    )


def test_a_message_that_ends_something_marks_what_the_same_person_said_of_it(pipe: Pipeline) -> None:
    """Given two people in a choir, when one gives it up, then only what that one said before has the mark."""
    for number, (name, content) in enumerate(
        [("Ben", "I've joined a choir."), ("Eva", "I've joined a choir, too."), ("Ben", "I gave up the choir.")]
    ):
        pipe.say({"content": content, "name": name, "created_at": f"2023-05-0{number + 1}T09:00:00Z"}, session="s")
    pipe.settle()
    found = pipe.recall("choir", limit=10).results
    marked = {(one.name, one.text): changed_text(one.changed_since) for one in found if one.changed_since is not None}
    assert marked == {("Ben", "I've joined a choir."): 'may have changed on 3 May 2023: "I gave up the choir"'}
