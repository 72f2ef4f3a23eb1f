"""Finds whom a user means by a known name ("Duke" is the user's dog) or by a pronoun ("she" after "my sister").

A pronoun stands for the only relative or pet of its sex that was mentioned before. If it could mean anybody else, it
stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.matching import Sentence, covered_text
from storage.recall.days import IRREGULAR_PAST
from storage.recall.words import STOP_WORDS

NO_NAMES_TOLD: Final[Mapping[str, str]] = MappingProxyType({})
_NAME: Final = r"(?-i:(?!(?:Mrs?|Ms|Dr|Prof|Miss|Sir)\b)[A-Z\u00c0-\u00de][a-z\u00df-\u00ff]{1,20})"
_WHO: Final = rf"(?P<who>{words.RELATIONS}|{words.PETS}|(?P<child>eldest|oldest|youngest|boy|girl))"
_CALLED: Final = r"(?:'s name is|'s called|'s named| is called| is named|,? called|,? named)"
# "My colleague Tom wrote it", "our dog, Rex, is old".
APPOSITION: Final = re.compile(
    rf"\b(?:my|our) {_WHO},? (?P<names>(?:(?:Dr|Prof|Mrs?|Ms)\.? )?{_NAME})\b", re.IGNORECASE
)
_TOLD: Final = (
    re.compile(rf"\b(?:my|our|the(?: new)?) {_WHO}(?:{_CALLED}| is) (?P<names>{_NAME})\b", re.IGNORECASE),
    APPOSITION,
    re.compile(
        rf"\b(?:an?|one|two|three|four|five|six|my|our) (?:[a-z-]{{2,20}} ){{0,2}}{_WHO}(?:s|ren)?(?:{_CALLED}|,|:)"
        rf" (?P<names>{_NAME}(?:, {_NAME}){{0,5}}(?:,? and {_NAME})?)(?=\s{{0,3}}(?:[.,;!?)]|\Z))",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?P<names>{_NAME}) is (?:my|our) {_WHO}\b", re.IGNORECASE),
)
# A name in lower case: "a dog called biscuit", "my sister anna is getting married".
_IN_LOWER_CASE: Final = (
    re.compile(rf"\b(?:an?|my|our) {_WHO} (?:is )?(?:called|named) (?P<names>[a-z]{{2,15}})\b"),
    re.compile(
        rf"\b(?:my|our) {_WHO} (?P<names>[a-z]{{2,15}}) (?=(?:is (?:an?|getting|having|moving|going|turning|studying"
        r"|allergic|pregnant|married|\d)|has (?:an?|got|just|moved)|lives|works|studies|loves|hates|moved|got)\b)"
    ),
)
_BEGINS = re.compile(
    r"(?P<name>[a-z\u00c0-\u00ff]{2,21})"
    rf"(?='s\s|\s(?:is|doesn't|can't|never|only|[a-z]{{2,20}}(?:s|ed)|{'|'.join(IRREGULAR_PAST)})\b)",
    re.IGNORECASE,
)


def names_told(message: str) -> dict[str, str]:
    """Return the names of the speaker's people and pets in a message, each with the relation: `{"Duke": "dog"}`."""
    text = covered_text(message)
    found = {}
    for pattern in _TOLD:
        for match in pattern.finditer(text):
            if match["names"].startswith(("Dr", "Prof", "Mr", "Ms")) and " " in match["names"]:
                continue  # nobody calls her Patel who calls her Dr Patel
            for name in re.findall(_NAME.replace("(?-i:", "(?:"), match["names"]):
                if name not in words.NO_NAMES and name.lower() not in words.REFERRING_STARTS:
                    found[name] = "child" if match["child"] else match["who"].lower()
    for match in (one for pattern in _IN_LOWER_CASE for one in pattern.finditer(text)):
        if not (match["names"] in STOP_WORDS or match["names"].endswith(("ly", "ing", "er"))):
            found.setdefault(match["names"].capitalize(), "child" if match["child"] else match["who"])
    return found


