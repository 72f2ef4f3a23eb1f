"""What users say plainly is found without a language model, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest

from memory.memories.patterns.matching import MAX_MESSAGE_CHARACTERS, Anchored, Statement
from memory.memories.patterns.statements import find_statements
from reverie.clock import from_micros, to_micros
from support.hostile_texts import SEARCHED_FOR_STATEMENTS
from support.work import count_calls

# A Wednesday.
AT = to_micros(datetime(2026, 5, 6, 15, 30, tzinfo=UTC))


def found(message: str) -> list[str]:
    return [statement.content for statement in find_statements(message, at=AT)]


def one(message: str) -> Statement:
    (statement,) = find_statements(message, at=AT)
    return statement


FACTS = [
    ("My name is Ana Torres.", "User's name is Ana Torres.", "name", "Ana Torres"),
    ("my name is ana", "User's name is ana.", "name", "ana"),
    ("Hi there! My nickname is Tuca, by the way.", "User's nickname is Tuca.", "nickname", "Tuca"),
    ("Please call me Bea.", "User wants to be called Bea.", "called", "Bea"),
    ("My email is ana.t+x@example.org, thanks", "User's email address is ana.t+x@example.org.", "email", None),
    ("My birthday is on 3 May.", "User's birthday is 3 May.", "birthday", "3 May"),
    ("My birthday is May 3rd, 1990", "User's birthday is May 3rd, 1990.", "birthday", "May 3rd, 1990"),
    ("My time zone is Europe/Lisbon.", "User's time zone is Europe/Lisbon.", "time zone", "Europe/Lisbon"),
    ("My pronouns are they/them", "User's pronouns are they/them.", "pronouns", "they/them"),
    ("My dog's name is Pipoca.", "User's dog's name is Pipoca.", "dog's name", "Pipoca"),
    ("My dog's name is now Max.", "User's dog's name is Max.", "dog's name", "Max"),
    ("my name is tuca btw", "User's name is tuca.", "name", "tuca"),
    ("From now on call me Chief Raven.", "User wants to be called Chief Raven.", "called", "Chief Raven"),
    ("My work email is a@example.org.", "User's work email address is a@example.org.", "work email", "a@example.org"),
    ("I live in Basel now, not in Bern.", "User lives in Basel.", "lives in", "Basel"),
    ("I no longer live in Oslo, I live in Bergen.", "User lives in Bergen.", "lives in", "Bergen"),
    ("I work at Casa Azul as a cook.", "User works at Casa Azul.", "works at", "Casa Azul"),
    ("I work as a cook at night and study by day.", "User works as a cook at night.", "job", "a cook at night"),
    ("My hobbies are chess, golf and go.", "User's hobbies are chess, golf and go.", "hobbies", "chess, golf and go"),
    ("My job is a bus driver.", "User is a bus driver.", "job", "a bus driver"),
    ("My car is a 2015 Volvo V60.", "User's car is a 2015 Volvo V60.", "car", "a 2015 Volvo V60"),
    ("My phone is an iPhone 12.", "User's phone is an iPhone 12.", "phone", "an iPhone 12"),
    ("My address is Rua Nova 12, Porto.", "User's address is Rua Nova 12, Porto.", "address", "Rua Nova 12, Porto"),
    ("My phone number is +351 912 000 111.", "User's phone number is +351 912 000 111.", "phone number", None),
    ("My hobby is bird watching.", "User's hobby is bird watching.", "hobby", "bird watching"),
    ("My company is called Casa Azul.", "User's company's name is Casa Azul.", "company's name", "Casa Azul"),
    ("Please remember that I live in Porto.", "User lives in Porto.", "lives in", "Porto"),
    ("My older sister is called Rita.", "User's older sister's name is Rita.", "older sister's name", "Rita"),
    ("My wife is a marine biologist.", "User's wife is a marine biologist.", "wife's job", "a marine biologist"),
    ("I live in Lisbon.", "User lives in Lisbon.", "lives in", "Lisbon"),
    ("Big news: I moved to Porto!", "User moved to Porto.", "lives in", "Porto"),
    ("Life update: I now work at Acme.", "User works at Acme.", "works at", "Acme"),
    ("Heads up: my phone is an iPhone 12.", "User's phone is an iPhone 12.", "phone", "an iPhone 12"),
    ("We live in Ghent with our two kids.", "User lives in Ghent.", "lives in", "Ghent"),
    ("We moved to Ghent last year.", "User moved to Ghent last year (2025).", "lives in", "Ghent"),
    ("I currently live in the Hague with my cats.", "User lives in the Hague.", "lives in", "the Hague"),
    ("I just moved to Porto for a new job.", "User moved to Porto for a new job.", "lives in", "Porto"),
    ("I'm originally from Évora.", "User is from Évora.", "from", "Évora"),
    ("I work as a night nurse.", "User works as a night nurse.", "job", "a night nurse"),
    ("I work at Casa Azul.", "User works at Casa Azul.", "works at", "Casa Azul"),
    ("I work for a small bakery.", "User works for a small bakery.", "works at", "a small bakery"),
    ("I am a structural engineer.", "User is a structural engineer.", "job", "a structural engineer"),
    ("I'm 41 years old.", "User is 41 years old.", "age", "41"),
    (
        "Our new address is Rua Nova 12, Porto.",
        "User's address is Rua Nova 12, Porto.",
        "address",
        "Rua Nova 12, Porto",
    ),
]


@pytest.mark.parametrize(("message", "content", "key", "value"), FACTS)
def test_facts_about_oneself_are_found(message: str, content: str, key: str, value: str | None) -> None:
    """Given a plain statement, then it is a fact with a key, a subject and the value as it was written."""
    statement = one(message)
    kind = "instruction" if key in ("called", "pronouns") else "fact"  # how to address somebody is told in each context
    assert (statement.content, statement.kind) == (content, kind)
    assert (statement.category, statement.key, statement.subject) == ("profile", key, key)
    assert value is None or statement.value == value
    assert statement.value is not None
    assert statement.value in message
    assert statement.quote in message


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("I prefer tea over coffee.", "User prefers tea over coffee."),
        ("I'd say this: I really love hiking in the mountains", "User loves hiking in the mountains."),
        ("I can't stand cilantro.", "User can't stand cilantro."),
        ("I don’t like horror movies.", "User doesn't like horror movies."),
        ("Honestly, I hate early meetings, but that's life.", "User hates early meetings."),
        ("I'm a big fan of slow television.", "User is a fan of slow television."),
        ("I'm not a fan of crowded beaches", "User is not a fan of crowded beaches."),
        ("I don't eat meat.", "User doesn't eat meat."),
        ("I never drink alcohol", "User doesn't drink alcohol."),
        ("My favourite colour is teal.", "User's favourite colour is teal."),
        ('My favorite book is "The Salt Road".', 'User\'s favorite book is "The Salt Road".'),
        ("My favorite pizza toppings are olives and capers.", "User's favorite pizza toppings are olives and capers."),
        ("I don't like jazz anymore.", "User doesn't like jazz."),
        ("My favourite colour is now teal.", "User's favourite colour is teal."),
        ("My favorite movie is Spirited Away.", "User's favorite movie is Spirited Away."),
        ("My favourite dish is my aunt's soup.", 'User said: "My favourite dish is my aunt\'s soup."'),
        ("My preferred airline is KLM.", "User's preferred airline is KLM."),
        ("I prefer to pay in cash.", "User prefers to pay in cash."),
        ("I prefer trains now.", "User now prefers trains."),
        ("I like my tea without sugar.", 'User said: "I like my tea without sugar."'),
    ],
)
def test_preferences_are_found(message: str, content: str) -> None:
    """Given what somebody likes or not, then it is a preference in their words."""
    statement = one(message)
    assert (statement.content, statement.kind, statement.category) == (content, "preference", None)
    assert statement.subject


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("I'm allergic to peanuts.", "User is allergic to peanuts."),
        ("I have a severe allergy to bee stings.", "User is allergic to bee stings."),
        ("I'm allergic to gluten, soy and nuts.", "User is allergic to gluten, soy and nuts."),
        ("I have a nut allergy.", "User is allergic to nuts."),
        ("I'm lactose intolerant, so no cheese.", "User is lactose intolerant."),
        ("I am vegan.", "User is vegan."),
        ("I have type 2 diabetes.", "User has type 2 diabetes."),
        ("I also have high blood pressure, so no salt.", "User has high blood pressure."),
        ("It turned out I'm allergic to latex.", "User is allergic to latex."),
        ("I've been a vegetarian for six years and I love it.", "User has been a vegetarian for six years."),
    ],
)
def test_what_matters_for_health_weighs_most(message: str, content: str) -> None:
    """Given an allergy or a diet, then it is kept for long, with weight."""
    statement = one(message)
    assert (statement.content, statement.lifetime, statement.tags) == (content, "long_term", ("health",))
    assert statement.importance >= 0.8


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("Remember that I park on level 4.", "User asked to remember: I park on level 4."),
        ("Please remember: my flight leaves on Friday.", "User asked to remember: my flight leaves on Friday."),
        ("Don't forget that we moved the review to noon", "User asked to remember: we moved the review to noon."),
        ("For the record, I was against the merger.", "User asked to remember: I was against the merger."),
        ("Remember that the office closes at six.", "User asked to remember: the office closes at six."),
        ("Remember: the key is under the pot.", "User asked to remember: the key is under the pot."),
        ("Can you remember that my sister is away?", "User asked to remember: my sister is away."),
        ("For future reference, the server is called Heron", "User asked to remember: the server is called Heron."),
        ("Note that our office closes at six.", "User asked to remember: our office closes at six."),
        ("Keep in mind that my knee is still weak.", "User asked to remember: my knee is still weak."),
    ],
)
def test_what_is_to_be_remembered_is(message: str, content: str) -> None:
    """Given the wish that something be remembered, then it is, word by word."""
    statement = one(message)
    assert (statement.content, statement.lifetime, statement.subject) == (content, "long_term", None)


@pytest.mark.parametrize(
    ("message", "content", "tier"),
    [
        ("From now on, answer in German.", "Answer in German.", "workspace"),
        ("Please always use metric units.", "Always use metric units.", "workspace"),
        ("Please never add emojis to my mails", "Never add emojis to my mails.", "workspace"),
        ("Keep it under 100 words from now on.", "Keep it under 100 words.", "workspace"),
        ("From now on I want you to cite sources", "I want you to cite sources.", "workspace"),
        ("Always answer in English.", "Always answer in English.", "workspace"),
        ("Never suggest recipes with pork.", "Never suggest recipes with pork.", "workspace"),
        ("Whenever I ask for code, add tests.", "Whenever I ask for code, add tests.", "workspace"),
        ("From now on write your code in Rust.", "Write your code in Rust.", "workspace"),
        ("Please always use tabs in all my projects.", "Always use tabs in all my projects.", "account"),
    ],
)
def test_how_things_are_to_be_done_is_an_instruction(message: str, content: str, tier: str) -> None:
    """Given an instruction for good, then it holds here, or everywhere where that is said."""
    statement = one(message)
    assert (statement.content, statement.kind, statement.tier) == (content, "instruction", tier)


@pytest.mark.parametrize(
    ("message", "ends"),
    [
        ("Remind me to call the dentist tomorrow.", "2026-05-08T12:00"),
        ("Please remind me to water the plants today", "2026-05-07T12:00"),
        ("Remind me to file the report by Friday", "2026-05-09T12:00"),
        ("Remind me to renew it on 2026-09-01", "2026-09-02T12:00"),
        ("Remind me to send the photos next week", "2026-05-18T12:00"),
        ("Remind me on Friday to file the report", "2026-05-09T12:00"),
        ("Can you remind me to pay the rent on June 1st?", "2026-06-02T12:00"),
        ("Remind me to send a card on 2 May", "2027-05-03T12:00"),
        ("Remind me to check the oven in 20 minutes", "2026-05-07T12:00"),
        ("Don't let me forget to file it tomorrow", "2026-05-08T12:00"),
        ("Remind me to buy snacks on the 23rd.", "2026-05-24T12:00"),
        ("Remind me to renew it by the end of the month", "2026-06-01T12:00"),
        ("Remind me to stretch every Friday", None),
        ("Remind me to buy stamps", None),
        ("Remind me to renew it on 2026-19-71", None),
    ],
)
def test_a_task_ends_with_its_day(message: str, ends: str | None) -> None:
    """Given something to be reminded of, then it is a task until that day is over everywhere, if there is one."""
    statement = one(message)
    assert statement.kind == "task"
    expires_at = from_micros(statement.expires_at).isoformat()[:16] if statement.expires_at is not None else None
    assert expires_at == ends


def test_what_begins_at_a_date_is_an_event() -> None:
    """Given a date from which on something holds, then it is an event in the user's words."""
    statement = one("Starting next month I work from home on Mondays.")
    assert (statement.kind, statement.content) == (
        "event",
        "User said: starting next month I work from home on Mondays.",
    )


