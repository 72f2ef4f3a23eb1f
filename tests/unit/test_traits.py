"""What people say of themselves in a few words is found; what is of the moment, or not about them, is not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory.memories.patterns.instructions import find_instructions
from memory.memories.patterns.matching import Statement
from memory.memories.patterns.statements import find_statements
from reverie.clock import to_micros

# A Wednesday.
AT = to_micros(datetime(2026, 5, 6, 15, 30, tzinfo=UTC))


def found(message: str) -> list[Statement]:
    return find_statements(message, at=AT)


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("I'm retired.", "User is retired."),
        ("I'm self-employed, so no sick pay", "User is self-employed."),
        ("i'm a second-year student", "User is a second-year student."),
        ("I'm married to Tomas.", "User is married to Tomas."),
        ("I'm not religious.", "User is not religious."),
        ("I'm half Finnish", "User is half Finnish."),
        ("I'm the youngest of five.", "User is the youngest of five."),
        ("I'm hard of hearing in my left ear", "User is hard of hearing in their left ear."),
        ("I'm on statins.", "User is on statins."),
        ("I'm scared of heights.", "User is scared of heights."),
        ("I'm hopeless at cooking", "User is hopeless at cooking."),
        ("I'm also really into pottery", "User is into pottery."),
        ("I was diagnosed with ADHD.", "User was diagnosed with ADHD."),
        ("I get carsick easily.", "User gets carsick easily."),
        ("I've got a bad knee.", "User has a bad knee."),
        ("I speak Dutch and a little Turkish.", "User speaks Dutch and a little Turkish."),
        ("Greek is my first language", 'User said: "Greek is my first language."'),
        ("I can't swim.", "User can't swim."),
        ("I never learned to drive", "User never learned to drive."),
        ("I don't smoke.", "User doesn't smoke."),
        ("I don't have a car.", "User doesn't have a car."),
        ("We haven't got a dishwasher", "User hasn't got a dishwasher."),
        ("We have two cats.", "User has two cats."),
        ("We've got twin girls", "User has twin girls."),
        ("We're a family of five", 'User said: "We\'re a family of five."'),
        ("We live in a third-floor flat without a lift.", "User lives in a third-floor flat without a lift."),
        ("Our flat has no balcony.", "User's flat has no balcony."),
        ("My rent is 900 euros.", "User's rent is 900 euros."),
        ("our food budget is about 120 a week", "User's food budget is about 120 a week."),
        ("I earn 3,100 a month.", "User earns 3,100 a month."),
        ("I weigh 63 kg", "User weighs 63 kg."),
        ("I'm down to 82 kg now", "User is down to 82 kg."),
        ("im back up to 71.5kg", "User is back up to 71.5kg."),
        ("My weight is 82 kg", "User's weight is 82 kg."),
        ("I'm 1.78 m tall.", "User is 1.78 m tall."),
        ("My son is 112 cm tall", "User's son is 112 cm tall."),
        ("My 5k PB is now 25:58", "User's 5k PB is now 25:58."),
        ("My resting heart rate is 58.", "User's resting heart rate is 58."),
        ("My blood pressure is 120/80 now.", "User's blood pressure is 120/80."),
        ("I'm allergic to testing", "User is allergic to testing."),
        ("I have a coconut allergy", "User is allergic to coconuts."),
        ("The standup is at 9:30 now", 'User said: "The standup is at 9:30."'),
        ("our team meeting is at 10 on Mondays", 'User said: "our team meeting is at 10 on Mondays."'),
        ("I use a wheelchair.", "User uses a wheelchair."),
        ("My dad uses a walking frame at home", "User's dad uses a walking frame at home."),
        ("I avoid sugar.", "User avoids sugar."),
        ("I try to avoid dairy and eggs", "User tries to avoid dairy and eggs."),
        ("I'm veggie now so no ham", "User is veggie."),
        ('When I say "the lab", I mean my garage.', 'User means their garage by "the lab".'),
        ("when i say the office i mean my kitchen table", 'User means their kitchen table by "the office".'),
        ('"The cave" is what I call my office', 'User means their office by "The cave".'),
        ("Nora doesn't eat meat.", "Nora doesn't eat meat."),
        ("Rita has a nut allergy", "Rita has a nut allergy."),
        ("I'll be head nurse from December", "User will be head nurse from December (December 2026)."),
        ("I'll be living in Porto from 3 June", "User will be living in Porto from 3 June (3 June 2026)."),
        ("we're open tues-sat 10 to 5", 'User said: "we\'re open tues-sat 10 to 5."'),
        ("hours changed btw, we're shut mondays now", 'User said: "we\'re shut mondays."'),
        ("rent's 640 a month so I expect a dry roof!", "User's rent is 640 a month."),
        ("I've switched clay from Acme to Globex", 'User said: "I\'ve switched clay from Acme to Globex."'),
        ("I'm giving a talk on 3 June", "User is giving a talk on 3 June (3 June 2026)."),
        ("i dont drink btw", "User doesn't drink."),
        ("i play bass now tbh", "User plays bass."),
        ("some background: I run a small choir in Faro", "User runs a small choir in Faro."),
        ("heads up im allergic to cats so i'll sit outside haha", "User is allergic to cats."),
        ("My sister has diabetes.", "User's sister has diabetes."),
        ("My daughter Ida is seven.", "User's daughter Ida is seven."),
        ("My girlfriend is vegan.", "User's girlfriend is vegan."),
        ("Mum's birthday is 3 May.", "User's mum's birthday is 3 May."),
        ("My sister's got asthma.", "User's sister has asthma."),
        ("my dad's 70 and lives in Cork", "User's dad is 70."),
        ("My eldest, Tom, is 14.", "User's eldest Tom is 14."),
        ("My granddaughter Ida is allergic to nuts.", "User's granddaughter Ida is allergic to nuts."),
        ("my mother-in-law lives with us", "User's mother-in-law lives with them."),
        ("My cardiologist is Dr. Lee.", "User's cardiologist's name is Dr. Lee."),
        ("My lawyer is Ms. Lee", "User's lawyer's name is Ms. Lee."),
        ("we don't eat pork either", 'User said: "we don\'t eat pork."'),
        ("I start work at 3 am.", "User starts work at 3 am."),
        ("I get migraines when I skip sleep.", "User gets migraines."),
        ("I had a hip replacement in 2022.", "User had a hip replacement in 2022."),
        ("I'm from Porto originally", "User is from Porto."),
        ("I'm off on Mondays and Tuesdays", "User is off on Mondays and Tuesdays."),
        ("I'm usually asleep by 10.", "User is usually asleep by 10."),
        ("We're closed on Sundays", 'User said: "We\'re closed on Sundays."'),
        ("I can't do Thursdays.", "User can't do Thursdays."),
        ("we don't open on Mondays", 'User said: "we don\'t open on Mondays."'),
        ("I've never run more than 10 km.", "User has never run more than 10 km."),
        ("I don't have a laptop, only a phone", "User doesn't have a laptop."),
        ("my thesis is about glaciers", "User's thesis is about glaciers."),
        ("Our oven is a Neff B57.", "User's oven is a Neff B57."),
        ("I see my physio on 21 May.", "User sees their physio on 21 May (21 May 2026)."),
        ("My sister's getting married on 18 May.", "User's sister is getting married on 18 May (18 May 2026)."),
        ("My manager is Henrik.", "User's manager's name is Henrik."),
        ("Priya is allergic to nuts.", "Priya is allergic to nuts."),
        ("My goal is to run a half marathon by spring.", "User's goal is to run a half marathon by spring."),
        ("My dream is to open a bakery in my village", "User's dream is to open a bakery in their village."),
        ("I'd love to learn the piano.", "User would love to learn the piano."),
        ("I'm trying to cut down on sugar", "User is trying to cut down on sugar."),
        ("My passport expires in 2031.", "User's passport expires in 2031."),
        ("I take the train to work", "User takes the train to work."),
        ("I play the cello.", "User plays the cello."),
        ("I cycle to work", "User cycles to work."),
        ("I work nights.", "User works nights."),
        ("I run every morning.", "User runs every morning."),
        ("I go to church on Sundays.", "User goes to church on Sundays."),
        ("I get up at 5", "User gets up at 5."),
        ("I usually have lunch at noon.", "User usually has lunch at noon."),
        ("I swim on Friday mornings", "User swims on Friday mornings."),
        ("I grew up on a farm.", "User grew up on a farm."),
        ("I was raised by my grandparents.", "User was raised by their grandparents."),
        ("I got promoted to head of sales.", "User got promoted to head of sales."),
        ("I always struggle with names.", "User always struggles with names."),
        ("The wedding is on 14 June.", 'User said: "The wedding is on 14 June (14 June 2026)."'),
        ("I'm a radiographer", "User is a radiographer."),
        ("My wife is a solicitor.", "User's wife is a solicitor."),
        ("I'm a florist and baker", "User is a florist and baker."),
        ("We got married in Lagos in 2008.", 'User said: "We got married in Lagos in 2008."'),
        ("We usually shop at the market on Saturdays", 'User said: "We usually shop at the market on Saturdays."'),
        ("I don't use Facebook.", "User doesn't use Facebook."),
        ("I've never smoked", "User has never smoked."),
        ("Our fixed rate ends on 31 May.", "User's fixed rate ends on 31 May (31 May 2026)."),
        ("my council tax is 1,900 a year", "User's council tax is 1,900 a year."),
        ("The boys start nursery in September", "User's boys start nursery in September (September 2026)."),
    ],
)
def test_what_is_said_in_a_few_words_is_found(message: str, content: str) -> None:
    """Given a short plain sentence about somebody's life, then it is kept in the third person."""
    assert [one.content for one in found(message)] == [content]