# People of the user's life whose relation is not told: "Emil has a dentist appointment", "Ada is 8".
_OF_LIFE: Final = re.compile(
    rf"\b(?P<names>{_NAME})(?: is \d{{1,2}}(?=\s{{0,3}}(?:\Z|[,.;!]|(?:and|now|years?)\b))"
    r"|'s (?:(?:\d\dth|new|first) )?(?:birthday|teacher|school|homework|dentist|doctor|appointment|braces|boyfriend"
    r"|recital|concert|(?:football |soccer )?(?:match|practice|training)|exams?|wedding|surgery|operation|flight|shift"
    r"|girlfriend|wife|husband|mum|mom|dad|kids|kindergarten|daycare|graduation|nursery|therapist)\b"
    r"(?! (?:system|program(?:me)?|app|network|command|shortage|district|board)s?\b)"
    r"|(?: has| had) (?:an? (?:[a-z]{2,12} )?(?:dentist|doctor'?s?|physio|check-?up|appointment|fever|rash|cough"
    r"|cold(?! (?:start|cache|climate|winter|summer|spring|autumn|fall|front|war|snap|spell)\b))"
    r"|braces|chickenpox|the flu|(?:[a-z]{3,12} ){0,2}(?:practice|training|lessons?|recital|rehearsals?|therapy"
    r"|surgery)"
    r"|(?:a|the|her|his|their) (?:baby|surgery|operation|first child))\b"
    rf"| (?:hates|dislikes|can't stand) {words.FOODS}| owes me\b| works (?:at|for)(?= (?-i:[A-Z]))"
    r"| lives (?:in(?= (?-i:[A-Z]))"
    r"|near|with)\b|(?:'s| is) (?:also |now |finally )?(?:getting married|pregnant|expecting a baby|engaged|divorced"
    r"|retiring|vegan|vegetarian|diabetic|coming (?:over|to stay)|visiting(?: us| me)?|moving (?:in(?:to)?|out|back"
    rf"|to(?=.{{1,40}} (?:in {words.MONTHS}|next|on|at the end))))\b"
    # With a day, for novels and history tell such things, too.
    r"| (?:(?:just|finally|also|recently) ){0,2}(?:got (?:married|engaged|promoted|divorced|laid off"
    r"|(?:a|the) (?:new )?job)|broke up|turned \d\d|passed away|graduated|retired|[a-z]{3,12} (?:his|her) [a-z])"
    rf"(?=.{{0,60}}\b(?:yesterday|today|tonight|this (?:morning|week|month|year)|ago|last (?:night|week|weekend|month"
    rf"|year)|on {words.WEEKDAYS}|in {words.MONTHS})(?:\W|\Z))"
    r"| and (?:i|me) (?:are|have|went|moved|got|broke|split|just|met)\b)"
    rf"|\b(?:his|her) {words.RELATIONS}(?: is|,)? (?P<others>{_NAME})\b",
    re.IGNORECASE,
)


def note_names(known: dict[str, str], message: str) -> None:
    """Add the names of the speaker's people in a message to those that are known, by relation; "" if it is not told."""
    known.update(names_told(message))
    for found in _OF_LIFE.finditer(covered_text(message)):
        name = found["names"] or found["others"]
        if not (name in words.NO_NAMES or _NOBODY.fullmatch(name) or name.lower() in words.REFERRING_STARTS):
            known.setdefault(name, "")