@pytest.mark.parametrize(
    "message",
    [
        "Do I live in Lisbon?",
        "What is my name? My name is what?",
        "If my name is Ana, why does it say Anna?",
        "My name is not Ana.",
        "My name is important to me.",
        "My name is on the list.",
        "She said my name is Rosa.",
        "He told me: I live in Faro.",
        'The sign says "My name is Bob".',
        "My friend thinks I love jazz.",
        "I would love some coffee.",
        "I'd like a window seat.",
        "I like it.",
        "I love this idea!",
        "I love the colours in that picture.",
        "I like how you explained that.",
        "I love your dog.",
        "I like the second option better.",
        "That is the one I like best.",
        "I prefer it when it rains.",
        "I like tea if it is hot.",
        "I prefer trains unless they are late.",
        "I hate when that happens.",
        "I used to think Lisbon was in Spain.",
        "Great, another meeting, I love Mondays.",
        "I'm not allergic to work.",
        "I once lived in Lisbon.",
        "I wish I lived in Lisbon. I wish my name is Ana.",
        "I live in fear.",
        "I'm based in Porto, and you?",
        "You can call me Bea if you like.",
        "I moved to the next chapter.",
        "I work at night.",
        "I'm a bit tired.",
        "I'm from the future, haha.",
        "I love Mondays. Just kidding!",
        "I hate you lol",
        "I am vegan 😂",
        "Imagine this. My name is Rex.",
        "Pretend you are a pirate. I live in Tortuga.",
        "Translate this: I live in Lisbon",
        "Translate into French:\nMy name is Ana.",
        "Write a letter to my landlord.\nI live in Lisbon.",
        "Fix the grammar.\nI am from Lisbon.",
        "For example, my name is Ana.",
        "```\nMy name is Ana\n```",
        "> My name is Ana",
        "`my name is Ana`",
        "    my name is Ana",
        "Ana: I live in Lisbon\nRui: I live in Porto",
        "- I love jazz\n- I love tea",
        "Call me later.",
        "Call me crazy, but it works.",
        "Call me on Monday",
        "My favourite part is the ending.",
        "My favourite thing is how it ends.",
        "My favourite book is the one you gave me.",
        "My sister is great.",
        "My birthday is coming up.",
        "My job is killing me.",
        "Don't forget to drink water.",
        "Don't forget your keys!",
        "Remember that you are loved.",
        "Remember when we met?",
        "Remember, slow and steady wins.",
        "Note that the function must return a list.",
        "From now on I will go to bed early.",
        "I will always remember that day.",
        "Please remember that my password is hunter22.",
        "Remember that my PIN is 4711.",
        "My favourite colour is probably teal.",
        "I'm 100% sure.",
        "I'm 5 minutes away",
        "I don't eat that.",
        "I'm allergic to it.",
        "I'm allergic to nonsense 😉",
        "I am allergic to mondays.",
        "In this scenario I live in Berlin and I work as a spy.",
        "I am vegetarian in this story.",
        "I live in Leuven, said the bear.",
        "I am a teacher in a previous life.",
        "As the villain I say: I live in Faro and my name is Dread.",
        "Cover letter: I am a nurse. I live in Porto.",
        "Bio: I am a nurse.",
        "In English: my name is Ana.",
        "Label these sentences: 1. I hate rain. 2. I live in Oslo.",
        'Use "allergic" in a sentence, like: I am allergic to pollen.',
        "Call me Ishmael, says the book.",
        "Knock knock. Who's there? My name is Mike Snow.",
        "Yeah right, I love doing taxes.",
        "My car is a mess.",
        "I have a cold.",
        "I have migraine-inducing neighbours.",
        "We live in hope.",
        "We moved to Slack.",
        "My hometown is far away.",
        "My employer is bankrupt.",
        "My allergies are killing me.",
        "My car is a 3 minute walk away.",
        "My address is on the invoice.",
        "Remember that night in Faro, I lost my hat.",
        "Remember that the essay is due on Monday.",
        "Remind me about the plot of Hamlet.",
        "Always wash your hands before cooking.",
        "Always use fresh basil, my grandmother said.",
        "Never show your cards.",
        "",
        "   \n ",
    ],
)
def test_nothing_is_guessed(message: str) -> None:
    """Given a question, a condition, a quotation, a joke, a reaction or anything vague, then nothing is found."""
    assert found(message) == []


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("I can't eat gluten.", "User can't eat gluten."),
        ("I can't have dairy.", "User can't have dairy."),
        ("My son can't have nuts.", "User's son can't have nuts."),
        ("Gluten makes me sick.", 'User said: "Gluten makes me sick."'),
        ("The doctor says I'm prediabetic.", "User is prediabetic."),
        ("I just found out I have celiac disease.", "User has celiac disease."),
        ("I found my passport.", "User found their passport."),
        ("My team is based in Berlin.", "User's team is based in Berlin."),
        ("My kids are 4 and 7.", "User's kids are 4 and 7."),
        ("My kids are Max, Ella and Tom.", "User's kids are Max, Ella and Tom."),
        ("My girlfriend broke up with me.", 'User said: "My girlfriend broke up with me."'),
        ("We bought a house in Austin.", 'User said: "We bought a house in Austin."'),
        ("I didn't get the job.", 'User said: "I didn\'t get the job."'),
        ("I speak a bit of Portuguese.", "User speaks a bit of Portuguese."),
        ("I see my therapist on Tuesdays.", "User sees their therapist on Tuesdays."),
        ("Engineer at Siemens.", "User is an engineer."),
        ("Our stack is Django, Postgres and React.", 'User said: "Our stack is Django, Postgres and React."'),
        ("I'm the CTO of a small fintech.", "User is the CTO of a small fintech."),
        ("I'm 8 weeks pregnant.", "User is 8 weeks pregnant."),
        ("I run in the evenings now.", "User runs in the evenings."),
        ("Green is my favourite colour these days.", "User's favourite colour is Green."),
        ("My sister is my favourite human.", 'User said: "My sister is my favourite human."'),
        ("I graduated in 2012.", "User graduated in 2012."),
    ],
)
def test_what_concerns_health_family_and_work_is_found(message: str, content: str) -> None:
    assert found(message) == [content]