@pytest.mark.parametrize(
    "message",
    [
        "I'm tired.",
        "I'm single-handedly rewriting this.",
        "I'm engaged in a long discussion.",
        "I'm married to the idea.",
        "I'm into it.",
        "I'm afraid of what he will say.",
        "I'm afraid I can't.",
        "If I were retired I'd travel.",
        "I wish I could swim.",
        "I used to have two cats.",
        "I almost got married.",
        "My character is a retired pirate.",
        "He is retired.",
        'My friend said "I\'m vegan".',
        "What if I'm pregnant?",
        "I might be pregnant.",
        "I don't have time.",
        "I don't have the file.",
        "I can't drive today.",
        "I can't cook tonight.",
        "I have two questions.",
        "I've got two minutes.",
        "My goal is to get this done.",
        "I want to learn more about you.",
        "I want to learn how this works.",
        "I'm trying to find the bug.",
        "My budget is fine.",
        "My house is a mess.",
        "My kitchen is on fire.",
        "I play the victim.",
        "I live in fear.",
        "We live in hope.",
        "I go there every day.",
        "I do this every time.",
        "My boss is 10 minutes late.",
        "My boss is Irish about it.",
        "Nothing is vegan here.",
        "Pizza is vegetarian.",
        "I'm Christian.",
        "I'm French kissing.",
        "My rent is due.",
        "I pay 20.",
        "I make 3 a day.",
        "I'm on it.",
        "Mum, can you pick me up?",
        'Mum said "I love cats".',
        "NaN is a float.",
        "My wife's wedding ring is gold.",
        "My letter is Mr. Bean.",
        "I was there in 2015.",
        "My friend, this is great.",
        "I wish my sister's got a job.",
        "I'm not there on Mondays.",
        "I'm only five cards short.",
        "I'm here every day.",
        "I've had more than 3 coffees.",
        "My talk is about it.",
        "My thesis is about done.",
        "My research is on fire.",
        "My brother's moving van is blue.",
        "I don't have a laptop with me.",
        "I'm 1.5 behind.",
        "I'm down to 3 options.",
        "I'm at 82.",
        "The standup is at 9 tomorrow.",
        "The meeting is at 3.",
        "I avoid my boss.",
        "When I say now, I mean now.",
        "When I say I love you, I mean it.",
        "When I say the boss, I mean the boss.",
        "Soup has a nut allergy warning.",
        "Tofu doesn't have eggs in mind.",
        "moved to June 7",
        "My pulse is 180 right now.",
        "My weight is 2.",
        "My movie rating is 8.",
        "The training is at 90.",
        "Bread doesn't have eggs.",
        "Dogs can't have chocolate.",
        "Nobody's allergic to peanuts.",
        "Bella has a slight allergy.",
        "When I say the truth, I mean the whole truth.",
        "When I say AI, I mean AI in general.",
        '"That" is what I call a party!',
        '"Serendipity" is my word for the year.',
        "I'm a doctor but not really lol",
        "I'm giving a talk on birds.",
        "I eat meat though",
        "I live on the moon so I float haha, no",
        "I'm a vampire lol",
    ],
)
def test_what_is_of_the_moment_is_not(message: str) -> None:
    """Given something of the moment, of nobody in particular, or not so, then nothing is kept."""
    assert found(message) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I'm single.", "I'm engaged."),
        ("I work as a nurse.", "I'm retired."),
        ("My rent is 900 euros.", "My rent is 950 euros."),
        ("I weigh 63 kg.", "I weigh 61 kg."),
        ("I weigh 63 kg.", "I'm down to 61 kg now."),
        ("My weight is 63 kg.", "I'm at 61 kg."),
        ("My son is 98 cm tall.", "My son is 1.12 m tall."),
        ("My 5k PB is 26:40.", "My new 5k PB is 25:58."),
        ("The standup is at 9.", "Our standup starts at 9:30 now."),
        ('When I say "the lab", I mean the garage.', 'By "the lab" I mean my attic.'),
    ],
)
def test_a_newer_state_takes_the_place_of_the_older(first: str, second: str) -> None:
    """Given two states of which one holds at a time, then they have one subject."""
    [before], [after] = found(first), found(second)
    assert before.subject == after.subject


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("Please keep walnuts out of every recipe.", "Keep walnuts out of every recipe."),
        ("Keep answers under 100 words.", "Keep answers under 100 words."),
        ("Whenever you plan a trip, avoid flying.", "Whenever you plan a trip, avoid flying."),
        ("No seafood in recipes, please.", "No seafood in recipes."),
        ("Don't recommend anything with nuts.", "Don't recommend anything with nuts."),
        ("please only suggest step-free places", "Only suggest step-free places."),
        ("Don't mention my weight.", "Don't mention my weight."),
        ("All recipes must be vegan.", "All recipes must be vegan."),
        ("In recipes use grams instead of cups.", "In recipes use grams instead of cups."),
        ("Give me temperatures in Celsius", "Give me temperatures in Celsius."),
        ("Address me formally.", "Address me formally."),
        ("Ask before you book anything.", "Ask before you book anything."),
        ("One suggestion at a time, please.", "One suggestion at a time."),
        ("keep lists short, I read them on my phone", "Keep lists short, I read them on my phone."),
        ("Answer in English even if I write Dutch.", "Answer in English even if I write Dutch."),
        ("don't write more than 20 lines at a time", "Don't write more than 20 lines at a time."),
        ("Please use short sentences.", "Use short sentences."),
        ("I don't want to talk about my divorce.", "I don't want to talk about my divorce."),
    ],
)
def test_ways_to_answer_are_instructions(message: str, content: str) -> None:
    """Given how to answer and nothing else, then it holds from now on."""
    assert [(one.content, one.unconfirmed) for one in find_instructions(message)] == [(content, False)]


