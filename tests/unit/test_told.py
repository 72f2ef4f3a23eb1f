"""What people tell of their lives is found by the form of the sentence, with the days that they mean."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory.memories.patterns.statements import find_statements
from reverie.clock import from_micros, to_micros
from storage.recall.days import days_in

# A Wednesday.
AT = to_micros(datetime(2026, 5, 6, 15, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    ("message", "content", "kind"),
    [
        ("I left Acme in May 2024.", "User left Acme in May 2024.", "event"),
        ("I have a dog.", "User has a dog.", "fact"),
        ("Dad had surgery on Monday.", "User's dad had surgery on Monday (4 May 2026).", "event"),
        ("The cleaner comes on Wednesdays.", "User's cleaner comes on Wednesdays.", "fact"),
        ("The kids are vegetarian.", "User's kids are vegetarian.", "fact"),
        ("My twins turn 5 in July.", "User's twins turn 5 in July (July 2026).", "event"),
        (
            "Every Sunday we have lunch with my parents.",
            'User said: "we have lunch with my parents every Sunday."',
            "fact",
        ),
        ("I've known Clara since primary school.", "User has known Clara since primary school.", "fact"),
        ("I'd rather take the train than fly.", "User would rather take the train than fly.", "preference"),
        ("I'm not really into sports.", "User is not into sports.", "preference"),
        ("I'd love to visit Faro someday.", "User would love to visit Faro someday.", "fact"),
        ("I finished reading Emma yesterday, loved it.", "User finished reading Emma yesterday (5 May 2026).", "event"),
        ("I booked the Otter for 8 on Saturday.", "User booked the Otter for 8 on Saturday (9 May 2026).", "event"),
        (
            "My brother and I don't talk anymore.",
            'User said: "My brother and I don\'t talk anymore."',
            "event",
        ),
        ("Just got promoted to senior engineer!", "User got promoted to senior engineer.", "event"),
        ("Finally finished my thesis on 3 May!", "User finished their thesis on 3 May (3 May 2026).", "event"),
        ("Grew up in a village near Evora.", "User grew up in a village near Evora.", "fact"),
        ("Allergic to shellfish btw.", "User is allergic to shellfish.", "preference"),
        ("Can't eat gluten, sadly.", "User can't eat gluten.", "preference"),
        ("Been playing the cello since 2011.", "User has been playing the cello since 2011.", "fact"),
        ("Work at a bakery on weekends.", "User works at a bakery on weekends.", "fact"),
        ("Huge fan of slow trains.", "User is a fan of slow trains.", "preference"),
        ("Prefer tea over coffee.", "User prefers tea over coffee.", "preference"),
        ("We use tabs, not spaces.", 'User said: "We use tabs, not spaces."', "fact"),
        ("Tests live in tests/unit.", 'User said: "Tests live in tests/unit."', "fact"),
        ("I signed up for a half marathon in May.", "User signed up for a half marathon in May.", "event"),
        ("Good news: I got a job at Acme!", "User got a job at Acme.", "event"),
        ("Hi all, it's been ages. Good news tho: I got promoted!", "User got promoted.", "event"),
        ("lol I finally quit smoking", "User quit smoking.", "event"),
        ("haha yes, I own a red Vespa.", "User owns a red Vespa.", "fact"),
        ("I sold my kayak.", "User sold their kayak.", "event"),
        ("I no longer drive; we sold it.", "User no longer drives.", "fact"),
        ("Ida and I broke up.", 'User said: "Ida and I broke up."', "event"),
        (
            "me and my bf split up last week",
            'User said: "me and my bf split up last week (27 April to 3 May 2026)."',
            "event",
        ),
        ("nurse at the Royal, nights mostly", "User is a nurse.", "fact"),
        ("my cast came off yesterday!", "User's cast came off yesterday (5 May 2026).", "event"),
        ("Someone stole my bike last week :(", "User's bike was stolen last week (27 April to 3 May 2026).", "event"),
        ("My sister's husband is a plumber from Faro.", "User's sister's husband is a plumber from Faro.", "fact"),
        ("My brother sold his house in May 2025.", "User's brother sold his house in May 2025.", "event"),
        (
            "Our youngest son, Ivo, got divorced in April.",
            "User's youngest son Ivo got divorced in April (April 2026).",
            "event",
        ),
        (
            "Correction: the choir meets on Mondays, not Tuesdays.",
            'User said: "the choir meets on Mondays, not Tuesdays."',
            "fact",
        ),
        (
            "About the flat I told you of: it is in Ghent, not Bruges.",
            'User said: "the flat is in Ghent, not Bruges."',
            "fact",
        ),
        ("I was born in May.", "User was born in May.", "fact"),
        ("I was born on 4 July 1980.", "User was born on 4 July 1980.", "fact"),
        ("I have two nieces.", "User has two nieces.", "fact"),
        ("I adopted a greyhound two weeks ago.", "User adopted a greyhound two weeks ago (22 April 2026).", "event"),
        ("Last Friday I rowed to Kings Island.", "User rowed to Kings Island last Friday (1 May 2026).", "event"),
        ("yesterday, I overslept by an hour", "User overslept by an hour yesterday (5 May 2026).", "event"),
        ("Last week, we sailed to Ven.", 'User said: "we sailed to Ven last week (27 April to 3 May 2026)."', "event"),
        ("I take insulin twice a day, asthma since 2019.", "User takes insulin twice a day.", "fact"),
        ("I'm in Denver now, moved in March", "User lives in Denver.", "fact"),
        ("im dead. but we live in oakland now", "User lives in oakland.", "fact"),
        ("ok so i lost my passport", "User lost their passport.", "event"),
        ("quit zalando today", "User quit zalando today (6 May 2026).", "event"),
        ("nope went vegan in april", "User went vegan in april (April 2026).", "event"),
        ("started at costco 2 weeks ago", "User started at costco 2 weeks ago (22 April 2026).", "event"),
        ("i got into nursing school", "User got into nursing school.", "event"),
        ("i have a truck now", "User has a truck.", "fact"),
        ("lena and i broke up", 'User said: "lena and i broke up."', "event"),
        ("me and lena are getting married!!", 'User said: "me and lena are getting married."', "fact"),
        ("btw my gf's birthday is the 12th", "User's gf's birthday is the 12th (12 May 2026).", "fact"),
        ("i learn best with examples, keep that in mind", "User learns best with examples.", "fact"),
        ("I'm doing keto since yesterday", "User is doing keto.", "preference"),
        ("We moved from Flask to FastAPI.", 'User said: "We moved from Flask to FastAPI."', "fact"),
        ("My doctor, Dr. Patel, said no to keto.", "User's doctor's name is Dr. Patel.", "fact"),
        ("We won! I also ran a relay last month.", "User ran a relay last month (April 2026).", "event"),
        ("I just sold the piano last Fri.", "User sold the piano last Fri (1 May 2026).", "event"),
        ("I've been waking up at 6:45 every morning.", "User has been waking up at 6:45 every morning.", "fact"),
        ("I built a model of a Tiger I tank.", "User built a model of a Tiger I tank.", "event"),
        (
            "Last week, my grandma moved to Faro.",
            "User's grandma moved to Faro last week (27 April to 3 May 2026).",
            "event",
        ),
        ("I moved to Linux last year.", "User moved to Linux last year (2025).", "event"),
        ("I've just bought a kayak with my brother.", "User has bought a kayak with their brother.", "fact"),
        ("I have two cats and a dog.", "User has two cats and a dog.", "fact"),
        ("I own a red Vespa.", "User owns a red Vespa.", "fact"),
        ("I play the cello in a small orchestra.", "User plays the cello in a small orchestra.", "fact"),
        ("I live in a small flat.", "User lives in a small flat.", "fact"),
        ("I always use tabs.", "User always uses tabs.", "fact"),
        ("My sister Ana lives in Porto.", "User's sister Ana lives in Porto.", "fact"),
        ("My sister teaches chemistry in Faro.", "User's sister teaches chemistry in Faro.", "fact"),
        ("My dog is named after my uncle.", "User's dog is named after their uncle.", "fact"),
        ("I'm building a boat in the old barn.", "User is building a boat in the old barn.", "fact"),
        ("I've been selling the eggs to my aunt.", "User has been selling the eggs to their aunt.", "fact"),
        ("I'm brushing the dog every morning.", "User is brushing the dog every morning.", "fact"),
        (
            "I have a strict diet and try to walk to work.",
            'User said: "I have a strict diet and try to walk to work."',
            "fact",
        ),
        ("I carve spoons and bowls at home.", 'User said: "I carve spoons and bowls at home."', "fact"),
        ("I booked a boat for 7 to 14 June.", "User booked a boat for 7 to 14 June (7 to 14 June 2026).", "event"),
        ("I bought two tickets for 3 June.", "User bought two tickets for 3 June (3 June 2026).", "event"),
        ("I broke my wrist in April.", "User broke their wrist in April (April 2026).", "event"),
        ("Last week we met Ana.", 'User said: "we met Ana last week (27 April to 3 May 2026)."', "event"),
        ("I was born in 1984 in Villach.", "User was born in 1984 in Villach.", "fact"),
        ("I grew up in Pune but left early.", "User grew up in Pune.", "fact"),
        ("I gave up Slovenian, it was hard.", "User gave up Slovenian.", "event"),
        ("We use Postgres 14 for the planner.", 'User said: "We use Postgres 14 for the planner."', "fact"),
        ("I used to be a barista, and it was fun.", "User used to be a barista.", "fact"),
        ("I used to live in Lisbon.", "User used to live in Lisbon.", "fact"),
        ("Before I forget, I'm not allergic to cashews", "User is not allergic to cashews.", "preference"),
        ("My colleague Rui wrote that code.", "User's colleague's name is Rui.", "fact"),
        ("I use oat milk, does that freeze?", "User uses oat milk.", "fact"),
        ("I've been vegan since 2011, happily.", "User has been vegan since 2011.", "preference"),
        (
            "I've been rowing at the club since 3 May 2024.",
            "User has been rowing at the club since 3 May 2024.",
            "fact",
        ),
    ],
)
def test_a_sentence_of_the_form_is_told_whole(message: str, content: str, kind: str) -> None:
    """Given what somebody did, has, is or does, then it is told in the third person, with the days that are meant."""
    (told,) = find_statements(message, at=AT)
    assert (told.content, told.kind) == (content, kind)
    assert all(part in message for part in told.quote.split())


@pytest.mark.parametrize(
    ("message", "content", "ends"),
    [
        (
            "I have an appointment with Dr. Lee on 11 May at 10.",
            "User has an appointment with Dr. Lee on 11 May (11 May 2026) at 10.",
            "2026-05-12T12:00",
        ),
        ("My exam is on 12 May.", "User's exam is on 12 May (12 May 2026).", "2026-05-13T12:00"),
        ("I'm flying to Oslo next Tuesday.", "User is flying to Oslo next Tuesday (12 May 2026).", "2026-05-13T12:00"),
        (
            "I'm going to paint the boat this weekend.",
            "User is going to paint the boat this weekend (9 to 10 May 2026).",
            "2026-05-11T12:00",
        ),
        ("I'll visit my aunt tomorrow.", "User will visit their aunt tomorrow (7 May 2026).", "2026-05-08T12:00"),
        ("I'm moving to Faro in February.", "User is moving to Faro in February (February 2027).", "2027-03-01T12:00"),
        ("physio on Friday at 3", "User has their physio on Friday (8 May 2026) at 3.", "2026-05-09T12:00"),
        ("dentist tomorrow 9.30", "User has their dentist tomorrow (7 May 2026) 9.30.", "2026-05-08T12:00"),
        (
            "I've decided to take off from 16 to 30 July.",
            "User has decided to take off from 16 to 30 July (16 to 30 July 2026).",
            "2026-07-31T12:00",
        ),
        ("last day is 8 July", "User's last day is 8 July (8 July 2026).", "2026-07-09T12:00"),
        ("I fly to Oslo on Friday.", "User flies to Oslo on Friday (8 May 2026).", "2026-05-09T12:00"),
        ("I start my new job on Monday!", "User starts their new job on Monday (11 May 2026).", "2026-05-12T12:00"),
        ("I'm on call next week.", "User is on call next week (11 to 17 May 2026).", "2026-05-18T12:00"),
        ("I've got an exam on the 9th.", "User has got an exam on the 9th (9 May 2026).", "2026-05-10T12:00"),
        (
            "My last day at Acme is Friday 3 July.",
            "User's last day at Acme is Friday 3 July (3 July 2026).",
            "2026-07-04T12:00",
        ),
        (
            "party is on the 8th",
            'User said: "the party is on the 8th (8 May 2026)."',
            "2026-05-09T12:00",
        ),
        ("moving june 1", "User is moving june 1 (1 June 2026).", "2026-06-02T12:00"),
        (
            "I go back to work on May 11, 60%, at the library",
            "User goes back to work on May 11 (11 May 2026), 60%, at the library.",
            "2026-05-12T12:00",
        ),
        (
            "My sister is visiting us at the end of the month.",
            "User's sister is visiting them at the end of the month (31 May 2026).",
            "2026-06-01T12:00",
        ),
        (
            "My grandma turns 90 on 2 December.",
            "User's grandma turns 90 on 2 December (2 December 2026).",
            "2026-12-03T12:00",
        ),
        (
            "We're going to Trieste from 24 to 27 October.",
            'User said: "We\'re going to Trieste from 24 to 27 October (24 to 27 October 2026)."',
            "2026-10-28T12:00",
        ),
        (
            "My mum is staying with us from May 8 to May 19.",
            "User's mum is staying with them from May 8 to May 19 (8 to 19 May 2026).",
            "2026-05-20T12:00",
        ),
        (
            "i moved my eye test from May 23 to May 28",
            "User's eye test was moved to May 28 (28 May 2026).",
            "2026-05-29T12:00",
        ),
        (
            "we gave notice on the flat, last day is July 31",
            "User's last day is July 31 (31 July 2026).",
            "2026-08-01T12:00",
        ),
        (
            "surgery moved to may 13, surgeon is ill",
            'User said: "the surgery moved to may 13 (13 May 2026)."',
            "2026-05-14T12:00",
        ),
        (
            "deadline got pushed to june 5",
            'User said: "the deadline got pushed to june 5 (5 June 2026)."',
            "2026-06-06T12:00",
        ),
        (
            "The movers come on May 28 at 8am, the company is called Verhagen",
            'User said: "The movers come on May 28 (28 May 2026) at 8am."',
            "2026-05-29T12:00",
        ),
        (
            "we're getting a kitten on Saturday, the kids want to call her Nougat",
            'User said: "we\'re getting a kitten on Saturday (9 May 2026)."',
            "2026-05-10T12:00",
        ),
        ("I'm on holiday from 9 May.", "User is on holiday from 9 May (9 May 2026).", "2026-06-09T12:00"),
        (
            "We moved the wedding to 5 June.",
            "User's wedding was moved to 5 June (5 June 2026).",
            "2026-06-06T12:00",
        ),
        (
            "so about my sister's wedding, they moved it to July",
            "User's sister's wedding was moved to July (July 2026).",
            "2026-08-01T12:00",
        ),
    ],
)
def test_a_plan_ends_with_its_days(message: str, content: str, ends: str) -> None:
    """Given what somebody is going to do on a day, then it is told until that day is over."""
    (told,) = find_statements(message, at=AT)
    assert (told.content, told.kind) == (content, "event")
    assert from_micros(told.expires_at or 0).isoformat()[:16] == ends


def test_the_first_of_two_days_is_the_one_that_is_dated() -> None:
    """Given a stay from one day of the month, and the day of the return, then the date stands at the first."""
    (told,) = find_statements("I'm going to Faro from the 22nd, back on the 4th.", at=AT)
    assert told.content == "User is going to Faro from the 22nd (22 May 2026), back on the 4th."


@pytest.mark.parametrize(
    "message", ["I bought a lamp from June.", "We got the couch from April", "My neighbour is from August."]
)
def test_what_came_from_a_person_is_of_no_month(message: str) -> None:
    """Given the name of a person, or of a place, that is also a month's, then it is no date of what came from there."""
    assert not any("(" in told.content for told in find_statements(message, at=AT))