@pytest.mark.parametrize(
    "message",
    [
        "I can't have coffee right now.",
        "I can't have fish tonight.",
        "My son can't have screens.",
        "My doctor says I'm fine.",
        "I was told I'm funny.",
        "I finished my lunch.",
        "I didn't get the joke.",
        "We moved into the meeting room.",
        "My team is based on trust.",
        "I have three tabs open.",
        "Never cook on Sundays.",
    ],
)
def test_what_resembles_it_is_not(message: str) -> None:
    assert found(message) == []


def test_several_statements_of_a_message_are_found_in_order() -> None:
    """Given a message of several sentences and clauses, then each statement is found once."""
    message = "Hi! I'm Ana, thanks. My name is Ana Torres, I live in Porto and I love fado. I love fado. What else?"
    assert found(message) == ["User's name is Ana Torres.", "User lives in Porto.", "User loves fado."]


def test_opposite_preferences_are_of_one_subject() -> None:
    """Given a change of mind, then both statements are about the same."""
    subjects = {one(f"I {verb} jazz music.").subject for verb in ("love", "hate", "don't like", "can't stand", "enjoy")}
    assert subjects == {"likes jazz music"}


def test_homes_and_jobs_take_one_anothers_place() -> None:
    """Given two homes or two jobs, then both statements are about the same."""
    messages = ["I live in Porto.", "I just moved to Faro.", "I work as a chef.", "I'm a bus driver."]
    subjects = [one(message).subject for message in messages]
    assert subjects == ["lives in", "lives in", "job", "job"]