@pytest.mark.parametrize(
    "message",
    [
        "Only suggest places in Rome.",
        "Don't suggest the red one.",
        "Don't suggest the red one, I hate it.",
        "Keep it short, I'm at work.",
        "Never forget me, I hate goodbyes.",
        "Use simple language for the essay.",
        "Keep Tom out of my room.",
        "Give me the prices in descending order.",
        "Recipes should be here somewhere.",
        "Answers should be on page 5.",
        "Answers must be in complete sentences.",
        "All recipes must be tested twice before they are printed.",
        "Examples should include the year.",
        "Whenever you need help, just let me know.",
        "Every time you leave, I cry.",
        "I don't want to talk about it.",
        "Don't mention it.",
    ],
)
def test_what_is_said_of_one_task_or_person_is_no_instruction(message: str) -> None:
    """Given words of one task, of other people or of a habit of speech, then nothing holds from now on."""
    assert find_instructions(message) == []


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("We decided to use Postgres instead of Mongo.", 'User said: "We decided to use Postgres instead of Mongo."'),
        ("let's go with ruff for linting", 'User said: "let\'s go with ruff for linting."'),
        ("We chose Celery over RQ because of the retries.", 'User said: "We chose Celery over RQ."'),
        ("We switched from Glovo to Bolt for delivery.", 'User said: "We switched from Glovo to Bolt for delivery."'),
        ("We stopped making cakes.", 'User said: "We stopped making cakes."'),
        ("We open at 7 and close at 3.", 'User said: "We open at 7 and close at 3."'),
        ("I never work on Sundays.", "User never works on Sundays."),
        ("The rent is 1,400 euros a month.", "User's rent is 1,400 euros a month."),
        ("My new accountant is Bruno Pires.", "User's accountant's name is Bruno Pires."),
        ("I found a replacement, Miguel starts on 1 May.", None),
        ("We renamed heron to stork", 'User said: "We renamed heron to stork."'),
        ("The package manager is uv, not poetry.", 'User said: "The package manager is uv."'),
        ("The API lives in services/api.", 'User said: "The API lives in services/api."'),
        ("We're on Python 3.12.", 'User said: "We\'re on Python 3.12."'),
        ("We decided against the second shop.", 'User said: "We decided against the second shop."'),
        ("I'm on the fraud team now", "User is on the fraud team."),
        ("I cannot take ibuprofen because of my stomach", "User cannot take ibuprofen."),
        ("I'm Priya, backend engineer on the payments team.", "User's name is Priya."),
        ("My GP is Dr Alvarez at the Northgate surgery.", "User's GP's name is Dr Alvarez."),
    ],
)
def test_decisions_and_short_facts_are_found(message: str, content: str | None) -> None:
    assert [one.content for one in find_statements(message, at=AT)] == ([content] if content is not None else [])