@pytest.mark.parametrize(
    "message",
    ["I'll be head nurse from 1 December.", "I'll be head nurse from December", "I'm going to be team lead from June."],
)
def test_what_begins_on_a_day_does_not_end_with_it(message: str) -> None:
    """Given a state that begins later, then it is told as one to come, and kept when its first day has passed."""
    (told,) = find_statements(message, at=AT)
    assert (told.kind, told.expires_at, told.key) == ("event", None, None)


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (
            "I prefer simple, minimal tools, with few settings.",
            "User prefers simple, minimal tools, with few settings.",
        ),
        ("I prefer plain, short words, so can you help?", "User prefers plain, short words."),
        (
            "I prefer using maps, charts and tables when learning geography.",
            "User prefers using maps, charts and tables when learning geography.",
        ),
    ],
)
def test_a_preference_is_told_whole_and_in_every_context(message: str, content: str) -> None:
    """Given a preference told at length, then it is not cut at a comma, and weighs enough to be in force."""
    (told,) = find_statements(message, at=AT)
    assert (told.content, told.kind, told.importance) == (content, "preference", 0.8)


@pytest.mark.parametrize(
    "message",
    [
        "I almost quit my job.",
        "I nearly bought a house in Faro last year.",
        "I may move to Faro on Friday.",
        "I have a headache.",
        "I have a meeting at 3.",
        "I fly to Rome on 05/06.",
        "I have a call with Karl.",
        "If I lived in Faro I rowed every day.",
        "I bought it last week.",
        "I think that you are right.",
        "I had a great time last weekend.",
        "Did I play the cello in Faro last week?",
        'She said "I adopted a greyhound last week".',
        "He adopted a greyhound two weeks ago.",
        "I was so bored yesterday.",
        "I'm staying positive and looking ahead.",
        "I keep facing new challenges.",
        "I have a photo from a trip to Faro.",
        "My friends and I are all big football fans.",
        "I've been using an app lately.",
        "My sister is great.",
        "I've been doing great lately.",
        "I prefer simple, minimal tools unless they are slow.",
        "I'm pasting a long script right now.",
        "I'm taking out my pen and paper.",
        "I've settled on the cheaper boat for Faro.",
        "I finished sorting the receipts for Faro.",
        "I've been playing for about four months.",
        "I've been experimenting with making my own from scratch.",
        "I cannot afford a boat in Faro.",
        "i dont need lists of boats in Faro",
        "I reckon boats in Faro cost a fortune.",
        "I give Elara a shot of vodka.",
        "I live for our Thursdays.",
        "I volunteer at the art festival in Faro today.",
        "We should go to Faro on Friday.",
        "We love the boats in Faro.",
        "As a product manager for Globex, I want a filter.",
        "nurse at the Royal said it was fine",
        "haha I'm allergic to work",
        "im officially a dad",
        "i live in denial",
        "Harry raised his wand.",
        "Napoleon got married in 1796.",
        "Everyone hates Mondays.",
        "Google is moving to Texas.",
        "I live on Mars so bring oxygen haha",
        "I live under a rock.",
        "I live in the gym.",
        "I work in my sleep.",
        "I was born yesterday, sure.",
        "I'm 200 years old.",
        "we're closed friday",
        "Don't eat my lunch!",
        "Work at a slower pace.",
        "Born in the USA is my song.",
        "Turning 40 degrees left",
        "Turning 30 in a scene of the play",
        "Can't stand up today",
        "Can't eat right now",
        "Born in Paris, Sartre studied philosophy.",
        "Diagnosed with a fever, the hero quits his job.",
        "Been waiting for the bus since 8.",
        "Not a single person came.",
        "i moved to management last year",
        "i moved to kanban last year",
        "we live in crazy times",
        "im in love, moved here last year",
        "i'm in meetings now, moved this from monday",
        "I'm in Team B now, moved in March",
        "went well yesterday",
        "went offline today",
        "drove me crazy yesterday",
        "left me on read yesterday",
        "lost 3-0 yesterday",
        "starting on monday the prices go up",
        "starting in may, rates change",
        "moving on next week",
        "i got a hot dog",
        "i got a car wash",
        "i got the flat tire fixed",
        "i got into film school drama",
    ],
)
def test_what_cannot_be_understood_alone_or_says_nothing_is_left(message: str) -> None:
    """Given what refers to something said before, is not real, another's or empty, then nothing is found."""
    assert find_statements(message, at=AT) == []


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("yesterday", "5 May 2026"),
        ("last week", "27 April to 3 May 2026"),
        ("last Wednesday", "29 April 2026"),
        ("on Monday", "4 May 2026"),
        ("three years ago", "2023"),
        ("on 9 June", "9 June 2025"),
        ("in March 2019", "March 2019"),
        ("in December", "December 2025"),
        ("last May", "May 2025"),
        ("next May", "May 2027"),
        ("next January", "January 2027"),
        ("on Monday, 4 May", "4 May 2026"),
        ("on the 9th", "9 April 2026"),
        ("on the 3rd floor", "None"),
        ("this past weekend", "2 to 3 May 2026"),
        ("every last week", "None"),
        ("on 31 February", "None"),
    ],
)
def test_words_for_days_mean_days(text: str, days: str) -> None:
    """Given words for days in what is past, then they are counted from the day of the message."""
    assert str(days_in(text, AT, is_past=True)) == days