def test_two_names_of_one_thing_are_one_subject() -> None:
    """Given what one thing is called by two words, or a choice told from either side, then both are about the same."""
    pairs = [
        ("My timezone is CET.", "My time zone is Europe/Lisbon."),
        ("My mom's name is Clara.", "My mother's name is Clara Torres."),
        ("My favorite color is red.", "My favourite colour is teal."),
        ("I prefer tea over coffee.", "I prefer coffee over tea."),
        ("Always answer in English.", "From now on, reply in German."),
    ]
    assert [one(first).subject == one(second).subject for first, second in pairs] == [True] * len(pairs)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("My son's name is Leo.", "My son's name is Max."),
        ("My friend is called Rui.", "My friend is called Ana."),
        ("I have a cat named Nuvem.", "I have a cat named Onda."),
        ("My brother's birthday is July 9.", "My birthday is July 10."),
        ("My email is a@example.org.", "My work email is b@example.org."),
        ("I am allergic to nuts.", "I am allergic to cats."),
    ],
)
def test_what_one_may_have_several_of_takes_no_ones_place(first: str, second: str) -> None:
    """Given two sons or two addresses of two kinds, then the second statement is no newer form of the first."""
    assert one(first).subject != one(second).subject
    assert one(first).key is None or one(first).key != one(second).key