@pytest.mark.parametrize(
    "message",
    [
        "let's go with the first option",
        "Let's use this for now.",
        "let's go with pizza for dinner",
        "the server is down",
        "The API is slow today",
        "We use spoons",
        "we chose the blue one",
        "Maybe we should use Redis for the cache.",
        "What if we decided to use Kafka?",
        "I'm Dutch, and I'm a nurse at heart",
        "The team wants to use GraphQL",
    ],
)
def test_what_is_not_decided_is_not_found(message: str) -> None:
    said = [one.content for one in find_statements(message, at=AT)]
    assert not any("User said" in one or "name is" in one for one in said)


@pytest.mark.parametrize(
    ("message", "contents"),
    [
        ("I moved to Ghent and started at Imec", ["User moved to Ghent.", "User started at Imec."]),
        (
            "My sister Ana moved to Ghent and started at Imec",
            ["User's sister Ana moved to Ghent.", "User's sister Ana started at Imec."],
        ),
        ("I moved to Ghent and started looking at Bruges", ["User moved to Ghent."]),
        ("They moved to Ghent and started at Imec", []),
    ],
)
def test_a_second_verb_has_the_subject_of_the_first(message: str, contents: list[str]) -> None:
    assert [one.content for one in find_statements(message, at=AT)] == contents