_SHE: Final = (
    "wife girlfriend gf mother mom mum mam sister daughter grandmother grandma granny gran nan aunt niece landlady"
)
_HE: Final = (
    "husband hubby boyfriend bf father dad brother son grandfather grandpa grandad grandson uncle nephew landlord"
)
_SEX: Final = dict.fromkeys([*_SHE.split(), "girl", "woman"], "she") | dict.fromkeys([*_HE.split(), "boy", "man"], "he")
_DAY: Final = re.compile(rf"{words.MONTHS}|{words.WEEKDAYS}", re.IGNORECASE)
_NOBODY: Final = re.compile(
    rf"{words.RELATIONS}|{words.PETS}|{words.MONTHS}|{words.WEEKDAYS}|{words.NAMED_THINGS}|{words.TOOLS}|windows"
    r"|chapter|section|page|room|gate|version|level|siri|alexa|claude|work|baby|everybody|today"
    r"|tomorrow|yesterday|tonight|granny|the|and",
    re.IGNORECASE,
)
_PERSON: Final = re.compile(
    r"\b(?P<whose>my|our|his|her|their|your|the|an?|\w{1,20}'s)\s(?:[a-z-]{2,12}\s){0,2}?"
    rf"(?P<who>{words.RELATIONS}|{words.PETS}|girl|boy|woman|man|lady|guy|nurse|chef|[a-z]{{3,20}}(?:er|or|ist|ian|nt))\b"
    rf"(?:,? (?P<name>{_NAME}))?(?P<of>'s(?=\s(?!(?:name|got|birthday|an?|not|called)\b)))?|\b(?P<pronoun>s?he)\b"
    rf"|(?<=[a-z,] )(?<!\bin )(?<!\bto )(?<!\bat )(?<!\bfrom )(?<!\bis )(?<!\bcalled )(?P<stranger>{_NAME})",
    re.IGNORECASE,
)
_PRONOUN: Final = re.compile(r"s?he(?='s\s|\s)|(?P<possessive>her|his)(?= name\b| birthday\b)", re.IGNORECASE)


def with_relation(clause: Sentence, before: Callable[[], str], names: Mapping[str, str]) -> Sentence:
    """Return a clause with its first name or pronoun replaced by the relation: "my dog Duke is", "my sister is".

    `before` returns the text before the clause, which says whom a pronoun means.
    """
    by_name, pronoun = _BEGINS.match(clause.text), _PRONOUN.match(clause.text)
    start, end = None, 0
    if by_name is not None and (name := by_name["name"].capitalize()) in names:
        start, end = f"my {names[name] or 'friend'} {name}", by_name.end()
    elif pronoun is not None:
        start, end = _meant("he" if pronoun[0].lower() in ("he", "his") else "she", before(), names), pronoun.end()
        start = f"{start}'s" if start is not None and pronoun["possessive"] else start
    return clause if start is None else Sentence(start + clause.text[end:], start + clause.original[end:])


def by_name_alone(content: str, names: Mapping[str, str]) -> str:
    """Return a content without the relation `friend` of people of whom only the name is known."""
    alone = _FRIEND.sub(lambda found: found[0] if names.get(found["name"]) else found["name"], content)
    # "Ben is visiting them" would be about others than the user.
    begins = alone != content and alone.startswith(tuple(names))
    return _THEM.sub(lambda found: "User's" if found[0] == "their" else "User", alone) if begins else alone


_THEM: Final = re.compile(r"\b(?:them|their)\b")
_FRIEND: Final = re.compile(r"\b(?:User's|my|their) friend (?P<name>[A-Z][a-z]{1,20})\b")


def is_of_somebody(text: str) -> bool:
    """Return whether a text speaks of a person or a pet, other than by a pronoun."""
    return any(not one["pronoun"] for one in _PERSON.finditer(text))


_GOT: Final = re.compile(r"\b(?:i|we)(?: have|'ve)?(?: just| now)? (?:got|have|adopted|bought) \Z", re.IGNORECASE)


def _meant(pronoun: str, before: str, names: Mapping[str, str]) -> str | None:
    people, named = set[str](), set[str]()
    for one in _PERSON.finditer(before):
        if one["pronoun"]:
            if not people and one["pronoun"].lower() == pronoun:
                return None
            continue
        stranger = one["stranger"] or ""
        who = (one["who"] or names.get(stranger, "")).lower()
        is_nobody = not who and (stranger in words.NO_NAMES or _DAY.fullmatch(stranger))
        if is_nobody or _SEX.get(re.split("[ -]", who.removesuffix("-in-law"))[-1], pronoun) != pronoun:
            continue
        is_own = (
            _GOT.search(before[: one.start()])
            if one["whose"] in ("a", "an")
            else (one["whose"] or "").lower() in ("my", "our")
        )
        if not who or (one["who"] and (not is_own or one["of"])):
            return None
        people.add(who)
        named.update(filter(None, (one["name"], stranger)))
    who = people.pop() if len(people) == 1 and len(named) < 2 else None
    return who and " ".join(("my", who, *(named if who in words.NOT_UNIQUE else ())))
