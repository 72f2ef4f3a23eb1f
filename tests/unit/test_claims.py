"""What plain sentences claim, and which of two recalled ones replaces the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.recall.claims import claims_of, replaces
from support.pipeline import Pipeline


def is_replaced(older: str, newer: str) -> bool:
    """Whether something that one text claims is replaced by what another one does."""
    return any(replaces(after, before) for before in claims_of(older) for after in claims_of(newer))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Kate's boss is Ann.", "Kate's new boss is Tom."),
        ("I live in Lisbon.", "I moved to Porto last week."),
        ("We live in a flat in Graça.", "We've just moved to Faro."),
        ("My best friend lives in Toronto.", "My best friend moved back to Berlin."),
        ("I've lived in Rome since 2011.", "i moved to faro"),
        ("I live in a flat.", "I live in a house now."),
        ("My desk is on floor 3.", "My desk is on floor 4."),
        ("My sister's name is Ana.", "My sister's name is Rita."),
        ("My dentist is Dr. Kaur.", "User's dentist's name is Dr. Hollis."),
        ("I work as a nurse at St Anne's hospital.", "I work at the Harbour Clinic now."),
        ("I live on Elm St. My desk is on floor 3.", "My desk is on floor 4."),
        ("The capital of Ruritania is Strelsau.", "The capital of Ruritania is Zenda."),
        ("Kate is married to Tom.", "Kate is married to Ben."),
        ("The plant was founded by Olga Prins.", "The plant was founded by Jan Prins."),
        ("Kate works at Acme.", "Kate joined Globex."),
        ("The company that built the bridge is Acme.", "The company that built the bridge is Globex."),
        ("Kate is the captain of the Otters.", "Lif is the captain of the Otters."),
        ("3. The meeting starts at nine.", "7. The meeting starts at ten."),
        ("Rudi plays the position of goalkeeper.", "Rudi plays the position of striker."),
    ],
)
def test_a_value_replaces_an_earlier_one_of_the_same_attribute(older: str, newer: str) -> None:
    assert is_replaced(older, newer)
    assert is_replaced(newer, older)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I'm vegetarian.", "Turns out I'm not vegetarian any more, I eat fish again."),
        ("I have a dog called Rex.", "Rex died last month, so I have no dog any more."),
        ("I go to the gym every Tuesday.", "I don't go to the gym on Tuesdays any more, I go on Fridays."),
        ("I drink coffee every morning.", "I stopped drinking coffee."),
        ("I'm learning Spanish.", "I gave up learning Spanish, it's Italian now."),
        ("I have two kids.", "I have three kids now."),
        ("I use Vim.", "I switched from Vim to Helix."),
        ("I use Bitwarden for passwords.", "I use 1Password instead of Bitwarden now."),
        ("I work at Acme as a data engineer.", "I quit my job at Acme, I now work at Globex."),
        ("I drive a red Fiat.", "I sold the Fiat and drive a Tesla now."),
        ("My phone number is 555 1234.", "My new phone number is 555 9876."),
        ("My address is 5 Elm Street.", "We've moved, my new address is 12 Oak Road."),
        ("My boss is Karen.", "Tom is my boss since yesterday."),
        ("Our landlord is Mr Novak.", "We have a new landlord, Mrs Silva."),
        ("My daughter is 6.", "My daughter turned 7 today."),
        ("My rent is 800 euros.", "My rent was raised to 900 euros."),
        ("Our weekly meeting is on Monday at 10.", "The weekly meeting has moved to Wednesday at 3."),
        ("The deadline for the report is 5 May.", "The deadline for the report was moved to 12 May."),
        ("My flight leaves at 6 pm.", "My flight was delayed to 8 pm."),
        ("We use Python 3.9 in the project.", "We upgraded the project to Python 3.12."),
        ("I live alone.", "I moved in with Aisha last weekend."),
        ("User lives alone now.", "User moved in with Aisha last weekend (17 to 18 October 2026)."),
        ("I live with my parents.", "I live alone now."),
        ("The wifi password is hunter2.", "The wifi password is tulip9 now."),
        ("User's manager's name is Ann.", "My new manager is Tom."),
        ("My doctor is Dr Lee.", "my doctor is now Dr Lowe"),
        ("I play cricket on Sundays.", "i dont play cricket anymore"),
        ("I live in Lisbon.", 'User said: "we moved to a flat in Porto yesterday (3 May 2023)."'),
        ("Our service runs on Java 17.", "upgraded to Java 21 today"),
        ("Kate's original mailbox was red@x.test.", "Kate's current mailbox is blue@x.test."),
        ("Kate's desk in 2025 was B2.", "Kate's desk in 2026 is C9."),
        ("I prefer window seats.", "I prefer aisle seats now."),
        ("User prefers window seats.", "User now prefers aisle seats."),
        ("I start on 16 November.", "They've moved my start to the 23rd."),
        ("User starts on 16 November (16 November 2026).", "User's start date moved to the 23rd (23 November 2026)."),
        ("User starts their new job on 1 June (1 June 2026).", 'User said: "my first day was pushed back to 8 June."'),
        ("I have an interview on Thursday.", "My interview is now on Friday."),
        ("My surgery is scheduled for 6 March (6 March 2026).", "surgery moved to march 13, surgeon is ill"),
        ('User said: "the deadline is 31 March."', "deadline got pushed to april 15"),
        ("My interview is on 12 November.", "The agency moved my interview to the 14th."),
        ('Ana said: "The wedding is on May 3 (3 May 2026)."', 'Ben said: "the wedding moved to June 7 (7 June 2026)."'),
    ],
)
def test_what_is_said_to_have_changed_or_ended_is_replaced(older: str, newer: str) -> None:
    """Given a state of which there may be several, and a sentence that ends or changes it, then it is replaced."""
    assert is_replaced(older, newer)


def test_what_was_first_replaces_nothing() -> None:
    assert not is_replaced("Kate's mailbox is blue@x.test.", "Kate's original mailbox was red@x.test.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I like tea.", "I like coffee."),
        ("I went to Rome.", "I went to Paris."),
        ("My hobbies are chess and rowing.", "My hobbies are baking and rowing."),
        ("I live in Lisbon.", "If I lived in Porto I would row."),
        ("I live in Lisbon.", "Do I live in Porto?"),
        ("I live in Lisbon.", "I no longer live in Porto."),
        ("I live in Lisbon.", 'She said "I live in Porto".'),
        ("I live in Lisbon.", "I live in Lisbon, Portugal."),
        ("The author of Emma is Jane Austen.", "The author of Persuasion is Jane Austen."),
        ("Kate is married to Tom.", "Lif is married to Ben."),
        ("She lives in Rome.", "She lives in Paris."),
        ("I'm interested in tents.", "I'm interested in boats."),
        ("My head is spinning.", "My head is killing me."),
        ("Xbox Live was made by Microsoft.", "Hope Solo is a goalkeeper."),
        ("It's great to be back.", "It's great to be here."),
        ("", "..."),
        ("My car is red.", "My car is a Golf."),
        ("My sister is a nurse.", "My sister is pregnant."),
        ("I have a dog.", "I have no cat any more."),
        ("I drink tea.", "I stopped drinking coffee."),
        ("I go to the gym on Tuesdays.", "I go to the gym on Fridays."),
        ("I have two meetings today.", "I have three meetings today."),
        ("We use Python 3.9.", "We use Python 3.12."),
        ("I work at Acme.", "I joined a choir."),
        ("My day was good.", "My day was awful."),
        ("The train is at 5 pm.", "The train is at 7 pm."),
        ("I have a meeting at 5.", "I don't have time any more."),
        ("I use Vim.", "Would you have switched from Vim to Helix?"),
        ("Good work on the harness.", "Good work on the title."),
        ("Create files on drive C.", "Create files on drive D."),
        ("My guy, this plan is solid!", "My guy, this plan is proper!"),
        ("My network is strong.", "My network is my due diligence."),
        ("My work is slow on tools that are red.", "My work is slow on tools that are blue."),
        ("I moved to Leeds.", "Summarise this: I was born in Kenya in 1962 and I moved to London at nine."),
        ("I moved to Leeds.", "Shorten the text below.\n\nDear all:\nWe met. I moved to London. I work at Acme."),
        ("I moved to Leeds.", "Someone on a forum wrote: I quit my job and I moved to Faro."),
        ("I live alone.", "My sister moved in with Ben."),
        ("I live alone.", "I might have moved in with Ben."),
        ("I live in Leeds.", "```\n# I live in London\n```"),
        ("I live in Leeds.", "> I live in London.\nWho said that?"),
        ("My dog is called Rex.", "My dog is called Luna."),
        ("I prefer red wine.", "I prefer dry wine."),
        ("I prefer window seats.", "I prefer aisle tables now."),
        ("I prefer window seats.", "I prefer to walk now."),
        ("I work at Acme.", "I work at home on Fridays."),
        ("I work at Acme.", "I work at night."),
        ("I work at Acme.", "I work at a standing desk."),
        ("I work at Acme.", "I worked at Globex in my twenties."),
        ("I work at Acme.", "I worked at the weekend."),
        ("I live in Oslo.", "I live in a flat with two roommates."),
        ("I live in Oslo.", "I lived in Rome for a year as a student."),
        ("I live in Oslo.", "I live on the third floor."),
        ("I live in Oslo.", "I live in an old building."),
        ("I live in Oslo.", "We live in the city centre."),
        ("I live in Oslo.", "I moved to the window seat."),
        ("I study at Lund.", "I study at the library most evenings."),
        ("I study in Lund.", "I study in the mornings."),
        ("My sister lives in Porto.", "My sister lives in a big house."),
        ("Emma works at Bosch.", "Emma works at weekends."),
        ("I drive a Fiat.", "I drive my kids to school."),
        ("I live with Sam.", "I live with anxiety."),
        ("I live in Oslo.", "We moved to Postgres."),
        ("I live in Oslo.", "We moved to tabs."),
        ("I live in Oslo.", "I moved to decaf."),
        ("I live in Oslo.", "We moved to a 4-day week."),
        ("I live in Oslo.", "I moved to the new team."),
        ("I live in Oslo.", "We've moved to weekly releases in May."),
        ("I was born in Cork.", "I was born in May."),
        ("I'm married to Sam.", "I was married to Tim before."),
        ("I have an interview on Thursday.", "I have an interview on Friday."),
        ("I start on 16 November.", "I moved my desk to the attic."),
        ("I lost my car insurance card.", "I found my car."),
        ("I lost my phone number list.", "I found my phone under the sofa."),
        ('Ana said: "my interview is on May 3."', 'Ben said: "my interview was moved to June 7."'),
        ('Ana said: "we live in Lisbon."', 'Ben said: "we moved to Porto."'),
    ],
)
def test_what_may_hold_together_replaces_nothing(one: str, other: str) -> None:
    assert not is_replaced(one, other)
    assert not is_replaced(other, one)


def test_a_long_text_is_read_in_linear_time() -> None:
    """Given texts of words and marks without end, then reading them ends at once."""
    for text in ("is " * 50_000, "the city of " * 20_000, "a" * 100_000, "'" * 100_000, "I live in " * 20_000):
        assert claims_of(text) == ()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline in which the agent was told twice where the desk is."""
    pipe = Pipeline(tmp_path / "data")
    for floor in (3, 4):
        pipe.say(f"My desk is on floor {floor}.", session="s")
        pipe.advance(60)
    pipe.settle()
    yield pipe
    pipe.close()