def test_a_long_message_or_a_pasted_form_is_left_alone() -> None:
    """Given what is pasted more often than said, then nothing is found."""
    assert found("My name is Ana. " + "And so on and on it went. " * 200) == []
    assert found("Name: Ana\nCity: Porto\nMy name is Ana.") == []


@pytest.mark.parametrize("piece", SEARCHED_FOR_STATEMENTS)
def test_a_repetitive_message_is_searched_in_proportion_to_its_length(piece: str) -> None:
    """Given the longest message of one repeated thing, then twice the length takes twice the calls, or no more."""
    half, whole = (
        count_calls(partial(find_statements, (piece * characters)[:characters], at=AT))
        for characters in (MAX_MESSAGE_CHARACTERS // 2, MAX_MESSAGE_CHARACTERS)
    )
    assert whole < 2.2 * half


@pytest.mark.parametrize(
    "lead_in",
    [
        "Tool output: ",
        "Log: ",
        "README.md: ",
        "Please proofread: ",
        "Translate: ",
        "My boss's email: ",
        "My boss's email below\n",
        "So this is what he sent me: ",
        "Context: ",
        "Output of the search tool (page 2 of 3): ",
        "[10:02] Ana: ",
        "For the poem:\n",
        "About the author\n",
        "Note from Ana: ",
        "I got this from Ana: ",
        "result\uff1a ",
        "Chapter one\r\n",
    ],
)
@pytest.mark.parametrize(
    "said", ["I live in Lisbon.", "My name is Ana.", "I love jazz.", "Remember that my car is red."]
)
def test_what_is_pasted_behind_a_lead_in_is_no_statement_of_the_user(lead_in: str, said: str) -> None:
    """Given words behind a label or a line that leads to them, then they are nobody's statement; alone they are."""
    assert find_statements(said, at=AT)
    assert find_statements(lead_in + said, at=AT) == []


def test_a_pattern_is_compiled_when_it_is_first_used() -> None:
    """Given a pattern that was only made, as by a process that reads no messages, then it is compiled by a search."""
    pattern = Anchored("i (?:am|was)")
    assert "compiled" not in vars(pattern)
    assert pattern.match("I was here")
    assert pattern.match("So I was here") is None
    assert "compiled" in vars(pattern)