def test_the_newest_value_comes_first_and_the_older_says_by_what_it_is_replaced(pipe: Pipeline) -> None:
    """Given two values of an attribute, when the older fits a query better, then the newer is still before it."""
    older, newer = pipe.messages("s")
    found = pipe.recall("desk on floor 3").results
    assert [result.id for result in found] == [newer.id, older.id]
    assert (found[1].replaced_by, found[1].replaced_at) == (newer.id, found[0].created_at)
    assert found[0].replaced_by is None


def test_a_newer_value_below_the_limit_takes_the_place_of_the_older(pipe: Pipeline) -> None:
    assert [result.text for result in pipe.recall("desk on floor 3", limit=1).results] == ["My desk is on floor 4."]


def test_what_another_speaker_says_of_their_own_replaces_nothing(pipe: Pipeline) -> None:
    """Given somebody else's desk, then both are told as they are."""
    pipe.say({"content": "My desk is on floor 9.", "name": "Ben"}, session="s")
    pipe.settle()
    found = pipe.recall("desk on floor", limit=10).results
    replaced = {result.text: result.replaced_by is not None for result in found}
    assert replaced == {
        "My desk is on floor 3.": True,
        "My desk is on floor 4.": False,
        "My desk is on floor 9.": False,
    }


@pytest.mark.parametrize(
    ("newer", "replaced"), [("The wedding moved to 7 June.", True), ("My exam moved to 7 June.", False)]
)
def test_an_event_that_people_share_has_one_date(pipe: Pipeline, newer: str, replaced: bool) -> None:
    """Given a date by one person and another by the next, then the first is replaced, unless each means their own."""
    older = newer.replace("moved to 7 June", "is on 3 May")
    pipe.say({"content": older, "name": "Ana"}, session="s")
    pipe.advance(60)
    pipe.say({"content": newer, "name": "Ben"}, session="s")
    pipe.settle()
    found = {result.text: result for result in pipe.recall(older, limit=10).results}
    assert (found[older].replaced_by is not None) is replaced


def test_what_ended_and_is_said_again_holds(pipe: Pipeline) -> None:
    """Given a habit, its end and the habit again, then only the end is older than what holds."""
    for minute, text in enumerate(
        ("I drink coffee at breakfast.", "I stopped drinking coffee.", "I drink coffee at breakfast.")
    ):
        pipe.say({"content": text, "created_at": f"2026-05-0{minute + 1}T10:00:00Z"}, session=f"s{minute}")
    pipe.settle()
    found = pipe.recall("coffee", limit=10).results
    assert not any(result.replaced_by for result in found if "breakfast" in result.text)
